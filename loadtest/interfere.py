"""Steady streams while long prompts arrive: how long do the steady ones stand still?"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter

from loadtest.client import Client, no_collection
from loadtest.cohort import Round
from loadtest.decode import decode
from loadtest.figures import round_figures
from loadtest.outcome import Outcome
from loadtest.requests import Request
from loadtest.watch import watching
from loadtest.wire import Packet, Recording

# Head and role come first; after this many packets a stream is certainly decoding.
_PACKETS_WHEN_DECODING = 4


@dataclass(frozen=True, slots=True)
class Interference:
    """What arrivals did to the steady streams. Seconds; None where nothing fell into the window."""

    quiet_itl_max_s: float | None
    """Worst gap of the steady streams while no long prompt was being read."""
    disturbed_itl_max_s: float | None
    """Worst gap that overlaps the time from a long prompt's arrival to its first token."""
    intruder_ttft_max_s: float | None
    num_intruders_ok: int
    num_intruders: int


@dataclass(frozen=True, slots=True)
class InterfereRound:
    """The steady streams as a round, the long prompts beside them."""

    steady: Round
    intruders: tuple[Outcome, ...]
    interference: Interference


async def run_interfere(
    client: Client,
    steady: Sequence[Request],
    long: Sequence[Request],
    *,
    every_s: float,
    server_pid: int | None = None,
) -> InterfereRound:
    """Start the steady streams; when all of them decode, send the long prompts, `every_s` seconds apart."""
    async with watching(server_pid) as watch:
        with no_collection():
            origin = perf_counter()
            streams = [_Stream(client, request) for request in steady]
            intruding = asyncio.create_task(_intrude(client, streams, long, every_s))
            recordings = await asyncio.gather(*(stream.task for stream in streams))
            wall_s = perf_counter() - origin
            intruders = tuple(decode(recording, origin) for recording in await intruding)
    outcomes = tuple(decode(recording, origin) for recording in recordings)
    done = Round(outcomes, wall_s, round_figures(outcomes, wall_s, watch.use()))
    return InterfereRound(done, intruders, interference(outcomes, intruders))


class _Stream:
    """A steady stream that can be asked whether it decodes yet."""

    def __init__(self, client: Client, request: Request) -> None:
        self.packets: list[Packet] = []
        self.task = asyncio.create_task(client.record(request, self.packets))

    @property
    def decoding(self) -> bool:
        return len(self.packets) >= _PACKETS_WHEN_DECODING or self.task.done()


async def _intrude(
    client: Client, streams: Sequence[_Stream], long: Sequence[Request], every_s: float
) -> list[Recording]:
    # Polled: the recorder's hot path should not pay for a notification.
    while not all(stream.decoding for stream in streams):  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    sent = [asyncio.create_task(_after(i * every_s, client, request)) for i, request in enumerate(long)]
    return await asyncio.gather(*sent)


async def _after(delay_s: float, client: Client, request: Request) -> Recording:
    await asyncio.sleep(delay_s)
    return await client.record(request)


def interference(steady: Sequence[Outcome], intruders: Sequence[Outcome]) -> Interference:
    """Split the gaps of the steady streams into disturbed and quiet ones."""
    windows = [(o.started_at, o.started_at + (o.ttft_s or o.e2e_s)) for o in intruders]
    quiet: list[float] = []
    disturbed: list[float] = []
    for outcome in steady:
        times = [outcome.started_at + at for at in outcome.arrivals_s]
        for start, end in pairwise(times):
            hit = any(start < until and since < end for since, until in windows)
            (disturbed if hit else quiet).append(end - start)
    return Interference(
        quiet_itl_max_s=max(quiet, default=None),
        disturbed_itl_max_s=max(disturbed, default=None),
        intruder_ttft_max_s=max((o.ttft_s for o in intruders if o.ttft_s is not None), default=None),
        num_intruders_ok=sum(o.ok for o in intruders),
        num_intruders=len(intruders),
    )


def join_interference(rounds: Sequence[Interference]) -> Interference:
    """The worst of all rounds."""
    return Interference(
        quiet_itl_max_s=_worst([r.quiet_itl_max_s for r in rounds]),
        disturbed_itl_max_s=_worst([r.disturbed_itl_max_s for r in rounds]),
        intruder_ttft_max_s=_worst([r.intruder_ttft_max_s for r in rounds]),
        num_intruders_ok=sum(r.num_intruders_ok for r in rounds),
        num_intruders=sum(r.num_intruders for r in rounds),
    )


def _worst(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
