"""Long prompts beside steady streams: which gap belongs to whom."""

from dataclasses import replace

import pytest

from loadtest.client import Client
from loadtest.interfere import Interference, interference, join_interference, run_interfere
from loadtest.requests import Shape
from loadtest.wire import Target
from tests.loadtest.factories import failed_outcome, make_outcome
from tests.loadtest.scripted import Call, Script, serving, tokens_of

STEADY = Shape("scripted", max_tokens=30)
LONG = replace(STEADY, prompt_words=500, max_tokens=2, seed=9)


def test_gaps_are_split_by_the_time_a_long_prompt_was_read() -> None:
    # Gaps of 0.1 s from 0.1 on; the intruder comes at 0.25 and has its first token at 0.45.
    steady = make_outcome(tuple(range(8)), ttft_s=0.1, gap_s=0.1)
    late = replace(steady, arrivals_s=(0.1, 0.2, 0.55, 0.57))
    intruder = make_outcome(started_at=0.25, ttft_s=0.2)
    found = interference([steady, late], [intruder])
    assert found.disturbed_itl_max_s == pytest.approx(0.35)
    assert found.quiet_itl_max_s == pytest.approx(0.1)
    assert found.intruder_ttft_max_s == pytest.approx(0.2)


def test_a_failed_intruder_is_counted() -> None:
    found = interference([make_outcome()], [failed_outcome(), make_outcome()])
    assert (found.num_intruders_ok, found.num_intruders) == (1, 2)


def test_rounds_are_joined_by_their_worst() -> None:
    joined = join_interference([Interference(0.1, None, 0.5, 1, 1), Interference(0.2, 0.3, 0.4, 0, 1)])
    assert joined == Interference(0.2, 0.3, 0.5, 1, 2)


async def test_a_server_that_stalls_for_long_prompts_is_found_out() -> None:
    def script(call: Call) -> Script:
        is_long = len(call.prompt.split()) > 400
        stall = {15: 0.3}
        return Script(tokens_of(call), ttft_s=0.4) if is_long else Script(tokens_of(call), 0, 0.01, stall)

    async with serving(script) as server:
        client = Client(Target.parse(server.url), 10)
        done = await run_interfere(client, STEADY.requests(3), LONG.requests(1), every_s=0)
        assert len(server.calls) == 4
    assert done.steady.figures.num_ok == 3
    assert done.interference.num_intruders_ok == 1
    assert done.interference.disturbed_itl_max_s is not None
    assert done.interference.disturbed_itl_max_s >= 0.29
    assert done.interference.intruder_ttft_max_s is not None
    assert done.interference.intruder_ttft_max_s >= 0.39


async def test_a_dead_server_does_not_keep_it_waiting() -> None:
    async with serving() as server:
        client = Client(Target.parse(server.url), 10)
    done = await run_interfere(client, STEADY.requests(2), LONG.requests(1), every_s=0)
    assert done.steady.figures.num_failed == 2
    assert done.interference.num_intruders_ok == 0
