"""Tables that can be shown on a terminal or written as Markdown, and the words and units in them."""

from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

from loadtest.figures import Spread

_UNITS = {
    "_tokens_per_s": (" (tok/s)", 1.0),
    "_percent": (" (% of a core)", 1.0),
    "_mib": (" (MiB)", 1.0),
    "_s": (" (ms)", 1000.0),
}
_WORDS = {"ttft": "TTFT", "itl": "ITL", "e2e": "end to end", "rss": "RSS", "cpu": "CPU", "max": "maximum"}


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table of texts."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> list[str]:
        """Lines of a Markdown table; all columns but the first are aligned right."""
        rule = ("---", *["---:"] * (len(self.headings) - 1))
        lines = ["| " + " | ".join(cells) + " |" for cells in (self.headings, rule, *self.rows)]
        return [f"**{self.title}**", "", *lines]

    def rich(self) -> Table:
        """For a terminal."""
        table = Table(title=self.title, title_justify="left")
        for index, heading in enumerate(self.headings):
            table.add_column(escape(heading), justify="right" if index else "left")
        for row in self.rows:
            table.add_row(*map(escape, row))
        return table


def label_of(name: str) -> str:
    """The words and the unit for a figure's field name: ``ttft_p50_s`` is ``TTFT p50 (ms)``."""
    suffix = _suffix(name)
    unit = _UNITS[suffix][0] if suffix else ""
    words = name.removesuffix(suffix).removeprefix("num_").split("_")
    return " ".join(_WORDS.get(word, word) for word in words) + unit


def scale_of(name: str) -> float:
    """The factor from a figure's own unit to the one shown."""
    suffix = _suffix(name)
    return _UNITS[suffix][1] if suffix else 1.0


def _suffix(name: str) -> str:
    return next((suffix for suffix in _UNITS if name.endswith(suffix)), "")


def shown(name: str, value: float) -> str:
    """A figure in the unit of its label; counts have no decimals."""
    return f"{value:.0f}" if name.startswith("num_") else f"{value * scale_of(name):.1f}"


def ms(seconds: float | None) -> str:
    """Seconds as milliseconds, or a dash."""
    return number(None if seconds is None else seconds * 1000)


def number(value: float | None) -> str:
    """One decimal, or a dash."""
    return "-" if value is None else f"{value:.1f}"


def span(spread: Spread | None) -> str:
    """``median (minimum to maximum)`` in the unit shown, or a dash."""
    if spread is None:
        return "-"
    median, low, high = (shown(spread.name, x) for x in (spread.median, spread.low, spread.high))
    return f"{median} ({low} to {high})"
