"""What a stream's bytes look like when text, tokens, time and readers do not line up."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from batchserve.http import Settings
from scheduler import EngineError, StepPlan, StepResult
from scheduler.testing import FakeEngine
from tests.http.harness import (
    FakeModel,
    Gate,
    PieceVocabulary,
    Reply,
    ScriptedEngine,
    Server,
    serving,
)
from tests.waiting import until


def deltas(reply: Reply) -> list[tuple[str, list[int]]]:
    """Text and ids of every chunk of a text completion, those without either left out."""
    choices = [chunk["choices"][0] for chunk in reply.chunks]
    return [(choice["text"], choice["token_ids"]) for choice in choices if choice["text"] or choice["token_ids"]]


async def both_ways(server: Server, **fields: object) -> tuple[Reply, Reply]:
    """The same request whole and as a stream; checks that they say the same."""
    whole = await server.complete(return_token_ids=True, **fields)
    stream = await server.complete(return_token_ids=True, stream=True, **fields)
    choice = whole.json["choices"][0]
    assert "".join(text for text, _ in deltas(stream)) == choice["text"]
    assert [token for _, ids in deltas(stream) for token in ids] == choice["token_ids"]
    assert stream.chunks[-1]["choices"][0]["finish_reason"] == choice["finish_reason"]
    return whole, stream


async def test_characters_come_whole() -> None:
    """A token's ids come with the chunk that completes its last character."""
    euro, smile = "€".encode(), "😀".encode()
    pieces = (b"a", euro[:1], euro[1:], smile[:2], smile[2:3], smile[3:] + b"!")
    script = [1, 2, 3, 4, 5, 6, 0]
    async with serving(ScriptedEngine(*script), vocabulary=PieceVocabulary(*pieces)) as server:
        whole, stream = await both_ways(server)
    assert whole.json["choices"][0]["text"] == "a€😀!"
    assert whole.json["choices"][0]["finish_reason"] == "stop"
    assert "\ufffd" not in stream.text
    ends = {"a": 1, "a€": 3, "a€😀!": 6}
    text, count = "", 0
    for piece, ids in deltas(stream):
        text, count = text + piece, count + len(ids)
        assert ends[text] == count


async def test_an_unfinished_character_is_replaced_at_the_end() -> None:
    async with serving(ScriptedEngine(1, 2, 0), vocabulary=PieceVocabulary(b"a", b"\xe2\x82")) as server:
        whole, _ = await both_ways(server)
    assert whole.json["choices"][0]["text"] == "a\ufffd"
    assert whole.json["choices"][0]["token_ids"] == [1, 2]


@pytest.mark.parametrize(
    ("stop", "text", "ids"),
    [
        ("lo wo", "hel", [1]),
        (["xyz", "world"], "hello ", [1, 2]),
        ("o", "hell", [1]),
        ("h", "", []),
        ("d!", "hello worl", [1, 2, 3]),
        ("nothing", "hello world!", [1, 2, 3, 4, 5]),
        ([], "hello world!", [1, 2, 3, 4, 5]),
    ],
)
async def test_stop_strings_across_tokens(stop: object, text: str, ids: list[int]) -> None:
    pieces = (b"hel", b"lo ", b"wor", b"ld", b"!")
    async with serving(ScriptedEngine(1, 2, 3, 4, 5, 0), vocabulary=PieceVocabulary(*pieces)) as server:
        whole, _ = await both_ways(server, stop=stop)
    choice = whole.json["choices"][0]
    assert (choice["text"], choice["token_ids"]) == (text, ids)
    assert choice["finish_reason"] == "stop"


async def test_text_that_only_began_like_a_stop_string_is_not_lost() -> None:
    async with serving(ScriptedEngine(1, 2, 0), vocabulary=PieceVocabulary(b"ab", b"c")) as server:
        whole, _ = await both_ways(server, stop="cd", max_tokens=2)
    assert whole.json["choices"][0]["text"] == "abc"
    assert whole.json["choices"][0]["finish_reason"] == "length"


async def test_tokens_without_text() -> None:
    """A control token is told by its id; without ids there is nothing to send."""
    vocabulary = PieceVocabulary(b"a", b"")
    async with serving(ScriptedEngine(2, 1, 2, 0), vocabulary=vocabulary) as server:
        whole, _ = await both_ways(server)
        plain = await server.complete(stream=True)
    assert whole.json["choices"][0]["token_ids"] == [2, 1, 2]
    assert [chunk["choices"][0]["text"] for chunk in plain.chunks] == ["a", ""]


