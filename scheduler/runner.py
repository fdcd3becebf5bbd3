"""The only driver: plans on the event loop, executes in one engine thread, hands events to their streams."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from collections.abc import Sequence as Seq
from concurrent.futures import Executor

from scheduler.core import Core, Events
from scheduler.engine import Engine
from scheduler.errors import EngineError
from scheduler.plan import StepPlan
from scheduler.request import Request
from scheduler.stream import TokenStream

log = logging.getLogger("batchserve.runner")


class Runner:
    """Owns a Core and drives an Engine in `thread`, an executor of one thread (None: the loop's own executor).

    One step is in flight at a time. While the engine thread is inside a step, the event loop delivers
    the tokens of the step before.
    """

    def __init__(
        self,
        core: Core,
        engine: Engine,
        thread: Executor | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._core = core
        self._engine = engine
        self._thread = thread
        self._clock = clock
        self._streams: dict[str, TokenStream] = {}
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._failure: EngineError | None = None

    @property
    def core(self) -> Core:
        return self._core

    @property
    def failure(self) -> EngineError | None:
        """What ended the driver loop, if something did."""
        return self._failure

    def submit(self, requests: Seq[Request]) -> list[TokenStream]:
        """Admit all of `requests` or none; one stream each.

        Raises:
            RequestRejected: the scheduler does not take them.
            EngineError: the engine is gone.
        """
        if self._failure is not None:
            raise EngineError(str(self._failure))
        self._core.submit(requests, self._clock())
        streams = [TokenStream() for _ in requests]
        self._streams.update(zip((request.id for request in requests), streams, strict=True))
        self._idle.clear()
        self._work.set()
        return streams

    def cancel(self, request_id: str) -> None:
        """End a request, whatever its state; idempotent."""
        self._deliver(self._core.cancel(request_id, self._clock()))

    async def run(self) -> None:
        """Drive until cancelled. A step in flight goes on in its thread, since llama.cpp cannot be interrupted."""
        try:
            while True:
                await self._step()
        except Exception as error:  # a bug: tell everyone who waits, rather than leave them waiting
            log.exception("the scheduler stopped")
            self._failure = EngineError(f"the scheduler stopped: {error}")
            self._deliver(self._core.fail_all(self._failure, self._clock()))

    async def drain(self, patience: float) -> None:
        """Take nothing new, and wait until all requests have ended; after `patience` seconds they are cancelled."""
        self._core.drain()
        try:
            async with asyncio.timeout(patience):
                await self._idle.wait()
        except TimeoutError:
            self._deliver(self._core.cancel_all(self._clock()))
            await self._idle.wait()

    async def _step(self) -> None:
        plan = self._core.plan(self._clock())
        if plan is None:
            self._work.clear()
            await self._work.wait()
            return
        self._deliver(await self._execute(plan))

    async def _execute(self, plan: StepPlan) -> Events:
        loop = asyncio.get_running_loop()
        try:
            result = await loop.run_in_executor(self._thread, self._engine.execute, plan)
        except EngineError as error:
            log.error("a %s step of %d sequences failed: %s", plan.kind, len(plan.chunks), error)
            return self._core.fail(error, self._clock())
        return self._core.apply(result, self._clock())

    def _deliver(self, events: Events) -> None:
        for request_id, event in events:
            self._streams[request_id].put(event)
            if self._streams[request_id].has_ended:
                del self._streams[request_id]
        if self._core.is_idle:
            self._idle.set()
