"""Who sits in which slot. A slot is a llama.cpp sequence id with a context of its own."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.plan import Move
from scheduler.sequence import Sequence


class Slots:
    """`capacity` slots, numbered from 0; a sequence's `slot` and this table always say the same."""

    def __init__(self, capacity: int) -> None:
        self._holders: list[Sequence | None] = [None] * capacity

    @property
    def has_free(self) -> bool:
        return None in self._holders

    @property
    def running(self) -> list[Sequence]:
        """The sequences that hold a slot, in slot order."""
        return [holder for holder in self._holders if holder is not None]

    def acquire(self, sequence: Sequence) -> None:
        """Give `sequence` the lowest free slot.

        Raises:
            ValueError: none is free, or it has one already.
        """
        if sequence.slot is not None:
            raise ValueError(f"{sequence!r} holds a slot already")
        self._place(sequence, self._holders.index(None))

    def release(self, sequence: Sequence) -> None:
        """Take back the slot of `sequence`; without one this is a no-op."""
        if sequence.slot is not None:
            self._holders[sequence.slot] = None
            sequence.slot = None

    def compact(self, cohort: Iterable[Sequence]) -> tuple[Move, ...]:
        """Seat `cohort` in slots 0, 1, 2, ... without a gap; returns the rows that have to follow.

        Only those outside that range change places, each with whoever sits in the way. Gaps would split the
        micro-batch in two (docs/exactness.md).
        """
        members = set(cohort)
        seats = range(len(members))
        outside = [sequence for sequence in members if sequence.slot not in seats]
        outside.sort(key=lambda sequence: sequence.slot or 0)
        open_seats = [seat for seat in seats if self._holders[seat] not in members]
        moves: list[Move] = []
        for sequence, seat in zip(outside, open_seats, strict=True):
            moves += self._swap(sequence, seat)
        return tuple(moves)

    def _swap(self, sequence: Sequence, seat: int) -> list[Move]:
        source = sequence.slot
        assert source is not None
        displaced = self._holders[seat]
        moves = [Move(source, seat)]
        self._holders[source] = None
        if displaced is not None:
            if displaced.computed:
                moves.append(Move(seat, source))
            self._place(displaced, source)
        self._place(sequence, seat)
        return moves

    def _place(self, sequence: Sequence, slot: int) -> None:
        self._holders[slot] = sequence
        sequence.slot = slot

    def check_integrity(self) -> None:
        """Raises AssertionError when table and sequences disagree."""
        for slot, holder in enumerate(self._holders):
            assert holder is None or holder.slot == slot, f"slot {slot} holds {holder!r}"
