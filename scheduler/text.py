"""From token bytes to text that may be shown: whole UTF-8 characters, and never the start of a stop string."""

from __future__ import annotations

import codecs
from collections import deque

from scheduler.events import TokenDelta

_new_decoder = codecs.getincrementaldecoder("utf-8")


class TextAssembler:
    """Turns one sequence's tokens into text deltas.

    A token is reported with the delta that completes its text: not before all its bytes are shown. Text that
    could still become a stop string is held back. Where several stop strings end up in the text, the one that is
    complete first counts, so that the outcome does not depend on how the text is cut into tokens.
    """

    def __init__(self, stops: tuple[str, ...] = ()) -> None:
        self._decoder = _new_decoder("replace")
        self._stops = stops
        self._text = ""  # decoded, not yet emitted
        self._ends: deque[tuple[int, int]] = deque()  # (token, end of its text as an offset into _text)
        self.stopped = False

    def push(self, token: int, piece: bytes) -> TokenDelta | None:
        """Add a token; returns what can be shown now, or None. After a stop string `stopped` is True."""
        self._text += self._decoder.decode(piece)
        # A token that ends inside a character is complete with the character: one past the text so far.
        incomplete = 1 if self._decoder.getstate()[0] else 0
        self._ends.append((token, len(self._text) + incomplete))
        if not self._stops:
            return self._emit(len(self._text))
        cut = self._find_stop()
        if cut is None:
            return self._emit(len(self._text) - self._held_back())
        self.stopped = True
        return self._emit(cut)

    def flush(self) -> TokenDelta | None:
        """The end of the sequence: everything that was held back, incomplete characters as U+FFFD."""
        self._text += self._decoder.decode(b"", final=True)
        if self._ends:
            self._ends = deque((token, min(end, len(self._text))) for token, end in self._ends)
        return self._emit(len(self._text))

    def _find_stop(self) -> int | None:
        found = [(at + len(stop), at) for stop in self._stops if (at := self._text.find(stop)) >= 0]
        return min(found)[1] if found else None

    def _held_back(self) -> int:
        """Length of the longest end of the text that is the beginning of a stop string."""
        return max(_overlap(self._text, stop) for stop in self._stops)

    def _emit(self, length: int) -> TokenDelta | None:
        text, self._text = self._text[:length], self._text[length:]
        tokens = []
        while self._ends and self._ends[0][1] <= length:
            tokens.append(self._ends.popleft()[0])
        if length and self._ends:
            self._ends = deque((token, end - length) for token, end in self._ends)
        return TokenDelta(text, tuple(tokens)) if text or tokens else None


def _overlap(text: str, stop: str) -> int:
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
