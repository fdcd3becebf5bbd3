"""POST /v1/completions: whole expected replies."""

from __future__ import annotations

from typing import Any

from scheduler.testing import FakeEngine
from tests.http.harness import BOS, FakeModel, Gate, anonymous, letters, serving, usage

PROMPT = tuple(FakeModel().tokenize("hi", add_special=True))


async def test_whole() -> None:
    engine = FakeEngine()
    tokens = engine.solo(PROMPT, 5, seed=7)
    async with serving(engine) as server:
        reply = await server.complete(seed=7, max_tokens=5)
    assert PROMPT[0] == BOS
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "application/json"
    assert anonymous(reply.json, "cmpl") == {
        "object": "text_completion",
        "model": "fake-model",
        "choices": [{"index": 0, "text": letters(tokens), "logprobs": None, "finish_reason": "length"}],
        "usage": usage(3, 5),
    }


async def test_stream() -> None:
    """One step at a time, so that no tokens come together."""
    gate = Gate()
    engine = FakeEngine(on_step=gate)
    tokens = engine.solo(PROMPT, 3, seed=7)
    chunks = []
    async with (
        serving(engine) as server,
        server.stream(prompt="hi", seed=7, max_tokens=3) as stream,
    ):
        for _ in range(3):
            gate.allow()
            chunks.append(await stream.chunk())
        chunks.append(await stream.chunk())
        assert await stream.block() == "data: [DONE]"
        assert await stream.response.content.read() == b""

    def chunk(text: str, reason: str | None) -> dict[str, Any]:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
        return {"object": "text_completion", "model": "fake-model", "choices": [choice]}

    assert len({chunk["id"] for chunk in chunks}) == len({chunk["created"] for chunk in chunks}) == 1
    assert [anonymous(item, "cmpl") for item in chunks] == [
        *(chunk(letters([token]), None) for token in tokens),
        chunk("", "length"),
    ]


async def test_stream_with_usage_and_token_ids() -> None:
    gate = Gate()
    engine = FakeEngine(on_step=gate)
    tokens = engine.solo(PROMPT, 2, seed=7)
    options: dict[str, Any] = {"seed": 7, "max_tokens": 2, "return_token_ids": True}
    async with (
        serving(engine) as server,
        server.stream(prompt="hi", stream_options={"include_usage": True}, **options) as stream,
    ):
        chunks = []
        for _ in range(2):
            gate.allow()
            chunks.append(await stream.chunk())
        chunks += [await stream.chunk(), await stream.chunk()]
        assert await stream.block() == "data: [DONE]"

    def chunk(text: str, ids: list[int], reason: str | None) -> dict[str, Any]:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason, "token_ids": ids}
        return {"object": "text_completion", "model": "fake-model", "choices": [choice], "usage": None}

    assert [anonymous(item, "cmpl") for item in chunks] == [
        *(chunk(letters([token]), [token], None) for token in tokens),
        chunk("", [], "length"),
        {"object": "text_completion", "model": "fake-model", "choices": [], "usage": usage(3, 2)},
    ]


async def test_prompts_times_choices() -> None:
    """Choice i of a prompt uses seed + i, and a prompt counts once in the usage."""
    engine = FakeEngine()
    prompts = [tuple(FakeModel().tokenize(text, add_special=True)) for text in ("hi", "hello")]
    expected = [engine.solo(prompt, 4, seed) for prompt in prompts for seed in (7, 8)]
    async with serving(engine) as server:
        fields = {"n": 2, "seed": 7, "max_tokens": 4, "return_token_ids": True, "ignore_eos": True}
        reply = await server.complete(["hi", "hello"], **fields)
        streamed = await server.complete(["hi", "hello"], stream=True, **fields)
    assert [choice["index"] for choice in reply.json["choices"]] == [0, 1, 2, 3]
    assert [choice["token_ids"] for choice in reply.json["choices"]] == expected
    assert reply.json["usage"] == usage(3 + 6, 16)
    got: list[list[int]] = [[], [], [], []]
    for chunk in streamed.chunks:
        (choice,) = chunk["choices"]
        got[choice["index"]] += choice["token_ids"]
    assert got == expected


async def test_token_prompts() -> None:
    engine = FakeEngine()
    async with serving(engine) as server:
        options = {"seed": 1, "max_tokens": 3, "return_token_ids": True, "ignore_eos": True}
        one = await server.complete([5, 6, 7], **options)
        two = await server.complete([[5, 6, 7], [8]], **options)
    assert [choice["token_ids"] for choice in one.json["choices"]] == [engine.solo((5, 6, 7), 3, 1)]
    assert [choice["token_ids"] for choice in two.json["choices"]] == [
        engine.solo((5, 6, 7), 3, 1),
        engine.solo((8,), 3, 1),
    ]


async def test_the_start_token_is_never_doubled() -> None:
    engine = FakeEngine()
    async with serving(engine) as server:
        plain = await server.complete("hi", max_tokens=1)
        marked = await server.complete("<s>hi", max_tokens=1)
    assert plain.json["usage"] == marked.json["usage"]
    prompts = [opening.prompt for plan in engine.plans for opening in plan.opens]
    assert prompts == [PROMPT, PROMPT]


async def test_sixteen_tokens_unless_asked_otherwise() -> None:
    async with serving() as server:
        reply = await server.complete(ignore_eos=True)
        newer = await server.complete(ignore_eos=True, max_tokens=5, max_completion_tokens=3)
    assert reply.json["usage"]["completion_tokens"] == 16
    assert newer.json["usage"]["completion_tokens"] == 3


async def test_the_context_ends_an_answer() -> None:
    async with serving(model=FakeModel(ctx_per_stream=20)) as server:
        reply = await server.complete("abcdefghi", max_tokens=1000, ignore_eos=True)
        last = await server.complete("a" * 18, max_tokens=1000, ignore_eos=True)
    assert reply.json["choices"][0]["finish_reason"] == "length"
    assert reply.json["usage"] == usage(10, 10)
    assert last.json["usage"] == usage(19, 1)
