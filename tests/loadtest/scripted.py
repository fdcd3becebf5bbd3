"""A small OpenAI-compatible server that follows a script: known tokens, known delays, known faults."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.test_utils import TestServer


@dataclass(frozen=True, slots=True)
class Script:
    """How one request is answered. Delays in seconds."""

    tokens: tuple[int, ...]
    ttft_s: float = 0.0
    gap_s: float = 0.0
    gap_at: dict[int, float] = field(default_factory=dict)
    """Another gap before these tokens."""
    status: int = 200
    error_code: str = "queue_full"
    cut_after: int | None = None
    """The connection is dropped after this many tokens."""
    malformed_at: int | None = None
    """This token's event is no JSON."""
    error_at: int | None = None
    """An error object comes instead of this token."""
    send_ids: bool = True
    send_done: bool = True


@dataclass(frozen=True, slots=True)
class Call:
    """What the server knows of a request when it chooses a script."""

    body: dict[str, Any]
    number: int
    num_running: int
    """Requests in flight, this one included."""

    @property
    def prompt(self) -> str:
        messages = self.body.get("messages")
        return str(messages[0]["content"] if messages else self.body["prompt"])

    @property
    def max_tokens(self) -> int:
        return int(self.body["max_tokens"])


def tokens_of(call: Call) -> tuple[int, ...]:
    """Tokens that depend on prompt, seed and budget only: a server with parity."""
    start = zlib.crc32(f"{call.prompt}/{call.body.get('seed')}".encode())
    return tuple((start + 7 * i) % 50_000 for i in range(call.max_tokens))


def obedient(call: Call) -> Script:
    """Answers at once, and the same alone and in a crowd."""
    return Script(tokens_of(call))


class ScriptedServer:
    """Routes and counters; `url` is set while it runs."""

    def __init__(self, script: Callable[[Call], Script]) -> None:
        self.script = script
        self.url = ""
        self.calls: list[Call] = []
        self._num_running = 0

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._answer)
        app.router.add_post("/v1/completions", self._answer)
        app.router.add_get("/ready", self._ready)
        return app

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "scripted", "object": "model"}]})

    async def _ready(self, request: web.Request) -> web.Response:
        return web.Response(text="ready")

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self._num_running += 1
        try:
            body = msgspec.json.decode(await request.read(), type=dict[str, Any])
            call = Call(body, len(self.calls), self._num_running)
            self.calls.append(call)
            return await _play(request, self.script(call), chat="messages" in body)
        finally:
            self._num_running -= 1


async def _play(request: web.Request, script: Script, chat: bool) -> web.StreamResponse:
    if script.status != 200:
        error = {"message": "no", "type": "refused", "param": None, "code": script.error_code}
        return web.json_response({"error": error}, status=script.status)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    if chat:
        await _send(response, {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
    await response.write(b": a comment\n\n")
    for position, token in enumerate(script.tokens):
        await asyncio.sleep(_delay(script, position))
        if position == script.cut_after:
            assert request.transport is not None
            request.transport.abort()
            return response
        await response.write(_event(script, position, token, chat))
    await _finish(response, script, chat)
    return response


def _delay(script: Script, position: int) -> float:
    return script.gap_at.get(position, script.gap_s) if position else script.ttft_s


def _event(script: Script, position: int, token: int, chat: bool) -> bytes:
    if position == script.malformed_at:
        return b'data: {"choices": [{"index": 0, "tex\n\n'
    if position == script.error_at:
        return b'data: {"error": {"message": "broke", "type": "server_error", "code": "engine_failed"}}\n\n'
    choice: dict[str, Any] = {"index": 0, **_content(f" t{token}", chat)}
    if script.send_ids:
        choice["token_ids"] = [token]
    return _frame({"choices": [choice]})


def _content(text: str, chat: bool) -> dict[str, Any]:
    return {"delta": {"content": text}} if chat else {"text": text}


async def _finish(response: web.StreamResponse, script: Script, chat: bool) -> None:
    last = {"index": 0, **_content("", chat), "finish_reason": "length"}
    await _send(response, {"choices": [last]})
    usage = {"prompt_tokens": 9, "completion_tokens": len(script.tokens)}
    await _send(response, {"choices": [], "usage": usage})
    if script.send_done:
        await response.write(b"data: [DONE]\n\n")


async def _send(response: web.StreamResponse, chunk: dict[str, Any]) -> None:
    await response.write(_frame(chunk))


def _frame(chunk: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


@asynccontextmanager
async def serving(script: Callable[[Call], Script] = obedient) -> AsyncIterator[ScriptedServer]:
    """Run a scripted server on a free port of 127.0.0.1."""
    scripted = ScriptedServer(script)
    server = TestServer(scripted.app())
    await server.start_server()
    scripted.url = str(server.make_url("")).rstrip("/")
    try:
        yield scripted
    finally:
        await server.close()
