"""A suite: every server through the same matrix, interleaved A B A B, resumable, with nothing else running.

Every measured cohort is one file, written when it is done. An interrupted suite goes on where it stopped;
the records are put together from the files at the end.
"""

import asyncio
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from loadtest.client import Live
from loadtest.cohort import Round, run_round
from loadtest.errors import ConfigError
from loadtest.outcome import Outcome
from loadtest.parity import Against, compare_all, join
from loadtest.prompts import Workload
from loadtest.record import Context, Load, Record, ServerNote, load_json, make_record, save
from loadtest.requests import Sampling, Shape
from loadtest.servers import RunningServer, ServerPlan, running, wait_until_quiet
from loadtest.suite_config import Matrix, SuiteFile

_WARM_UP_WORDS = 8
_WARM_UP_TOKENS = 8
# Facts of one start, not of the suite: another port makes no other measurement.
_NOT_THE_SUITE = ("port",)


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of the matrix."""

    workload: Workload
    prompt_words: int
    num_streams: int
    seed: int
    """Its own, so that no cell finds its prompts already read for another one."""

    @property
    def name(self) -> str:
        return f"{self.workload}-p{self.prompt_words}-s{self.num_streams}"

    def shape(self, matrix: Matrix, model_id: str) -> Shape:
        """The requests of this cell."""
        return Shape(
            model=model_id,
            endpoint=matrix.endpoint,
            workload=self.workload,
            prompt_words=self.prompt_words,
            max_tokens=matrix.max_tokens,
            sampling=Sampling(matrix.temperature, matrix.seed),
            seed=self.seed,
        )


def cells_of(matrix: Matrix) -> tuple[Cell, ...]:
    """All points, streams varying fastest."""
    points = [(w, p, s) for w in matrix.workloads for p in matrix.prompt_words for s in matrix.streams]
    return tuple(Cell(*point, seed=matrix.seed + index) for index, point in enumerate(points))


@dataclass(frozen=True, slots=True)
class Part:
    """One cohort of one round, as it is kept until the suite is complete."""

    load: Load
    round: Round
    alone: tuple[Outcome, ...] | None
    busy_share: float
    """Share of CPU time in use by others before the server was started, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite ready to run."""

    file: SuiteFile
    plans: tuple[ServerPlan, ...]
    folder: Path
    live: Live

    @property
    def cells(self) -> tuple[Cell, ...]:
        return cells_of(self.file.matrix)

    def part_path(self, number: int, plan: ServerPlan, cell: Cell) -> Path:
        """Where one cohort is kept; rounds count from 0."""
        return self.folder / "parts" / f"round-{number + 1}" / plan.entry.name / f"{cell.name}.json"

    def missing(self, number: int, plan: ServerPlan) -> list[Cell]:
        """What one server has still to do in one round."""
        return [cell for cell in self.cells if not self.part_path(number, plan, cell).exists()]


async def run_suite(suite: Suite) -> None:
    """Run whatever is missing: every round takes every server through all cells."""
    for number in range(suite.file.rounds):
        for plan in suite.plans:
            if cells := suite.missing(number, plan):
                await _run_server(suite, number, plan, cells)


async def _run_server(suite: Suite, number: int, plan: ServerPlan, cells: list[Cell]) -> None:
    suite.live.label = f"round {number + 1} of {suite.file.rounds}, {plan.entry.name}, waiting for quiet"
    busy = await wait_until_quiet(suite.file.max_busy, suite.file.busy_wait_s)
    suite.live.label = f"round {number + 1} of {suite.file.rounds}, {plan.entry.name}, starting"
    log = suite.folder / "logs" / f"round-{number + 1}-{plan.entry.name}.log"
    async with running(plan, log, suite.file.timeout_s, suite.live) as server:
        await _warm_up(suite, server)
        for cell in cells:
            suite.live.label = f"round {number + 1} of {suite.file.rounds}, {plan.entry.name}, {cell.name}"
            part = await _measure(suite, server, cell, busy, alone=suite.file.parity and number == 0)
            save(part, suite.part_path(number, plan, cell))


async def _warm_up(suite: Suite, server: RunningServer) -> None:
    shape = Shape(
        model=server.model_id,
        endpoint=suite.file.matrix.endpoint,
        prompt_words=_WARM_UP_WORDS,
        max_tokens=_WARM_UP_TOKENS,
        seed=suite.file.matrix.seed - 1,
    )
    await server.client.together(shape.requests(max(suite.file.matrix.streams)))


async def _measure(suite: Suite, server: RunningServer, cell: Cell, busy: float, *, alone: bool) -> Part:
    await asyncio.sleep(suite.file.settle_s)
    shape = cell.shape(suite.file.matrix, server.model_id)
    requests = shape.requests(cell.num_streams)
    done = await run_round(server.client, requests, server.pid)
    reference = await server.client.alone(requests) if alone else None
    return Part(Load.of(shape, requests), done, reference, busy)


def claim_folder(suite: Suite, variables: Mapping[str, str], model_sha256: str | None) -> None:
    """Mark the folder as this suite's. ConfigError when another suite was run there."""
    key = _key(suite, variables, model_sha256)
    path = suite.folder / "suite.json"
    if path.exists() and load_json(path, _Key) != key:
        raise ConfigError(f"{suite.folder} holds another suite (or other variables): choose another folder")
    save(key, path)


class _Key(msgspec.Struct, frozen=True):
    """What must not change between a suite and its continuation."""

    matrix: Matrix
    servers_sha256: str
    """Of commands and variables; not those themselves, which hold paths of this machine."""
    model_sha256: str | None


def _key(suite: Suite, variables: Mapping[str, str], model_sha256: str | None) -> _Key:
    kept = {name: value for name, value in variables.items() if name not in _NOT_THE_SUITE}
    entries = [plan.entry for plan in suite.plans]
    sha256 = hashlib.sha256(msgspec.json.encode((entries, kept), order="sorted")).hexdigest()
    return _Key(suite.file.matrix, sha256, model_sha256)


def collect(suite: Suite, context: Context) -> Iterator[tuple[ServerPlan, Cell, Record]]:
    """Put the parts together, one record for every server and cell, and write each."""
    for plan in suite.plans:
        note = ServerNote(plan.entry.name, plan.threads, plan.entry.policy, plan.entry.command)
        own = Context(context.command, note, context.environment)
        for cell in suite.cells:
            paths = [suite.part_path(number, plan, cell) for number in range(suite.file.rounds)]
            record = _join([load_json(path, Part) for path in paths], own)
            save(record, suite.folder / "records" / plan.entry.name / f"{cell.name}.json")
            yield plan, cell, record


def _join(parts: list[Part], context: Context) -> Record:
    rounds = tuple(part.round for part in parts)
    alone = parts[0].alone
    parity: tuple[Against, ...] = ()
    if alone is not None:
        parity = (Against("alone", join(compare_all(r.outcomes, alone) for r in rounds)),)
    return make_record("suite", context, parts[0].load, rounds, alone=alone, parity=parity)
