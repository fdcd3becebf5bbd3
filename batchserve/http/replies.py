"""The reply bodies of both endpoints, whole and in chunks, as OpenAI documents them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from aiohttp import web
from msgspec import UNSET, Struct, UnsetType

from scheduler import Usage

TokenIds = tuple[int, ...] | UnsetType


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """A whole response with `value` as JSON."""
    body = msgspec.json.encode(value)
    return web.Response(status=status, headers=headers, body=body, content_type="application/json")


class PromptDetails(Struct, frozen=True):
    """`cached_tokens` are prompt tokens that did not have to be computed."""

    cached_tokens: int


class UsageReply(Struct, frozen=True):
    """Token counts over all choices; a prompt counts once, however many choices it has."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails

    @classmethod
    def of(cls, usages: Sequence[Usage], n: int) -> UsageReply:
        """Sum up `usages`, of which `n` in a row belong to the same prompt."""
        prompt = sum(usage.prompt_tokens for usage in usages[::n])
        cached = sum(usage.cached_tokens for usage in usages[::n])
        completion = sum(usage.completion_tokens for usage in usages)
        return cls(prompt, completion, prompt + completion, PromptDetails(cached))


class ChatMessage(Struct, frozen=True, kw_only=True):
    """The assistant's turn."""

    role: str = "assistant"
    content: str
    refusal: None = None


class ChatChoice(Struct, frozen=True, kw_only=True):
    """One whole answer of a chat."""

    index: int
    message: ChatMessage
    logprobs: None = None
    finish_reason: str
    token_ids: TokenIds = UNSET


class ChatReply(Struct, frozen=True, kw_only=True):
    """A whole chat completion."""

    id: str
    object: str = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: UsageReply


class ChatDelta(Struct, frozen=True, kw_only=True):
    """What a chunk adds to the assistant's turn."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET


class ChatChunkChoice(Struct, frozen=True, kw_only=True):
    """A piece of one answer of a chat."""

    index: int
    delta: ChatDelta
    logprobs: None = None
    finish_reason: str | None = None
    token_ids: TokenIds = UNSET


class ChatChunk(Struct, frozen=True, kw_only=True):
    """One event of a streamed chat completion."""

    id: str
    object: str = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: UsageReply | UnsetType | None = UNSET


class TextChoice(Struct, frozen=True, kw_only=True):
    """One answer of a text completion, or a piece of it."""

    text: str
    index: int
    logprobs: None = None
    finish_reason: str | None = None
    token_ids: TokenIds = UNSET


class TextReply(Struct, frozen=True, kw_only=True):
    """A text completion; its chunks have the same shape."""

    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[TextChoice]
    usage: UsageReply | UnsetType | None = UNSET
