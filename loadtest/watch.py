"""Memory and CPU of the server process, sampled while a round runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from statistics import fmean
from time import perf_counter

import psutil

from loadtest.errors import ConfigError

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """What the server process and its children used."""

    rss_peak_mib: float | None
    rss_mean_mib: float | None
    cpu_peak_percent: float | None
    cpu_mean_percent: float | None


@dataclass(slots=True)
class Watch:
    """Samples taken so far; empty without a process to watch."""

    rss_mib: list[float] = field(default_factory=list)
    cpu_percent: list[float] = field(default_factory=list)

    def use(self) -> ProcessUse | None:
        """The samples in short, or None when there are none."""
        if not self.rss_mib:
            return None
        cpu = self.cpu_percent
        return ProcessUse(
            max(self.rss_mib), fmean(self.rss_mib), max(cpu, default=None), fmean(cpu) if cpu else None
        )


def check_pid(pid: int | None) -> None:
    """ConfigError when there is no such process: a wrong id must not look like a server without memory."""
    if pid is not None and not psutil.pid_exists(pid):
        raise ConfigError(f"no process {pid} to watch")


@dataclass(frozen=True, slots=True)
class Measure:
    """One look at a process and its children."""

    rss_mib: float
    cpu_s: float
    """Used since they started."""


class Tree:
    """A process with its children: servers may do their work in a child. It may be gone at any time."""

    def __init__(self, pid: int) -> None:
        self._root: psutil.Process | None = None
        with suppress(psutil.Error):
            self._root = psutil.Process(pid)

    def measure(self) -> Measure | None:
        """Memory and CPU time now; None when the process is gone."""
        if self._root is None:
            return None
        with suppress(psutil.Error):
            members = [self._root, *self._root.children(recursive=True)]
            rss = sum(process.memory_info().rss for process in members)
            times = [process.cpu_times() for process in members]
            return Measure(rss / _MIB, sum(t.user + t.system for t in times))
        return None


class _Sampler:
    """Takes samples of one process; CPU use is that since the sample before."""

    def __init__(self, pid: int, watch: Watch) -> None:
        self._tree = Tree(pid)
        self._watch = watch
        self._last_at = perf_counter()
        self._last = self._tree.measure()
        if self._last is not None:
            watch.rss_mib.append(self._last.rss_mib)

    def take(self) -> None:
        now, measure = perf_counter(), self._tree.measure()
        if measure is not None and self._last is not None:
            percent = 100 * (measure.cpu_s - self._last.cpu_s) / (now - self._last_at)
            self._watch.rss_mib.append(measure.rss_mib)
            self._watch.cpu_percent.append(max(0.0, percent))
        self._last_at, self._last = now, measure

    async def run(self, period_s: float) -> None:
        while True:
            await asyncio.sleep(period_s)
            self.take()

    def finish(self) -> None:
        """A round shorter than the period still gets its figures; a last fraction of one would be noise."""
        if not self._watch.cpu_percent:
            self.take()


@asynccontextmanager
async def watching(pid: int | None, period_s: float = 0.5) -> AsyncIterator[Watch]:
    """Sample process `pid` every `period_s` seconds until the block ends; nothing without a pid."""
    watch = Watch()
    if pid is None:
        yield watch
        return
    sampler = _Sampler(pid, watch)
    task = asyncio.create_task(sampler.run(period_s))
    try:
        yield watch
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        sampler.finish()
