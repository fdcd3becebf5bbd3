"""Server-sent events: frames from byte templates, and a response that shows life while a client waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec
import orjson
from aiohttp import web

from batchserve.http.shapes import Head, ReplyOptions, Shape
from scheduler import TokenDelta

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"

HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # nginx would otherwise collect tokens
}

_MARK = "\x00"
_ENCODED_MARK = msgspec.json.encode(_MARK)


def frame(value: msgspec.Struct) -> bytes:
    """One event with `value` as JSON, which has no line breaks of its own."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def encode_text(text: str) -> bytes:
    """`text` as a JSON string that no client's idea of a line break can tear apart.

    Many split a stream as Python's `str.splitlines` does, which knows three breaks that JSON lets pass.
    """
    encoded = orjson.dumps(text)
    if text.isascii():
        return encoded
    encoded = encoded.replace(b"\xc2\x85", b"\\u0085")
    return encoded.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")


class ChoiceFrames:
    """The events of one choice. All but the text and the token ids of a chunk is encoded once per choice."""

    def __init__(self, shape: Shape, head: Head, index: int, options: ReplyOptions) -> None:
        self._shape, self._head, self._index, self._options = shape, head, index, options
        opening = shape.opening(head, index, options)
        self._opening = b"" if opening is None else frame(opening)
        # The choice comes last in a chunk, so the last mark is the right one, whatever the model's name is.
        chunk = frame(shape.delta(head, index, _MARK, options))
        self._before, _, after = chunk.rpartition(_ENCODED_MARK)
        self._between, _, self._after = after.rpartition(b"[]") if options.token_ids else (b"", b"", after)

    def delta(self, delta: TokenDelta) -> bytes:
        """The event of `delta`, the opening before the first one; empty when there is nothing to tell."""
        if self._options.token_ids:
            ids = orjson.dumps(delta.token_ids)
            event = self._before + encode_text(delta.text) + self._between + ids + self._after
        elif delta.text:
            event = self._before + encode_text(delta.text) + self._after
        else:
            return b""
        if self._opening:
            event, self._opening = self._opening + event, b""
        return event

    def closing(self, reason: str) -> bytes:
        """The event with the finish reason."""
        return self._opening + frame(self._shape.closing(self._head, self._index, reason, self._options))


class EventStream:
    """An open response. Frames are written whole, so that several choices and the heartbeat can share it."""

    def __init__(self, response: web.StreamResponse) -> None:
        self._response = response
        self._is_quiet = True

    async def send(self, data: bytes) -> None:
        """Write events; waits only while the client is far behind."""
        self._is_quiet = False
        await self._response.write(data)

    async def keep_alive(self, seconds: float) -> None:
        """Write a comment whenever nothing else was written for `seconds`; ends when the client is gone."""
        with suppress(ConnectionError):
            while True:
                await asyncio.sleep(seconds)
                if self._is_quiet:
                    await self._response.write(KEEP_ALIVE)
                self._is_quiet = True


@contextmanager
def event_stream(response: web.StreamResponse, heartbeat_seconds: float) -> Iterator[EventStream]:
    """An EventStream on a prepared `response`, with a heartbeat as long as it is used."""
    events = EventStream(response)
    heartbeat = asyncio.create_task(events.keep_alive(heartbeat_seconds))
    try:
        yield events
    finally:
        heartbeat.cancel()
