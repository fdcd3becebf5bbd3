"""Token-trace parity: are two answers the same, token by token?

Ids are compared where both sides have them, text where one has none; a verdict always says which.
Equal counts are never taken for equal traces, and an answer that failed is never equal to anything.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest

from loadtest.outcome import ChoiceTrace, Outcome


class Basis(StrEnum):
    """What was compared."""

    TOKEN_IDS = "token ids"
    TEXT = "text only"
    NOTHING = "nothing"


class Verdict(StrEnum):
    """What the comparison of two answers came to."""

    EQUAL = "equal"
    DIFFERENT = "different"
    NOT_COMPARED = "not compared"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One answer against its reference."""

    verdict: Verdict
    basis: Basis
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ParityReport:
    """The comparisons of one run, in stream order."""

    comparisons: tuple[Comparison, ...]

    @property
    def holds(self) -> bool:
        """Every answer was compared and every one is equal. Comparing nothing proves nothing."""
        return bool(self.comparisons) and all(c.verdict is Verdict.EQUAL for c in self.comparisons)

    @property
    def num_equal(self) -> int:
        return sum(c.verdict is Verdict.EQUAL for c in self.comparisons)

    @property
    def num_different(self) -> int:
        return sum(c.verdict is Verdict.DIFFERENT for c in self.comparisons)

    @property
    def basis(self) -> str:
        """What was compared: one word for a table, several where streams differ."""
        return (
            " and ".join(sorted({c.basis for c in self.comparisons if c.basis is not Basis.NOTHING})) or "nothing"
        )

    def differences(self, limit: int) -> list[str]:
        """One line for each comparison that is not equal, at most `limit` of them and a line for the rest."""
        lines = [
            f"comparison {index}: {c.verdict}, {c.detail}"
            for index, c in enumerate(self.comparisons)
            if c.verdict is not Verdict.EQUAL
        ]
        hidden = len(lines) - limit
        return lines if hidden <= 0 else [*lines[:limit], f"and {hidden} more"]

    @property
    def in_short(self) -> str:
        """For a cell of a table."""
        return f"{self.num_equal} of {len(self.comparisons)} ({self.basis})"

    def __str__(self) -> str:
        return f"{self.num_equal} of {len(self.comparisons)} traces equal (compared: {self.basis})"


@dataclass(frozen=True, slots=True)
class Against:
    """One reference and what the comparison with it came to."""

    name: str
    report: ParityReport


def compare_all(answers: Sequence[Outcome], references: Sequence[Outcome]) -> ParityReport:
    """Compare answers with references, pairwise and in order."""
    return ParityReport(tuple(compare(a, r) for a, r in zip(answers, references, strict=True)))


def join(reports: Iterable[ParityReport]) -> ParityReport:
    """One report over several rounds."""
    return ParityReport(tuple(c for report in reports for c in report.comparisons))


def compare(answer: Outcome, reference: Outcome) -> Comparison:
    """Compare the complete ordered traces of two answers to the same request."""
    for role, outcome in (("answer", answer), ("reference", reference)):
        if not outcome.ok:
            return Comparison(Verdict.NOT_COMPARED, Basis.NOTHING, f"{role} failed: {outcome.reason}")
    if len(answer.choices) != len(reference.choices):
        detail = f"{len(answer.choices)} choices against {len(reference.choices)}"
        return Comparison(Verdict.DIFFERENT, Basis.NOTHING, detail)
    results = [_compare_choice(a, r) for a, r in zip(answer.choices, reference.choices, strict=True)]
    basis = Basis.TEXT if any(b is Basis.TEXT for b, _ in results) else Basis.TOKEN_IDS
    difference = next((found for _, found in results if found), "")
    return Comparison(Verdict.DIFFERENT if difference else Verdict.EQUAL, basis, difference)


def _compare_choice(answer: ChoiceTrace, reference: ChoiceTrace) -> tuple[Basis, str]:
    if answer.token_ids is not None and reference.token_ids is not None:
        basis, found = Basis.TOKEN_IDS, _first_difference("token", answer.token_ids, reference.token_ids)
    else:
        basis, found = Basis.TEXT, _first_difference("character", answer.text, reference.text)
    if not found and answer.finish_reason != reference.finish_reason:
        found = f"finish reason {answer.finish_reason} against {reference.finish_reason}"
    return basis, found


def _first_difference(unit: str, answer: Sequence[object], reference: Sequence[object]) -> str:
    for position, (a, r) in enumerate(zip_longest(answer, reference)):
        if a != r:
            return f"{unit} {position}: {_show(a)} against {_show(r)}"
    return ""


def _show(item: object) -> str:
    return "the end" if item is None else repr(item)
