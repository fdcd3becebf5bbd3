"""Weights and KV cache on huge pages, where Linux allows it.

llama.cpp allocates them with malloc, which most distributions back with 4 KiB pages unless a program asks for more.
A decode step reads all weights once, and in a virtual machine each page costs a nested walk: with huge pages steps
are 2 to 4% faster here (docs/benchmarks/). They hold the same bytes, so results do not change.
"""

from __future__ import annotations

import ctypes
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger("batchserve.llama")

_HUGE = 2 << 20
# <linux/mman.h>; the second one is in Linux 6.1 and newer.
_MADV_HUGEPAGE, _MADV_COLLAPSE = 14, 25
_ANONYMOUS = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ 0\s*$")


def use_huge_pages(maps: Path = Path("/proc/self/maps")) -> int:
    """Move this process's large anonymous memory to huge pages; returns how many were made.

    Does nothing where the system has no such pages, forbids them, or has no memory in large pieces.
    """
    if sys.platform != "linux":
        return 0
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    made = 0
    for start, end in _large_regions(maps):
        madvise(start, end - start, _MADV_HUGEPAGE)
        # One page at a time: a hole in a region would fail all that follows it.
        made += sum(madvise(page, _HUGE, _MADV_COLLAPSE) == 0 for page in range(start, end, _HUGE))
    log.debug("%d huge pages hold weights and KV cache", made)
    return made


def _large_regions(maps: Path) -> Iterator[tuple[int, int]]:
    """Writable private memory without a file, cut to whole huge pages."""
    try:
        lines = maps.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        if found := _ANONYMOUS.match(line):
            start = -(-int(found[1], 16) // _HUGE) * _HUGE
            end = int(found[2], 16) // _HUGE * _HUGE
            if start < end:
                yield start, end
