"""Equal means equal in every token; counts, lengths and failures are not enough."""

from dataclasses import replace

import pytest

from loadtest.outcome import Outcome
from loadtest.parity import Basis, ParityReport, Verdict, compare, compare_all
from tests.loadtest.factories import failed_outcome, make_outcome

SAME = make_outcome((1, 2, 3))


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        (make_outcome((1, 2, 4)), "token 2: 4 against 3"),
        (make_outcome((9, 2, 3)), "token 0: 9 against 1"),
        (make_outcome((1, 2)), "token 2: the end against 3"),
        (make_outcome((1, 2, 3, 4)), "token 3: 4 against the end"),
        (make_outcome((1, 3, 2)), "token 1: 3 against 2"),
        (
            replace(SAME, choices=(replace(SAME.choices[0], finish_reason="stop"),)),
            "finish reason stop against length",
        ),
        (replace(SAME, choices=SAME.choices * 2), "2 choices against 1"),
    ],
)
def test_one_difference_is_found_and_placed(answer: Outcome, detail: str) -> None:
    found = compare(answer, SAME)
    assert found.verdict is Verdict.DIFFERENT
    assert found.detail == detail


def test_equal_ids() -> None:
    found = compare(make_outcome((1, 2, 3), ttft_s=9), SAME)
    assert (found.verdict, found.basis) == (Verdict.EQUAL, Basis.TOKEN_IDS)


def test_text_is_compared_and_labelled_where_one_side_has_no_ids() -> None:
    bare = make_outcome((1, 2, 3), with_ids=False)
    assert compare(bare, SAME).basis is Basis.TEXT
    assert compare(bare, SAME).verdict is Verdict.EQUAL
    other = make_outcome((1, 2, 4), with_ids=False)
    assert compare(other, SAME).verdict is Verdict.DIFFERENT
    assert str(compare_all([bare], [SAME])) == "1 of 1 traces equal (compared: text only)"


def test_a_failure_is_never_equal_not_even_to_itself() -> None:
    broken = failed_outcome()
    for answer, reference in ((broken, SAME), (SAME, broken), (broken, broken)):
        assert compare(answer, reference).verdict is Verdict.NOT_COMPARED
        assert not compare_all([answer], [reference]).holds


def test_comparing_nothing_proves_nothing() -> None:
    assert not ParityReport(()).holds


def test_one_difference_among_many_fails_the_report() -> None:
    report = compare_all([SAME, make_outcome((1, 2, 4)), SAME], [SAME] * 3)
    assert not report.holds
    assert (report.num_equal, report.num_different) == (2, 1)
    assert report.differences(5) == ["comparison 1: different, token 2: 4 against 3"]


def test_long_lists_of_differences_are_cut() -> None:
    report = compare_all([make_outcome((9,))] * 5, [SAME] * 5)
    assert len(report.differences(2)) == 3
    assert report.differences(2)[-1] == "and 3 more"
