"""N streams at once, R rounds, then every prompt alone."""

from dataclasses import dataclass

from loadtest.client import Client
from loadtest.figures import RoundFigures, round_figures
from loadtest.outcome import Outcome
from loadtest.parity import Against, compare_all, join
from loadtest.requests import Request
from loadtest.watch import watching


@dataclass(frozen=True, slots=True)
class Round:
    """One cohort, all of it: raw outcomes in stream order, and the figures made of them."""

    outcomes: tuple[Outcome, ...]
    wall_s: float
    figures: RoundFigures


@dataclass(frozen=True, slots=True)
class CohortResult:
    """All rounds; without a reference, `alone` is None and `parity` empty."""

    rounds: tuple[Round, ...]
    alone: tuple[Outcome, ...] | None = None
    parity: tuple[Against, ...] = ()


async def run_cohort(
    client: Client,
    requests: tuple[Request, ...],
    *,
    num_rounds: int = 1,
    check_parity: bool = True,
    server_pid: int | None = None,
) -> CohortResult:
    """Run the cohort `num_rounds` times, then each distinct request alone as the reference."""
    rounds = []
    for number in range(num_rounds):
        client.live.label = f"round {number + 1} of {num_rounds}"
        rounds.append(await run_round(client, requests, server_pid))
    if not check_parity:
        return CohortResult(tuple(rounds))
    client.live.label = "every prompt alone"
    alone = await client.alone(requests)
    report = join(compare_all(r.outcomes, alone) for r in rounds)
    return CohortResult(tuple(rounds), alone, (Against("alone", report),))


async def run_round(client: Client, requests: tuple[Request, ...], server_pid: int | None = None) -> Round:
    """One cohort."""
    async with watching(server_pid) as watch:
        outcomes, wall_s = await client.together(requests)
    return Round(outcomes, wall_s, round_figures(outcomes, wall_s, watch.use()))
