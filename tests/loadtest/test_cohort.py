"""Cohorts against the scripted server: known delays, known tokens, known faults."""

from dataclasses import replace

import pytest

from loadtest.client import Client
from loadtest.cohort import CohortResult, run_cohort
from loadtest.figures import refusals
from loadtest.parity import Basis
from loadtest.parity_run import Cohorts, reference_alone
from loadtest.prompts import Workload
from loadtest.requests import Endpoint, Shape
from loadtest.wire import Target
from tests.loadtest.scripted import Call, Script, ScriptedServer, obedient, serving, tokens_of

# A busy machine makes things later, never earlier.
EARLY_S = 0.003
LATE_S = 0.5

SHAPE = Shape("scripted", max_tokens=6)


def client_of(server: ScriptedServer) -> Client:
    return Client(Target.parse(server.url), timeout_s=10)


async def run(server: ScriptedServer, streams: int = 4, shape: Shape = SHAPE, rounds: int = 1) -> CohortResult:
    return await run_cohort(client_of(server), shape.requests(streams), num_rounds=rounds)


def within(value: float | None, scripted_s: float) -> bool:
    return value is not None and scripted_s - EARLY_S <= value <= scripted_s + LATE_S


async def test_every_latency_is_within_its_bound() -> None:
    def script(call: Call) -> Script:
        return Script(tokens_of(call), ttft_s=0.08, gap_s=0.02, gap_at={3: 0.15})

    async with serving(script) as server:
        result = await run(server)
    figures = result.rounds[0].figures
    assert figures.num_ok == 4
    for ttft in (figures.ttft_p50_s, figures.ttft_p95_s, figures.ttft_p99_s):
        assert within(ttft, 0.08)
    assert within(figures.itl_p50_s, 0.02)
    assert within(figures.itl_max_s, 0.15)
    assert within(figures.e2e_p50_s, 0.08 + 4 * 0.02 + 0.15)
    assert figures.total_tokens_per_s is not None
    assert figures.total_tokens_per_s <= 4 * 6 / (0.31 - EARLY_S)
    assert figures.stream_tokens_per_s is not None
    assert figures.stream_tokens_per_s <= 5 / (0.23 - EARLY_S)


async def test_streams_really_run_at_once() -> None:
    async with serving(lambda call: Script(tokens_of(call), ttft_s=0.1)) as server:
        await run_cohort(client_of(server), SHAPE.requests(8), check_parity=False)
        assert max(call.num_running for call in server.calls) == 8


@pytest.mark.parametrize("endpoint", list(Endpoint))
@pytest.mark.parametrize("workload", list(Workload))
async def test_a_server_with_parity_passes(endpoint: Endpoint, workload: Workload) -> None:
    shape = replace(SHAPE, endpoint=endpoint, workload=workload)
    async with serving() as server:
        result = await run(server, shape=shape, rounds=2)
    report = result.parity[0].report
    assert report.holds
    assert str(report) == "8 of 8 traces equal (compared: token ids)"


async def test_one_token_that_differs_in_a_crowd_is_found() -> None:
    def script(call: Call) -> Script:
        tokens = tokens_of(call)
        crowded = call.number == 2
        return Script((*tokens[:4], tokens[4] + crowded, *tokens[5:]), ttft_s=0.02)

    async with serving(script) as server:
        result = await run(server)
    report = result.parity[0].report
    assert not report.holds
    assert report.num_equal == 3
    assert "token 4" in report.differences(9)[0]


async def test_identical_prompts_are_sent_alone_once() -> None:
    async with serving() as server:
        await run(server, shape=replace(SHAPE, workload=Workload.IDENTICAL))
        assert len(server.calls) == 4 + 1


async def test_a_server_without_ids_is_compared_by_text_and_says_so() -> None:
    async with serving(lambda call: Script(tokens_of(call), send_ids=False)) as server:
        report = (await run(server)).parity[0].report
    assert report.holds
    assert {c.basis for c in report.comparisons} == {Basis.TEXT}


async def test_faults_are_counted_and_never_raise() -> None:
    def script(call: Call) -> Script:
        tokens = tokens_of(call)
        faults = {
            0: Script(tokens, status=429),
            1: Script(tokens, cut_after=3),
            2: Script(tokens, malformed_at=2),
            3: Script(tokens, error_at=1),
            4: Script(
                (),
            ),
            5: Script(tokens, send_done=False),
        }
        return faults.get(call.number, obedient(call))

    async with serving(script) as server:
        result = await run(server, streams=7)
    outcomes = result.rounds[0].outcomes
    assert refusals(outcomes) == {
        "http 429 queue_full": 1,
        "cut off": 1,
        "malformed event": 1,
        "error event engine_failed": 1,
        "no tokens": 1,
    }
    assert sum(outcome.malformed_events for outcome in outcomes) == 1
    assert not result.parity[0].report.holds


async def test_a_dead_server_is_a_result() -> None:
    async with serving() as server:
        client = client_of(server)
    result = await run_cohort(client, SHAPE.requests(3))
    assert refusals(result.rounds[0].outcomes) == {"connection refused": 3}
    assert not result.parity[0].report.holds


async def test_cohorts_of_several_sizes_against_another_server() -> None:
    def other(call: Call) -> Script:
        tokens = tokens_of(call)
        return Script((*tokens[:-1], 1))

    async with serving() as server, serving(other) as odd:
        cohorts = Cohorts(tuple(SHAPE.requests(size) for size in (1, 3)), num_rounds=2)
        rounds = await cohorts.run(client_of(server))
        alone = await reference_alone(client_of(server), cohorts)
        elsewhere = await reference_alone(client_of(odd), cohorts)
    assert [len(r.outcomes) for r in rounds] == [1, 3, 1, 3]
    assert cohorts.compare(rounds, alone).num_equal == 8
    assert cohorts.compare(rounds, elsewhere).num_different == 8
