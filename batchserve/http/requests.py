"""From a checked body and its prompts to the scheduler's requests."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from batchserve.http import errors
from batchserve.http.errors import ApiError, Kind
from batchserve.http.prompts import Prompt
from batchserve.http.schema import CompletionBody, GenerationBody
from scheduler import Request, SamplingParams

#: llama.cpp's seeds are 32 bits, and the highest of them means "draw one yourself".
NUM_SEEDS = 0xFFFF_FFFF


def check_options(body: GenerationBody, max_streams: int) -> None:
    """What depends on more than one field.

    Raises:
        ApiError: the fields do not go together, or ask for more choices than there are streams.
    """
    if body.stream_options is not None and not body.stream:
        raise ApiError(Kind.INVALID_VALUE, "`stream_options` needs `stream` to be true.", "stream_options")
    if isinstance(body, CompletionBody) and body.best_of not in (None, body.n):
        raise ApiError(Kind.UNSUPPORTED_VALUE, "`best_of` other than `n` is not supported.", "best_of")
    _check_choices(body.n, body.num_prompts, max_streams)


def _check_choices(n: int, num_prompts: int, max_streams: int) -> None:
    if n * num_prompts <= max_streams:
        return
    param = "prompt" if num_prompts > max_streams else "n"
    raise errors.too_many_choices(n * num_prompts, max_streams, param)


def build_requests(reply_id: str, prompts: Sequence[Prompt], body: GenerationBody, n_vocab: int) -> list[Request]:
    """One request per choice: `n` for the first prompt, then `n` for the second, and so on.

    Choice i of a prompt uses the seed plus i, so that a prompt's choices are the same in any list.

    Raises:
        ApiError: a logit bias names no token.
    """
    sampling = _sampling(body, n_vocab)
    seeded = [replace(sampling, seed=(sampling.seed + i) % NUM_SEEDS) for i in range(body.n)]
    choices = [(prompt, params) for prompt in prompts for params in seeded]
    return [
        Request(
            id=f"{reply_id}-{index}",
            prompt=prompt,
            sampling=params,
            max_tokens=body.limit,
            stop=body.stops,
            ignore_eos=body.ignore_eos,
        )
        for index, (prompt, params) in enumerate(choices)
    ]


def _sampling(body: GenerationBody, n_vocab: int) -> SamplingParams:
    return SamplingParams(
        temperature=body.temperature,
        top_k=max(0, body.top_k),
        top_p=body.top_p,
        min_p=body.min_p,
        typical_p=body.typical_p,
        repetition_penalty=body.repetition_penalty,
        frequency_penalty=body.frequency_penalty,
        presence_penalty=body.presence_penalty,
        logit_bias=tuple(_bias(token, bias, n_vocab) for token, bias in (body.logit_bias or {}).items()),
        seed=random.randrange(NUM_SEEDS) if body.seed is None else body.seed % NUM_SEEDS,
    )


def _bias(key: str, bias: float, n_vocab: int) -> tuple[int, float]:
    token = int(key) if key.isdecimal() and len(key) < 12 else -1
    if not 0 <= token < n_vocab or str(token) != key:
        raise errors.not_a_token(key[:32], n_vocab, "logit_bias")
    return token, bias
