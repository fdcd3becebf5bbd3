"""What the server costs: tokens per second over the socket against the bare decode loop.

    python -m tests.bench.server_cost --rounds 5

Both run the same prompts with the same model settings on the same machine, in turns, each in a process of its own.
The bare loop knows its cohort from the start and does nothing but fill the batch, call llama_decode and take the
argmax. The figure that counts is the sum over 1, 4 and 8 streams of the medians.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from batchserve.config import find_model
from batchserve.llama.batch import RowBatch
from batchserve.llama.bindings import lib
from batchserve.llama.grouping import group_chunks
from batchserve.llama.kernels import KernelConfig
from batchserve.llama.logits import OutputRows
from batchserve.llama.model import LoadedModel, load
from batchserve.llama.threads import default_threads
from scheduler import Chunk

COHORTS = (1, 4, 8)
STREAMS, CTX, ROWS, PROMPT, TOKENS = 8, 2048, 512, 64, 128


def prompt(seed: int) -> list[int]:
    """Token ids that differ from the first on."""
    return [1000 + (seed * 7919 + index * 104729) % 40000 for index in range(PROMPT)]


# -- the bare loop


def bare() -> dict[int, float]:
    """Tokens per second of each cohort."""
    kernels = KernelConfig(default_threads())
    with load(find_model(None), kernels, STREAMS, CTX, ROWS) as loaded:
        generate(loaded, 2, 8)
        return {cohort: cohort * TOKENS / generate(loaded, cohort, TOKENS) for cohort in COHORTS}


def generate(loaded: LoadedModel, cohort: int, count: int) -> float:
    """Seconds for `count` greedy tokens of each of `cohort` sequences, prefill included."""
    started = time.perf_counter()
    batch, outputs, slots = RowBatch(ROWS), OutputRows(loaded.ctx, loaded.vocab.size), list(range(cohort))
    memory = lib.llama_get_memory(loaded.ctx)
    last = {}
    for group in group_chunks([Chunk(slot, slot, 0, tuple(prompt(slot)), True) for slot in slots], ROWS, CTX):
        for chunk in group:
            lib.llama_memory_seq_rm(memory, chunk.slot, -1, -1)
        batch.fill_prefill(group)
        assert lib.llama_decode(loaded.ctx, batch.struct) == 0
        last |= {chunk.slot: int(row.argmax()) for chunk, row in zip(group, outputs.rows(len(group)), strict=True)}
    tokens = [last[slot] for slot in slots]
    for step in range(count - 1):
        batch.fill_decode(tokens, [PROMPT + step] * cohort, slots)
        assert lib.llama_decode(loaded.ctx, batch.struct) == 0
        tokens = [int(row.argmax()) for row in outputs.rows(cohort)]
    return time.perf_counter() - started


# -- the server


@contextmanager
def server() -> Iterator[int]:
    command = [sys.executable, "-m", "batchserve", "--port", "0", "--ctx-per-stream", str(CTX)]
    process = subprocess.Popen([*command, "--max-batch-streams", str(STREAMS)], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        ready = next(line for line in process.stderr if "ready:" in line)
        yield int(ready.split("http://127.0.0.1:")[1].split(",")[0])
    finally:
        process.terminate()
        process.communicate()


def served() -> dict[int, float]:
    """Tokens per second of each cohort, from the first byte sent to the last token received."""
    with server() as port:
        asyncio.run(crowd(port, 2, 8))
        return {cohort: cohort * TOKENS / asyncio.run(crowd(port, cohort, TOKENS)) for cohort in COHORTS}


async def crowd(port: int, cohort: int, count: int) -> float:
    started = time.perf_counter()
    ends = await asyncio.gather(*(stream(port, prompt(slot), count) for slot in range(cohort)))
    return max(ends) - started


async def stream(port: int, tokens: list[int], count: int) -> float:
    """Ask for one stream and read it; returns when its last token came. Parses nothing on the way."""
    body = json.dumps(
        {"prompt": tokens, "max_tokens": count, "temperature": 0, "stream": True, "ignore_eos": True}
    ).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    received = b""
    while data := await reader.read(65536):
        received += data
    ended = time.perf_counter()
    writer.close()
    assert b'"finish_reason":"length"' in received and b"[DONE]" in received
    return ended


# -- in turns


def child(kind: str) -> dict[int, float]:
    result = subprocess.run(
        [sys.executable, "-m", "tests.bench.server_cost", "--child", kind], stdout=subprocess.PIPE, check=True
    )
    return {int(cohort): rate for cohort, rate in json.loads(result.stdout).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", choices=("bare", "served"))
    options = parser.parse_args()
    if options.child:
        print(json.dumps({"bare": bare, "served": served}[options.child]()))
        return
    rounds: list[dict[str, dict[int, float]]] = []
    for index in range(options.rounds):
        kinds = ("bare", "served") if index % 2 == 0 else ("served", "bare")
        rounds.append({kind: child(kind) for kind in kinds})
        print(json.dumps(rounds[-1]), file=sys.stderr)
    print(report(rounds))


def report(rounds: list[dict[str, Any]]) -> str:
    lines = ["| streams | bare loop, tok/s | server, tok/s | ratio |", "|---|---|---|---|"]
    medians = {
        kind: {cohort: statistics.median(one[kind][cohort] for one in rounds) for cohort in COHORTS}
        for kind in ("bare", "served")
    }
    rows = [(str(cohort), medians["bare"][cohort], medians["served"][cohort]) for cohort in COHORTS]
    rows.append(("sum", sum(medians["bare"].values()), sum(medians["served"].values())))
    lines += [f"| {name} | {low:.1f} | {high:.1f} | {high / low:.3f} |" for name, low, high in rows]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
