"""Server processes of a suite: started, waited for, stopped."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import psutil

from loadtest.client import Client, Live
from loadtest.errors import BusyMachineError, ConfigError, ServerUnavailableError
from loadtest.suite_config import ServerEntry, fill
from loadtest.wire import Target

_POLL_S = 0.1
_LOG_TAIL_LINES = 8


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """A server entry with its variables filled in."""

    entry: ServerEntry
    command: tuple[str, ...]
    url: str
    env: dict[str, str]
    threads: int | None
    pid: int | None

    @classmethod
    def of(cls, entry: ServerEntry, variables: Mapping[str, str]) -> "ServerPlan":
        """Fill in an entry. ConfigError for a variable without a value, or a number that is none."""
        return cls(
            entry=entry,
            command=tuple(fill(word, variables) for word in entry.command),
            url=fill(entry.url, variables),
            env={name: fill(value, variables) for name, value in entry.env.items()},
            threads=_number(fill(entry.threads, variables)),
            pid=_number(fill(entry.pid, variables)),
        )


def _number(text: str) -> int | None:
    try:
        return int(text) if text else None
    except ValueError as error:
        raise ConfigError(f"not a whole number: {text!r}") from error


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that can serve."""

    client: Client
    pid: int | None
    model_id: str


@asynccontextmanager
async def running(plan: ServerPlan, log: Path, timeout_s: float, live: Live) -> AsyncIterator[RunningServer]:
    """Start the server, wait until it is ready, stop it when the block ends; its output goes to `log`.

    A plan without a command uses a server that runs already, and leaves it running.
    Raises ServerUnavailableError when it does not start, ends, or is not ready in time.
    """
    client = Client(Target.parse(plan.url), timeout_s, live)
    if not plan.command:
        await _wait_ready(plan, client, None, log)
        yield RunningServer(client, plan.pid, plan.entry.model_id or await client.model_id())
        return
    process = await _start(plan, log)
    try:
        await _wait_ready(plan, client, process, log)
        yield RunningServer(client, process.pid, plan.entry.model_id or await client.model_id())
    finally:
        await _stop(process, plan.entry.stop_timeout_s)


async def _start(plan: ServerPlan, log: Path) -> asyncio.subprocess.Process:
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with log.open("wb") as output:
            # A session of its own, so that stopping it reaches its children and nothing else.
            return await asyncio.create_subprocess_exec(
                *plan.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **plan.env},
                start_new_session=True,
            )
    except OSError as error:
        raise ServerUnavailableError(f"{plan.entry.name} does not start: {error}") from error


async def _wait_ready(
    plan: ServerPlan, client: Client, process: asyncio.subprocess.Process | None, log: Path
) -> None:
    deadline = monotonic() + plan.entry.ready_timeout_s
    while True:
        answer = await client.get(plan.entry.ready)
        if answer is not None and answer[0] == 200:
            return
        if process is not None and process.returncode is not None:
            raise ServerUnavailableError(
                f"{plan.entry.name} ended with code {process.returncode} before it was ready{_tail(log)}"
            )
        if monotonic() > deadline:
            waited = f"{plan.entry.ready_timeout_s:.0f} s"
            raise ServerUnavailableError(f"{plan.entry.name} is not ready after {waited}{_tail(log)}")
        await asyncio.sleep(_POLL_S)


def _tail(log: Path) -> str:
    if not log.exists():
        return ""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_TAIL_LINES:]
    return "\n".join([f"; the end of {log}:", *lines])


async def _stop(process: asyncio.subprocess.Process, timeout_s: float) -> None:
    _signal(process, signal.SIGTERM)
    try:
        async with asyncio.timeout(timeout_s):
            await process.wait()
    except TimeoutError:
        _signal(process, signal.SIGKILL)
        await process.wait()


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


async def busy_share(sample_s: float = 1.0) -> float:
    """Share of all CPU time in use right now, 0 to 1.

    Not the load average: that still remembers the server stopped a moment ago.
    """
    psutil.cpu_percent()
    await asyncio.sleep(sample_s)
    return psutil.cpu_percent() / 100


async def wait_until_quiet(max_busy: float, wait_s: float) -> float:
    """The share in use, once it is at most `max_busy`. BusyMachineError after `wait_s` seconds.

    With a `max_busy` of 1 no machine is too busy, and none is waited for.
    """
    if max_busy >= 1:
        return await busy_share(sample_s=0.05)
    deadline = monotonic() + wait_s
    while (busy := await busy_share()) > max_busy:
        if monotonic() > deadline:
            raise BusyMachineError(
                f"the machine is busy: {busy:.0%} of its CPU time is in use, {max_busy:.0%} are allowed"
            )
    return busy
