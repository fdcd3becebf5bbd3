"""``loadtest soak``."""

from typing import Annotated

from loadtest.commands.common import command_line, finish, run
from loadtest.options import OutputOptions, PromptOptions, ServerOptions, option
from loadtest.parity import Against
from loadtest.record import Load, make_record
from loadtest.soak import Soak, SoakLimits, run_soak


def soak(
    server: ServerOptions,
    prompt: PromptOptions,
    output: OutputOptions,
    streams: Annotated[int | None, option("Streams at once; 4, or all of the prompt file.", min=1)] = None,
    minutes: Annotated[float, option("How long to go on.", min=0)] = 10.0,
    tolerance_mib: Annotated[float, option("Growth of memory allowed after the warm-up.", min=0)] = 16.0,
    warm_up_rounds: Annotated[int, option("Rounds before memory is compared.", min=0)] = 5,
) -> None:
    """Repeat a cohort for minutes or hours; fail on growing memory, failed requests, changed answers.

    Give --server-pid, or memory is not watched. Exit code 0 when the soak passed, else 1.
    """
    client = server.client()
    context = output.context(server, command_line())
    limits = SoakLimits(minutes * 60, tolerance_mib, warm_up_rounds)

    async def measure() -> tuple[Load, Soak]:
        shape = prompt.shape(await server.model_id(client))
        requests = prompt.requests(shape, streams)
        return Load.of(shape, requests), await run_soak(client, requests, limits, server.server_pid)

    load, done = run(client.live, measure())
    parity = (Against("the first round", done.parity),)
    record = make_record("soak", context, load, done.ends, parity=parity, soak=done.result)
    finish(record, output, passed=done.result.passed)
