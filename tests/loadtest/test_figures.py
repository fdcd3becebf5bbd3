"""Figures of outcomes whose times are known exactly."""

from dataclasses import replace

import pytest

from loadtest.figures import decode_rate, percentile, refusals, round_figures, spreads
from loadtest.watch import ProcessUse
from loadtest.wire import Fault
from tests.loadtest.factories import failed_outcome, make_outcome, make_round


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1.0), (50, 3.0), (75, 4.0), (95, 4.8), (99, 4.96), (100, 5.0)]
)
def test_percentiles_interpolate(percent: float, expected: float) -> None:
    assert percentile([5, 1, 4, 2, 3], percent) == pytest.approx(expected)


def test_percentile_of_nothing_and_of_one() -> None:
    assert percentile([], 50) is None
    assert percentile([7.0], 99) == 7.0


def test_every_figure_of_a_round() -> None:
    fast = make_outcome((1, 2, 3, 4, 5), ttft_s=0.1, gap_s=0.01)
    slow = make_outcome((1, 2, 3), ttft_s=0.3, gap_s=0.05)
    figures = round_figures([fast, slow, failed_outcome()], 2.0, ProcessUse(200, 150, 90, 70))
    assert figures.ttft_p50_s == pytest.approx(0.2)
    assert figures.ttft_p95_s == pytest.approx(0.29)
    assert figures.ttft_p99_s == pytest.approx(0.298)
    assert figures.itl_p50_s == pytest.approx(0.01)
    assert figures.itl_max_s == pytest.approx(0.05)
    assert figures.e2e_p50_s == pytest.approx((0.14 + 0.4) / 2)
    assert figures.stream_tokens_per_s == pytest.approx((100 + 20) / 2)
    assert figures.total_tokens_per_s == pytest.approx(8 / 2.0)
    assert figures.decode_tokens_per_s is None
    assert (figures.num_ok, figures.num_failed) == (2, 1)
    assert (figures.rss_peak_mib, figures.cpu_mean_percent) == (200, 70)


def test_the_decode_rate_is_taken_while_all_streams_decode() -> None:
    """From 0.3 (the second one's first token) to 0.5 (the first one's last): 2 and 4 tokens."""
    early = make_outcome((1, 2, 3, 4, 5), ttft_s=0.1, gap_s=0.1)
    late = make_outcome(tuple(range(9)), ttft_s=0.1, gap_s=0.05, started_at=0.2)
    assert decode_rate([early, late]) == pytest.approx((2 + 4) / 0.2)
    assert decode_rate([early]) == pytest.approx(4 / 0.4)
    assert decode_rate([early, make_outcome((1,))]) == pytest.approx(4 / 0.4)
    assert decode_rate([]) is None


def test_a_round_in_which_all_failed_states_counts_only() -> None:
    figures = round_figures([failed_outcome()], 1.0)
    assert (figures.num_ok, figures.num_failed) == (0, 1)
    assert figures.ttft_p50_s is None
    assert figures.total_tokens_per_s is None


def test_one_token_has_no_gap_and_no_rate() -> None:
    figures = round_figures([make_outcome((1,))], 1.0)
    assert figures.itl_p50_s is None
    assert figures.stream_tokens_per_s is None
    assert figures.decode_tokens_per_s is None
    assert figures.total_tokens_per_s == 1.0


def test_medians_over_rounds_with_minimum_and_maximum() -> None:
    rounds = [make_round(make_outcome(ttft_s=ttft)).figures for ttft in (0.3, 0.1, 0.2)]
    found = {spread.name: spread for spread in spreads(rounds)}
    ttft = found["ttft_p50_s"]
    assert (ttft.median, ttft.low, ttft.high) == pytest.approx((0.2, 0.1, 0.3))
    assert found["num_ok"].median == 1


def test_a_rate_counts_what_the_first_event_did_not_carry() -> None:
    outcome = replace(make_outcome((1, 2, 3), gap_s=0.1), token_counts=(2, 1, 1), completion_tokens=4)
    assert outcome.tokens_per_s == pytest.approx(2 / 0.2)


def test_refusals_are_counted_by_reason() -> None:
    full = failed_outcome(Fault.HTTP_STATUS, "429 queue_full")
    assert refusals([full, failed_outcome(), full, make_outcome()]) == {"http 429 queue_full": 2, "cut off": 1}
