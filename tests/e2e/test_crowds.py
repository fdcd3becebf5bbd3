"""Many clients, rude clients, long prompts: nobody waits longer than stated, and everything comes back."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from itertools import pairwise
from typing import Any

import aiohttp
import pytest

from batchserve.llama.engine import LlamaEngine
from scheduler import StepKind, StepPlan, StepResult
from tests.e2e.client import Reply, stream
from tests.e2e.conftest import Start
from tests.waiting import until

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]


def spy(monkeypatch: pytest.MonkeyPatch, before: Any) -> None:
    """Call `before(plan)` in the engine thread ahead of every step."""
    execute = LlamaEngine.execute

    def watched(engine: LlamaEngine, plan: StepPlan) -> StepResult:
        before(plan)
        return execute(engine, plan)

    monkeypatch.setattr(LlamaEngine, "execute", watched)


async def test_running_streams_wait_for_one_chunk_at_most(
    start: Start, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While four streams decode, a 2,000-token prompt is computed in chunks with a decode step after each.

    So the gap between two tokens is one decode step plus one chunk; docs/benchmarks/ has the measured times.
    """
    plans: list[StepPlan] = []
    spy(monkeypatch, plans.append)
    async with start(max_batch_streams=5, prefill_chunk=128) as server:
        body = {"prompt": "Tell me more.", "max_tokens": 60, "temperature": 0}
        steady = [asyncio.create_task(stream(session, server.url, body)) for _ in range(4)]
        await until(lambda: plans and plans[-1].kind is StepKind.DECODE and len(plans[-1].chunks) == 4)
        first = len(plans)
        prompt = [1 + index % 40_000 for index in range(2000)]
        long = await stream(session, server.url, {"prompt": prompt, "max_tokens": 1, "temperature": 0})
        seen = plans[first : len(plans)]
        assert len(long.token_ids) == 1
        assert all(len(reply.token_ids) == 60 for reply in await asyncio.gather(*steady))
    prefills = [plan for plan in seen if plan.kind is StepKind.PREFILL]
    assert sum(plan.num_rows for plan in prefills) == 2000
    assert max(plan.num_rows for plan in prefills) == prefills[0].num_rows == 128
    kinds = [plan.kind for plan in seen]
    assert (StepKind.PREFILL, StepKind.PREFILL) not in pairwise(kinds)
    assert all(len(plan.chunks) >= 4 for plan in seen if plan.kind is StepKind.DECODE)


async def test_two_hundred_clients_are_served_or_told_to_come_back(
    start: Start, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    spy(monkeypatch, lambda plan: gate.wait(60))
    async with start(max_batch_streams=4, max_queue=64) as server:
        rejected = 0

        async def client(index: int) -> Reply:
            nonlocal rejected
            body = {"prompt": f"Client {index} says", "max_tokens": 6, "temperature": 0}
            reply = await stream(session, server.url, body)
            rejected += reply.status == 429
            if rejected == 132:
                gate.set()
            return reply

        replies = await asyncio.gather(*(client(index) for index in range(200)))
        assert Counter(reply.status for reply in replies) == {200: 68, 429: 132}
        served = [reply for reply in replies if reply.status == 200]
        assert all(len(reply.token_ids) == 6 and reply.is_done for reply in served)
        for reply in replies:
            if reply.status == 429:
                assert reply.error is not None and reply.error["code"] == "queue_full"
                assert int(reply.headers["Retry-After"]) >= 1
        server.runner.core.check_integrity()
        assert server.runner.core.is_idle


async def test_five_hundred_clients_that_leave_at_random_leave_nothing_behind(
    start: Start, session: aiohttp.ClientSession
) -> None:
    rng = random.Random(7)
    async with start(max_batch_streams=4, max_queue=64) as server:
        core = server.runner.core
        body = {"prompt": "The last request", "max_tokens": 20, "temperature": 0}
        before = await stream(session, server.url, body)
        async with asyncio.TaskGroup() as group:
            room = asyncio.Semaphore(40)
            for index in range(500):
                group.create_task(_rude_client(session, server.url, index, rng.random() * 0.4, room))
        await until(lambda: core.is_idle)
        core.check_integrity()
        assert (core.num_running, core.num_waiting) == (0, 0)
        after = await stream(session, server.url, body)
        assert after.token_ids == before.token_ids and after.finish_reason == "length"


async def _rude_client(
    session: aiohttp.ClientSession, url: str, index: int, patience: float, room: asyncio.Semaphore
) -> None:
    """Asks for a lot, with a prompt of a random length, and hangs up after `patience` seconds."""
    body = {"prompt": "word " * (1 + index % 90), "max_tokens": 200, "stream": index % 3 > 0}
    async with room:
        try:
            async with asyncio.timeout(patience):
                await stream(session, url, body)
        except TimeoutError:
            pass
        except aiohttp.ClientError as error:  # pragma: no cover - would be the server's fault
            pytest.fail(f"client {index}: {error!r}")


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_client_that_leaves_the_queue_gives_up_its_place(
    start: Start, session: aiohttp.ClientSession, streaming: bool
) -> None:
    async with start(max_batch_streams=1, max_queue=1) as server:
        core = server.runner.core
        long = {"prompt": "A", "max_tokens": 2000, "stream": streaming}
        running = asyncio.create_task(stream(session, server.url, long))
        await until(lambda: core.num_running == 1)
        waiting = asyncio.create_task(stream(session, server.url, long))
        await until(lambda: core.num_waiting == 1)
        assert (await stream(session, server.url, long)).status == 429
        for task, count in ((waiting, lambda: core.num_waiting), (running, lambda: core.num_running)):
            task.cancel()
            await until(lambda count=count: count() == 0)
        core.check_integrity()
