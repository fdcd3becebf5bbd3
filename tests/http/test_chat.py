"""POST /v1/chat/completions: whole expected replies."""

from __future__ import annotations

from typing import Any

from scheduler.testing import FakeEngine
from tests.http.harness import BOS_TEXT, FakeModel, Gate, anonymous, letters, serving, usage


def tokens_of(rendered: str) -> tuple[int, ...]:
    return tuple(FakeModel().tokenize(BOS_TEXT + rendered, add_special=False))


PROMPT = tokens_of("[user]hi[assistant]")


async def test_whole() -> None:
    """The token that ends the model's turn counts, but has no text."""
    engine = FakeEngine()
    *tokens, end = engine.solo(PROMPT, 5, seed=7)
    async with serving(engine) as server:
        reply = await server.chat(seed=7, max_tokens=5, return_token_ids=True)
    assert (reply.status, end, len(tokens)) == (200, 0, 2)
    message = {"role": "assistant", "content": letters(tokens), "refusal": None}
    assert anonymous(reply.json, "chatcmpl") == {
        "object": "chat.completion",
        "model": "fake-model",
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": "stop",
                "token_ids": tokens,
            }
        ],
        "usage": usage(len(PROMPT), 3),
    }


async def test_stream() -> None:
    gate = Gate()
    engine = FakeEngine(on_step=gate)
    tokens = engine.solo(PROMPT, 2, seed=7)
    messages = [{"role": "user", "content": "hi"}]
    async with (
        serving(engine) as server,
        server.stream("/v1/chat/completions", messages=messages, seed=7, max_tokens=2) as stream,
    ):
        assert stream.response.headers["Content-Type"] == "text/event-stream"
        assert stream.response.headers["Cache-Control"] == "no-cache"
        gate.allow()
        chunks = [await stream.chunk(), await stream.chunk()]
        gate.allow()
        chunks += [await stream.chunk(), await stream.chunk()]
        assert await stream.block() == "data: [DONE]"

    def chunk(delta: dict[str, str], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {"object": "chat.completion.chunk", "model": "fake-model", "choices": [choice]}

    assert [anonymous(item, "chatcmpl") for item in chunks] == [
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": letters(tokens[:1])}),
        chunk({"content": letters(tokens[1:])}),
        chunk({}, "length"),
    ]


async def test_stream_with_usage_token_ids_and_choices() -> None:
    engine = FakeEngine()
    expected = [engine.solo(PROMPT, 6, seed) for seed in (3, 4)]
    async with serving(engine) as server:
        reply = await server.chat(
            n=2,
            seed=3,
            max_tokens=6,
            ignore_eos=True,
            stream=True,
            stream_options={"include_usage": True},
            return_token_ids=True,
        )
    *chunks, last = reply.chunks
    assert anonymous(last, "chatcmpl") == {
        "object": "chat.completion.chunk",
        "model": "fake-model",
        "choices": [],
        "usage": usage(len(PROMPT), 12),
    }
    assert all(chunk["usage"] is None for chunk in chunks)
    choices = [chunk["choices"][0] for chunk in chunks]
    for index, tokens in enumerate(expected):
        opening, *middle, closing = [choice for choice in choices if choice["index"] == index]
        assert opening["delta"] == {"role": "assistant", "content": ""}
        assert opening["token_ids"] == closing["token_ids"] == []
        assert (closing["delta"], closing["finish_reason"]) == ({}, "length")
        assert [token for choice in middle for token in choice["token_ids"]] == tokens
        assert all(choice["delta"]["content"] == letters(choice["token_ids"]) for choice in middle)
        assert all(choice["finish_reason"] is None for choice in middle)


async def test_an_answer_without_text() -> None:
    """The model ends its turn at once: role, finish reason, nothing in between."""
    engine = FakeEngine()
    seed = next(seed for seed in range(1000) if engine.solo(PROMPT, 1, seed) == [0])
    async with serving(engine) as server:
        whole = await server.chat(seed=seed)
        stream = await server.chat(seed=seed, stream=True)
    assert whole.json["choices"][0]["message"]["content"] == ""
    assert whole.json["choices"][0]["finish_reason"] == "stop"
    assert whole.json["usage"]["completion_tokens"] == 1
    opening, closing = [chunk["choices"][0] for chunk in stream.chunks]
    assert opening["delta"] == {"role": "assistant", "content": ""}
    assert (closing["delta"], closing["finish_reason"]) == ({}, "stop")


async def test_an_answer_goes_on_until_the_context_is_full() -> None:
    async with serving() as server:
        reply = await server.chat(ignore_eos=True)
    assert reply.json["usage"]["total_tokens"] == 256
    assert reply.json["choices"][0]["finish_reason"] == "length"


async def test_roles_and_parts_reach_the_template() -> None:
    engine = FakeEngine()
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": "three"},
        {"role": "user", "content": ""},
    ]
    async with serving(engine) as server:
        await server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 1})
    (opening,) = [opening for plan in engine.plans for opening in plan.opens]
    assert opening.prompt == tokens_of("[system]be brief[user]one\ntwo[assistant]three[user][assistant]")


async def test_a_long_conversation_leaves_the_loop_and_comes_back_the_same() -> None:
    engine = FakeEngine()
    text = "abc" * 2000
    async with serving(engine, model=FakeModel(ctx_per_stream=10_000)) as server:
        reply = await server.chat(text, max_tokens=1)
    assert reply.json["usage"]["prompt_tokens"] == len(tokens_of(f"[user]{text}[assistant]"))
