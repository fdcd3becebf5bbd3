"""Try a model in a child process before it is loaded here: what kills the child does not kill the server.

`python -m batchserve.llama.trial MODEL --threads N --extra-buffers on` loads the model, decodes a few tokens
alone and together, and exits 0.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from dataclasses import replace
from pathlib import Path

from batchserve.llama.errors import ModelError
from batchserve.llama.kernels import KernelConfig
from scheduler import Chunk, EngineError, Opening, SamplingParams, StepKind, StepPlan

#: Sequences of the trial, and tokens each of them decodes.
_STREAMS, _STEPS = 4, 3


async def choose_kernels(path: Path, wanted: KernelConfig) -> tuple[KernelConfig, str | None]:
    """The configuration that works here: `wanted`, or the same without extra buffers.

    Returns it with a sentence about the fall-back, None if there was none.

    Raises:
        ModelError: the model works in neither, with the reason.
    """
    failure = await _try(path, wanted)
    if failure is None:
        return wanted, None
    plain = replace(wanted, extra_buffers=False)
    plain_failure = await _try(path, plain) if wanted.extra_buffers else failure
    if plain_failure is not None:
        raise ModelError(f"{path} cannot be served: {plain_failure}")
    return (
        plain,
        f"extra buffers are off: with them a trial of this model failed ({failure}); decoding is slower",
    )


async def _try(path: Path, kernels: KernelConfig) -> str | None:
    """None when the child came through, else what happened to it."""
    buffers = "on" if kernels.extra_buffers else "off"
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "batchserve.llama.trial", str(path)),
        *("--threads", str(kernels.num_threads), "--extra-buffers", buffers),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, stderr = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    return None if child.returncode == 0 else _describe(child.returncode or 0, stderr)


def _describe(code: int, stderr: bytes) -> str:
    """A line of text: the signal that ended the child, or the last thing it said."""
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    last = lines[-1] if lines else ""
    if code < 0:
        return f"killed by {signal.Signals(-code).name}" + (f": {last}" if last else "")
    return last or f"exit code {code}"


def run(path: Path, kernels: KernelConfig) -> None:
    """Load `path`, prefill and decode with it in this process."""
    from batchserve.llama.engine import LlamaEngine
    from batchserve.llama.model import load

    with load(path, kernels, _STREAMS, 256, max_rows=64) as loaded:
        engine = LlamaEngine(loaded)
        for plan in _plans(loaded.vocab.size):
            result = engine.execute(plan)
            if result.failures:
                raise ModelError(result.failures[0][1])


def _plans(num_tokens: int) -> list[StepPlan]:
    prompt = tuple(token % num_tokens for token in range(1, 41))
    params = SamplingParams(temperature=0)
    handles = range(_STREAMS)
    prefill = StepPlan(
        StepKind.PREFILL,
        tuple(Chunk(handle, handle, 0, prompt, sample=True) for handle in handles),
        opens=tuple(Opening(handle, params, prompt) for handle in handles),
    )
    cohorts = [1, _STREAMS] * _STEPS
    counts = [0] * _STREAMS
    plans = [prefill]
    for cohort in cohorts:
        rows = [Chunk(slot, slot, len(prompt) + counts[slot], (prompt[0],), sample=True) for slot in range(cohort)]
        plans.append(StepPlan(StepKind.DECODE, tuple(rows)))
        counts[:cohort] = [count + 1 for count in counts[:cohort]]
    return plans


def main(argv: list[str] | None = None) -> int:
    """Run the trial; 0 if the model works with these settings."""
    parser = argparse.ArgumentParser(prog="python -m batchserve.llama.trial", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--extra-buffers", choices=("on", "off"), default="on")
    options = parser.parse_args(argv)
    try:
        run(options.model, KernelConfig(options.threads, options.extra_buffers == "on"))
    except (ModelError, EngineError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
