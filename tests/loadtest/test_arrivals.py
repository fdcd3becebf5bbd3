"""Open-loop load: schedules, goodput, lag, and the search for the knee."""

import asyncio
from pathlib import Path
from time import perf_counter

import pytest

from loadtest.arrivals import (
    RatePoint,
    Targets,
    knee,
    mean_rate,
    poisson_times,
    rate_point,
    read_trace,
    refine,
    rescale,
    run_schedule,
    sweep,
)
from loadtest.client import Client
from loadtest.errors import ConfigError
from loadtest.figures import spread_of
from loadtest.requests import Shape
from loadtest.wire import Target
from tests.loadtest.factories import failed_outcome, make_outcome
from tests.loadtest.scripted import Call, Script, serving, tokens_of

SHAPE = Shape("scripted", max_tokens=3)
# Timers of the event loop count in milliseconds.
EARLY_S = 0.003


def test_poisson_arrivals_follow_from_the_seed() -> None:
    times = poisson_times(50, 20, seed=1)
    assert times == poisson_times(50, 20, seed=1)
    assert times != poisson_times(50, 20, seed=2)
    assert list(times) == sorted(times)
    assert times[-1] < 20
    assert len(times) == pytest.approx(1000, rel=0.15)


def test_a_schedule_is_never_empty() -> None:
    assert len(poisson_times(0.001, 0.1, seed=0)) == 1


def test_a_trace_starts_at_zero_and_can_be_rescaled(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("12.0\n10.0\n14.0\n", encoding="utf-8")
    times = read_trace(path)
    assert times == (0, 2, 4)
    assert mean_rate(times) == 0.75
    assert rescale(times, 1.5) == (0, 1, 2)
    path.write_text("soon\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="arrival time"):
        read_trace(path)


def test_what_counts_as_good() -> None:
    targets = Targets(ttft_s=0.2, itl_s=0.05)
    assert targets.met_by(make_outcome(ttft_s=0.2, gap_s=0.05))
    assert targets.met_by(make_outcome((1,), ttft_s=0.2))
    assert not targets.met_by(make_outcome(ttft_s=0.21))
    assert not targets.met_by(make_outcome(gap_s=0.06))
    assert not targets.met_by(failed_outcome())


async def test_requests_come_on_time_though_the_server_is_slow() -> None:
    """A closed loop would wait for the first answer; here all three are in flight together."""
    times = (0.0, 0.05, 0.1)
    async with serving(lambda call: Script(tokens_of(call), ttft_s=0.5)) as server:
        client = Client(Target.parse(server.url), 10)
        done = await run_schedule(client, SHAPE.requests(3), times, Targets(ttft_s=5))
        assert max(call.num_running for call in server.calls) == 3
    starts = [outcome.started_at for outcome in done.round.outcomes]
    assert all(at - EARLY_S <= start for at, start in zip(times, starts, strict=True))
    assert done.goodput == 1
    assert done.max_lag_s == pytest.approx(max(s - at for s, at in zip(starts, times, strict=True)), abs=EARLY_S)


async def test_overload_is_visible_as_goodput_and_refusals() -> None:
    def script(call: Call) -> Script:
        full = Script((), status=429)
        return full if call.number % 2 else Script(tokens_of(call))

    async with serving(script) as server:
        client = Client(Target.parse(server.url), 10)
        done = await run_schedule(client, SHAPE.requests(4), (0, 0.02, 0.04, 0.06), Targets(5, 5))
    point = rate_point(50, [done])
    assert point.goodput.median == 0.5
    assert point.refusals == {"http 429 queue_full": 2}


async def test_a_dead_server_has_no_goodput() -> None:
    async with serving() as server:
        client = Client(Target.parse(server.url), 10)
    done = await run_schedule(client, SHAPE.requests(2), (0, 0.01), Targets())
    assert done.goodput == 0


def point_at(rate_per_s: float, goodput: float) -> RatePoint:
    return RatePoint(rate_per_s, spread_of("goodput", [goodput]), (), {}, 0.0, ())


async def serve_up_to_ten(rate_per_s: float) -> RatePoint:
    """A server that bears ten requests a second, measured without one."""
    await asyncio.sleep(0)
    return point_at(rate_per_s, 1.0 if rate_per_s <= 10 else 0.3)


async def test_a_sweep_finds_the_knee_among_its_rates() -> None:
    points = await sweep(serve_up_to_ten, (16, 2, 8, 4))
    assert [point.rate_per_s for point in points] == [2, 4, 8, 16]
    assert knee(points, 0.9) == 8


async def test_refining_doubles_then_halves() -> None:
    points = await refine(serve_up_to_ten, await sweep(serve_up_to_ten, (2,)), 0.9, steps=6)
    assert [point.rate_per_s for point in points] == [2, 4, 8, 10, 11, 12, 16]
    assert knee(points, 0.9) == 10


async def test_refining_goes_down_when_the_first_rate_is_too_much() -> None:
    points = await refine(serve_up_to_ten, await sweep(serve_up_to_ten, (32,)), 0.9, steps=2)
    assert knee(points, 0.9) == 8


def test_a_good_point_above_a_bad_one_is_no_knee() -> None:
    assert knee([point_at(1, 1), point_at(2, 0), point_at(3, 1)], 0.9) == 1
    assert knee([point_at(1, 0)], 0.9) is None


async def test_the_client_is_cheap() -> None:
    """Reading a stream must cost little next to serving it: the two share the cores."""
    async with serving(lambda call: Script(tokens_of(call), gap_s=0.001)) as server:
        client = Client(Target.parse(server.url), 10)
        before = perf_counter()
        done = await run_schedule(client, Shape("m", max_tokens=50).requests(8), (0.0,) * 8, Targets())
        assert perf_counter() - before < 5
    assert done.round.figures.num_ok == 8
