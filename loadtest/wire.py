"""A streaming HTTP/1.1 client that only writes down what arrives, and when.

The client shares the cores with the server it measures, so the hot path is one append per packet.
Everything else (chunked framing, SSE, JSON) is decoded after the run, by `loadtest.decode`.
"""

import asyncio
import ssl
from dataclasses import dataclass
from enum import StrEnum
from time import perf_counter
from typing import NamedTuple, cast
from urllib.parse import urlsplit

from loadtest.errors import ConfigError

_END_OF_HEAD = b"\r\n\r\n"
_LAST_CHUNK = b"\r\n0\r\n\r\n"


class Fault(StrEnum):
    """Why a request did not end well."""

    CONNECTION_REFUSED = "connection refused"
    UNREACHABLE = "unreachable"
    TIMED_OUT = "timed out"
    CUT_OFF = "cut off"
    HTTP_STATUS = "http"
    ERROR_EVENT = "error event"
    MALFORMED = "malformed"
    NO_TOKENS = "no tokens"


class Packet(NamedTuple):
    """One read from the socket."""

    at: float
    """`time.perf_counter()` seconds."""
    data: bytes


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go."""

    host: str
    port: int
    tls: bool
    prefix: str
    api_key: str | None = None

    @classmethod
    def parse(cls, url: str, api_key: str | None = None) -> "Target":
        """Read ``http://host:port``; a trailing ``/v1`` is accepted and dropped.

        Raises ConfigError for anything that is no http or https address.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"not a URL: {url!r} ({error})") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"not an http or https URL: {url!r}")
        tls = parts.scheme == "https"
        prefix = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.hostname, port or (443 if tls else 80), tls, prefix, api_key)

    def head(self, method: str, path: str, length: int) -> bytes:
        """The request head; every request has its own connection, so end of file ends the answer."""
        lines = [
            f"{method} {self.prefix}{path} HTTP/1.1",
            f"Host: {self.host}:{self.port}",
            "Connection: close",
            "Accept: text/event-stream, application/json",
            "Content-Type: application/json",
            f"Content-Length: {length}",
        ]
        if self.api_key:
            lines.append(f"Authorization: Bearer {self.api_key}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


@dataclass(frozen=True, slots=True)
class Recording:
    """One exchange as it happened on the wire. Times are `time.perf_counter()` seconds."""

    started_at: float
    ended_at: float
    packets: tuple[Packet, ...]
    fault: Fault | None = None


class _Recorder(asyncio.Protocol):
    """Sends one request, then appends packets until the answer has ended."""

    def __init__(self, request: bytes, packets: list[Packet], done: "asyncio.Future[None]") -> None:
        self._request = request
        self._packets = packets
        self.done = done
        self._head: bytes | None = b""
        self._tail = b""
        self._remaining: int | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._packets.append(Packet(perf_counter(), data))
        if self._head is not None:
            self._read_head(data)
        else:
            self._read_body(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish()

    def close(self) -> None:
        """Drop the connection; safe to call at any time."""
        if self._transport is not None:
            self._transport.abort()

    def _read_head(self, data: bytes) -> None:
        assert self._head is not None
        head, found, body = (self._head + data).partition(_END_OF_HEAD)
        if not found:
            self._head = head
            return
        self._head = None
        self._remaining = content_length(head)
        self._tail = b"\r\n"
        self._read_body(body)

    def _read_body(self, data: bytes) -> None:
        if self._remaining is not None:
            self._remaining -= len(data)
            if self._remaining <= 0:
                self._finish()
            return
        self._tail = (self._tail + data)[-len(_LAST_CHUNK) :]
        if self._tail == _LAST_CHUNK:
            self._finish()

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


def content_length(head: bytes) -> int | None:
    """The Content-Length of a raw response head, or None where there is none."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            return int(value)
    return None


async def exchange(
    target: Target,
    method: str,
    path: str,
    body: bytes = b"",
    *,
    timeout_s: float,
    packets: list[Packet] | None = None,
) -> Recording:
    """Send one request and record the answer. Never raises for what the server or the network does.

    `timeout_s` bounds the whole exchange, from before the connection to the last byte. A caller that wants
    to look on passes `packets`, which is filled as they arrive.
    """
    loop = asyncio.get_running_loop()
    arriving: list[Packet] = [] if packets is None else packets
    recorder = _Recorder(target.head(method, path, len(body)) + body, arriving, loop.create_future())
    started_at = perf_counter()
    try:
        fault = await _run(recorder, target, timeout_s)
    finally:
        recorder.close()
    return Recording(started_at, perf_counter(), tuple(arriving), fault)


async def _run(recorder: _Recorder, target: Target, timeout_s: float) -> Fault | None:
    loop = asyncio.get_running_loop()
    tls = ssl.create_default_context() if target.tls else None
    try:
        async with asyncio.timeout(timeout_s):
            await loop.create_connection(lambda: recorder, target.host, target.port, ssl=tls)
            await recorder.done
    except TimeoutError:
        return Fault.TIMED_OUT
    except ConnectionRefusedError:
        return Fault.CONNECTION_REFUSED
    except OSError:
        return Fault.UNREACHABLE
    return None
