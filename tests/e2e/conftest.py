"""A whole server in this process: real model, real socket, its scheduler within reach."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from batchserve.app import Server, running
from batchserve.config import Config
from batchserve.llama.threads import default_threads

Start = Callable[..., AbstractAsyncContextManager[Server]]


@pytest.fixture
def start(smollm2_path: Path) -> Start:
    """`async with start(max_batch_streams=4) as server:` serves SmolLM2 on a free port."""

    @asynccontextmanager
    async def run(**settings: object) -> AsyncIterator[Server]:
        defaults = {"ctx_per_stream": 2560, "max_queue": 64, "threads": default_threads()}
        config = Config(smollm2_path, "smollm2", host="127.0.0.1", port=0, **{**defaults, **settings})  # type: ignore[arg-type]
        async with running(config) as server:
            yield server

    return run


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(120)) as made:
        yield made
