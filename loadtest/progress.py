"""One live line about the run, rewritten in place, only on a terminal."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import TextIO

from loadtest.client import Live

_CLEAR_LINE = "\r\x1b[2K"


@asynccontextmanager
async def progress_line(live: Live, stream: TextIO | None = None, period_s: float = 0.5) -> AsyncIterator[None]:
    """Show `live` on `stream` (standard error by default) until the block ends."""
    out = stream or sys.stderr
    if not out.isatty():
        yield
        return
    painter = asyncio.create_task(_paint(live, out, period_s))
    try:
        yield
    finally:
        painter.cancel()
        with suppress(asyncio.CancelledError):
            await painter
        out.write(_CLEAR_LINE)
        out.flush()


async def _paint(live: Live, out: TextIO, period_s: float) -> None:
    started_at = monotonic()
    while True:
        out.write(_CLEAR_LINE + describe(live, monotonic() - started_at))
        out.flush()
        await asyncio.sleep(period_s)


def describe(live: Live, elapsed_s: float) -> str:
    """The line itself. Packets stand for tokens: nothing is decoded while the load runs."""
    label = f"{live.label}: " if live.label else ""
    running, done = len(live.in_flight), live.num_finished
    return f"{label}{running} running, {done} done, {live.num_packets} packets, {elapsed_s:.0f} s"
