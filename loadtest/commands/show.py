"""``loadtest show``."""

from pathlib import Path
from typing import Annotated

import typer

from loadtest.commands.common import console, keep
from loadtest.options import make_folder, option
from loadtest.record import load_record
from loadtest.report import show as show_record


def show(
    record: Annotated[Path, typer.Argument(help="A record, or the folder of one.")],
    out: Annotated[Path | None, option("Folder for report and plots.")] = None,
) -> None:
    """Show a recorded run again; with --out, write its report and plots, for example of one cell of a suite."""
    found = load_record(record)
    show_record(found, console)
    if out is not None:
        make_folder(out)
        keep(found, out, plots=True)
