"""Open-loop load: requests come when they come, whether or not the server keeps up.

A closed loop slows down with its server and hides overload; here it shows as falling goodput.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from loadtest.client import Client, no_collection
from loadtest.cohort import Round
from loadtest.decode import decode
from loadtest.errors import ConfigError
from loadtest.figures import Spread, refusals, round_figures, spread_of, spreads
from loadtest.outcome import Outcome
from loadtest.requests import Request, read_lines
from loadtest.watch import watching
from loadtest.wire import Recording


@dataclass(frozen=True, slots=True)
class Targets:
    """What a request must meet to count as good. Seconds."""

    ttft_s: float = 2.0
    itl_s: float = 0.2
    """For the mean gap of a request: one late token is forgiven, a slow stream is not."""

    def met_by(self, outcome: Outcome) -> bool:
        """A request that failed meets no target."""
        if not outcome.ok or outcome.ttft_s is None or outcome.ttft_s > self.ttft_s:
            return False
        gaps = outcome.gaps_s
        return not gaps or sum(gaps) / len(gaps) <= self.itl_s


@dataclass(frozen=True, slots=True)
class OpenRound:
    """One run of a schedule."""

    round: Round
    goodput: float
    """Share of all requests sent that met both targets, 0 to 1."""
    max_lag_s: float
    """How late the client sent a request at worst: figures of a client that lags are not the server's."""


@dataclass(frozen=True, slots=True)
class RatePoint:
    """All rounds at one rate."""

    rate_per_s: float
    """Offered requests per second."""
    goodput: Spread
    figures: tuple[Spread, ...]
    refusals: dict[str, int]
    max_lag_s: float
    rounds: tuple[Round, ...]


def poisson_times(rate_per_s: float, duration_s: float, seed: int) -> tuple[float, ...]:
    """Arrival times in seconds from the start, at least one; the same for the same arguments."""
    chooser = random.Random(f"arrivals/{seed}/{rate_per_s}")
    times = [chooser.expovariate(rate_per_s)]
    while times[-1] < duration_s:
        times.append(times[-1] + chooser.expovariate(rate_per_s))
    return tuple(times[:-1] or times)


def read_trace(path: Path) -> tuple[float, ...]:
    """A recorded trace: one arrival time in seconds a line. They are sorted and moved to start at zero.

    Raises ConfigError for a file that cannot be read or a line that is no time.
    """
    lines = read_lines(path)
    try:
        times = sorted(float(line) for line in lines)
    except ValueError as error:
        raise ConfigError(f"{path}: every line is an arrival time in seconds ({error})") from error
    return tuple(at - times[0] for at in times)


def rescale(times: Sequence[float], rate_per_s: float) -> tuple[float, ...]:
    """The same trace at another mean rate; its bursts stay bursts."""
    factor = mean_rate(times) / rate_per_s
    return tuple(at * factor for at in times)


def mean_rate(times: Sequence[float]) -> float:
    """Arrivals per second of a schedule."""
    return len(times) / times[-1] if times[-1] > 0 else float(len(times))


async def run_schedule(
    client: Client,
    requests: Sequence[Request],
    times: Sequence[float],
    targets: Targets,
    server_pid: int | None = None,
) -> OpenRound:
    """Send request `i` at `times[i]`, wait for all answers."""
    async with watching(server_pid) as watch:
        with no_collection():
            origin = perf_counter()
            sent = [_send_at(client, r, origin + at) for r, at in zip(requests, times, strict=True)]
            recordings = await asyncio.gather(*sent)
            wall_s = perf_counter() - origin
    outcomes = tuple(decode(recording, origin) for recording in recordings)
    good = sum(map(targets.met_by, outcomes))
    lag_s = max(o.started_at - at for o, at in zip(outcomes, times, strict=True))
    done = Round(outcomes, wall_s, round_figures(outcomes, wall_s, watch.use()))
    return OpenRound(done, good / len(outcomes), max(0.0, lag_s))


async def _send_at(client: Client, request: Request, at: float) -> Recording:
    await asyncio.sleep(at - perf_counter())
    return await client.record(request)


def rate_point(rate_per_s: float, rounds: Sequence[OpenRound]) -> RatePoint:
    """Join the rounds at one rate."""
    plain = tuple(r.round for r in rounds)
    return RatePoint(
        rate_per_s=rate_per_s,
        goodput=spread_of("goodput", [r.goodput for r in rounds]),
        figures=spreads([r.figures for r in plain]),
        refusals=refusals([o for r in plain for o in r.outcomes]),
        max_lag_s=max(r.max_lag_s for r in rounds),
        rounds=plain,
    )


Measure = Callable[[float], Awaitable[RatePoint]]
"""Runs the load at a rate, in requests per second."""


async def sweep(measure: Measure, rates: Sequence[float]) -> tuple[RatePoint, ...]:
    """One point for every rate, in ascending order."""
    return tuple([await measure(rate) for rate in sorted(rates)])


async def refine(
    measure: Measure, points: Sequence[RatePoint], goodput: float, steps: int
) -> tuple[RatePoint, ...]:
    """Look for the knee more closely: double the rate until it is passed, then halve the interval.

    `steps` bounds the additional points. Points come back in ascending order of rate.
    """
    found = list(points)
    for _ in range(steps):
        low, high = knee(found, goodput), _first_bad(found, goodput)
        rate = 2 * low if high is None and low else ((low or 0.0) + (high or 0.0)) / 2
        found.append(await measure(rate))
        found.sort(key=lambda point: point.rate_per_s)
    return tuple(found)


def knee(points: Sequence[RatePoint], goodput: float) -> float | None:
    """The highest rate up to which every point reaches `goodput` (0 to 1); None when the lowest does not."""
    best = None
    for point in sorted(points, key=lambda point: point.rate_per_s):
        if point.goodput.median < goodput:
            break
        best = point.rate_per_s
    return best


def _first_bad(points: Sequence[RatePoint], goodput: float) -> float | None:
    return min((p.rate_per_s for p in points if p.goodput.median < goodput), default=None)
