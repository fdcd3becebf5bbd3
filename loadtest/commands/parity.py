"""``loadtest parity``."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from loadtest.client import Client
from loadtest.cohort import Round
from loadtest.commands.common import command_line, finish, run
from loadtest.errors import ConfigError
from loadtest.options import OutputOptions, PromptOptions, ServerOptions, option, parse_list
from loadtest.outcome import Outcome
from loadtest.parity import Against
from loadtest.parity_run import Cohorts, reference_alone
from loadtest.record import Load, Record, load_record, make_record
from loadtest.requests import IdSource
from loadtest.wire import Target


@dataclass(frozen=True, slots=True)
class ReferenceOptions:
    """What cohorts are compared with."""

    alone: Annotated[bool, option("Compare with every prompt alone on the same server.")] = True
    against_url: Annotated[str | None, option("Compare with every prompt alone on this server.")] = None
    against_model: Annotated[str | None, option("Model name there; the first one listed by default.")] = None
    against_ids: Annotated[IdSource | None, option("How token ids are asked for there.")] = None
    against: Annotated[Path | None, option("Compare with a recorded run: record.json or its folder.")] = None

    def check(self) -> None:
        """ConfigError when there is nothing to compare with."""
        if not (self.alone or self.against_url or self.against):
            raise ConfigError("nothing to compare with: --no-alone needs --against-url or --against")


@dataclass(frozen=True, slots=True)
class ParityRun:
    """What was sent, what came back, and what it was compared with."""

    load: Load
    rounds: tuple[Round, ...]
    alone: tuple[Outcome, ...] | None
    parity: tuple[Against, ...]


def parity(
    server: ServerOptions,
    prompt: PromptOptions,
    output: OutputOptions,
    reference: ReferenceOptions,
    streams: Annotated[str, option("Sizes of the cohorts, one or several: 2,4,8.")] = "4",
    rounds: Annotated[int, option("How often every cohort is sent.", min=1)] = 1,
) -> None:
    """Prove that a crowd does not change answers: compare complete token traces.

    Exit code 0: every trace was compared and every one is equal. Else 1.
    """
    reference.check()
    sizes = parse_list(streams, int, "--streams")
    recorded = load_record(reference.against) if reference.against else None
    client = server.client()
    context = output.context(server, command_line())
    check = _Check(client, server, prompt, reference, sizes, rounds)
    result = run(client.live, check.run(recorded))
    record = make_record("parity", context, result.load, result.rounds, alone=result.alone, parity=result.parity)
    finish(record, output, passed=all(against.report.holds for against in result.parity))


@dataclass(frozen=True, slots=True)
class _Check:
    """The steps of one parity check."""

    client: Client
    server: ServerOptions
    prompt: PromptOptions
    reference: ReferenceOptions
    sizes: tuple[int, ...]
    num_rounds: int

    async def run(self, recorded: Record | None) -> ParityRun:
        """Send the cohorts, then fetch every reference and compare."""
        shape = self.prompt.shape(await self.server.model_id(self.client))
        cohorts = Cohorts(tuple(self.prompt.requests(shape, size) for size in self.sizes), self.num_rounds)
        load = Load.of(shape, cohorts.requests)
        check_same_requests(load, recorded)
        rounds = await cohorts.run(self.client, self.server.server_pid)
        alone = await reference_alone(self.client, cohorts) if self.reference.alone else None
        found = [("alone", alone)] if alone is not None else []
        if self.reference.against_url:
            found.append((self.reference.against_url, await self._elsewhere(self.reference.against_url)))
        if recorded is not None:
            found.append((str(self.reference.against), recorded.references))
        parity = tuple(Against(name, cohorts.compare(rounds, outcomes)) for name, outcomes in found)
        return ParityRun(load, rounds, alone, parity)

    async def _elsewhere(self, url: str) -> tuple[Outcome, ...]:
        other = Client(Target.parse(url, self.server.api_key), self.server.timeout, self.client.live)
        prompt = replace(self.prompt, ids=self.reference.against_ids or self.prompt.ids)
        shape = prompt.shape(self.reference.against_model or await other.model_id())
        cohorts = Cohorts(tuple(prompt.requests(shape, size) for size in self.sizes))
        return await reference_alone(other, cohorts)


def check_same_requests(load: Load, recorded: Record | None) -> None:
    """ConfigError when a recorded run answered other requests: comparing them would mean nothing."""
    if recorded is not None and recorded.load.requests_sha256 != load.requests_sha256:
        raise ConfigError(
            "the recorded run sent other requests: give the same prompts, streams, max tokens and sampling"
        )
