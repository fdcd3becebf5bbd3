"""The parity check of a deployment: cohorts of several sizes against every reference asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from loadtest.client import Client
from loadtest.cohort import Round, run_round
from loadtest.outcome import Outcome
from loadtest.parity import ParityReport, compare_all, join
from loadtest.requests import Request


@dataclass(frozen=True, slots=True)
class Cohorts:
    """Cohorts of several sizes, each sent `num_rounds` times."""

    groups: tuple[tuple[Request, ...], ...]
    num_rounds: int = 1

    @property
    def requests(self) -> tuple[Request, ...]:
        """All requests of all sizes, in order; references are kept in this order."""
        return tuple(request for group in self.groups for request in group)

    async def run(self, client: Client, server_pid: int | None = None) -> tuple[Round, ...]:
        """Every cohort, round after round."""
        done = []
        for number in range(self.num_rounds):
            for group in self.groups:
                client.live.label = f"round {number + 1} of {self.num_rounds}, {len(group)} streams"
                done.append(await run_round(client, group, server_pid))
        return tuple(done)

    def compare(self, rounds: Sequence[Round], references: Sequence[Outcome]) -> ParityReport:
        """Compare every round with the references of its cohort."""
        ends = list(accumulate(map(len, self.groups)))
        slices = [references[end - len(group) : end] for end, group in zip(ends, self.groups, strict=True)]
        wanted = [part for _ in range(self.num_rounds) for part in slices]
        return join(compare_all(r.outcomes, part) for r, part in zip(rounds, wanted, strict=True))


async def reference_alone(client: Client, cohorts: Cohorts) -> tuple[Outcome, ...]:
    """Every request alone, for `Cohorts.compare`."""
    client.live.label = "every prompt alone"
    return await client.alone(cohorts.requests)
