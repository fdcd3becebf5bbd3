"""The only driver: plans on the event loop, executes in one engine thread, hands events to their streams."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from collections.abc import Sequence as Seq

from scheduler.core import Core, Events
from scheduler.engine import Engine
from scheduler.errors import EngineError
from scheduler.plan import StepPlan, StepResult
from scheduler.request import Request
from scheduler.stream import TokenStream
from scheduler.worker import Worker

log = logging.getLogger("batchserve.runner")


class Runner:
    """Owns a Core and drives an Engine in the thread of `worker`; one step is in flight at a time.

    The next step starts before the tokens of the last one are delivered, so that delivery costs no time.
    """

    def __init__(
        self,
        core: Core,
        engine: Engine,
        worker: Worker,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._core = core
        self._engine = engine
        self._worker = worker
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
                await self._serve_until_idle()
                self._work.clear()
                await self._work.wait()
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

    async def _serve_until_idle(self) -> None:
        events: Events = []
        while (plan := self._core.plan(self._clock())) is not None:
            step = self._worker.call(self._engine.execute, plan)
            self._deliver(events)
            events = await self._outcome(plan, step)
        self._deliver(events)

    async def _outcome(self, plan: StepPlan, step: asyncio.Future[StepResult]) -> Events:
        try:
            result = await step
        except EngineError as error:
            log.error("a %s step of %d sequences failed: %s", plan.kind, len(plan.chunks), error)
            return self._core.fail(error, self._clock())
        return self._core.apply(result, self._clock())

    def _deliver(self, events: Events) -> None:
        self._core.report()
        for request_id, event in events:
            self._streams[request_id].put(event)
            if self._streams[request_id].has_ended:
                del self._streams[request_id]
        if self._core.is_idle:
            self._idle.set()
