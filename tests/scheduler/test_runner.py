"""The driver loop over a real event loop and a real engine thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from scheduler import (
    Core,
    Draining,
    EngineError,
    Failed,
    Finished,
    FinishReason,
    Limits,
    Request,
    Runner,
    StepPlan,
    TokenDelta,
    TokenStream,
    Usage,
    Worker,
)
from scheduler.testing import FakeEngine, FakeVocabulary


@asynccontextmanager
async def running(engine: FakeEngine, streams: int = 2, queue: int = 4) -> AsyncIterator[Runner]:
    with Worker("engine") as worker:
        runner = Runner(Core(Limits(streams, queue, 256, 8), FakeVocabulary()), engine, worker)
        task = asyncio.create_task(runner.run())
        try:
            yield runner
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def read(stream: TokenStream) -> tuple[list[int], Finished | Failed]:
    tokens: list[int] = []
    while isinstance(event := await stream.next(), TokenDelta):
        tokens += event.token_ids
    return tokens, event


def request(name: str, max_tokens: int = 8) -> Request:
    return Request(name, tuple(range(1, 6)), max_tokens=max_tokens, ignore_eos=True)


async def test_streams_get_their_tokens() -> None:
    engine = FakeEngine()
    async with running(engine) as runner:
        streams = runner.submit([request("a"), request("b")])
        results = await asyncio.gather(*map(read, streams))
    alone = engine.solo((1, 2, 3, 4, 5), 1)
    assert [tokens[:1] for tokens, _ in results] == [alone, alone]
    assert [len(tokens) for tokens, _ in results] == [8, 8]


async def test_unread_tokens_are_coalesced_and_stop_nobody() -> None:
    async with running(FakeEngine()) as runner:
        slow, fast = runner.submit([request("slow"), request("fast")])
        await read(fast)
        first = await slow.next()
        assert (
            isinstance(first, TokenDelta)
            and len(first.token_ids) == 8
            and len(first.text) == 8 - (first.token_ids.count(0))
        )
        assert isinstance(await slow.next(), Finished)
        assert isinstance(await slow.next(), Finished), "after the last event there is no other"


async def test_cancel_while_the_engine_is_inside_a_step() -> None:
    inside, go = threading.Event(), threading.Event()

    def hold(plan: StepPlan) -> None:
        inside.set()
        go.wait(5)

    async with running(FakeEngine(on_step=hold)) as runner:
        (stream,) = runner.submit([request("a")])
        await asyncio.to_thread(inside.wait, 5)
        runner.cancel("a")
        assert not runner.core.is_idle
        go.set()
        assert await read(stream) == ([], Finished(FinishReason.CANCELLED, Usage(5, 1)))
        assert runner.core.is_idle


async def test_drain_lets_running_streams_end() -> None:
    async with running(FakeEngine(step_seconds=0.001)) as runner:
        (stream,) = runner.submit([request("a", max_tokens=20)])
        await runner.drain(patience=5)
        with pytest.raises(Draining):
            runner.submit([request("b")])
        tokens, last = await read(stream)
        assert len(tokens) == 20 and isinstance(last, Finished)


async def test_drain_cancels_what_takes_too_long() -> None:
    async with running(FakeEngine(step_seconds=0.01)) as runner:
        running_stream, _, waiting = runner.submit([request("a", 200), request("b", 200)]) + runner.submit(
            [request("c", 200)]
        )
        await runner.drain(patience=0.05)
        for stream in (running_stream, waiting):
            _, last = await read(stream)
            assert isinstance(last, Finished) and last.reason is FinishReason.CANCELLED
        assert runner.core.is_idle


async def test_an_engine_error_reaches_its_request_and_the_next_is_served() -> None:
    engine = FakeEngine(fail={1: EngineError("broken")})
    async with running(engine) as runner:
        (stream,) = runner.submit([request("a")])
        _, last = await read(stream)
        assert isinstance(last, Failed) and str(last.error) == "broken"
        (stream,) = runner.submit([request("b")])
        tokens, last = await read(stream)
        assert len(tokens) == 8 and isinstance(last, Finished)


async def test_a_bug_in_the_engine_leaves_nobody_waiting(caplog: pytest.LogCaptureFixture) -> None:
    def explode(plan: StepPlan) -> None:
        raise ZeroDivisionError("bug")

    async with running(FakeEngine(on_step=explode)) as runner:
        streams = runner.submit([request("a"), request("b")]) + runner.submit([request("c")])
        for stream in streams:
            _, last = await read(stream)
            assert isinstance(last, Failed) and "bug" in str(last.error)
        with pytest.raises(EngineError, match="the scheduler stopped"):
            runner.submit([request("d")])
        assert runner.failure is not None
    assert "the scheduler stopped" in caplog.text
