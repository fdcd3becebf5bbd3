"""The engine: one StepPlan in, one StepResult out, over llama.cpp's batch API."""

from __future__ import annotations

import ctypes
import math
import time
from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from batchserve.llama.batch import RowBatch
from batchserve.llama.bindings import Pointer, lib
from batchserve.llama.errors import RowsLost, decode_error
from batchserve.llama.grouping import group_chunks
from batchserve.llama.logits import OutputRows
from batchserve.llama.model import LoadedModel, MemoryKind
from batchserve.llama.sampling import SamplerChain
from scheduler import Chunk, EngineError, Move, Opening, StepKind, StepPlan, StepResult

Sampled = list[tuple[int, int]]
Failures = list[tuple[int, str]]


class LlamaEngine:
    """Executes plans on a loaded model. Not thread-safe: one thread calls `execute`, one call at a time."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._ctx = loaded.ctx
        self._memory = lib.llama_get_memory(loaded.ctx)
        self._num_tokens = loaded.vocab.size
        self._ctx_per_stream = loaded.ctx_per_stream
        # Padding rows must be removable: a recurrent state has no rows, a sliding window may have dropped some.
        self._can_pad = loaded.facts.memory is MemoryKind.ATTENTION
        self._outputs = OutputRows(loaded.ctx, self._num_tokens)
        self._batch = RowBatch(max(loaded.max_rows, loaded.num_streams))
        # None stands for plain greedy: no chain needed.
        self._samplers: dict[int, SamplerChain | None] = {}

    def execute(self, plan: StepPlan) -> StepResult:
        """Run `plan`; see `scheduler.Engine`."""
        started = time.perf_counter()
        for handle in plan.closes:
            self._close_sampler(handle)
        for opening in plan.opens:
            self._open_sampler(opening)
        self._move(plan.moves)
        run = self._decode if plan.kind is StepKind.DECODE else self._prefill
        sampled, failures = run(plan.chunks)
        return StepResult(tuple(sampled), tuple(failures), time.perf_counter() - started)

    def close(self) -> None:
        """Free the samplers; the context belongs to the model."""
        for handle in list(self._samplers):
            self._close_sampler(handle)

    # -- the two kinds of step -------------------------------------------------------------------------------

    def _decode(self, chunks: Sequence[Chunk]) -> tuple[Sampled, Failures]:
        """One row of every sequence, in one call."""
        self._batch.fill_decode(
            [chunk.tokens[0] for chunk in chunks],
            [chunk.position for chunk in chunks],
            [chunk.slot for chunk in chunks],
        )
        self._call(chunks)
        return self._sample([chunk.handle for chunk in chunks], range(len(chunks)))

    def _prefill(self, chunks: Sequence[Chunk]) -> tuple[Sampled, Failures]:
        """One call per group of chunks; a group that fails is computed chunk by chunk."""
        sampled: Sampled = []
        failures: Failures = []
        groups = deque(self._groups(chunks))
        while groups:
            group = groups.popleft()
            try:
                new, bad = self._prefill_group(group)
            except EngineError as error:
                if len(group) == 1:
                    failures.append((group[0].handle, str(error)))
                groups.extendleft([chunk] for chunk in group if len(group) > 1)
            else:
                sampled += new
                failures += bad
        return sampled, failures

    def _groups(self, chunks: Sequence[Chunk]) -> list[list[Chunk]]:
        if not self._can_pad:
            return [[chunk] for chunk in chunks]
        return group_chunks(chunks, self._batch.capacity, self._ctx_per_stream)

    def _prefill_group(self, group: Sequence[Chunk]) -> tuple[Sampled, Failures]:
        for chunk in group:
            if chunk.position == 0:
                lib.llama_memory_seq_rm(self._memory, chunk.slot, -1, -1)
        rows = self._batch.fill_prefill(group)
        self._call(group)
        for chunk in group if len(group) > 1 else ():
            lib.llama_memory_seq_rm(self._memory, chunk.slot, chunk.position + len(chunk.tokens), -1)
        sampling = [(chunk.handle, row) for chunk, row in zip(group, rows, strict=True) if chunk.sample]
        return self._sample(*zip(*sampling, strict=True)) if sampling else ([], [])

    def _call(self, chunks: Sequence[Chunk]) -> None:
        code = lib.llama_decode(self._ctx, self._batch.struct)
        if code == 0:
            return
        for chunk in chunks:
            if not lib.llama_memory_seq_rm(self._memory, chunk.slot, chunk.position, -1):
                raise RowsLost(f"llama_decode failed with code {code}, and its rows cannot be taken back")
        raise decode_error(code)

    # -- sampling --------------------------------------------------------------------------------------------

    def _sample(self, handles: Sequence[int], rows: Sequence[int]) -> tuple[Sampled, Failures]:
        """The next token of each handle from the logits of its row in the last call."""
        sampled: Sampled = []
        failures: Failures = []
        for handle, row, logits in zip(handles, rows, self._outputs.rows(len(handles)), strict=True):
            best = int(logits.argmax())
            # argmax stops at a NaN, so the best value tells whether all others are usable.
            if not math.isfinite(logits[best]):
                failures.append((handle, "the model gave logits that are not finite numbers"))
                continue
            sampler = self._samplers[handle]
            sampled.append((handle, best if sampler is None else sampler.sample(self._ctx, row)))
        return sampled, failures

    def _open_sampler(self, opening: Opening) -> None:
        self._close_sampler(opening.handle)
        params = opening.sampling
        greedy = params.is_plain_greedy
        self._samplers[opening.handle] = (
            None if greedy else SamplerChain(params, opening.prompt, self._num_tokens, self._ctx_per_stream)
        )

    def _close_sampler(self, handle: int) -> None:
        sampler = self._samplers.pop(handle, None)
        if sampler is not None:
            sampler.close()

    # -- rows ------------------------------------------------------------------------------------------------

    def _move(self, moves: Sequence[Move]) -> None:
        """All moves at once: read every source before any target is written.

        The state functions copy the rows in use only; `llama_memory_seq_cp` between streams copies all.
        """
        states = [(move.target, self._read_rows(move.source)) for move in moves]
        for move in moves:
            lib.llama_memory_seq_rm(self._memory, move.source, -1, -1)
        for target, state in states:
            self._write_rows(target, state)

    def _read_rows(self, slot: int) -> npt.NDArray[np.uint8]:
        state = np.empty(lib.llama_state_seq_get_size(self._ctx, slot), np.uint8)
        if lib.llama_state_seq_get_data(self._ctx, _bytes(state), state.size, slot) != state.size:
            raise RowsLost(f"the rows of sequence {slot} cannot be read")
        return state

    def _write_rows(self, slot: int, state: npt.NDArray[np.uint8]) -> None:
        lib.llama_memory_seq_rm(self._memory, slot, -1, -1)
        if lib.llama_state_seq_set_data(self._ctx, _bytes(state), state.size, slot) == 0:
            raise RowsLost(f"the rows of sequence {slot} cannot be written")


def _bytes(array: npt.NDArray[np.uint8]) -> Pointer:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
