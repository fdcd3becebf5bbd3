"""``loadtest suite`` and ``loadtest peers``."""

from pathlib import Path
from typing import Annotated

import typer

from loadtest.client import Live
from loadtest.commands.common import command_line, console, run
from loadtest.compare import Comparison, compare_cell
from loadtest.compare_report import draw_throughput, render, sheets
from loadtest.environment import describe_environment
from loadtest.errors import ConfigError, MissingPlotsError
from loadtest.options import make_folder, option
from loadtest.record import Context, Record, ServerNote, save
from loadtest.servers import ServerPlan
from loadtest.suite import Cell, Suite, claim_folder, collect, run_suite
from loadtest.suite_config import make_variables, packaged_peers, pick_servers, read_suite


def suite(
    file: Annotated[Path, typer.Argument(help="The suite, a TOML file.")],
    out: Annotated[Path, option("Folder of the results; a suite found there is continued.")],
    values: Annotated[list[str] | None, option("A variable: --set model=PATH.", "--set")] = None,
    host: Annotated[str | None, option("Name of this machine in records; its host name by default.")] = None,
) -> None:
    """Run servers through a matrix of loads, interleaved and repeated, and compare them.

    Exit code 0 when the suite is complete, whoever won; 2 when it cannot go on (the same command continues it).
    """
    config = read_suite(file)
    variables = make_variables(config, _parse_settings(values or []))
    model = Path(variables["model"]) if "model" in variables else None
    environment = describe_environment(host, model)
    context = Context(command_line(), ServerNote(config.name), environment)
    plans = tuple(ServerPlan.of(entry, variables) for entry in pick_servers(config))
    job = Suite(config, plans, out, Live())
    make_folder(out)
    claim_folder(job, variables, environment.model_sha256)
    run(job.live, run_suite(job))
    _conclude(job, context)


def _parse_settings(values: list[str]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    if bad := [name for name, found, _ in pairs if not (name and found)]:
        raise ConfigError(f"--set {bad[0]}: write NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _conclude(job: Suite, context: Context) -> None:
    records: dict[Cell, dict[str, Record]] = {cell: {} for cell in job.cells}
    for plan, cell, record in collect(job, context):
        records[cell][plan.entry.name] = record
    cells = tuple(compare_cell(cell, found) for cell, found in records.items())
    comparison = Comparison(job.file.name, job.file.servers, cells)
    save(comparison, job.folder / "comparison.json")
    text = render(comparison, context, job.file, _plots(comparison, job.folder))
    (job.folder / "comparison.md").write_text(text, encoding="utf-8")
    for sheet in sheets(comparison):
        console.print(sheet.rich())
    console.print(f"written to {job.folder}", markup=False, highlight=False)


def _plots(comparison: Comparison, folder: Path) -> list[str]:
    try:
        return [path.name for path in draw_throughput(comparison, folder)]
    except MissingPlotsError as error:
        console.print(str(error), markup=False)
        return []


def peers() -> None:
    """List the servers that a suite can name without describing them."""
    for entry in packaged_peers().values():
        command = " ".join(entry.command) or f"(runs already at {entry.url})"
        console.print(f"{entry.name}: {entry.policy}\n  {command}", markup=False, highlight=False)
