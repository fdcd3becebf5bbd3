"""What runs next: pure functions over the running sequences."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from scheduler.plan import StepKind
from scheduler.sequence import Sequence

#: How often a long prompt lets shorter ones go first before the line waits for it.
MAX_OVERTAKES = 8


def next_kind(num_prefilling: int, num_decoding: int, last: StepKind | None) -> StepKind | None:
    """Decode first, and at most one prefill step between two decode steps."""
    if num_prefilling and (not num_decoding or last is StepKind.DECODE):
        return StepKind.PREFILL
    return StepKind.DECODE if num_decoding else None


def max_step_rows(chunk: int) -> int:
    """Rows of the largest prefill step."""
    return 2 * chunk


@dataclass(frozen=True, slots=True)
class Cut:
    """How prompts are cut into chunks: as a function of the prompt's own progress alone.

    So a prompt is cut the same way in any company. A row at position p attends to p rows before it; at position
    `half_at` this costs as much as all the rest, so chunks there are half as long: all take about the same time.
    """

    chunk: int
    half_at: int

    def rows(self, sequence: Sequence) -> int:
        """Rows of the next chunk of `sequence`.

        Never a lone row, whose kernels sum in another order, unless the prompt is one token long.
        """
        left, longest = sequence.prompt_left, self._longest(sequence.computed)
        if left <= longest:
            return left
        return longest - 1 if left == longest + 1 else longest

    def cost(self, sequence: Sequence) -> int:
        """What the next chunk costs, in rows at the beginning of a prompt."""
        return self.rows(sequence) * (self.half_at + sequence.computed) // self.half_at

    def is_last(self, sequence: Sequence) -> bool:
        """True when the next chunk completes the prompt."""
        return self.rows(sequence) == sequence.prompt_left

    def _longest(self, position: int) -> int:
        # Matrix units work in tiles of 16 rows, and very short chunks waste them.
        tiles = self.chunk * self.half_at // (self.half_at + position) // 16
        return self.chunk if position == 0 else max(min(self.chunk, 32), 16 * tiles)


def choose_prefill(prefilling: Seq[Sequence], cut: Cut, is_decoding: bool) -> list[Sequence]:
    """The sequences whose next chunks make up a prefill step.

    The step costs one full chunk while streams wait for their next token, two when none does. In order of arrival,
    except that a prompt which needs one more chunk goes before one that needs several: it costs the long one one
    step, and the short one would otherwise wait for all of them. Nobody is passed over in more than MAX_OVERTAKES
    steps.
    """
    line = sorted(prefilling, key=lambda sequence: sequence.handle)
    budget = cut.chunk if is_decoding else max_step_rows(cut.chunk)
    chosen: list[Sequence] = []
    for sequence in sorted(line, key=lambda sequence: _takes_long(sequence, cut)):
        budget -= cut.cost(sequence)
        if chosen and budget < 0:
            break
        chosen.append(sequence)
    _count_overtakes(line, chosen)
    return chosen


def _takes_long(sequence: Sequence, cut: Cut) -> bool:
    return not cut.is_last(sequence) and sequence.overtaken < MAX_OVERTAKES


def _count_overtakes(line: list[Sequence], chosen: list[Sequence]) -> None:
    last = max(sequence.handle for sequence in chosen)
    for sequence in line:
        if sequence.handle < last and sequence not in chosen:
            sequence.overtaken += 1
