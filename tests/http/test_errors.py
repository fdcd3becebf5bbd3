"""Every complaint about a request: its status, code, field and words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from batchserve.http import Settings
from batchserve.http.errors import Kind
from scheduler import EngineError
from scheduler.testing import FakeEngine
from tests.http.harness import FakeModel, Gate, Reply, Server, serving
from tests.waiting import until

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
HI = {"role": "user", "content": "hi"}

LONG = {"prompt": "x" * 300}
TOO_LONG = (
    "This model's maximum context length is 256 tokens, one of them for the answer, but the prompt has 301 tokens."
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Server]:
    async with serving(FakeEngine(), streams=4) as server:
        yield server


def json_bytes(value: object) -> bytes:
    return json.dumps(value).encode()


def turns(**fields: object) -> dict[str, object]:
    return {"messages": [HI, {**HI, **fields}]}


def part(**fields: object) -> dict[str, object]:
    return turns(content=[{"type": "text", "text": "a"}, fields])


#: body of a chat request -> code, param, and a part of the message
CHAT_CASES: list[tuple[Any, str, str | None, str]] = [
    ({}, "missing_required_parameter", "messages", "Missing required parameter: `messages`."),
    ({"messages": None}, "missing_required_parameter", "messages", "`messages`"),
    ({"messages": []}, "invalid_value", "messages", "expected `array` of length >= 1"),
    ({"messages": "hi"}, "invalid_type", "messages", "expected `array`, got `str`"),
    ({"messages": ["hi"]}, "invalid_type", "messages[0]", "expected `object`, got `str`"),
    ({"messages": [{"content": "hi"}]}, "missing_required_parameter", "messages[0].role", "role"),
    (turns(role="robot"), "unsupported_value", "messages[1].role", "'robot'"),
    (turns(role="tool"), "unsupported_value", "messages[1].role", "'tool'"),
    (turns(content=None), "missing_required_parameter", "messages[1].content", "content"),
    (turns(content=7), "invalid_type", "messages[1].content", "got `int`"),
    (turns(content=["a"]), "invalid_type", "messages[1].content[0]", "expected `object`"),
    (part(type="image_url"), "unsupported_value", "messages[1].content[1].type", "'image_url'"),
    (part(type="text"), "missing_required_parameter", "messages[1].content[1].text", "text"),
    (part(type="text", text=1), "invalid_type", "messages[1].content[1].text", "got `int`"),
    (turns(tool_calls=[{}]), "unsupported_value", "messages[1].tool_calls", "Tool calls"),
    (turns(content="x" * 300), "context_length_exceeded", "messages", "256 tokens"),
]

#: fields added to a good request -> code, param
FIELD_CASES: list[tuple[dict[str, Any], str, str]] = [
    ({"temperature": 2.1}, "invalid_value", "temperature"),
    ({"temperature": -0.1}, "invalid_value", "temperature"),
    ({"temperature": "hot"}, "invalid_type", "temperature"),
    ({"top_p": 0}, "invalid_value", "top_p"),
    ({"top_p": 1.5}, "invalid_value", "top_p"),
    ({"top_k": -2}, "invalid_value", "top_k"),
    ({"top_k": 1.5}, "invalid_type", "top_k"),
    ({"top_k": True}, "invalid_type", "top_k"),
    ({"min_p": -1}, "invalid_value", "min_p"),
    ({"typical_p": 0}, "invalid_value", "typical_p"),
    ({"frequency_penalty": 3}, "invalid_value", "frequency_penalty"),
    ({"presence_penalty": -3}, "invalid_value", "presence_penalty"),
    ({"repetition_penalty": 0}, "invalid_value", "repetition_penalty"),
    ({"repetition_penalty": 1e-38}, "invalid_value", "repetition_penalty"),
    ({"repetition_penalty": 1e300}, "invalid_value", "repetition_penalty"),
    ({"max_tokens": 0}, "invalid_value", "max_tokens"),
    ({"max_completion_tokens": -1}, "invalid_value", "max_completion_tokens"),
    ({"seed": 2**63}, "invalid_value", "seed"),
    ({"seed": 1.5}, "invalid_type", "seed"),
    ({"n": 0}, "invalid_value", "n"),
    ({"n": 5}, "invalid_value", "n"),
    ({"n": 10**18}, "invalid_value", "n"),
    ({"stop": ""}, "invalid_value", "stop"),
    ({"stop": ["a", ""]}, "invalid_value", "stop[1]"),
    ({"stop": ["a"] * 17}, "invalid_value", "stop"),
    ({"stop": 1}, "invalid_type", "stop"),
    ({"logit_bias": {"5": 101}}, "invalid_value", "logit_bias"),
    ({"logit_bias": {"64": 1}}, "invalid_value", "logit_bias"),
    ({"logit_bias": {"05": 1}}, "invalid_value", "logit_bias"),
    ({"logit_bias": {"-1": 1}}, "invalid_value", "logit_bias"),
    ({"logit_bias": {"x": 1}}, "invalid_value", "logit_bias"),
    ({"logit_bias": {"9" * 5000: 1}}, "invalid_value", "logit_bias"),
    ({"logit_bias": [1]}, "invalid_type", "logit_bias"),
    ({"stream": "yes"}, "invalid_type", "stream"),
    ({"stream_options": {}}, "invalid_value", "stream_options"),
    ({"stream": True, "stream_options": {"include_usage": 1}}, "invalid_type", "stream_options.include_usage"),
    ({"ignore_eos": 1}, "invalid_type", "ignore_eos"),
    ({"return_token_ids": "no"}, "invalid_type", "return_token_ids"),
    ({"model": 5}, "invalid_type", "model"),
    ({"logprobs": True}, "unsupported_value", "logprobs"),
    ({"logprobs": 0}, "unsupported_value", "logprobs"),
    ({"top_logprobs": 2}, "unsupported_value", "top_logprobs"),
    ({"echo": True}, "unsupported_value", "echo"),
    ({"suffix": "end"}, "unsupported_value", "suffix"),
    ({"tools": [{"type": "function"}]}, "unsupported_value", "tools"),
    ({"tool_choice": "required"}, "unsupported_value", "tool_choice"),
    ({"response_format": {"type": "json_object"}}, "unsupported_value", "response_format"),
    ({"guided_regex": "a+"}, "unsupported_value", "guided_regex"),
    ({"modalities": ["text", "audio"]}, "unsupported_value", "modalities"),
]

PROMPT_CASES: list[tuple[dict[str, Any], str, str, str]] = [
    ({}, "missing_required_parameter", "prompt", "`prompt`"),
    ({"prompt": []}, "invalid_value", "prompt", "length >= 1"),
    ({"prompt": 5}, "invalid_type", "prompt", "got `int`"),
    ({"prompt": [1, 1.5]}, "invalid_type", "prompt[1]", "got `float`"),
    ({"prompt": [1, "a"]}, "invalid_type", "prompt", "no mixture"),
    ({"prompt": [[1], 2]}, "invalid_type", "prompt", "no mixture"),
    ({"prompt": [3, 64]}, "invalid_value", "prompt[1]", "64 is not a token id"),
    ({"prompt": [[3], [4, -1]]}, "invalid_value", "prompt[1][1]", "-1 is not a token id"),
    ({"prompt": [[3], []]}, "invalid_value", "prompt[1]", "empty"),
    ({"prompt": ["a"] * 5}, "invalid_value", "prompt", "5 choices"),
    ({"prompt": ["a", "b"], "n": 3}, "invalid_value", "n", "6 choices"),
    ({"prompt": "a", "n": 2, "best_of": 3}, "unsupported_value", "best_of", "`best_of`"),
    (LONG, "context_length_exceeded", "prompt", TOO_LONG),
    ({**LONG, "stream": True}, "context_length_exceeded", "prompt", TOO_LONG),
    ({"prompt": "a", "model": "gpt-4"}, "model_not_found", "model", "'gpt-4'"),
]

BYTES_CASES: list[tuple[bytes, str, str]] = [
    (b"", "invalid_json", "line 1 column 1"),
    (b'{"prompt": }', "invalid_json", "line 1 column 12 (char 11)"),
    (b'{\n"prompt": "a",\n}', "invalid_json", "line 2"),
    (b'{"prompt": "a"} x', "invalid_json", "line 1 column 17"),
    (b'{"temperature": NaN}', "invalid_json", "line 1 column 17"),
    (b'{"prompt": "\\ud800"}', "invalid_json", "surrogate"),
    (b"[" * 5000, "invalid_json", "depth"),
    (b'{"prompt": "\xff"}', "invalid_utf8", "at byte 12"),
    (b"[]", "invalid_type", "must be a JSON object"),
    (b'"prompt"', "invalid_type", "must be a JSON object"),
    (b"null", "invalid_type", "must be a JSON object"),
]


def check(reply: Reply, code: str, param: str | None, words: str = "") -> None:
    kind = next(kind for kind in Kind if kind.code == code)
    error = reply.error
    assert (error["code"], error["param"]) == (code, param), error
    assert (reply.status, error["type"]) == (kind.status, kind.type)
    assert set(error) == {"message", "type", "param", "code"}
    assert words in error["message"]
    assert reply.headers["Content-Type"] == "application/json"
    assert reply.headers["X-Request-ID"]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("body", "code", "param", "words"), CHAT_CASES)
async def test_messages(server: Server, body: object, code: str, param: str, words: str) -> None:
    check(await server.post(CHAT, body), code, param, words)
    assert server.core.is_idle


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("fields", "code", "param"), FIELD_CASES)
async def test_fields(server: Server, fields: dict[str, Any], code: str, param: str) -> None:
    check(await server.post(CHAT, {"messages": [HI], **fields}), code, param)
    check(await server.post(TEXT, {"prompt": "a", **fields}), code, param)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("body", "code", "param", "words"), PROMPT_CASES)
async def test_prompts(server: Server, body: object, code: str, param: str, words: str) -> None:
    check(await server.post(TEXT, body), code, param, words)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("data", "code", "words"), BYTES_CASES)
async def test_bodies(server: Server, data: bytes, code: str, words: str) -> None:
    for path in (CHAT, TEXT):
        check(await server.request("POST", path, data=data), code, None, words)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_broken_compressed_body(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    reply = await server.request("POST", TEXT, data=b"no gzip", headers={"Content-Encoding": "gzip"})
    check(reply, "bad_request", None, "gzip")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("headers", [{}, {"Content-Type": "text/plain"}, {"Content-Type": "application/x"}])
async def test_content_type_does_not_matter(server: Server, headers: dict[str, str]) -> None:
    data = b'{"prompt": "a", "max_tokens": 1}'
    reply = await server.request("POST", TEXT, data=data, headers=headers, skip_auto_headers=["Content-Type"])
    assert reply.status == 200


@pytest.mark.asyncio(loop_scope="module")
async def test_unknown_urls(server: Server) -> None:
    for path in ("/", "/v1", "/v1/models/", "/v1/nothing", "/v1/completions/x"):
        check(await server.get(path), "unknown_url", None, f"GET {path}.")


@pytest.mark.asyncio(loop_scope="module")
async def test_unknown_methods(server: Server) -> None:
    reply = await server.get(TEXT)
    check(reply, "method_not_allowed", None, "does not take GET, only POST")
    assert reply.headers["Allow"] == "POST"
    assert (await server.request("DELETE", "/v1/models")).headers["Allow"] == "GET, HEAD"


@pytest.mark.asyncio(loop_scope="module")
async def test_unknown_models(server: Server) -> None:
    check(await server.get("/v1/models/gpt-4"), "model_not_found", "model", "Loaded: 'fake-model'")


async def test_a_body_over_the_limit() -> None:
    async with serving(settings=Settings(max_body_bytes=1000)) as server:
        fits = {"prompt": "a", "max_tokens": 1, "user": ""}
        fits["user"] = "u" * (1000 - len(json_bytes(fits)))
        assert (await server.request("POST", TEXT, data=json_bytes(fits))).status == 200
        reply = await server.request("POST", TEXT, data=json_bytes(fits) + b" ")
        check(reply, "body_too_large", None, "limit of 1000 bytes")


async def test_the_limit_is_kept_while_reading() -> None:
    """A body without a stated length is refused before its end, which here never comes."""

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 500
            await asyncio.sleep(0.001)

    async with serving(settings=Settings(max_body_bytes=2000)) as server:
        check(await server.request("POST", TEXT, data=endless()), "body_too_large", None)


async def test_a_full_queue() -> None:
    gate = Gate()
    async with serving(FakeEngine(on_step=gate), streams=1, queue=1) as server:
        served = [asyncio.create_task(server.complete(max_tokens=2)) for _ in range(2)]
        await until(lambda: server.core.num_running + server.core.num_waiting == 2)
        reply = await server.complete(stream=True)
        check(reply, "queue_full", None, "1 requests are waiting")
        assert int(reply.headers["Retry-After"]) >= 1
        gate.open()
        assert [(await task).status for task in served] == [200, 200]
        assert await server.metric('batchserve_requests_rejected_total{reason="queue_full"}') == 1


async def test_a_template_that_refuses() -> None:
    template = "{% if messages|length > 1 %}{{ raise_exception('one turn only') }}{% endif %}ok"
    async with serving(model=FakeModel(chat_template=template)) as server:
        reply = await server.post(CHAT, {"messages": [HI, HI]})
        check(reply, "chat_template_error", "messages", "one turn only")
        assert (await server.chat(max_tokens=1)).status == 200


async def test_a_failed_step_is_an_error_without_internals(caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine(fail={1: EngineError("secret detail")})
    async with serving(engine) as server:
        headers = {"X-Request-ID": "my-request"}
        body = {"prompt": "a", "max_tokens": 5, "ignore_eos": True}
        reply = await server.request("POST", TEXT, json=body, headers=headers)
        check(reply, "engine_failed", None)
        assert "secret" not in reply.text
        assert "request my-request failed: secret detail" in caplog.text
        assert (await server.post(TEXT, body)).status == 200


async def test_a_bug_is_an_error_without_internals(caplog: pytest.LogCaptureFixture) -> None:
    class BrokenModel(FakeModel):
        def tokenize(self, text: str, *, add_special: bool) -> list[int]:
            raise RuntimeError("secret detail")

    async with serving(model=BrokenModel()) as server:
        reply = await server.complete()
    check(reply, "internal_error", None, reply.headers["X-Request-ID"])
    assert "secret" not in reply.text
    assert "secret detail" in caplog.text
