"""A real server on a real socket, over the scheduler's fake engine and a fake model."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web

from batchserve.http import Metrics, Readiness, Settings, create_app
from scheduler import Core, Engine, Limits, Runner, StepPlan, StepResult, Vocabulary, Worker
from scheduler.testing import FakeEngine, FakeVocabulary
from tests.waiting import until

BOS = 63
BOS_TEXT = "<s>"
CREATED = 1_700_000_000

#: Says what it was given: the role in brackets, then the text.
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


@dataclass(frozen=True, slots=True)
class FakeModel:
    """A token per character, and token 63 for `<s>`."""

    id: str = "fake-model"
    created: int = CREATED
    n_vocab: int = 64
    ctx_per_stream: int = 256
    chat_template: str | None = TEMPLATE
    bos_text: str = BOS_TEXT
    eos_text: str = "</s>"

    def tokenize(self, text: str, *, add_special: bool) -> list[int]:
        start = [BOS] if add_special else []
        if text.startswith(self.bos_text):
            start, text = [*start, BOS], text.removeprefix(self.bos_text)
        return [*start, *(1 + ord(character) % 60 for character in text)]

    def facts(self) -> dict[str, object]:
        return {"ctx_per_stream": self.ctx_per_stream}


class PieceVocabulary:
    """Token i+1 adds `pieces[i]`; token 0 ends generation."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = (b"", *pieces)

    def piece(self, token: int) -> bytes:
        return self._pieces[token]

    def ends_generation(self, token: int) -> bool:
        return token == 0


class ScriptedEngine:
    """Generates the same `script` for every request."""

    def __init__(self, *script: int) -> None:
        self._script = script
        self._prompt_lengths: dict[int, int] = {}

    def execute(self, plan: StepPlan) -> StepResult:
        self._prompt_lengths |= {opening.handle: len(opening.prompt) for opening in plan.opens}
        ends = [(chunk.handle, chunk.position + len(chunk.tokens)) for chunk in plan.chunks if chunk.sample]
        return StepResult(tuple((handle, self._script[end - self._prompt_lengths[handle]]) for handle, end in ends))


class Gate:
    """Holds the engine thread: as a FakeEngine's `on_step`, lets through as many steps as were allowed."""

    def __init__(self) -> None:
        self._allowed = threading.Semaphore(0)
        self._is_open = False
        self.num_entered = 0

    def __call__(self, plan: StepPlan | None = None) -> None:
        self.num_entered += 1
        if not self._is_open:
            assert self._allowed.acquire(timeout=20), "the gate was never opened"

    def allow(self, steps: int = 1) -> None:
        self._allowed.release(steps)

    def open(self) -> None:
        self._is_open = True
        self._allowed.release()


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole HTTP reply."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def error(self) -> Any:
        return self.json["error"]

    @property
    def data(self) -> list[str]:
        """The data of the events, in order."""
        return [
            line.removeprefix("data: ")
            for block in self.text.split("\n\n")
            for line in block.splitlines()
            if line.startswith("data: ")
        ]

    @property
    def chunks(self) -> list[Any]:
        """The decoded events of a stream that ended well."""
        assert self.data[-1] == "[DONE]", self.text
        return [json.loads(item) for item in self.data[:-1]]


@dataclass(frozen=True, slots=True)
class LiveStream:
    """An open event stream."""

    response: aiohttp.ClientResponse

    async def block(self) -> str:
        """The next event or comment as it came."""
        return (await self.response.content.readuntil(b"\n\n")).decode().removesuffix("\n\n")

    async def chunk(self) -> Any:
        """The next event, decoded."""
        return json.loads((await self.block()).removeprefix("data: "))


@dataclass(frozen=True, slots=True)
class Server:
    """A running server and the parts a test may look into."""

    port: int
    core: Core
    runner: Runner
    readiness: Readiness
    session: aiohttp.ClientSession

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def request(self, method: str, path: str, **options: Any) -> Reply:
        async with self.session.request(method, self.url + path, **options) as response:
            return Reply(response.status, dict(response.headers), await response.text())

    async def get(self, path: str) -> Reply:
        return await self.request("GET", path)

    async def post(self, path: str, body: object) -> Reply:
        return await self.request("POST", path, json=body)

    async def complete(self, prompt: object = "hi", **fields: object) -> Reply:
        return await self.post("/v1/completions", {"prompt": prompt, **fields})

    async def chat(self, content: object = "hi", **fields: object) -> Reply:
        messages = [{"role": "user", "content": content}]
        return await self.post("/v1/chat/completions", {"messages": messages, **fields})

    @asynccontextmanager
    async def stream(self, path: str = "/v1/completions", **body: object) -> AsyncIterator[LiveStream]:
        """Open a stream and read it event by event; leaving closes the connection."""
        async with self.session.post(self.url + path, json={"stream": True, **body}) as response:
            assert response.status == 200, await response.text()
            try:
                yield LiveStream(response)
            finally:
                response.close()

    async def metric(self, name: str) -> float:
        """The value of one sample, by its name with labels."""
        lines = (await self.get("/metrics")).text.splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + " ")), 0.0)

    async def until_idle(self) -> None:
        """Wait until no request is left, and check the books."""
        await until(lambda: self.core.is_idle)
        self.core.check_integrity()


@asynccontextmanager
async def serving(
    engine: Engine | None = None,
    *,
    vocabulary: Vocabulary | None = None,
    model: FakeModel | None = None,
    streams: int = 4,
    queue: int = 64,
    prefill_chunk: int = 32,
    settings: Settings | None = None,
    is_ready: bool = True,
) -> AsyncIterator[Server]:
    """Run a server on a free port of 127.0.0.1."""
    model = model or FakeModel()
    metrics, readiness = Metrics(), Readiness()
    limits = Limits(streams, queue, model.ctx_per_stream, prefill_chunk)
    core = Core(limits, vocabulary or FakeVocabulary(), metrics)
    app = create_app(readiness, metrics, settings or Settings())
    app_runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    with Worker("engine") as worker:
        runner = Runner(core, engine or FakeEngine(), worker)
        if is_ready:
            readiness.set_ready(model, runner)
        await app_runner.setup()
        await web.TCPSite(app_runner, "127.0.0.1", 0).start()
        driver = asyncio.create_task(runner.run())
        connector = aiohttp.TCPConnector(limit=0)
        try:
            async with aiohttp.ClientSession(connector=connector) as session:
                yield Server(app_runner.addresses[0][1], core, runner, readiness, session)
        finally:
            await app_runner.cleanup()
            driver.cancel()
            with suppress(asyncio.CancelledError):
                await driver


def anonymous(body: dict[str, Any], prefix: str) -> dict[str, Any]:
    """`body` without what differs from one request to the next, which is checked here."""
    assert body["id"].startswith(f"{prefix}-")
    assert body["created"] > CREATED
    return {name: value for name, value in body.items() if name not in ("id", "created")}


def usage(prompt: int, completion: int) -> dict[str, Any]:
    """The usage object of a reply, nothing of it from a cache."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def letters(tokens: Sequence[int]) -> str:
    """The text of a FakeVocabulary's tokens."""
    return b"".join(map(FakeVocabulary().piece, tokens)).decode()
