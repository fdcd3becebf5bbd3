"""The one place that loads llama.cpp, and the few types that its pointers need in Python."""

from __future__ import annotations

import ctypes
import logging
import os
from collections import deque
from typing import Any

# ggml reads this once, when the library loads: its tiled matmul would sum differently from 8 rows on.
os.environ.setdefault("GGML_CPU_TILED_MM", "0")

from llama_cpp import llama_cpp as _typed_lib

__all__ = ["Pointer", "first_complaint", "lib", "route_log"]

#: The bindings. Their annotations describe ctypes arrays that numpy stands in for here, so they are not used.
lib: Any = _typed_lib

#: An opaque pointer into llama.cpp.
Pointer = Any

_log = logging.getLogger("batchserve.llama")
_LEVELS = {3: logging.WARNING, 4: logging.ERROR}
_recent: deque[str] = deque(maxlen=8)


@lib.llama_log_callback  # type: ignore[untyped-decorator]
def _to_logging(level: int, text: bytes, _user_data: Pointer) -> None:
    if level in _LEVELS:
        line = text.decode("utf-8", "replace").rstrip()
        _recent.append(line)
        _log.log(_LEVELS[level], "%s", line)


def route_log() -> None:
    """Send llama.cpp's warnings and errors to logging, and drop its chatter."""
    lib.llama_log_set(_to_logging, ctypes.c_void_p(0))


def first_complaint() -> str:
    """What llama.cpp complained about first since the last call of this function; later lines only repeat it."""
    line = _recent[0] if _recent else ""
    _recent.clear()
    return line
