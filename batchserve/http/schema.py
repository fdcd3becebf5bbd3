"""The request bodies, as they come over the wire: types, bounds and defaults. docs/api.md lists the fields.

A field that is null counts as absent; `parse` takes care of that, so only a default says what absence means.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

MAX_STOPS = 16

Text = Annotated[str, Meta(min_length=1)]
Stops = Text | Annotated[list[Text], Meta(max_length=MAX_STOPS)]
Count = Annotated[int, Meta(ge=1)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
TopK = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
Share = Annotated[float, Meta(gt=0, le=1)]
ShareOrZero = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Factor = Annotated[float, Meta(ge=0.01, le=100)]
Bias = Annotated[float, Meta(ge=-100, le=100)]


class StreamOptions(Struct, frozen=True):
    """`include_usage` asks for a last chunk with the token counts."""

    include_usage: bool | None = None


class GenerationBody(Struct, frozen=True, kw_only=True):
    """The fields that both endpoints have."""

    model: str = ""
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    n: Count = 1
    stop: Stops | None = None
    seed: Seed | None = None
    temperature: Temperature = 1.0
    top_p: Share = 1.0
    top_k: TopK = 0
    min_p: ShareOrZero = 0.0
    typical_p: Share = 1.0
    frequency_penalty: Penalty = 0.0
    presence_penalty: Penalty = 0.0
    repetition_penalty: Factor = 1.0
    logit_bias: dict[str, Bias] | None = None
    ignore_eos: bool = False
    return_token_ids: bool = False

    @property
    def num_prompts(self) -> int:
        return 1

    @property
    def limit(self) -> int | None:
        """How many tokens to generate at most; the newer name of the field goes first."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def wants_usage(self) -> bool:
        """True when a stream should end with a usage chunk."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)


class ContentPart(Struct, frozen=True):
    """One piece of a message; only text is supported."""

    type: str
    text: str | None = None


class Message(Struct, frozen=True):
    """One turn of a conversation."""

    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[object] | None = None


class ChatBody(GenerationBody, frozen=True, kw_only=True):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Meta(min_length=1)]


class CompletionBody(GenerationBody, frozen=True, kw_only=True):
    """POST /v1/completions."""

    prompt: str | Annotated[list[str | int | list[int]], Meta(min_length=1)]
    max_tokens: Count = 16
    best_of: Count | None = None

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts one by one: a list of numbers is a single prompt."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        numbers = [item for item in self.prompt if isinstance(item, int)]
        if numbers:
            return [numbers]
        return [item for item in self.prompt if not isinstance(item, int)]

    @property
    def num_prompts(self) -> int:
        return len(self.prompts)
