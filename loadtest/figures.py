"""The figures of a round, and their spread over rounds."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import median

from loadtest.outcome import Outcome
from loadtest.watch import ProcessUse


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Linear interpolation between the closest ranks; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    rank = (len(ordered) - 1) * percent / 100
    low = int(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


@dataclass(frozen=True, slots=True)
class RoundFigures:
    """One round. Latencies in seconds, rates in tokens per second; None where there is nothing to state."""

    ttft_p50_s: float | None
    ttft_p95_s: float | None
    ttft_p99_s: float | None
    itl_p50_s: float | None
    itl_p99_s: float | None
    itl_max_s: float | None
    e2e_p50_s: float | None
    e2e_p95_s: float | None
    stream_tokens_per_s: float | None
    """Median over streams of the rate after the first token."""
    total_tokens_per_s: float | None
    """All tokens over the wall time of the round, prefill included."""
    decode_tokens_per_s: float | None
    """All streams together, while all of them decode."""
    num_ok: int
    num_failed: int
    rss_peak_mib: float | None = None
    rss_mean_mib: float | None = None
    cpu_peak_percent: float | None = None
    """100 is one core fully used."""
    cpu_mean_percent: float | None = None


def round_figures(outcomes: Sequence[Outcome], wall_s: float, use: ProcessUse | None = None) -> RoundFigures:
    """Figures of one round. Failed requests count as failed and in nothing else."""
    good = [outcome for outcome in outcomes if outcome.ok]
    ttft = [o.ttft_s for o in good if o.ttft_s is not None]
    gaps = [gap for o in good for gap in o.gaps_s]
    e2e = [o.e2e_s for o in good]
    return RoundFigures(
        ttft_p50_s=percentile(ttft, 50),
        ttft_p95_s=percentile(ttft, 95),
        ttft_p99_s=percentile(ttft, 99),
        itl_p50_s=percentile(gaps, 50),
        itl_p99_s=percentile(gaps, 99),
        itl_max_s=max(gaps, default=None),
        e2e_p50_s=percentile(e2e, 50),
        e2e_p95_s=percentile(e2e, 95),
        stream_tokens_per_s=percentile([r for o in good if (r := o.tokens_per_s) is not None], 50),
        total_tokens_per_s=sum(o.num_tokens for o in good) / wall_s if good and wall_s > 0 else None,
        decode_tokens_per_s=decode_rate(good),
        num_ok=len(good),
        num_failed=len(outcomes) - len(good),
        rss_peak_mib=use.rss_peak_mib if use else None,
        rss_mean_mib=use.rss_mean_mib if use else None,
        cpu_peak_percent=use.cpu_peak_percent if use else None,
        cpu_mean_percent=use.cpu_mean_percent if use else None,
    )


def decode_rate(outcomes: Sequence[Outcome]) -> float | None:
    """Tokens per second of all streams together while all of them decode.

    The time from the last stream's first token to the first stream's last one, so that neither reading prompts
    nor running out of streams counts. None when there is no such time.
    """
    streams = [o for o in outcomes if o.num_tokens > 1 and o.arrivals_s]
    since = max((o.started_at + o.arrivals_s[0] for o in streams), default=0.0)
    until = min((o.started_at + o.arrivals_s[-1] for o in streams), default=0.0)
    if until <= since:
        return None
    arrivals = ((o.started_at + at, n) for o in streams for at, n in zip(o.arrivals_s, o.token_counts, strict=True))
    return sum(n for at, n in arrivals if since < at <= until) / (until - since)


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure over several rounds."""

    name: str
    median: float
    low: float
    high: float


def spreads(rounds: Sequence[RoundFigures]) -> tuple[Spread, ...]:
    """Median, minimum and maximum of every figure that at least one round states."""
    found = []
    for field in fields(RoundFigures):
        values = [value for r in rounds if (value := getattr(r, field.name)) is not None]
        if values:
            found.append(spread_of(field.name, values))
    return tuple(found)


def spread_of(name: str, values: Sequence[float]) -> Spread:
    """Median, minimum and maximum of at least one value."""
    return Spread(name, median(values), min(values), max(values))


def refusals(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """How many requests failed, by reason, most frequent first."""
    return dict(Counter(o.reason for o in outcomes if not o.ok).most_common())
