"""Loading, ready, draining, failed: what each endpoint says in each state."""

from __future__ import annotations

import asyncio

import pytest

from scheduler import EngineError, StepPlan
from scheduler.testing import FakeEngine
from tests.http.harness import FakeModel, Gate, Reply, serving
from tests.waiting import until


def error_of(reply: Reply) -> tuple[int, str]:
    return reply.status, reply.error["code"]


async def test_while_loading() -> None:
    async with serving(is_ready=False) as server:
        for reply in (await server.complete(), await server.chat(stream=True), await server.get("/v1/models")):
            assert error_of(reply) == (503, "model_loading")
            assert reply.headers["Retry-After"] == "5"
        ready, health = await server.get("/ready"), await server.get("/health")
        assert (ready.status, ready.json) == (503, {"status": "loading"})
        assert (health.status, health.json) == (200, {"status": "ok"})
        assert await server.metric("batchserve_requests_running") == 0

        server.readiness.set_ready(FakeModel(), server.runner)
        ready = await server.get("/ready")
        assert (ready.status, ready.json) == (200, {"status": "ready"})
        assert (await server.complete(max_tokens=1)).status == 200


async def test_models() -> None:
    async with serving() as server:
        models, model = await server.get("/v1/models"), await server.get("/v1/models/fake-model")
    listed = {"id": "fake-model", "object": "model", "created": 1_700_000_000, "owned_by": "batchserve"}
    assert models.json == {"object": "list", "data": [listed]}
    assert model.json == listed | {"ctx_per_stream": 256}


async def test_any_name_of_the_model_is_served() -> None:
    async with serving(model=FakeModel(id="dir/some model")) as server:
        assert (await server.get("/v1/models/dir/some%20model")).json["id"] == "dir/some model"
        for name in ("dir/some model", "local-model", "", None):
            reply = await server.complete(model=name, max_tokens=1)
            assert reply.json["model"] == "dir/some model"


async def test_draining_finishes_what_runs_and_takes_nothing_new() -> None:
    gate = Gate()
    async with serving(FakeEngine(on_step=gate)) as server:
        running = asyncio.create_task(server.complete(max_tokens=4, ignore_eos=True, stream=True))
        await until(lambda: gate.num_entered == 1)
        server.readiness.set_draining()
        drained = asyncio.create_task(server.runner.drain(10))
        await asyncio.sleep(0)
        for refused in (await server.complete(), await server.chat(stream=True)):
            assert error_of(refused) == (503, "server_draining")
            assert refused.headers["Retry-After"] == "5"
            assert refused.headers["Connection"] == "close"
        assert (await server.get("/ready")).json == {"status": "draining"}
        assert (await server.get("/health")).status == 200
        assert (await server.get("/v1/models")).status == 200
        gate.open()
        assert (await running).chunks[-1]["choices"][0]["finish_reason"] == "length"
        await drained


async def test_the_end_of_the_drain_is_an_error_to_whoever_still_waits() -> None:
    async with serving(FakeEngine(step_seconds=0.01)) as server:
        options = {"max_tokens": 200, "ignore_eos": True}
        whole = asyncio.create_task(server.complete(**options))
        stream = asyncio.create_task(server.complete(**options, stream=True, n=2))
        await until(lambda: server.core.num_running == 3)
        await server.runner.drain(0.05)
        assert error_of(await whole) == (503, "server_draining")
        assert '"code":"server_draining"' in (await stream).data[-1]
        assert "cancelled" not in (await stream).text
        await server.until_idle()


async def test_an_engine_that_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    def break_down(plan: StepPlan) -> None:
        raise RuntimeError("a bug in the engine")

    async with serving(FakeEngine(on_step=break_down)) as server:
        assert error_of(await server.complete()) == (500, "engine_failed")
        assert error_of(await server.complete()) == (503, "engine_unavailable")
        ready = await server.get("/ready")
        assert (ready.status, ready.json) == (503, {"status": "failed"})


async def test_a_model_that_cannot_be_loaded() -> None:
    async with serving(is_ready=False) as server:
        server.readiness.set_failed()
        assert error_of(await server.complete()) == (503, "engine_unavailable")
        assert (await server.get("/ready")).json == {"status": "failed"}


async def test_request_ids() -> None:
    async with serving() as server:
        for given in ("abc-123", "x" * 128, "a b"):
            reply = await server.request("GET", "/health", headers={"X-Request-ID": given})
            assert reply.headers["X-Request-ID"] == given
        for given in ("x" * 129, "", "caf\u00e9"):
            reply = await server.request("GET", "/health", headers={"X-Request-ID": given})
            assert reply.headers["X-Request-ID"] != given
            assert len(reply.headers["X-Request-ID"]) == 32
        reply = await server.complete(stream=True, max_tokens=1)
        assert len(reply.headers["X-Request-ID"]) == 32


async def test_metrics() -> None:
    gate = Gate()
    async with serving(FakeEngine(on_step=gate, step_seconds=0.002), streams=1, queue=1) as server:
        tasks = [asyncio.create_task(server.complete(max_tokens=4, ignore_eos=True)) for _ in range(2)]
        await until(lambda: server.core.num_running + server.core.num_waiting == 2)
        assert await server.metric("batchserve_requests_running") == 1
        assert await server.metric("batchserve_requests_waiting") == 1
        gate.open()
        await asyncio.gather(*tasks)
        expected = {
            "batchserve_requests_running": 0,
            "batchserve_requests_waiting": 0,
            "batchserve_prompt_tokens_total": 6,
            "batchserve_generated_tokens_total": 8,
            'batchserve_requests_total{outcome="length"}': 2,
            "batchserve_time_to_first_token_seconds_count": 2,
            "batchserve_inter_token_seconds_count": 6,
            'batchserve_step_seconds_count{kind="prefill"}': 2,
            'batchserve_step_seconds_count{kind="decode"}': 6,
        }
        assert {name: await server.metric(name) for name in expected} == expected
        assert await server.metric('batchserve_step_seconds_sum{kind="decode"}') == pytest.approx(0.012)


async def test_a_failed_request_is_counted_as_such(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(FakeEngine(fail={1: EngineError("broken")})) as server:
        await server.complete(ignore_eos=True)
        assert await server.metric('batchserve_requests_total{outcome="error"}') == 1
        assert await server.metric('batchserve_requests_rejected_total{reason="engine_failed"}') == 0
