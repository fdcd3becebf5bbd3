"""The promotion rule: is a change kept?

A change is kept when the median of repeated runs is better, nothing that was promised got worse, and the
answers are the same, token by token. Whatever cannot be shown is an objection.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, log
from pathlib import Path
from statistics import fmean

from loadtest.compare import HIGHER_IS_BETTER
from loadtest.errors import ConfigError
from loadtest.figures import Spread
from loadtest.parity import Basis, ParityReport, compare_all, join
from loadtest.record import Record, load_record
from loadtest.sheets import label_of


@dataclass(frozen=True, slots=True)
class Rule:
    """What a change must show. Shares: 0.05 is five percent."""

    metric: str = "total_tokens_per_s"
    min_gain: float = 0.01
    """Of the median, as a geometric mean over all cells."""
    max_loss: float = 0.02
    """Of the metric in any one cell."""
    max_ttft_growth: float = 0.05
    max_itl_growth: float = 0.05
    max_memory_growth: float = 0.02
    min_rounds: int = 3
    allow_text: bool = False
    """Accept traces compared as text where a server gives no token ids."""

    def guards(self) -> Iterator[tuple[str, float]]:
        """Figures that may not grow beyond a share."""
        for name in ("ttft_p50_s", "ttft_p95_s"):
            yield name, self.max_ttft_growth
        for name in ("itl_p50_s", "itl_p99_s"):
            yield name, self.max_itl_growth
        yield "rss_peak_mib", self.max_memory_growth


@dataclass(frozen=True, slots=True)
class Pair:
    """The same load before and after the change."""

    name: str
    base: Record
    new: Record


@dataclass(frozen=True, slots=True)
class Judgement:
    """The outcome and everything it rests on."""

    pairs: tuple[Pair, ...]
    rule: Rule
    gain: float | None
    """Geometric mean of the improvement: 1.1 is ten percent better, whatever the metric's direction."""
    traces: ParityReport
    objections: tuple[str, ...]

    @property
    def kept(self) -> bool:
        return not self.objections


def load_pairs(base: Path, new: Path) -> tuple[Pair, ...]:
    """Two records, or two folders of records with the same names. ConfigError when they do not match."""
    before, after = _load_all(base), _load_all(new)
    if before.keys() != after.keys():
        odd = sorted(before.keys() ^ after.keys())
        raise ConfigError(f"{base} and {new} hold different records: {', '.join(odd)}")
    return tuple(Pair(name, before[name], after[name]) for name in before)


def _load_all(path: Path) -> Mapping[str, Record]:
    if path.is_file() or (path / "record.json").exists():
        return {"run": load_record(path)}
    files = sorted(path.glob("*.json"))
    if not files:
        raise ConfigError(f"no records in {path}")
    return {file.stem: load_record(file) for file in files}


def judge(pairs: Sequence[Pair], rule: Rule) -> Judgement:
    """Apply the rule to all pairs together."""
    objections = [f"{pair.name}: {text}" for pair in pairs for text in pair_objections(pair, rule)]
    gain = _mean_gain(pairs, rule.metric)
    if gain is None:
        objections.append(f"{label_of(rule.metric)} was not measured everywhere")
    elif gain < 1 + rule.min_gain:
        objections.append(f"not better: {label_of(rule.metric)} gained {gain - 1:+.1%}, {rule.min_gain:.1%} wanted")
    traces = join(_traces(pair) for pair in pairs)
    return Judgement(tuple(pairs), rule, gain, traces, tuple(objections))


def pair_objections(pair: Pair, rule: Rule) -> Iterator[str]:
    """Everything that speaks against one pair; nothing about the gain."""
    yield from _not_comparable(pair, rule)
    yield from _not_equal(pair, rule)
    gain = improvement(pair, rule.metric)
    if gain is not None and gain < 1 - rule.max_loss:
        yield f"{label_of(rule.metric)} lost {1 - gain:.1%}"
    for name, allowed in rule.guards():
        yield from _grown(name, pair, allowed)


def _not_comparable(pair: Pair, rule: Rule) -> Iterator[str]:
    base, new = pair.base, pair.new
    if base.environment.model_sha256 is None or new.environment.model_sha256 is None:
        yield "the model is not known by its SHA-256: record with --model-file"
    same = (
        ("model", base.environment.model_sha256, new.environment.model_sha256),
        ("requests", base.load.requests_sha256, new.load.requests_sha256),
        ("number of streams", base.load.num_streams, new.load.num_streams),
        ("sampling", base.load.shape.sampling, new.load.shape.sampling),
        ("server policy", base.server.policy, new.server.policy),
        ("server threads", base.server.threads, new.server.threads),
        ("CPU", base.environment.cpu, new.environment.cpu),
    )
    yield from (f"different {what}: {a} before, {b} after" for what, a, b in same if a != b)
    for which, record in (("base", base), ("new", new)):
        if len(record.rounds) < rule.min_rounds:
            yield f"{which} has {len(record.rounds)} rounds, {rule.min_rounds} are wanted"


def _not_equal(pair: Pair, rule: Rule) -> Iterator[str]:
    for which, record in (("base", pair.base), ("new", pair.new)):
        if record.refusals:
            yield f"{which} has failed requests: {', '.join(record.refusals)}"
        yield from (
            f"{which} loses parity against {against.name}: {against.report}"
            for against in record.parity
            if not against.report.holds
        )
    counts = {sum(o.num_tokens for o in r.outcomes) for r in (*pair.base.rounds, *pair.new.rounds)}
    if len(counts) > 1:
        yield f"token counts differ: {sorted(counts)}"
    traces = _traces(pair)
    if not traces.holds:
        yield f"traces differ: {traces}; {traces.differences(1)[0] if traces.comparisons else 'none compared'}"
    elif not rule.allow_text and any(c.basis is Basis.TEXT for c in traces.comparisons):
        yield "traces were compared as text only, not as token ids"


def _traces(pair: Pair) -> ParityReport:
    """Every round after the change against the first round before it."""
    reference = pair.base.rounds[0].outcomes
    same_length = (r for r in pair.new.rounds if len(r.outcomes) == len(reference))
    return join(compare_all(r.outcomes, reference) for r in same_length)


def _grown(name: str, pair: Pair, allowed: float) -> Iterator[str]:
    base, new = pair.base.figure(name), pair.new.figure(name)
    if base is None or new is None:
        # One-token budgets have no gaps at all; then there is nothing to guard.
        if not (base is None and new is None and name.startswith("itl")):
            yield f"{label_of(name)} was not measured"
    elif new.median > base.median * (1 + allowed):
        growth = new.median / base.median - 1 if base.median > 0 else inf
        yield f"{label_of(name)} grew by {growth:.1%}, {allowed:.1%} allowed"


def improvement(pair: Pair, metric: str) -> float | None:
    """How many times better the new median is; above 1 is better for every metric."""
    base, new = pair.base.figure(metric), pair.new.figure(metric)
    return None if base is None or new is None else _better_by(base, new, metric)


def _better_by(base: Spread, new: Spread, metric: str) -> float | None:
    over, under = (new, base) if metric in HIGHER_IS_BETTER else (base, new)
    return over.median / under.median if under.median > 0 and over.median > 0 else None


def _mean_gain(pairs: Sequence[Pair], metric: str) -> float | None:
    gains = [improvement(pair, metric) for pair in pairs]
    known = [gain for gain in gains if gain is not None]
    return exp(fmean(map(log, known))) if known and len(known) == len(gains) else None
