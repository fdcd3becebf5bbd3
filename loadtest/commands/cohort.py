"""``loadtest cohort``."""

from typing import Annotated

from loadtest.cohort import CohortResult, run_cohort
from loadtest.commands.common import command_line, finish, run
from loadtest.options import OutputOptions, PromptOptions, ServerOptions, option
from loadtest.record import Load, make_record


def cohort(
    server: ServerOptions,
    prompt: PromptOptions,
    output: OutputOptions,
    streams: Annotated[int | None, option("Streams at once; 4, or all of the prompt file.", min=1)] = None,
    rounds: Annotated[int, option("How often the cohort is sent.", min=1)] = 1,
    parity: Annotated[bool, option("Afterwards, send every prompt alone and compare traces.")] = True,
) -> None:
    """Send streams at once; measure them, and compare each with the same prompt alone.

    Exit code 0: every request succeeded and, where compared, every trace is equal. Else 1.
    """
    client = server.client()
    context = output.context(server, command_line())

    async def measure() -> tuple[Load, CohortResult]:
        shape = prompt.shape(await server.model_id(client))
        requests = prompt.requests(shape, streams)
        result = await run_cohort(
            client, requests, num_rounds=rounds, check_parity=parity, server_pid=server.server_pid
        )
        return Load.of(shape, requests), result

    load, result = run(client.live, measure())
    record = make_record("cohort", context, load, result.rounds, alone=result.alone, parity=result.parity)
    passed = not record.refusals and all(against.report.holds for against in record.parity)
    finish(record, output, passed=passed)
