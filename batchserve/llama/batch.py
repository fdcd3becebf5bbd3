"""One reused `llama_batch` whose arrays are numpy arrays: filled by slices, never reallocated."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from batchserve.llama.bindings import Pointer, lib
from scheduler import Chunk


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

    def fill_prefill(self, chunks: Sequence[Chunk]) -> list[int]:
        """Each chunk's rows, padded to the longest with its last token; returns the row of each last real token.

        That row gives logits where the chunk is to be sampled.
        """
        length = max(len(chunk.tokens) for chunk in chunks)
        count = self._resize(length * len(chunks))
        self._outputs[:count] = 0
        return [
            self._fill_chunk(chunk, start, length)
            for chunk, start in zip(chunks, range(0, count, length), strict=True)
        ]

    def _fill_chunk(self, chunk: Chunk, start: int, length: int) -> int:
        last, end = start + len(chunk.tokens) - 1, start + length
        self._tokens[start : last + 1] = chunk.tokens
        self._tokens[last + 1 : end] = chunk.tokens[-1]
        self._positions[start:end] = np.arange(chunk.position, chunk.position + length)
        self._seq_ids[start:end] = chunk.slot
        self._outputs[last] = chunk.sample
        return last

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
