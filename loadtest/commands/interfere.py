"""``loadtest interfere``."""

from dataclasses import replace
from typing import Annotated

from loadtest.commands.common import command_line, finish, run
from loadtest.interfere import InterfereRound, join_interference, run_interfere
from loadtest.options import OutputOptions, PromptOptions, ServerOptions, option
from loadtest.record import Load, make_record


def interfere(
    server: ServerOptions,
    prompt: PromptOptions,
    output: OutputOptions,
    streams: Annotated[int, option("Steady streams.", min=1)] = 4,
    rounds: Annotated[int, option("How often the whole is repeated.", min=1)] = 1,
    long_words: Annotated[int, option("Words of each long prompt.", min=1)] = 2000,
    long_count: Annotated[int, option("Long prompts per round.", min=1)] = 2,
    long_max_tokens: Annotated[int, option("Tokens each long prompt may generate.", min=1)] = 8,
    every: Annotated[float, option("Seconds from one long prompt to the next.", min=0)] = 1.0,
) -> None:
    """Let long prompts arrive while steady streams decode; report how long those stand still.

    Exit code 0: every request succeeded. Else 1.
    """
    client = server.client()
    context = output.context(server, command_line())

    async def measure() -> tuple[Load, list[InterfereRound]]:
        shape = prompt.shape(await server.model_id(client))
        steady = prompt.requests(shape, streams)
        done = []
        for number in range(rounds):
            # Another seed every round: a server that keeps prompts must read them again.
            seed = prompt.seed + 1 + number
            long = replace(shape, prompt_words=long_words, max_tokens=long_max_tokens, seed=seed)
            client.live.label = f"round {number + 1} of {rounds}"
            done.append(
                await run_interfere(
                    client, steady, long.requests(long_count), every_s=every, server_pid=server.server_pid
                )
            )
        return Load.of(shape, steady), done

    load, done = run(client.live, measure())
    found = join_interference([r.interference for r in done])
    steady_rounds = tuple(r.steady for r in done)
    intruders = tuple(r.intruders for r in done)
    record = make_record("interfere", context, load, steady_rounds, interference=found, intruders=intruders)
    passed = not record.refusals and found.num_intruders_ok == found.num_intruders
    finish(record, output, passed=passed)
