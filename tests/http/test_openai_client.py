"""The openai package over a real socket, streaming and not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
import pytest_asyncio

from scheduler import EngineError
from scheduler.testing import FakeEngine
from tests.http.harness import FakeModel, Server, letters, serving

MESSAGES: Any = [{"role": "user", "content": "hi"}]
CHAT_PROMPT = tuple(FakeModel().tokenize("<s>[user]hi[assistant]", add_special=False))
TEXT_PROMPT = tuple(FakeModel().tokenize("hi", add_special=True))


@pytest_asyncio.fixture
async def client() -> AsyncIterator[openai.AsyncOpenAI]:
    async with serving(FakeEngine()) as server, client_of(server) as client:
        yield client


def client_of(server: Server) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0)


async def test_models(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["fake-model"]
    assert (await client.models.retrieve("fake-model")).owned_by == "batchserve"
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("gpt-4")


async def test_chat(client: openai.AsyncOpenAI) -> None:
    reply = await client.chat.completions.create(
        model="fake-model",
        messages=MESSAGES,
        seed=1,
        max_completion_tokens=6,
        extra_body={"ignore_eos": True},
    )
    expected = FakeEngine().solo(CHAT_PROMPT, 6, seed=1)
    assert reply.choices[0].message.content == letters(expected)
    assert reply.choices[0].finish_reason == "length"
    assert reply.usage is not None and reply.usage.prompt_tokens_details is not None
    assert reply.usage.total_tokens == len(CHAT_PROMPT) + 6
    assert reply.usage.prompt_tokens_details.cached_tokens == 0


async def test_chat_stream(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="fake-model",
        messages=MESSAGES,
        seed=1,
        n=2,
        max_tokens=6,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    texts, usage = ["", ""], None
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [letters(FakeEngine().solo(CHAT_PROMPT, 6, seed)) for seed in (1, 2)]
    assert usage is not None and usage.completion_tokens == 12


async def test_completion(client: openai.AsyncOpenAI) -> None:
    expected = letters(FakeEngine().solo(TEXT_PROMPT, 6, seed=1))
    options = {"ignore_eos": True}
    whole = await client.completions.create(model="", prompt="hi", seed=1, max_tokens=6, extra_body=options)
    stream = await client.completions.create(
        model="", prompt="hi", seed=1, max_tokens=6, stream=True, extra_body=options
    )
    assert whole.choices[0].text == expected
    assert "".join([chunk.choices[0].text async for chunk in stream]) == expected


async def test_leaving_a_stream_ends_the_request() -> None:
    async with serving(FakeEngine(step_seconds=0.005)) as server, client_of(server) as client:
        stream = await client.completions.create(
            model="", prompt="hi", max_tokens=200, stream=True, extra_body={"ignore_eos": True}
        )
        async for _ in stream:
            break
        await stream.close()
        await server.until_idle()
        assert await server.metric('batchserve_requests_total{outcome="cancelled"}') == 1


async def test_errors_become_the_clients_own(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        await client.completions.create(model="", prompt="hi", temperature=9)
    assert (bad.value.code, bad.value.param, bad.value.type) == (
        "invalid_value",
        "temperature",
        "invalid_request_error",
    )
    with pytest.raises(openai.NotFoundError):
        await client.completions.create(model="gpt-4", prompt="hi")
    with pytest.raises(openai.BadRequestError, match="256 tokens"):
        await client.completions.create(model="", prompt="x" * 1000)


async def test_failure_and_draining_become_the_clients_own(caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine(fail={2: EngineError("broken")})
    async with serving(engine) as server, client_of(server) as client:
        stream = await client.completions.create(
            model="", prompt="hi", max_tokens=9, stream=True, extra_body={"ignore_eos": True}
        )
        with pytest.raises(openai.APIError, match="could not go on") as failed:
            async for _ in stream:
                pass
        assert failed.value.code == "engine_failed"
        server.readiness.set_draining()
        with pytest.raises(openai.InternalServerError) as refused:
            await client.completions.create(model="", prompt="hi")
        assert refused.value.status_code == 503


async def test_a_full_queue_is_a_rate_limit() -> None:
    engine = FakeEngine(step_seconds=0.01)
    async with (
        serving(engine, streams=1, queue=0) as server,
        client_of(server) as client,
        server.stream(prompt="a", max_tokens=99, ignore_eos=True),
    ):
        with pytest.raises(openai.RateLimitError) as refused:
            await client.completions.create(model="", prompt="hi")
        assert int(refused.value.response.headers["Retry-After"]) >= 1
