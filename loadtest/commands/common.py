"""What every measuring command does around its measurement."""

import re
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import typer
import uvloop
from rich.console import Console

from loadtest.client import Live
from loadtest.options import OutputOptions
from loadtest.progress import progress_line
from loadtest.record import Record
from loadtest.report import show, write

_T = TypeVar("_T")
console = Console()


_FOLDERS = re.compile(r"(^|=)/\S*/")


def command_line() -> tuple[str, ...]:
    """The command as given, less the folders of absolute paths, which mean nothing elsewhere, and API keys."""
    words = ["loadtest", *(_FOLDERS.sub(r"\1.../", word) for word in sys.argv[1:])]
    for index, word in enumerate(words):
        if word == "--api-key":
            words[index + 1 : index + 2] = ["..."]
        elif word.startswith("--api-key="):
            words[index] = "--api-key=..."
    return tuple(words)


def run(live: Live, measurement: Coroutine[Any, Any, _T]) -> _T:
    """Run a measurement with the live line."""

    async def visible() -> _T:
        async with progress_line(live):
            return await measurement

    return uvloop.run(visible())


def finish(record: Record, output: OutputOptions, *, passed: bool) -> None:
    """Show and keep the record; exit code 1 when the run did not pass."""
    show(record, console)
    if output.out is not None:
        keep(record, output.out, output.plots)
    if not passed:
        raise typer.Exit(1)


def keep(record: Record, folder: Path, plots: bool) -> None:
    """Write the files and say where they are."""
    trouble = write(record, folder, plots)
    if trouble:
        console.print(trouble, markup=False)
    console.print(f"written to {folder}", markup=False, highlight=False)
