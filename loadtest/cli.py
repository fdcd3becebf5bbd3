"""The command line: ``python -m loadtest`` or ``batchserve-loadtest``."""

import typer
from rich.console import Console
from rich.markup import escape

from loadtest.commands.accept import accept
from loadtest.commands.arrivals import arrivals
from loadtest.commands.cohort import cohort
from loadtest.commands.interfere import interfere
from loadtest.commands.parity import parity
from loadtest.commands.show import show
from loadtest.commands.soak import soak
from loadtest.commands.suite import peers, suite
from loadtest.errors import LoadtestError
from loadtest.options import expanded

app = typer.Typer(
    name="loadtest",
    no_args_is_help=True,
    help="Load tests for OpenAI-compatible servers: speed, and whether a crowd changes the answers.",
)
for command in (cohort, arrivals, interfere, soak, parity, suite, accept, show, peers):
    app.command()(expanded(command))


def main() -> None:
    """Run the command line; what a user can mend is one line on standard error and exit code 2."""
    try:
        app()
    except LoadtestError as error:
        Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {escape(str(error))}", highlight=False)
        raise SystemExit(2) from None
