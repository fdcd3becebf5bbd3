"""What a 2,000-token prompt costs four running streams: their worst gap against one decode step plus one chunk.

    python -m tests.bench.long_prompt --rounds 5

The server runs in this process, so that each step's own time is known. A step pair is a prefill step with the
decode step after it, measured around the engine.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from itertools import pairwise

import aiohttp

from batchserve.app import running
from batchserve.config import Config, find_model
from batchserve.llama.engine import LlamaEngine
from batchserve.llama.threads import default_threads
from scheduler import StepKind, StepPlan, StepResult

steps: list[tuple[StepKind, float, float]] = []
_execute = LlamaEngine.execute


def timed(engine: LlamaEngine, plan: StepPlan) -> StepResult:
    started = time.perf_counter()
    result = _execute(engine, plan)
    steps.append((plan.kind, started, time.perf_counter()))
    return result


async def read(session: aiohttp.ClientSession, url: str, prompt: list[int] | str, count: int) -> list[float]:
    """The times at which data came."""
    body = {"prompt": prompt, "max_tokens": count, "temperature": 0, "stream": True, "ignore_eos": True}
    times = []
    async with session.post(f"{url}/v1/completions", json=body) as response:
        async for _ in response.content.iter_any():
            times.append(time.perf_counter())
    return times


async def one_round(session: aiohttp.ClientSession, url: str) -> tuple[float, float, float]:
    """Seconds: worst gap of the four while the prompt was computed, longest step pair, worst gap otherwise."""
    steps.clear()
    steady = [asyncio.create_task(read(session, url, f"Story {index}:", 120)) for index in range(4)]
    await asyncio.sleep(0.8)
    started = time.perf_counter()
    await read(session, url, [1000 + index for index in range(2000)], 1)
    ended = time.perf_counter()
    gaps = [pair for task in steady for pair in _gaps(await task)]
    during = [gap for at, gap in gaps if started < at <= ended]
    otherwise = [gap for at, gap in gaps if at > ended + 0.1]
    return max(during), _longest_pair(started, ended), max(otherwise)


def _gaps(times: list[float]) -> list[tuple[float, float]]:
    return [(late, late - early) for early, late in pairwise(times[1:])]


def _longest_pair(started: float, ended: float) -> float:
    return max(
        after[2] - before[1]
        for before, after in pairwise(steps)
        if before[0] is StepKind.PREFILL and after[0] is StepKind.DECODE and started < after[2] <= ended
    )


async def measure(rounds: int) -> None:
    config = Config(find_model(None), "bench", max_batch_streams=5, port=0, threads=default_threads())
    async with running(config) as server, aiohttp.ClientSession() as session:
        await read(session, server.url, "warm up", 5)
        results = [await one_round(session, server.url) for _ in range(rounds)]
    print("| round | worst gap, ms | longest step pair, ms | ratio | worst gap without the prompt, ms |")
    print("|---|---|---|---|---|")
    for index, (gap, pair, quiet) in enumerate(results, 1):
        print(f"| {index} | {gap * 1e3:.1f} | {pair * 1e3:.1f} | {gap / pair:.3f} | {quiet * 1e3:.1f} |")
    print(f"\nMedian ratio {statistics.median(gap / pair for gap, pair, _ in results):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    LlamaEngine.execute = timed  # type: ignore[method-assign]
    asyncio.run(measure(options.rounds))


if __name__ == "__main__":
    main()
