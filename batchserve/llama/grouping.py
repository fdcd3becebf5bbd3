"""Which prefill chunks are computed in one call: similar lengths, padded to the longest.

llama.cpp cuts a call of unequal sequences into micro-batches of equal ones, and a cut may leave a lone row, whose
kernels sum in another order. Padding makes all sequences of a call equally long, so that nothing is cut. The
padding rows come after the real ones, which therefore never look at them, and are removed after the call.
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduler import Chunk

#: At most one row in this many may be padding.
_PADDING_SHARE = 8


def group_chunks(chunks: Iterable[Chunk], max_rows: int, ctx_per_stream: int) -> list[list[Chunk]]:
    """Split `chunks` into groups for one call each, of at most `max_rows` rows with their padding.

    A chunk of one row stays alone, since padding would change its kernels, and so does one whose padding would
    not fit into its context of `ctx_per_stream` rows. Within a group the chunks come in slot order.
    """
    groups: list[list[Chunk]] = []
    for chunk in sorted(chunks, key=lambda chunk: -len(chunk.tokens)):
        if groups and _fits(chunk, groups[-1], max_rows, ctx_per_stream):
            groups[-1].append(chunk)
        else:
            groups.append([chunk])
    return [sorted(group, key=lambda chunk: chunk.slot) for group in groups]


def _fits(chunk: Chunk, group: list[Chunk], max_rows: int, ctx_per_stream: int) -> bool:
    longest, rows = len(group[0].tokens), len(chunk.tokens)
    return (
        rows > 1
        and (longest - rows) * _PADDING_SHARE <= longest
        and (len(group) + 1) * longest <= max_rows
        and chunk.position + longest <= ctx_per_stream
    )
