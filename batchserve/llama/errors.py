"""What llama.cpp refuses, as exceptions with a reason."""

from __future__ import annotations

from scheduler import EngineError, StepFailed


class ModelError(Exception):
    """The model cannot be served; the message says why and what to do."""


class NoRoom(StepFailed):
    """`llama_decode` found no place in the KV cache; the cache is unchanged."""


class Aborted(StepFailed):
    """`llama_decode` was stopped by the abort callback; finished micro-batches stay in the cache."""


class InvalidBatch(StepFailed):
    """`llama_decode` refused the batch before it computed anything."""


class DecodeFailed(StepFailed):
    """`llama_decode` failed inside; what it had written can be taken back."""


class RowsLost(EngineError):
    """Rows could not be taken back, read or written: their sequences cannot go on."""


def decode_error(code: int) -> StepFailed:
    """The exception for a non-zero return code of `llama_decode` (llama.h), once its rows are taken back."""
    if code == 1:
        return NoRoom("llama_decode found no room in the KV cache")
    if code == 2:
        return Aborted("llama_decode was aborted")
    if code == -1:
        return InvalidBatch("llama_decode refused the batch as invalid")
    return DecodeFailed(f"llama_decode failed with code {code}")
