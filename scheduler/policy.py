"""What runs next: pure functions over the running sequences."""

from __future__ import annotations

from collections.abc import Sequence as Seq

from scheduler.plan import StepKind
from scheduler.sequence import Sequence

#: How often a long prompt lets shorter ones go first before the line waits for it.
MAX_OVERTAKES = 8


def next_kind(num_prefilling: int, num_decoding: int, last: StepKind | None) -> StepKind | None:
    """Decode first, and at most one prefill step between two decode steps."""
    if num_prefilling and (not num_decoding or last is StepKind.DECODE):
        return StepKind.PREFILL
    return StepKind.DECODE if num_decoding else None


def prefill_budget(chunk: int, num_decoding: int) -> int:
    """Rows of a prefill step: one chunk while streams wait for their next token, two when none does."""
    return chunk if num_decoding else 2 * chunk


def chunk_rows(prompt_left: int, chunk: int) -> int:
    """Rows of a prompt's next chunk, given the rows left and the largest chunk.

    Depends on the prompt's own progress alone, so that a prompt is cut the same way in any company. The last
    chunk is never a lone row, whose kernels sum in another order, unless the prompt is one token long.
    """
    if prompt_left <= chunk:
        return prompt_left
    return chunk - 1 if prompt_left == chunk + 1 else chunk


def choose_prefill(prefilling: Seq[Sequence], chunk: int, budget: int) -> list[Sequence]:
    """The sequences whose next chunks, of at most `chunk` rows each, make up a prefill step of `budget` rows.

    In order of arrival, except that a prompt which fits into one step goes before one that needs several: it
    costs the long one one step, and the short one would otherwise wait for all of them. Nobody is passed over in
    more than MAX_OVERTAKES steps.
    """
    line = sorted(prefilling, key=lambda sequence: sequence.handle)
    chosen: list[Sequence] = []
    for sequence in sorted(line, key=lambda sequence: _takes_long(sequence, chunk)):
        rows = chunk_rows(sequence.prompt_left, chunk)
        if rows > budget:
            break
        chosen.append(sequence)
        budget -= rows
    _count_overtakes(line, chosen)
    return chosen


def _takes_long(sequence: Sequence, chunk: int) -> bool:
    return sequence.prompt_left > chunk and sequence.overtaken < MAX_OVERTAKES


def _count_overtakes(line: list[Sequence], chosen: list[Sequence]) -> None:
    last = max(sequence.handle for sequence in chosen)
    for sequence in line:
        if sequence.handle < last and sequence not in chosen:
            sequence.overtaken += 1
