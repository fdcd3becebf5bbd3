"""The promise, over a real socket: the token ids of a response do not depend on its neighbours."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import aiohttp
import pytest

from tests.e2e.client import Reply, stream
from tests.e2e.conftest import Start
from tests.waiting import until

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]

TEXTS = [
    "Hello",
    "Once upon a time there was",
    "The capital of France is Paris, and the capital of Italy is",
    "Write a list of animals: " + "cat, dog, " * 30,
    "def add(a, b):\n    return",
    "1, 2, 3, 4, 5,",
    "A long story begins. " * 60,
    "Q: What is the boiling point of water?\nA:",
]
SAMPLED = {"temperature": 0.9, "top_p": 0.95, "top_k": 50, "frequency_penalty": 0.2}


def bodies(count: int, sampled: bool) -> list[dict[str, Any]]:
    return [
        {
            "prompt": TEXTS[index],
            "max_tokens": 12 + 4 * index,
            **({**SAMPLED, "seed": index} if sampled else {"temperature": 0}),
        }
        for index in range(count)
    ]


async def crowd(session: aiohttp.ClientSession, url: str, wanted: list[dict[str, Any]]) -> list[Reply]:
    return list(await asyncio.gather(*(stream(session, url, body) for body in wanted)))


@pytest.mark.parametrize("sampled", [False, True], ids=["greedy", "sampled"])
async def test_cohorts_get_solo_tokens_in_any_order(
    start: Start, session: aiohttp.ClientSession, sampled: bool
) -> None:
    async with start(max_batch_streams=8) as server:
        wanted = bodies(8, sampled)
        alone = [await stream(session, server.url, body) for body in wanted]
        for body, reply in zip(wanted, alone, strict=True):
            assert (len(reply.token_ids), reply.finish_reason, reply.is_done) == (
                body["max_tokens"],
                "length",
                True,
            )
        for size in (1, 2, 4, 8):
            together = await crowd(session, server.url, wanted[:size])
            assert [reply.token_ids for reply in together] == [reply.token_ids for reply in alone[:size]]
        backwards = await crowd(session, server.url, wanted[::-1])
        assert [reply.token_ids for reply in backwards[::-1]] == [reply.token_ids for reply in alone]


async def test_one_joining_and_one_leaving_midway_change_nobody(
    start: Start, session: aiohttp.ClientSession
) -> None:
    async with start(max_batch_streams=4) as server:
        wanted = bodies(4, sampled=True)
        alone = [(await stream(session, server.url, body)).token_ids for body in wanted]
        long = {"prompt": TEXTS[6], "max_tokens": 400, "temperature": 0}
        leaver = asyncio.create_task(stream(session, server.url, long, leave_after=6))
        first = [asyncio.create_task(stream(session, server.url, body)) for body in wanted[:2]]
        await until(lambda: server.runner.core.num_running == 3)
        late = [asyncio.create_task(stream(session, server.url, body)) for body in wanted[2:]]
        replies = await asyncio.gather(*first, *late)
        assert [reply.token_ids for reply in replies] == alone
        assert len((await leaver).token_ids) < 400
        await until(lambda: server.runner.core.is_idle)


async def test_choices_of_one_request_are_those_of_single_requests(
    start: Start, session: aiohttp.ClientSession
) -> None:
    """Choice i of n has the seed of the request plus i."""
    async with start(max_batch_streams=4) as server:
        body = {"prompt": TEXTS[1], "max_tokens": 10, "seed": 5, "ignore_eos": True, "return_token_ids": True}
        async with session.post(f"{server.url}/v1/completions", json={**body, "n": 3}) as response:
            choices = (await response.json())["choices"]
        singles = [await stream(session, server.url, {**body, "seed": 5 + index}) for index in range(3)]
        assert [choice["token_ids"] for choice in choices] == [single.token_ids for single in singles]


async def test_prompts_of_awkward_lengths_among_leaving_neighbours(
    start: Start, session: aiohttp.ClientSession
) -> None:
    """One token, two, one more than a chunk, several chunks: greedy and sampled, while others come and go."""
    rng = random.Random(5)
    lengths = [1, 2, 3, 17, 64, 65, 256, 257, 258, 500, 900]
    wanted = [
        {
            "prompt": [rng.randrange(100, 40_000) for _ in range(length)],
            "max_tokens": 4 + 3 * index,
            **({"temperature": 0} if index % 2 else {"seed": index, "temperature": 1.1, "top_p": 0.9}),
        }
        for index, length in enumerate(lengths)
    ]
    async with start(max_batch_streams=4) as server:
        leavers = [stream(session, server.url, {**body, "max_tokens": 90}, leave_after=3) for body in wanted[::2]]
        replies = await asyncio.gather(*(stream(session, server.url, body) for body in wanted), *leavers)
        alone = [await stream(session, server.url, body) for body in wanted]
        trace = [reply.token_ids for reply in replies[: len(wanted)]]
        assert trace == [reply.token_ids for reply in alone]
        assert [len(ids) for ids in trace] == [body["max_tokens"] for body in wanted]
