"""The logits of the last call, seen through numpy without a copy."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from batchserve.llama.bindings import Pointer, lib

# A function object of its own, so that it can return a bare address: cheaper than a typed pointer at every token.
_get_logits = lib._lib["llama_get_logits"]
_get_logits.argtypes = [ctypes.c_void_p]
_get_logits.restype = ctypes.c_void_p


class OutputRows:
    """Views of llama.cpp's output buffer, kept until llama.cpp moves it."""

    def __init__(self, ctx: Pointer, num_tokens: int) -> None:
        self._ctx = ctx
        self._num_tokens = num_tokens
        self._address = 0
        self._views: list[npt.NDArray[np.float32]] = []

    def rows(self, count: int) -> list[npt.NDArray[np.float32]]:
        """One view per output row of the last call, in batch order; each of shape `(num_tokens,)`.

        They are valid until the next call.
        """
        address = _get_logits(self._ctx)
        if address != self._address or count > len(self._views):
            self._address = address
            self._views = self._map(address, count)
        return self._views[:count]

    def _map(self, address: int, count: int) -> list[npt.NDArray[np.float32]]:
        floats = (ctypes.c_float * (count * self._num_tokens)).from_address(address)
        return list(np.ctypeslib.as_array(floats).reshape(count, self._num_tokens))
