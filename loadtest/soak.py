"""Rounds for minutes or hours: does the server's memory grow, do its answers change?"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from statistics import median
from time import monotonic

from loadtest.client import Client
from loadtest.cohort import Round, run_round
from loadtest.figures import RoundFigures
from loadtest.parity import ParityReport, compare_all
from loadtest.requests import Request
from loadtest.watch import Tree

# Memory at one moment is noisy; each end of the comparison is a median of this many rounds.
_WINDOW = 3
_DEAD_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class SoakLimits:
    """When a soak ends, and when it fails."""

    duration_s: float
    tolerance_mib: float = 16.0
    """Growth allowed after the warm-up."""
    warm_up_rounds: int = 5


@dataclass(frozen=True, slots=True)
class SoakRound:
    """One round in short: raw samples of hours would fill memory themselves."""

    at_s: float
    """End of the round, from the start of the soak."""
    rss_mib: float | None
    figures: RoundFigures
    num_changed: int
    """Traces that differ from those of the first round."""


@dataclass(frozen=True, slots=True)
class SoakResult:
    """All rounds and what they came to."""

    rounds: tuple[SoakRound, ...]
    growth_mib: float | None
    """None when memory was not watched, or the soak ended before its warm-up."""
    failures: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.failures


@dataclass(frozen=True, slots=True)
class Soak:
    """A soak that ran: its result, and the raw samples of its first and last round."""

    result: SoakResult
    ends: tuple[Round, ...]
    parity: ParityReport


async def run_soak(
    client: Client, requests: tuple[Request, ...], limits: SoakLimits, server_pid: int | None = None
) -> Soak:
    """Repeat the cohort until the time is up, or the server has answered nothing for three rounds."""
    short: list[SoakRound] = []
    first = last = None
    async for at_s, last in _rounds(client, requests, limits.duration_s, server_pid):
        first = first or last
        num_changed = compare_all(last.outcomes, first.outcomes).num_different
        short.append(SoakRound(at_s, _rss_mib(server_pid), last.figures, num_changed))
        client.live.label = f"soak round {len(short) + 1}, {_memory(short[-1])}"
    assert first is not None
    assert last is not None
    result = judge_soak(short, limits)
    ends = (first,) if first is last else (first, last)
    return Soak(result, ends, compare_all(last.outcomes, first.outcomes))


async def _rounds(
    client: Client, requests: tuple[Request, ...], duration_s: float, server_pid: int | None
) -> AsyncIterator[tuple[float, Round]]:
    started_at = monotonic()
    dead = 0
    while dead < _DEAD_ROUNDS:
        done = await run_round(client, requests, server_pid)
        dead = 0 if done.figures.num_ok else dead + 1
        yield monotonic() - started_at, done
        if monotonic() - started_at >= duration_s:
            return


def judge_soak(rounds: Sequence[SoakRound], limits: SoakLimits) -> SoakResult:
    """Growth after the warm-up, and every reason to fail."""
    growth = memory_growth(rounds, limits.warm_up_rounds)
    failures = []
    if growth is not None and growth > limits.tolerance_mib:
        failures.append(f"memory grew by {growth:.1f} MiB, {limits.tolerance_mib:.1f} are allowed")
    if failed := sum(r.figures.num_failed for r in rounds):
        failures.append(f"{failed} requests failed")
    if changed := sum(r.num_changed for r in rounds):
        failures.append(f"{changed} answers differ from those of the first round")
    return SoakResult(tuple(rounds), growth, tuple(failures))


def memory_growth(rounds: Sequence[SoakRound], warm_up_rounds: int) -> float | None:
    """MiB between the rounds right after the warm-up and the last ones; None with too few rounds."""
    rss = [r.rss_mib for r in rounds[warm_up_rounds:] if r.rss_mib is not None]
    if len(rss) < 2:
        return None
    window = min(_WINDOW, len(rss) // 2)
    return median(rss[-window:]) - median(rss[:window])


def _rss_mib(server_pid: int | None) -> float | None:
    measure = None if server_pid is None else Tree(server_pid).measure()
    return None if measure is None else measure.rss_mib


def _memory(done: SoakRound) -> str:
    return "memory not watched" if done.rss_mib is None else f"{done.rss_mib:.0f} MiB"
