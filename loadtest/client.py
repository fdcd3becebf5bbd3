"""Requests in, outcomes out; and the few questions asked of a server before a run."""

import asyncio
import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter

import msgspec

from loadtest.decode import decode
from loadtest.errors import ServerUnavailableError
from loadtest.framing import split_response
from loadtest.outcome import Outcome
from loadtest.requests import Request
from loadtest.wire import Packet, Recording, Target, exchange


@dataclass(slots=True)
class Live:
    """What a run is doing right now, for whoever looks on; never decoded while the run lasts."""

    label: str = ""
    num_finished: int = 0
    in_flight: list[list[Packet]] = field(default_factory=list)
    num_packets_finished: int = 0

    @property
    def num_packets(self) -> int:
        return self.num_packets_finished + sum(map(len, self.in_flight))

    @contextmanager
    def request(self, packets: list[Packet]) -> Iterator[None]:
        """Count one request as in flight while the block runs; its packets arrive in the list."""
        self.in_flight.append(packets)
        try:
            yield
        finally:
            self.in_flight = [other for other in self.in_flight if other is not packets]
            self.num_finished += 1
            self.num_packets_finished += len(packets)


@dataclass(frozen=True, slots=True)
class Client:
    """Sends requests to one server."""

    target: Target
    timeout_s: float = 600.0
    """Bound of each whole request."""
    live: Live = field(default_factory=Live)

    async def record(self, request: Request, packets: list[Packet] | None = None) -> Recording:
        """Send one request and keep what arrives, undecoded; `packets`, if given, is filled meanwhile."""
        arriving: list[Packet] = [] if packets is None else packets
        with self.live.request(arriving):
            return await exchange(
                self.target, "POST", request.path, request.body, timeout_s=self.timeout_s, packets=arriving
            )

    async def together(self, requests: Sequence[Request]) -> tuple[tuple[Outcome, ...], float]:
        """Send all at once; the outcomes in the same order, and the wall time in seconds."""
        with no_collection():
            origin = perf_counter()
            recordings = await asyncio.gather(*map(self.record, requests))
            wall_s = perf_counter() - origin
        return tuple(decode(recording, origin) for recording in recordings), wall_s

    async def alone(self, requests: Sequence[Request]) -> tuple[Outcome, ...]:
        """Send one after the other; a request that occurs twice is sent once, and its outcome used twice."""
        origin = perf_counter()
        known: dict[Request, Outcome] = {}
        for request in requests:
            if request not in known:
                known[request] = decode(await self.record(request), origin)
        return tuple(known[request] for request in requests)

    async def get(self, path: str) -> tuple[int, bytes] | None:
        """Status and body of a GET, or None when there is no answer within ten seconds."""
        recording = await exchange(self.target, "GET", path, timeout_s=min(10.0, self.timeout_s))
        response = split_response(recording.packets)
        return None if response is None or recording.fault else (response.status, response.body)

    async def model_id(self) -> str:
        """The id of the first model the server lists; ServerUnavailableError without a usable answer."""
        answer = await self.get("/v1/models")
        where = f"{self.target.host}:{self.target.port}"
        if answer is None:
            raise ServerUnavailableError(f"no answer from {where}: is the server running?")
        try:
            return msgspec.json.decode(answer[1], type=_ModelList).data[0].id
        except (msgspec.DecodeError, IndexError) as error:
            raise ServerUnavailableError(
                f"{where} lists no model (/v1/models: {answer[0]}); name it with --model"
            ) from error


class _Model(msgspec.Struct):
    id: str


class _ModelList(msgspec.Struct):
    data: list[_Model]


@contextmanager
def no_collection() -> Iterator[None]:
    """No garbage collection during a round: a pause of the client would be read as one of the server."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
