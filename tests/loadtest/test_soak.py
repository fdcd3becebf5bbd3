"""Memory that grows, answers that change, servers that die."""

import os

import pytest

from loadtest.client import Client
from loadtest.requests import Shape
from loadtest.soak import SoakLimits, SoakRound, judge_soak, memory_growth, run_soak
from loadtest.watch import Tree, watching
from loadtest.wire import Target
from tests.loadtest.factories import failed_outcome, make_outcome, make_round
from tests.loadtest.scripted import Call, Script, serving, tokens_of

SHAPE = Shape("scripted", max_tokens=3)
LIMITS = SoakLimits(duration_s=0, tolerance_mib=10, warm_up_rounds=2)


def rounds_of(*rss_mib: float | None, num_changed: int = 0) -> list[SoakRound]:
    figures = make_round(make_outcome()).figures
    return [SoakRound(i, rss, figures, num_changed) for i, rss in enumerate(rss_mib)]


def test_growth_is_counted_after_the_warm_up() -> None:
    assert memory_growth(rounds_of(50, 90, 100, 100, 100, 104, 104, 104), 2) == 4
    assert memory_growth(rounds_of(50, 90, 100), 2) is None
    assert memory_growth(rounds_of(None, None, None, None), 0) is None


def test_one_odd_sample_is_no_growth() -> None:
    assert memory_growth(rounds_of(100, 100, 100, 100, 100, 300, 100), 0) == 0


def test_a_leak_fails_and_level_memory_passes() -> None:
    assert judge_soak(rounds_of(*range(100, 200, 10)), LIMITS).failures == (
        "memory grew by 50.0 MiB, 10.0 are allowed",
    )
    assert judge_soak(rounds_of(50, 80, *[100] * 8), LIMITS).passed


def test_failed_requests_and_changed_answers_fail() -> None:
    broken = make_round(failed_outcome(), make_outcome()).figures
    rounds = [SoakRound(0, None, broken, num_changed=1)]
    assert judge_soak(rounds, LIMITS).failures == (
        "1 requests failed",
        "1 answers differ from those of the first round",
    )


async def test_rounds_go_on_until_the_time_is_up() -> None:
    async with serving(lambda call: Script(tokens_of(call), ttft_s=0.05)) as server:
        client = Client(Target.parse(server.url), 10)
        done = await run_soak(client, SHAPE.requests(2), SoakLimits(0.3), os.getpid())
    assert done.result.passed
    assert 2 <= len(done.result.rounds) <= 7
    assert all(r.rss_mib is not None and r.rss_mib > 1 for r in done.result.rounds)
    assert done.parity.holds


async def test_an_answer_that_changes_is_found() -> None:
    def script(call: Call) -> Script:
        first, *rest = tokens_of(call)
        return Script((first + (call.number >= 1), *rest))

    async with serving(script) as server:
        client = Client(Target.parse(server.url), 10)
        done = await run_soak(client, SHAPE.requests(1), SoakLimits(0.3))
    assert not done.result.passed
    assert "differ" in done.result.failures[0]


async def test_a_dead_server_ends_the_soak() -> None:
    async with serving() as server:
        client = Client(Target.parse(server.url), 10)
    done = await run_soak(client, SHAPE.requests(1), SoakLimits(3600))
    assert len(done.result.rounds) == 3
    assert not done.result.passed


async def test_a_process_that_is_gone_has_no_figures() -> None:
    gone = 2**22 - 1
    assert Tree(gone).measure() is None
    async with watching(gone, period_s=0.01) as watch:
        pass
    assert watch.use() is None


async def test_even_a_short_block_gets_a_figure_of_a_living_process() -> None:
    async with watching(os.getpid(), period_s=60) as watch:
        sum(range(200_000))
    use = watch.use()
    assert use is not None
    assert use.rss_peak_mib is not None
    assert use.rss_peak_mib >= (use.rss_mean_mib or 0) > 1
    assert use.cpu_peak_percent is not None
    assert use.cpu_peak_percent == pytest.approx(use.cpu_mean_percent)
