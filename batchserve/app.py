"""The composition root: builds the parts, starts them in order, and ends them in the opposite order."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from aiohttp import web

from batchserve.config import Config, ConfigError, ExtraBuffers
from batchserve.http import Metrics, Readiness, Settings, create_app
from batchserve.llama.engine import LlamaEngine
from batchserve.llama.kernels import KernelConfig
from batchserve.llama.model import LoadedModel, load
from batchserve.llama.trial import choose_kernels
from scheduler import Core, EngineError, Limits, Runner, Worker
from scheduler.policy import max_step_rows

log = logging.getLogger("batchserve")

T = TypeVar("T")

#: Seconds that responses get to send their last bytes when their streams have ended.
_FLUSH_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class LlamaServedModel:
    """A loaded model as the HTTP side sees it (batchserve.http.ServedModel)."""

    loaded: LoadedModel
    id: str
    created: int

    @property
    def n_vocab(self) -> int:
        return self.loaded.vocab.size

    @property
    def ctx_per_stream(self) -> int:
        return self.loaded.ctx_per_stream

    @property
    def chat_template(self) -> str | None:
        return self.loaded.facts.chat_template

    @property
    def bos_text(self) -> str:
        return self.loaded.vocab.bos_text

    @property
    def eos_text(self) -> str:
        return self.loaded.vocab.eos_text

    def tokenize(self, text: str, *, add_special: bool) -> list[int]:
        return self.loaded.vocab.tokenize(text, add_special=add_special)

    def facts(self) -> dict[str, object]:
        facts = self.loaded.facts
        return {
            "description": facts.description,
            "num_parameters": facts.num_parameters,
            "num_bytes": facts.num_bytes,
            "num_tokens": facts.num_tokens,
            "ctx_train": facts.ctx_train,
            "ctx_per_stream": self.loaded.ctx_per_stream,
            "max_batch_streams": self.loaded.num_streams,
            "kernels": self.loaded.kernels.describe(),
        }


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers: where, and with what."""

    url: str
    readiness: Readiness
    runner: Runner
    driver: asyncio.Task[None]


async def serve(config: Config) -> None:
    """Serve until SIGTERM or SIGINT, then let running streams end.

    Raises:
        ConfigError: the address cannot be listened on, or a forced setting does not work here.
        ModelError: the model cannot be served.
        EngineError: the engine is lost; its requests were told.
    """
    stop = _catch_signals()
    async with AsyncExitStack() as stack:
        server = await _unless(stop, stack.enter_async_context(running(config)))
        if server is None:
            return
        await _unless(stop, asyncio.wait({server.driver}))
        if server.runner.failure is not None:
            raise server.runner.failure
        await _drain(server, config.drain_timeout)
    log.info("stopped")


@asynccontextmanager
async def running(config: Config) -> AsyncIterator[Server]:
    """A server with its model loaded. The socket opens first, so that probes see it loading."""
    readiness, metrics = Readiness(), Metrics()
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(_listening(config, readiness, metrics))
        log.info("loading %s; listening on %s", config.model, url)
        kernels = await _choose_kernels(config)
        worker = stack.enter_context(Worker("engine"))
        loaded = await stack.enter_async_context(_loaded(config, kernels, worker))
        runner, driver = await stack.enter_async_context(_driven(config, loaded, metrics, worker))
        readiness.set_ready(LlamaServedModel(loaded, config.model_id, int(time.time())), runner)
        streams = f"{loaded.num_streams} streams of {loaded.ctx_per_stream} tokens"
        log.info("ready: %s on %s, %s, %s", config.model_id, url, streams, kernels.describe())
        yield Server(url, readiness, runner, driver)


async def _drain(server: Server, patience: float) -> None:
    core = server.runner.core
    log.info("draining: %d running, %d waiting", core.num_running, core.num_waiting)
    server.readiness.set_draining()
    await server.runner.drain(patience)


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`, or None when `stop` came first, which cancels it."""
    task = asyncio.create_task(work)
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    return None if task.cancelled() else task.result()


async def _choose_kernels(config: Config) -> KernelConfig:
    wanted = KernelConfig(config.threads, extra_buffers=config.extra_buffers is not ExtraBuffers.OFF)
    kernels, notice = await choose_kernels(config.model, wanted)
    if notice is not None and config.extra_buffers is ExtraBuffers.ON:
        raise ConfigError(f"--extra-buffers on: {notice}")
    if notice is not None:
        log.warning("%s", notice)
    return kernels


@asynccontextmanager
async def _loaded(config: Config, kernels: KernelConfig, worker: Worker) -> AsyncIterator[LoadedModel]:
    """The model, loaded by the thread that will run it.

    Loading computes, too. From another thread it would leave a second OpenMP pool behind; with more pool threads
    than cores GNU's OpenMP stops spinning at its barriers, and every later step takes twice as long.
    """
    rows = max_step_rows(config.prefill_chunk)
    lifetime = load(config.model, kernels, config.max_batch_streams, config.ctx_per_stream, rows)
    loaded = await worker.call(lifetime.__enter__)
    try:
        yield loaded
    finally:
        await worker.call(lifetime.__exit__, None, None, None)


@asynccontextmanager
async def _driven(
    config: Config, loaded: LoadedModel, metrics: Metrics, worker: Worker
) -> AsyncIterator[tuple[Runner, asyncio.Task[None]]]:
    limits = Limits(
        max_streams=loaded.num_streams,
        max_queue=config.max_queue,
        ctx_per_stream=loaded.ctx_per_stream,
        prefill_chunk=config.prefill_chunk,
        chunk_half_at=loaded.facts.chunk_half_at,
    )
    engine = LlamaEngine(loaded)
    runner = Runner(Core(limits, loaded.vocab, metrics), engine, worker)
    driver = asyncio.create_task(runner.run())
    try:
        yield runner, driver
    finally:
        driver.cancel()
        with suppress(asyncio.CancelledError, EngineError):
            await driver
        # The last step may still be running; what is freed here is freed after it.
        await worker.call(engine.close)


@asynccontextmanager
async def _listening(config: Config, readiness: Readiness, metrics: Metrics) -> AsyncIterator[str]:
    """The open socket; yields the address clients use."""
    settings = Settings(max_body_bytes=int(config.max_body_mib * 2**20))
    app = create_app(readiness, metrics, settings)
    # Without handler_cancellation a client that leaves would keep its stream.
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=_FLUSH_SECONDS)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, config.host, config.port).start()
        except OSError as error:
            raise ConfigError(f"cannot listen on {config.host}:{config.port}: {error.strerror}") from None
        host, port = runner.addresses[0][:2]
        yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    finally:
        await runner.cleanup()


def _catch_signals() -> asyncio.Event:
    """An event that SIGTERM or SIGINT sets; a second signal ends the process at once."""
    stop = asyncio.Event()

    def on_signal(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal, number)
    return stop
