"""The contract with an engine: a plan for one step, and its result.

Frozen values of plain integers, floats and strings, so that they can cross a process boundary.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from scheduler.request import SamplingParams


class StepKind(StrEnum):
    """A step is one of the two, never both: mixing them changes the kernels (docs/exactness.md)."""

    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive rows of one sequence.

    The engine writes `tokens` at `position` and onwards of slot `slot`; a chunk at position 0 starts with an
    empty slot. Where `sample` is set, the token that follows the last row is chosen with `handle`'s sampler.
    A decode row is a chunk of one token.
    """

    handle: int
    slot: int
    position: int
    tokens: tuple[int, ...]
    sample: bool


@dataclass(frozen=True, slots=True)
class Move:
    """The rows of slot `source` become those of slot `target`. All moves of a plan happen at once."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Opening:
    """A sequence that begins, or begins again after a failed step: its sampler starts from this alone."""

    handle: int
    sampling: SamplingParams
    prompt: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step. In this order: close samplers, open samplers, move rows, run the chunks.

    A decode step is one call over all chunks, whose slots are 0, 1, 2, ... in that order (a lone suspect after
    a failed step may sit anywhere). How the chunks of a prefill step
    share calls is the engine's business.
    """

    kind: StepKind
    chunks: tuple[Chunk, ...]
    moves: tuple[Move, ...] = ()
    opens: tuple[Opening, ...] = ()
    closes: tuple[int, ...] = ()

    @property
    def num_rows(self) -> int:
        return sum(len(chunk.tokens) for chunk in self.chunks)


@dataclass(frozen=True, slots=True)
class StepResult:
    """What the step gave: per handle the sampled token, or why that one sequence failed.

    `seconds` is the time the engine was busy with it.
    """

    sampled: tuple[tuple[int, int], ...]
    failures: tuple[tuple[int, str], ...] = ()
    seconds: float = 0.0
