"""How many threads one step should use: the physical cores this process may really use."""

from __future__ import annotations

import math
import os
from pathlib import Path

import psutil


def default_threads() -> int:
    """Physical cores within the CPU affinity, bounded by the cgroup's CPU quota; at least 1."""
    cores = _allowed_cores()
    quota = cpu_quota()
    return max(1, cores if quota is None else min(cores, math.floor(quota)))


def _allowed_cores() -> int:
    if not hasattr(os, "sched_getaffinity"):
        return psutil.cpu_count(logical=False) or os.cpu_count() or 1
    return count_cores(os.sched_getaffinity(0))


def count_cores(cpus: set[int], sysfs: Path = Path("/sys/devices/system/cpu")) -> int:
    """Physical cores among the logical `cpus`: hyper-threads of one core share a sibling list."""
    return len({_siblings(cpu, sysfs) for cpu in cpus})


def _siblings(cpu: int, sysfs: Path) -> str:
    try:
        return (sysfs / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def cpu_quota(cgroup: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> float | None:
    """CPUs this process's cgroups allow, or None without a limit. Parents' limits count, too."""
    found = []
    for root, read in ((cgroup, _quota_v2), (cgroup / "cpu", _quota_v1)):
        for folder in _folders(root, membership, is_v2=read is _quota_v2):
            quota = read(folder)
            if quota is not None:
                found.append(quota)
    return min(found, default=None)


def _folders(root: Path, membership: Path, is_v2: bool) -> list[Path]:
    """The process's own cgroup folder and all above it, up to `root`."""
    own = root / _own_path(membership, is_v2).lstrip("/")
    return [folder for folder in (own, *own.parents) if folder.is_relative_to(root)]


def _own_path(membership: Path, is_v2: bool) -> str:
    """The path in a line `0::/path` (version 2) or `4:cpu,cpuacct:/path` (version 1)."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if (not controllers) if is_v2 else ("cpu" in controllers.split(",")):
            return path
    return ""


def _quota_v2(folder: Path) -> float | None:
    words = _read_words(folder / "cpu.max")
    return None if len(words) != 2 or words[0] == "max" else int(words[0]) / int(words[1])


def _quota_v1(folder: Path) -> float | None:
    quota = _read_words(folder / "cpu.cfs_quota_us")
    period = _read_words(folder / "cpu.cfs_period_us")
    return None if not quota or not period or int(quota[0]) <= 0 else int(quota[0]) / int(period[0])


def _read_words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
