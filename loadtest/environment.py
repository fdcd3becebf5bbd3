"""What a run ran on: enough to know whether two records may be compared."""

import hashlib
import os
import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from loadtest.errors import ConfigError

# Of the client and, where the server is installed beside it, of the server.
_PACKAGES = ("batchserve", "llama-cpp-python", "aiohttp", "uvloop", "msgspec", "psutil", "numpy")


@dataclass(frozen=True, slots=True)
class GitState:
    """The checkout the command was given in."""

    commit: str | None
    """None before the first commit."""
    branch: str
    dirty: bool


@dataclass(frozen=True, slots=True)
class Environment:
    """Host, software and model of a run."""

    host: str
    system: str
    cpu: str
    num_cpus: int
    """Logical CPUs this process may use."""
    memory_mib: int
    load_average: float
    """Of the last minute, when the run began."""
    python: str
    packages: dict[str, str]
    model_sha256: str | None
    git: GitState | None


def describe_environment(host: str | None = None, model_file: Path | None = None) -> Environment:
    """Look around; `host` overrides the machine's name. Reads the whole model file to hash it."""
    return Environment(
        host=host or platform.node(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        cpu=_cpu_name(),
        num_cpus=len(psutil.Process().cpu_affinity()) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_mib=psutil.virtual_memory().total // 2**20,
        load_average=round(psutil.getloadavg()[0], 2),
        python=platform.python_version(),
        packages=_package_versions(),
        model_sha256=file_sha256(model_file) if model_file else None,
        git=git_state(),
    )


def file_sha256(path: Path) -> str:
    """SHA-256 of a file in hex; ConfigError when it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(f"cannot read the model file: {error}") from error


def git_state() -> GitState | None:
    """The state of the checkout around the current folder; None outside one."""
    branch = _git("symbolic-ref", "--short", "HEAD") or _git("rev-parse", "--abbrev-ref", "HEAD")
    status = _git("status", "--porcelain")
    if branch is None or status is None:
        return None
    return GitState(_git("rev-parse", "--verify", "-q", "HEAD"), branch, bool(status))


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(("git", *arguments), capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _package_versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
