"""Servers of a suite, cell by cell: ratios with their spread, and who is ahead."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from loadtest.figures import Spread, spread_of
from loadtest.parity import compare_all
from loadtest.record import Record
from loadtest.suite import Cell

HIGHER_IS_BETTER = ("stream_tokens_per_s", "total_tokens_per_s", "decode_tokens_per_s")
METRICS = ("total_tokens_per_s", "decode_tokens_per_s", "ttft_p50_s", "itl_p50_s", "itl_p99_s", "rss_peak_mib")


class Standing(StrEnum):
    """Where the first server stands. Even: the rounds do not agree on who is better."""

    AHEAD = "ahead"
    EVEN = "even"
    BEHIND = "behind"


@dataclass(frozen=True, slots=True)
class Duel:
    """One figure of the first server against that of another one, in one cell."""

    metric: str
    ratio: Spread
    """First over other, paired round by round."""
    standing: Standing


@dataclass(frozen=True, slots=True)
class Entry:
    """One server in one cell."""

    server: str
    figures: tuple[Spread, ...]
    num_failed: int
    num_tokens: int
    """Of one round; servers that stop early produce fewer, and their rates mean less."""
    as_alone: str
    """Traces equal to the same prompts alone, in words."""
    as_first: str
    """Traces equal to those of the first server, in words; empty for the first server."""
    duels: tuple[Duel, ...]
    """Empty for the first server."""

    def figure(self, metric: str) -> Spread | None:
        return next((spread for spread in self.figures if spread.name == metric), None)

    def duel(self, metric: str) -> Duel | None:
        return next((duel for duel in self.duels if duel.metric == metric), None)


@dataclass(frozen=True, slots=True)
class CellComparison:
    """All servers in one cell; the first one is the one the others are compared with."""

    cell: Cell
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A whole suite."""

    name: str
    servers: tuple[str, ...]
    cells: tuple[CellComparison, ...]


def compare_cell(cell: Cell, records: Mapping[str, Record]) -> CellComparison:
    """Compare the records of one cell, by server; the first of them is the first server."""
    names = list(records)
    first = records[names[0]]
    entries = [_entry(name, records[name], None if name == names[0] else first) for name in names]
    return CellComparison(cell, tuple(entries))


def _entry(name: str, record: Record, first: Record | None) -> Entry:
    return Entry(
        server=name,
        figures=record.figures,
        num_failed=sum(record.refusals.values()),
        num_tokens=sum(outcome.num_tokens for outcome in record.rounds[0].outcomes),
        as_alone=record.parity[0].report.in_short if record.parity else "not measured",
        as_first="" if first is None else compare_all(record.references, first.references).in_short,
        duels=() if first is None else tuple(duels(first, record)),
    )


def duels(first: Record, other: Record) -> list[Duel]:
    """Every metric both records have in every round."""
    found = []
    for metric in METRICS:
        pairs = list(zip(_values(first, metric), _values(other, metric), strict=True))
        ratios = [a / b for a, b in pairs if a is not None and b]
        if pairs and len(ratios) == len(pairs):
            ratio = spread_of(metric, ratios)
            found.append(Duel(metric, ratio, standing(ratio)))
    return found


def _values(record: Record, metric: str) -> Sequence[float | None]:
    return [getattr(r.figures, metric) for r in record.rounds]


def standing(ratio: Spread) -> Standing:
    """Ahead or behind only when every round says so."""
    low, high = ratio.low, ratio.high
    if ratio.name not in HIGHER_IS_BETTER:
        low, high = 1 / high if high else 0.0, 1 / low if low else float("inf")
    if low > 1:
        return Standing.AHEAD
    return Standing.BEHIND if high < 1 else Standing.EVEN
