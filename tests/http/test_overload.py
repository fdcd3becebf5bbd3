"""More clients than there is room for."""

from __future__ import annotations

import asyncio

import pytest

from scheduler.testing import FakeEngine
from tests.http.harness import FakeModel, Gate, Reply, serving
from tests.waiting import until

NUM_CLIENTS, STREAMS, QUEUE = 200, 4, 64


@pytest.mark.parametrize("stream", [True, False])
async def test_what_fits_is_served_and_the_others_are_told_to_come_back(stream: bool) -> None:
    """All 200 arrive before the engine does its first step."""
    gate = Gate()
    engine = FakeEngine(on_step=gate)
    prompts = [f"client {number}" for number in range(NUM_CLIENTS)]
    async with serving(engine, streams=STREAMS, queue=QUEUE) as server:
        options: dict[str, object] = {"stream": stream, "seed": 5, "max_tokens": 12, "return_token_ids": True}
        tasks = [asyncio.create_task(server.complete(prompt, **options)) for prompt in prompts]
        await until(lambda: sum(task.done() for task in tasks) == NUM_CLIENTS - STREAMS - QUEUE)
        assert (server.core.num_running, server.core.num_waiting) == (STREAMS, QUEUE)
        gate.open()
        replies = await asyncio.gather(*tasks)
        await server.until_idle()
    served = [(prompt, reply) for prompt, reply in zip(prompts, replies, strict=True) if reply.status == 200]
    refused = [reply for reply in replies if reply.status == 429]
    assert (len(served), len(refused)) == (STREAMS + QUEUE, NUM_CLIENTS - STREAMS - QUEUE)
    for prompt, reply in served:
        tokens = tuple(FakeModel().tokenize(prompt, add_special=True))
        alone = engine.solo(tokens, 12, seed=5)
        assert token_ids(reply, stream) == [token for token in alone if token]  # 0 ends it and has no text
    for reply in refused:
        assert reply.error["code"] == "queue_full"
        assert int(reply.headers["Retry-After"]) >= 1


def token_ids(reply: Reply, stream: bool) -> list[int]:
    bodies = reply.chunks if stream else [reply.json]
    return [token for body in bodies for token in body["choices"][0]["token_ids"]]


async def test_a_group_is_admitted_whole_or_not_at_all() -> None:
    gate = Gate()
    async with serving(FakeEngine(on_step=gate), streams=2, queue=1) as server:
        first = asyncio.create_task(server.complete(n=2, max_tokens=2))
        await until(lambda: server.core.num_running == 2)
        assert (await server.complete(n=2)).status == 429
        assert server.core.num_waiting == 0
        gate.open()
        assert (await first).status == 200