async def test_text_is_escaped_for_json_and_for_line_splitting_clients() -> None:
    text = '"\\\n\r\t\x00\x85\u2028\u2029</é'
    async with serving(ScriptedEngine(1, 0), vocabulary=PieceVocabulary(text.encode())) as server:
        whole, stream = await both_ways(server)
    assert whole.json["choices"][0]["text"] == text
    assert [line[:6] for line in stream.text.splitlines() if line] == ["data: "] * 3


@pytest.mark.parametrize("name", ["\x00", "[]", '"\\u0000"', "[5]"])
async def test_a_model_name_that_looks_like_a_template(name: str) -> None:
    async with serving(model=FakeModel(id=name)) as server:
        reply = await server.complete(stream=True, return_token_ids=True, max_tokens=2, ignore_eos=True)
    assert {chunk["model"] for chunk in reply.chunks} == {name}


async def test_headers_come_on_admission_and_comments_while_waiting() -> None:
    gate = Gate()
    settings = Settings(heartbeat_seconds=0.03)
    async with (
        serving(FakeEngine(on_step=gate), streams=1, settings=settings) as server,
        server.stream(prompt="first", max_tokens=2, ignore_eos=True) as first,
        server.stream(prompt="second", max_tokens=1, ignore_eos=True) as second,
    ):
        assert (server.core.num_running, server.core.num_waiting) == (1, 1)
        for stream in (first, second, first, second):
            assert await stream.block() == ": keep-alive"
        gate.allow()
        while (block := await first.block()) == ": keep-alive":
            pass
        assert block.startswith("data: {")
        assert await first.block() == ": keep-alive"  # a step that takes long is a wait, too
        gate.open()


async def test_no_comments_between_events_that_keep_coming() -> None:
    engine = FakeEngine(step_seconds=0.005)
    async with serving(engine, settings=Settings(heartbeat_seconds=0.2)) as server:
        reply = await server.complete(stream=True, max_tokens=100, ignore_eos=True)
    assert ": keep-alive" not in reply.text


async def test_a_failure_in_mid_stream_is_an_error_event(caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine(fail={3: EngineError("secret detail")})
    async with serving(engine) as server:
        for n in (1, 2):
            engine.plans.clear()
            reply = await server.complete(stream=True, n=n, max_tokens=9, ignore_eos=True)
            assert reply.status == 200
            assert json.loads(reply.data[-1]) == {
                "error": {
                    "message": "The model could not go on with this request.",
                    "type": "server_error",
                    "param": None,
                    "code": "engine_failed",
                }
            }
            assert len(reply.data) > 1
            assert "secret" not in reply.text and "[DONE]" not in reply.text
            await server.until_idle()
    assert "secret detail" in caplog.text


class ThickVocabulary:
    """Every token is 4 kB of text."""

    def piece(self, token: int) -> bytes:
        return b"x" * 4096

    def ends_generation(self, token: int) -> bool:
        return False


class FreeEngine:
    """Token 1, as fast as it is asked; counts steps."""

    def __init__(self) -> None:
        self.num_steps = 0

    def execute(self, plan: StepPlan) -> StepResult:
        self.num_steps += 1
        return StepResult(tuple((chunk.handle, 1) for chunk in plan.chunks if chunk.sample))


async def test_a_slow_reader_stops_nobody_and_gets_larger_chunks() -> None:
    engine = FreeEngine()
    model = FakeModel(ctx_per_stream=4000)
    async with serving(engine, vocabulary=ThickVocabulary(), model=model, streams=2) as server:
        body = {"prompt": "a", "max_tokens": 3000, "stream": True, "return_token_ids": True}
        reader, writer = await slow_connection(server.port)
        writer.write(raw_post(body))
        await until(lambda: server.core.num_running == 1)
        other = await server.complete(max_tokens=2900)
        assert other.json["usage"]["completion_tokens"] == 2900
        await until(lambda: server.core.is_idle)  # generated to the end, though hardly anything was read
        text = (await reader.read()).decode()
        writer.close()
    chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    ids = [chunk["choices"][0]["token_ids"] for chunk in chunks]
    assert sum(map(len, ids)) == 3000
    assert max(map(len, ids)) > 500
    assert sum(len(chunk["choices"][0]["text"]) for chunk in chunks) == 3000 * 4096


async def slow_connection(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection whose reader takes little until somebody reads from it."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
    return await asyncio.open_connection(sock=client, limit=4096)


def raw_post(body: object) -> bytes:
    """HTTP/1.0, so that the answer is not chunked."""
    data = json.dumps(body).encode()
    return b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b" % (len(data), data)


async def test_engine_work_does_not_stop_the_probes() -> None:
    gate = Gate()
    async with serving(FakeEngine(on_step=gate)) as server:
        task = asyncio.create_task(server.complete(max_tokens=1))
        await until(lambda: server.core.num_running == 1)
        assert (await server.get("/health")).status == 200
        gate.open()
        assert (await task).status == 200
