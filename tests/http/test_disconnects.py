"""Clients that leave: whatever they were waiting for, their slot is free within one step."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
from collections.abc import Callable

import pytest

from scheduler.testing import FakeEngine
from tests.http.harness import FakeModel, Gate, Server, serving
from tests.waiting import until

#: A prompt of several prefill steps.
LONG = "x" * 100

Leave = Callable[[asyncio.StreamWriter], None]


def close(writer: asyncio.StreamWriter) -> None:
    writer.close()


def reset(writer: asyncio.StreamWriter) -> None:
    """The connection breaks: the server gets a RST."""
    client = writer.get_extra_info("socket")
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def half_close(writer: asyncio.StreamWriter) -> None:
    """The client will send nothing more, but could still read."""
    writer.write_eof()


async def send(server: Server, path: str, body: object) -> asyncio.StreamWriter:
    data = json.dumps(body).encode()
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (path.encode(), len(data), data))
    return writer


async def start(server: Server, *, stream: bool, n: int = 1, prompt: str = LONG) -> asyncio.StreamWriter:
    body = {"prompt": prompt, "stream": stream, "n": n, "max_tokens": 100, "ignore_eos": True}
    return await send(server, "/v1/completions", body)


async def let_the_server_notice() -> None:
    await asyncio.sleep(0.05)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("leave", [close, reset, half_close])
async def test_in_the_queue(leave: Leave, stream: bool) -> None:
    gate = Gate()
    async with serving(FakeEngine(on_step=gate), streams=1) as server:
        first = asyncio.create_task(server.complete(max_tokens=3, ignore_eos=True))
        await until(lambda: gate.num_entered == 1)
        writer = await start(server, stream=stream)
        await until(lambda: server.core.num_waiting == 1)
        leave(writer)
        await until(lambda: server.core.num_waiting == 0)  # without any step
        server.core.check_integrity()
        gate.open()
        assert (await first).status == 200
        writer.close()


@pytest.mark.parametrize("steps", [1, 2, 4, 7], ids=["in prefill", "later", "first token", "in decode"])
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("stream", [True, False])
async def test_while_running(stream: bool, n: int, steps: int) -> None:
    """The step in flight when the client left is the last one that computed anything for it."""
    gate = Gate()
    async with serving(FakeEngine(on_step=gate), streams=2) as server:
        writer = await start(server, stream=stream, n=n)
        gate.allow(steps)
        await until(lambda: gate.num_entered == steps + 1)
        writer.close()
        await let_the_server_notice()
        assert server.core.num_running in (1, n)  # one outside the step in flight ends at once
        gate.allow()
        await server.until_idle()
        assert gate.num_entered == steps + 1
        gate.open()
        assert (await server.complete(max_tokens=2)).status == 200


@pytest.mark.parametrize("leave", [close, reset, half_close])
async def test_ways_to_leave_a_running_stream(leave: Leave) -> None:
    async with serving(FakeEngine(step_seconds=0.005)) as server:
        writer = await start(server, stream=True)
        await until(lambda: server.core.num_running == 1)
        leave(writer)
        await server.until_idle()
        assert await server.metric('batchserve_requests_total{outcome="cancelled"}') == 1
        writer.close()


async def test_while_sending_the_body(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as server:
        for leave in (close, reset):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{"prom')
            await let_the_server_notice()
            leave(writer)
            await let_the_server_notice()
        assert (await server.complete(max_tokens=1)).status == 200
    assert caplog.text == ""


async def test_while_a_long_prompt_is_tokenised() -> None:
    gate = Gate()

    class SlowModel(FakeModel):
        def tokenize(self, text: str, *, add_special: bool) -> list[int]:
            gate()
            return FakeModel.tokenize(self, text, add_special=add_special)

    async with serving(model=SlowModel(ctx_per_stream=10_000)) as server:
        writer = await start(server, stream=True, prompt="x" * 5000)
        await until(lambda: gate.num_entered == 1)
        writer.close()
        await let_the_server_notice()
        gate.open()
        await let_the_server_notice()
        assert server.core.is_idle
        assert not await server.metric('batchserve_requests_total{outcome="cancelled"}')


async def test_a_storm(caplog: pytest.LogCaptureFixture) -> None:
    """500 requests, each dropped at a moment of its own; then everything is as before."""
    rng = random.Random(2)
    engine = FakeEngine(step_seconds=0.0005)

    async def come_and_go(server: Server) -> None:
        await asyncio.sleep(rng.random())
        prompt = "x" * rng.randrange(1, 100)
        writer = await start(server, stream=rng.random() < 0.5, n=rng.choice([1, 1, 2, 4]), prompt=prompt)
        await asyncio.sleep(rng.random() ** 3)
        rng.choice([close, reset, half_close])(writer)
        server.core.check_integrity()
        await asyncio.sleep(0.1)
        writer.close()

    async with serving(engine, queue=100) as server:
        before = await server.complete(seed=1, ignore_eos=True)
        async with asyncio.TaskGroup() as group:
            for _ in range(500):
                group.create_task(come_and_go(server))
        await server.until_idle()
        after = await server.complete(seed=1, ignore_eos=True)
        assert after.json["choices"] == before.json["choices"]
        assert await server.metric('batchserve_requests_total{outcome="cancelled"}') > 100
    assert caplog.text == ""
