"""A comparison as Markdown and as plots."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from loadtest.compare import METRICS, Comparison, Entry, Standing
from loadtest.environment import Environment
from loadtest.plots import Drawing, draw
from loadtest.record import Context
from loadtest.sheets import Sheet, label_of, span
from loadtest.suite_config import SuiteFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CELL_HEADINGS = ("workload", "words", "streams")


def sheets(comparison: Comparison) -> Iterator[Sheet]:
    """The verdicts first, then one table for every metric, then traces."""
    if len(comparison.servers) > 1:
        yield _verdicts(comparison)
    for metric in METRICS:
        if any(entry.figure(metric) for cell in comparison.cells for entry in cell.entries):
            yield _metric(comparison, metric)
    yield _traces(comparison)


def _verdicts(comparison: Comparison) -> Sheet:
    """How often the first server is ahead of each other one."""
    first, *others = comparison.servers
    rows = []
    for index, other in enumerate(others, 1):
        for metric in METRICS:
            found = [duel for cell in comparison.cells if (duel := cell.entries[index].duel(metric))]
            counts = [str(sum(duel.standing is standing for duel in found)) for standing in Standing]
            rows.append((f"{label_of(metric)} against {other}", *counts))
    headings = (f"cells in which {first} is", *map(str, Standing))
    return Sheet("ahead in every round, or not", headings, tuple(rows))


def _metric(comparison: Comparison, metric: str) -> Sheet:
    first, *others = comparison.servers
    headings = (*_CELL_HEADINGS, *comparison.servers, *(f"{first} / {other}" for other in others))
    rows = []
    for cell in comparison.cells:
        figures = (span(entry.figure(metric)) for entry in cell.entries)
        ratios = (_ratio(entry, metric) for entry in cell.entries[1:])
        rows.append((*_cell(cell.cell.name), *figures, *ratios))
    return Sheet(label_of(metric), headings, tuple(rows))


def _cell(name: str) -> tuple[str, str, str]:
    workload, words, streams = name.rsplit("-", 2)
    return workload, words.removeprefix("p"), streams.removeprefix("s")


def _ratio(entry: Entry, metric: str) -> str:
    duel = entry.duel(metric)
    if duel is None:
        return "-"
    ratio = duel.ratio
    return f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f}) {duel.standing}"


def _traces(comparison: Comparison) -> Sheet:
    rows = []
    for cell in comparison.cells:
        for entry in cell.entries:
            counts = (str(entry.num_tokens), str(entry.num_failed))
            as_first = entry.as_first or "-"
            rows.append((*_cell(cell.cell.name), entry.server, entry.as_alone, as_first, *counts))
    what = ("server", "as alone", f"as {comparison.servers[0]}", "tokens", "failed requests")
    return Sheet("equal traces", (*_CELL_HEADINGS, *what), tuple(rows))


def render(comparison: Comparison, context: Context, suite: SuiteFile, plots: list[str]) -> str:
    """The comparison as Markdown; `plots` are names of files beside it."""
    lines = [f"# {comparison.name}", "", *_facts(context.environment, context.command, suite)]
    lines += [line for name in plots for line in ("", f"![{name.removesuffix('.png')}]({name})")]
    for sheet in sheets(comparison):
        lines += ["", *sheet.markdown()]
    return "\n".join(lines) + "\n"


def _facts(environment: Environment, command: tuple[str, ...], suite: SuiteFile) -> Iterator[str]:
    matrix, git = suite.matrix, environment.git
    yield f"- made by `{' '.join(command)}`, {suite.rounds} interleaved rounds; median (minimum to maximum)"
    yield f"- host: {environment.host}, {environment.cpu}, {environment.num_cpus} CPUs, {environment.system}"
    yield f"- model SHA-256: {environment.model_sha256 or 'not stated'}"
    yield f"- {matrix.endpoint}, {matrix.max_tokens} tokens per stream, temperature {matrix.temperature}"
    versions = ", ".join(f"{name} {version}" for name, version in environment.packages.items())
    yield f"- software: Python {environment.python}, {versions}"
    if git is not None:
        yield f"- git: {git.branch} {git.commit or 'without a commit'}{', dirty' if git.dirty else ''}"


def draw_throughput(comparison: Comparison, folder: Path) -> list[Path]:
    """Throughput against streams, one plot for every workload and prompt length."""
    groups: dict[tuple[str, str], None] = {}
    for cell in comparison.cells:
        groups.setdefault(_cell(cell.cell.name)[:2])
    return [
        draw(folder / f"throughput-{workload}-p{words}.png", _throughput(comparison, workload, words))
        for workload, words in groups
    ]


def _throughput(comparison: Comparison, workload: str, words: str) -> Drawing:
    cells = [cell for cell in comparison.cells if _cell(cell.cell.name)[:2] == (workload, words)]

    def drawing(axes: "Axes") -> None:
        for index, server in enumerate(comparison.servers):
            found = [(c.cell.num_streams, c.entries[index].figure("total_tokens_per_s")) for c in cells]
            points = [(streams, spread) for streams, spread in found if spread is not None]
            middle = [spread.median for _, spread in points]
            below = [spread.median - spread.low for _, spread in points]
            above = [spread.high - spread.median for _, spread in points]
            axes.errorbar([s for s, _ in points], middle, (below, above), marker="o", capsize=3, label=server)
        axes.set(title=f"{workload}, {words} words", xlabel="streams", ylabel="tokens per second, all streams")
        axes.set_xticks([cell.cell.num_streams for cell in cells])
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend()

    return drawing
