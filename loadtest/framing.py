"""Takes the framing out of recorded packets: HTTP head, chunked transfer coding, SSE events.

Every piece keeps the time at which it was complete.
"""

from dataclasses import dataclass
from typing import NamedTuple

from loadtest.wire import Packet


class Piece(NamedTuple):
    """Bytes of the body and the moment they arrived (`time.perf_counter()` seconds)."""

    at: float
    data: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP answer with its transfer framing removed."""

    status: int
    headers: dict[str, str]
    pieces: tuple[Piece, ...]
    whole: bool
    """The framing says that nothing is missing."""

    @property
    def body(self) -> bytes:
        return b"".join(piece.data for piece in self.pieces)

    @property
    def is_event_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")


def split_response(packets: tuple[Packet, ...]) -> Response | None:
    """Take the head off and the framing out; None when there is no complete, readable head."""
    raw = b"".join(packet.data for packet in packets)
    head, found, _ = raw.partition(b"\r\n\r\n")
    status = _status(head)
    if not found or status is None:
        return None
    headers = _headers(head)
    pieces = _skip(packets, len(head) + len(found))
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return Response(status, headers, *dechunk(pieces))
    length = headers.get("content-length", "")
    size = sum(len(piece.data) for piece in pieces)
    return Response(status, headers, tuple(pieces), not length.isdigit() or size >= int(length))


def _status(head: bytes) -> int | None:
    words = head.split(b"\r\n", 1)[0].split(b" ", 2)
    is_http = len(words) >= 2 and words[0].startswith(b"HTTP/1.") and words[1].isdigit()
    return int(words[1]) if is_http else None


def _headers(head: bytes) -> dict[str, str]:
    lines = (line.decode("latin-1").partition(":") for line in head.split(b"\r\n")[1:])
    return {name.strip().lower(): value.strip() for name, _, value in lines}


def _skip(packets: tuple[Packet, ...], size: int) -> list[Piece]:
    pieces = []
    for at, data in packets:
        pieces.append(Piece(at, data[size:]))
        size = max(0, size - len(data))
    return [piece for piece in pieces if piece.data]


def dechunk(pieces: list[Piece]) -> tuple[tuple[Piece, ...], bool]:
    """Remove chunked framing; also says whether the last chunk was there.

    A chunk's time is that of the packet that completed it.
    """
    out: list[Piece] = []
    buffer = b""
    for at, data in pieces:
        buffer += data
        while (taken := _take_chunk(buffer)) is not None:
            chunk, buffer = taken
            if not chunk:
                return tuple(out), True
            out.append(Piece(at, chunk))
    return tuple(out), False


def _take_chunk(buffer: bytes) -> tuple[bytes, bytes] | None:
    """The first complete chunk and the rest; None when more bytes are needed or the size is no number."""
    line, found, rest = buffer.partition(b"\r\n")
    try:
        size = int(line.split(b";", 1)[0], 16)
    except ValueError:
        return None
    if not found or size < 0 or len(rest) < size + 2:
        return None
    return rest[:size], rest[size + 2 :]


def split_events(pieces: tuple[Piece, ...]) -> list[Piece]:
    """The data of every SSE event, timed by the piece that completed it. Comments are dropped."""
    events: list[Piece] = []
    buffer = b""
    for at, data in pieces:
        buffer = (buffer + data).replace(b"\r\n", b"\n")
        *complete, buffer = buffer.split(b"\n\n")
        events.extend(Piece(at, found) for block in complete if (found := _event_data(block)) is not None)
    return events


def _event_data(block: bytes) -> bytes | None:
    lines = [line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None
