"""The way of one request's events to their consumer."""

from __future__ import annotations

import asyncio

from scheduler.events import Event, TokenDelta


class TokenStream:
    """Events of one request, for one consumer. `put` never blocks: a slow reader finds bigger deltas."""

    def __init__(self) -> None:
        self._unread: list[TokenDelta] = []
        self._last: Event | None = None
        self._wake: asyncio.Future[None] | None = None

    @property
    def has_ended(self) -> bool:
        """True when the last event is in; it may still be unread."""
        return self._last is not None

    def put(self, event: Event) -> None:
        """Add an event; nothing may follow a Finished or Failed."""
        assert self._last is None, "the stream has ended"
        if isinstance(event, TokenDelta):
            self._unread.append(event)
        else:
            self._last = event
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def next(self) -> Event:
        """Wait for the next event. Unread deltas come as one; after the last event there is no other."""
        if not self._unread and self._last is None:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        if not self._unread:
            assert self._last is not None
            return self._last
        deltas, self._unread = self._unread, []
        return deltas[0] if len(deltas) == 1 else _merge(deltas)


def _merge(deltas: list[TokenDelta]) -> TokenDelta:
    text = "".join(delta.text for delta in deltas)
    return TokenDelta(text, tuple(token for delta in deltas for token in delta.token_ids))
