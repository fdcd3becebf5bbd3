"""``loadtest arrivals``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from loadtest.arrivals import (
    RatePoint,
    Targets,
    knee,
    mean_rate,
    poisson_times,
    rate_point,
    read_trace,
    refine,
    rescale,
    run_schedule,
    sweep,
)
from loadtest.client import Client
from loadtest.commands.common import command_line, finish, run
from loadtest.options import OutputOptions, PromptOptions, ServerOptions, option, parse_list
from loadtest.record import Load, make_record
from loadtest.requests import Shape


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    """When requests come, and what counts as good."""

    rates: Annotated[str | None, option("Requests per second, one or several: 0.5,1,2.")] = None
    trace: Annotated[Path | None, option("Arrival times in seconds, one a line, instead of Poisson.")] = None
    duration: Annotated[float, option("Seconds of Poisson arrivals at every rate.", min=0.1)] = 30.0
    rounds: Annotated[int, option("How often every rate is run.", min=1)] = 1
    ttft_target: Annotated[float, option("Seconds to the first token of a good request.")] = 2.0
    itl_target: Annotated[float, option("Seconds of the mean gap of a good request.")] = 0.2
    goodput: Annotated[float, option("Share of good requests wanted, 0 to 1.", min=0, max=1)] = 0.9
    refine_steps: Annotated[int, option("Further rates to try around the knee.", min=0)] = 0

    def wanted_rates(self) -> tuple[float, ...]:
        """The rates asked for; a trace has its own, Poisson arrivals start at one a second."""
        if self.rates is not None:
            return parse_list(self.rates, float, "--rates")
        return (mean_rate(read_trace(self.trace)),) if self.trace else (1.0,)

    def times(self, rate_per_s: float, seed: int) -> tuple[float, ...]:
        """The schedule at one rate."""
        if self.trace is not None:
            return rescale(read_trace(self.trace), rate_per_s)
        return poisson_times(rate_per_s, self.duration, seed)


def arrivals(
    server: ServerOptions, prompt: PromptOptions, output: OutputOptions, schedule: ScheduleOptions
) -> None:
    """Send requests at given rates, whether or not the server keeps up; find the rate it can bear.

    Exit code 0 when at least one request succeeded: refusals under overload are a result, not a failure.
    """
    client = server.client()
    context = output.context(server, command_line())

    async def measure() -> tuple[Load, tuple[RatePoint, ...]]:
        shape = prompt.shape(await server.model_id(client))
        load_at = _Measure(client, shape, prompt, schedule, server.server_pid)
        points = await sweep(load_at, schedule.wanted_rates())
        points = await refine(load_at, points, schedule.goodput, schedule.refine_steps)
        return Load.of(shape, prompt.requests(shape, load_at.num_requests)), points

    load, points = run(client.live, measure())
    rounds = tuple(r for point in points for r in point.rounds)
    found = knee(points, schedule.goodput)
    record = make_record("arrivals", context, load, rounds, arrivals=points, knee_per_s=found)
    finish(record, output, passed=any(r.figures.num_ok for r in rounds))


@dataclass(slots=True)
class _Measure:
    """Runs the load at one rate."""

    client: Client
    shape: Shape
    prompt: PromptOptions
    schedule: ScheduleOptions
    server_pid: int | None
    num_requests: int = 0
    """The longest schedule so far."""

    async def __call__(self, rate_per_s: float) -> RatePoint:
        rounds = []
        targets = Targets(self.schedule.ttft_target, self.schedule.itl_target)
        for number in range(self.schedule.rounds):
            times = self.schedule.times(rate_per_s, self.prompt.seed + number)
            self.num_requests = max(self.num_requests, len(times))
            requests = self.prompt.requests(self.shape, len(times))
            self.client.live.label = f"{rate_per_s:.2f} requests a second, round {number + 1}"
            rounds.append(await run_schedule(self.client, requests, times, targets, self.server_pid))
        return rate_point(rate_per_s, rounds)
