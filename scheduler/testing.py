"""Fakes that ship with the scheduler: an engine whose KV cache can be checked, and a tiny vocabulary."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable

from scheduler.errors import EngineError, StepFailed
from scheduler.plan import Chunk, Move, StepKind, StepPlan, StepResult


class FakeVocabulary:
    """Token ids 0..num_tokens-1: token 0 ends generation, the others are letters."""

    def __init__(self, num_tokens: int = 64) -> None:
        self.num_tokens = num_tokens

    def piece(self, token: int) -> bytes:
        return b"" if token == 0 else bytes([97 + token % 26])

    def ends_generation(self, token: int) -> bool:
        return token == 0


class FakeEngine:
    """Keeps the tokens of every slot; the next token is a hash of them and of the seed.

    So a wrong row, a wrong slot or a missed move changes every later token. `fail` maps step numbers (from 0) to
    the error to raise there; `poison` tokens cannot be decoded in any company; `step_seconds` slows each step.
    """

    def __init__(
        self,
        num_tokens: int = 64,
        *,
        fail: dict[int, EngineError] | None = None,
        poison: Iterable[int] = (),
        on_step: Callable[[StepPlan], None] | None = None,
        step_seconds: float = 0.0,
    ) -> None:
        self.num_tokens = num_tokens
        self.plans: list[StepPlan] = []
        self.rows: dict[int, list[int]] = {}
        self.seeds: dict[int, int] = {}
        self._fail = fail or {}
        self._poison = frozenset(poison)
        self._on_step = on_step
        self._step_seconds = step_seconds

    def execute(self, plan: StepPlan) -> StepResult:
        self.plans.append(plan)
        if self._on_step is not None:
            self._on_step(plan)
        time.sleep(self._step_seconds)
        self._prepare(plan)
        if error := self._fail.get(len(self.plans) - 1):
            raise error
        self._refuse_poison(plan)
        self._check_shape(plan)
        for chunk in plan.chunks:
            self._write(chunk)
        sampled = tuple((chunk.handle, self._next_token(chunk)) for chunk in plan.chunks if chunk.sample)
        return StepResult(sampled, seconds=self._step_seconds)

    def solo(self, prompt: tuple[int, ...], count: int, seed: int = 0) -> list[int]:
        """The tokens a request must get, whatever its company; ends with token 0 or after `count`."""
        known = list(prompt)
        while len(known) - len(prompt) < count and (len(known) == len(prompt) or known[-1] != 0):
            known.append(self._hash(known, seed))
        return known[len(prompt) :]

    def _prepare(self, plan: StepPlan) -> None:
        for handle in plan.closes:
            self.seeds.pop(handle, None)
        for opening in plan.opens:
            self.seeds[opening.handle] = opening.sampling.seed
        self._move(plan.moves)

    def _move(self, moves: tuple[Move, ...]) -> None:
        taken = {move.target: list(self.rows[move.source]) for move in moves}
        self.rows.update(taken)

    def _refuse_poison(self, plan: StepPlan) -> None:
        if plan.kind is StepKind.DECODE and any(self._poison & set(chunk.tokens) for chunk in plan.chunks):
            raise StepFailed("a poisoned row")

    def _check_shape(self, plan: StepPlan) -> None:
        if plan.kind is StepKind.DECODE and len(plan.chunks) > 1:
            assert [chunk.slot for chunk in plan.chunks] == list(range(len(plan.chunks))), plan
        if plan.kind is StepKind.DECODE:
            assert all(len(chunk.tokens) == 1 and chunk.sample for chunk in plan.chunks), plan

    def _write(self, chunk: Chunk) -> None:
        rows = [] if chunk.position == 0 else self.rows[chunk.slot]
        assert len(rows) == chunk.position, f"{chunk} does not continue {len(rows)} rows"
        self.rows[chunk.slot] = rows + list(chunk.tokens)

    def _next_token(self, chunk: Chunk) -> int:
        return self._hash(self.rows[chunk.slot], self.seeds[chunk.handle])

    def _hash(self, tokens: list[int], seed: int) -> int:
        return zlib.crc32(repr((seed, tokens)).encode()) % self.num_tokens
