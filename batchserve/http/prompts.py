"""From a request body to prompt tokens. What takes long leaves the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from batchserve.http import errors
from batchserve.http.chat import read_turns
from batchserve.http.errors import ApiError, Kind
from batchserve.http.model import ServedModel
from batchserve.http.readiness import Serving
from batchserve.http.schema import ChatBody, CompletionBody

Prompt = tuple[int, ...]
Result = TypeVar("Result")

#: Characters up to which work is done in place: below that it is over before another thread would have begun.
INLINE_CHARS = 2048


async def chat_prompts(serving: Serving, body: ChatBody) -> list[Prompt]:
    """The one prompt of a conversation.

    Raises:
        ApiError: the messages are not supported, or the template fails.
    """
    turns = read_turns(body.messages)
    size = sum(len(turn.content) for turn in turns)
    text = await _off_loop(size, lambda: serving.template.render(turns))
    return [await _tokenize(serving.model, text, "messages")]


async def completion_prompts(serving: Serving, body: CompletionBody) -> list[Prompt]:
    """Each prompt of the request, in order.

    Raises:
        ApiError: a prompt is empty, or its ids are not the model's.
    """
    _check_list(body.prompt)
    prompts = body.prompts
    paths = ["prompt"] if len(prompts) == 1 else [f"prompt[{at}]" for at in range(len(prompts))]
    return [
        await _tokenize(serving.model, prompt, path)
        if isinstance(prompt, str)
        else _check_tokens(prompt, serving.model.n_vocab, path)
        for prompt, path in zip(prompts, paths, strict=True)
    ]


async def _tokenize(model: ServedModel, text: str, path: str) -> Prompt:
    # A template that writes the start token itself must not get a second one.
    starts_itself = bool(model.bos_text) and text.startswith(model.bos_text)
    tokens = await _off_loop(len(text), lambda: model.tokenize(text, add_special=not starts_itself))
    return _not_empty(tokens, path)


async def _off_loop(size: int, work: Callable[[], Result]) -> Result:
    return work() if size < INLINE_CHARS else await asyncio.to_thread(work)


def _check_list(prompt: str | Sequence[object]) -> None:
    """A list holds either strings, or token ids, or lists of token ids."""
    kinds = {type(item) for item in prompt} if not isinstance(prompt, str) else set()
    if len(kinds) > 1:
        message = "A `prompt` list holds strings, or token ids, or lists of token ids, but no mixture."
        raise ApiError(Kind.INVALID_TYPE, message, "prompt")


def _check_tokens(tokens: Sequence[int], n_vocab: int, path: str) -> Prompt:
    if tokens and not 0 <= min(tokens) <= max(tokens) < n_vocab:
        at = next(at for at, token in enumerate(tokens) if not 0 <= token < n_vocab)
        raise errors.not_a_token(tokens[at], n_vocab, f"{path}[{at}]")
    return _not_empty(tokens, path)


def _not_empty(tokens: Sequence[int], path: str) -> Prompt:
    if not tokens:
        raise ApiError(Kind.INVALID_VALUE, "The prompt is empty: it has no tokens to start from.", path)
    return tuple(tokens)
