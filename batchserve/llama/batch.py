"""One reused `llama_batch` whose arrays are numpy arrays: filled by slices, never reallocated."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from batchserve.llama.bindings import Pointer, lib


class RowBatch:
    """Up to `capacity` rows, each of one sequence. Shapes are `(capacity,)`; the arrays are owned here."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._tokens = np.zeros(capacity, np.int32)
        self._positions = np.zeros(capacity, np.int32)
        self._num_seq_ids = np.ones(capacity, np.int32)
        self._seq_ids = np.zeros(capacity, np.int32)
        self._outputs = np.zeros(capacity, np.int8)
        # llama.cpp wants a pointer to each row's list of sequence ids; ours all have one entry.
        self._seq_id_rows = self._seq_ids.ctypes.data + 4 * np.arange(capacity, dtype=np.uintp)
        self.struct = self._bind()

    def fill_decode(self, tokens: Sequence[int], positions: Sequence[int], slots: Sequence[int]) -> None:
        """One row per sequence; each gives logits."""
        count = self._resize(len(tokens))
        self._tokens[:count] = tokens
        self._positions[:count] = positions
        self._seq_ids[:count] = slots
        self._outputs[:count] = 1

    def fill_prefill(self, tokens: Sequence[int], position: int, slot: int, wants_logits: bool) -> None:
        """Consecutive rows of one sequence; the last gives logits if wanted."""
        count = self._resize(len(tokens))
        self._tokens[:count] = tokens
        self._positions[:count] = np.arange(position, position + count)
        self._seq_ids[:count] = slot
        self._outputs[:count] = 0
        self._outputs[count - 1] = wants_logits

    def _resize(self, count: int) -> int:
        if not 0 < count <= self.capacity:
            raise ValueError(f"a batch holds 1 to {self.capacity} rows, not {count}")
        self.struct.n_tokens = count
        return count

    def _bind(self) -> Pointer:
        batch = lib.llama_batch()
        batch.token = _pointer(self._tokens, lib.llama_token)
        batch.embd = None
        batch.pos = _pointer(self._positions, lib.llama_pos)
        batch.n_seq_id = _pointer(self._num_seq_ids, ctypes.c_int32)
        batch.seq_id = _pointer(self._seq_id_rows, ctypes.POINTER(lib.llama_seq_id))
        batch.logits = _pointer(self._outputs, ctypes.c_int8)
        return batch


def _pointer(array: npt.NDArray[np.generic], element: Pointer) -> Pointer:
    return array.ctypes.data_as(ctypes.POINTER(element))
