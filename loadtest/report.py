"""A record in words and tables: on the terminal, and as files in a folder."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from rich.console import Console

from loadtest.errors import MissingPlotsError
from loadtest.figures import Spread, percentile
from loadtest.interfere import Interference
from loadtest.outcome import Outcome
from loadtest.parity import Comparison, Verdict
from loadtest.plots import draw_record
from loadtest.record import Record, save
from loadtest.sheets import Sheet, label_of, ms, number, shown, span
from loadtest.soak import SoakResult

_SHOWN_DIFFERENCES = 10


def sheets_of(record: Record) -> Iterator[Sheet]:
    """Every table this record has something for."""
    if record.kind == "cohort":
        yield _streams(record)
    yield _figures(record.figures, len(record.rounds))
    if record.refusals:
        yield Sheet("failed requests", ("reason", "count"), tuple((r, str(n)) for r, n in record.refusals.items()))
    if record.arrivals:
        yield _arrivals(record)


def _streams(record: Record) -> Sheet:
    outcomes = record.rounds[-1].outcomes
    comparisons = record.parity[0].report.comparisons[-len(outcomes) :] if record.parity else ()
    headings = (
        "stream",
        "tokens",
        "TTFT",
        "ITL p50",
        "ITL p99",
        "ITL max",
        "tok/s",
        "end to end",
        "as alone",
        "end",
    )
    rows = (_stream_row(i, o, c) for i, (o, c) in enumerate(zip_longest(outcomes, comparisons)))
    return Sheet("streams of the last round (ms)", headings, tuple(rows))


def _stream_row(index: int, outcome: Outcome, comparison: Comparison | None) -> tuple[str, ...]:
    gaps = outcome.gaps_s
    return (
        str(index),
        str(outcome.num_tokens),
        ms(outcome.ttft_s),
        ms(percentile(gaps, 50)),
        ms(percentile(gaps, 99)),
        ms(max(gaps, default=None)),
        number(outcome.tokens_per_s),
        ms(outcome.e2e_s),
        _verdict(comparison),
        outcome.reason or "ok",
    )


def _verdict(comparison: Comparison | None) -> str:
    if comparison is None:
        return "-"
    return f"equal ({comparison.basis})" if comparison.verdict is Verdict.EQUAL else str(comparison.verdict)


def _figures(spreads: Sequence[Spread], num_rounds: int) -> Sheet:
    rows = []
    for spread in spreads:
        values = (shown(spread.name, value) for value in (spread.median, spread.low, spread.high))
        rows.append((label_of(spread.name), *values))
    title = f"figures over {num_rounds} round{'s' * (num_rounds != 1)}"
    return Sheet(title, ("figure", "median", "minimum", "maximum"), tuple(rows))


def _arrivals(record: Record) -> Sheet:
    names = ("ttft_p95_s", "itl_p99_s", "total_tokens_per_s")
    headings = ("rate (1/s)", "goodput (%)", *map(label_of, names), "failed", "client lag (ms)")
    rows = []
    for point in record.arrivals:
        figures = {spread.name: spread for spread in point.figures}
        low, middle, high = (
            f"{100 * x:.0f}" for x in (point.goodput.low, point.goodput.median, point.goodput.high)
        )
        cells = (span(figures.get(name)) for name in names)
        failed = str(sum(point.refusals.values()))
        rows.append((f"{point.rate_per_s:.2f}", f"{middle} ({low} to {high})", *cells, failed, ms(point.max_lag_s)))
    return Sheet("open-loop arrivals", headings, tuple(rows))


def sentences(record: Record) -> Iterator[str]:
    """What the tables do not say."""
    yield from _parity(record)
    if record.arrivals:
        yield _knee(record)
    if record.interference is not None:
        yield _interference(record.interference)
    if record.soak is not None:
        yield from _soak(record.soak)


def _parity(record: Record) -> Iterator[str]:
    for name, report in ((against.name, against.report) for against in record.parity):
        yield f"Parity against {name} {'holds' if report.holds else 'FAILS'}: {report}."
        yield from (f"- {line}" for line in report.differences(_SHOWN_DIFFERENCES))


def _interference(found: Interference) -> str:
    return (
        f"Worst gap of the steady streams: {ms(found.disturbed_itl_max_s)} ms while a long prompt was read, "
        f"{ms(found.quiet_itl_max_s)} ms otherwise. {found.num_intruders_ok} of {found.num_intruders} long "
        f"prompts were answered, worst TTFT {ms(found.intruder_ttft_max_s)} ms."
    )


def _soak(soak: SoakResult) -> Iterator[str]:
    growth = "not known" if soak.growth_mib is None else f"{soak.growth_mib:+.1f} MiB"
    verdict = "passed" if soak.passed else "FAILED"
    yield f"Soak of {len(soak.rounds)} rounds {verdict}: memory growth {growth}."
    yield from (f"- {failure}" for failure in soak.failures)


def _knee(record: Record) -> str:
    if record.knee_per_s is None:
        return "Overloaded at every rate tried: no knee."
    return f"Knee: {record.knee_per_s:.2f} requests per second is the highest rate within the goodput wanted."


def show(record: Record, console: Console) -> None:
    """Print tables and sentences."""
    for sheet in sheets_of(record):
        console.print(sheet.rich())
    for sentence in sentences(record):
        console.print(sentence, highlight=False, markup=False)


def render(record: Record, plots: Sequence[str] = ()) -> str:
    """The report as Markdown; `plots` are names of files beside it."""
    lines = [f"# {record.kind}: {record.server.name}", "", *_facts(record)]
    for sheet in sheets_of(record):
        lines += ["", *sheet.markdown()]
    lines += ["", *sentences(record)]
    lines += [line for name in plots for line in ("", f"![{name.removesuffix('.png')}]({name})")]
    return "\n".join(lines) + "\n"


def _facts(record: Record) -> Iterator[str]:
    environment, server, load = record.environment, record.server, record.load
    shape, git = load.shape, environment.git
    threads = server.threads or "not stated"
    yield f"- made {record.made_at} by `{' '.join(record.command)}`"
    yield f"- host: {environment.host}, {environment.cpu}, {environment.num_cpus} CPUs, {environment.system}"
    versions = [f"{name} {version}" for name, version in environment.packages.items()]
    yield f"- software: Python {environment.python}, {', '.join(versions)}"
    yield f"- model: {shape.model}, SHA-256 {environment.model_sha256 or 'not stated'}"
    yield f"- server: {server.name}, threads {threads}, policy {server.policy or 'not stated'}"
    prompts = f"{shape.workload} prompts of {shape.prompt_words} words, up to {shape.max_tokens} tokens"
    draw = f"{shape.sampling.describe()}, seed {shape.seed}"
    yield f"- load: {load.num_streams} streams, {shape.endpoint}, {prompts}, {draw}"
    if counted := [o.prompt_tokens for r in record.rounds for o in r.outcomes if o.prompt_tokens]:
        yield f"- prompt tokens as the server counts them: {min(counted)} to {max(counted)}"
    if git is not None:
        yield f"- git: {git.branch} {git.commit or 'without a commit'}{', dirty' if git.dirty else ''}"


def write(record: Record, folder: Path, plots: bool = True) -> str | None:
    """Write record.json, report.md and the plots. Returns why there are no plots, or None."""
    save(record, folder / "record.json")
    trouble, names = None, []
    if plots:
        try:
            names = [path.name for path in draw_record(record, folder)]
        except MissingPlotsError as error:
            trouble = str(error)
    (folder / "report.md").write_text(render(record, names), encoding="utf-8")
    return trouble
