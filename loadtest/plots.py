"""Plots. matplotlib comes with the extra `loadtest` and is imported when the first plot is drawn."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from loadtest.errors import MissingPlotsError
from loadtest.outcome import Outcome
from loadtest.record import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE_INCHES = (8.0, 4.5)
_DPI = 100
Drawing = Callable[["Axes"], None]


def draw_record(record: Record, folder: Path) -> list[Path]:
    """Draw every plot this record has data for. MissingPlotsError without matplotlib."""
    return [draw(folder / f"{name}.png", drawing) for name, drawing in _drawings(record).items()]


def draw(path: Path, drawing: Drawing) -> Path:
    """Draw one plot into a PNG file; the same data gives the same bytes."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPlotsError("no plots without matplotlib: pip install 'batchserve[loadtest]'") from error
    figure = Figure(figsize=_SIZE_INCHES, dpi=_DPI, layout="constrained")
    drawing(figure.add_subplot())
    # matplotlib would write its own version into the file.
    figure.savefig(path, metadata={"Software": None})
    return path


def _drawings(record: Record) -> dict[str, Drawing]:
    outcomes = [o for r in record.rounds for o in r.outcomes if o.ok]
    found: dict[str, Drawing] = {}
    if outcomes:
        found["ttft"] = _distribution("time to first token", [o.ttft_s or 0.0 for o in outcomes])
        found["itl"] = _distribution("inter-token latency", [gap for o in outcomes for gap in o.gaps_s])
    if record.rounds:
        found["timeline"] = _timeline(record.rounds[-1].outcomes)
    if record.arrivals:
        found["goodput"] = _goodput(record)
    if record.soak is not None:
        found["memory"] = _memory(record)
    return found


def _distribution(title: str, values_s: Sequence[float]) -> Drawing:
    def drawing(axes: "Axes") -> None:
        ordered = sorted(value * 1000 for value in values_s)
        axes.step(ordered, [(i + 1) / len(ordered) for i in range(len(ordered))], where="post")
        axes.set(title=f"{title}, {len(ordered)} samples", xlabel="ms", ylabel="share at or below", ylim=(0, 1.02))
        axes.grid(alpha=0.3)

    return drawing


def _timeline(outcomes: Sequence[Outcome]) -> Drawing:
    """Each stream's life as a bar: waiting for the first token, then decoding, with a tick per arrival."""

    def drawing(axes: "Axes") -> None:
        for row, outcome in enumerate(outcomes):
            _draw_life(axes, row, outcome)
        axes.set(title="streams of the last round", xlabel="seconds", ylabel="stream")
        axes.set_yticks(range(0, len(outcomes), max(1, len(outcomes) // 16)))
        axes.set_ylim(len(outcomes) - 0.4, -0.6)
        axes.grid(axis="x", alpha=0.3)

    return drawing


def _draw_life(axes: "Axes", row: int, outcome: Outcome) -> None:
    start, end = outcome.started_at, outcome.started_at + outcome.e2e_s
    first = start + (outcome.ttft_s if outcome.ttft_s is not None else outcome.e2e_s)
    axes.barh(row, first - start, left=start, height=0.7, color="#d9d9d9" if outcome.ok else "#f4a6a6")
    axes.barh(row, end - first, left=first, height=0.7, color="#7fb3d5" if outcome.ok else "#d9534f")
    ticks = [start + at for at in outcome.arrivals_s]
    axes.vlines(ticks, row - 0.35, row + 0.35, color="#1b4f72", linewidth=0.4)


def _goodput(record: Record) -> Drawing:
    def drawing(axes: "Axes") -> None:
        rates = [point.rate_per_s for point in record.arrivals]
        axes.plot(rates, [100 * point.goodput.median for point in record.arrivals], marker="o")
        if record.knee_per_s is not None:
            axes.axvline(record.knee_per_s, linestyle="--", label=f"knee {record.knee_per_s:.2f}/s")
            axes.legend()
        axes.set(title="goodput", xlabel="requests per second", ylabel="% within targets", ylim=(0, 102))
        axes.grid(alpha=0.3)

    return drawing


def _memory(record: Record) -> Drawing:
    rounds = record.soak.rounds if record.soak else ()

    def drawing(axes: "Axes") -> None:
        known = [(r.at_s / 60, r.rss_mib) for r in rounds if r.rss_mib is not None]
        axes.plot([at for at, _ in known], [rss for _, rss in known])
        axes.set(title="memory of the server after every round", xlabel="minutes", ylabel="MiB resident")
        axes.grid(alpha=0.3)

    return drawing
