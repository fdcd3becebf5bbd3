"""How each endpoint words its replies."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec import UNSET, Struct, UnsetType

from batchserve.http.answers import Answer
from batchserve.http.replies import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatDelta,
    ChatMessage,
    ChatReply,
    TextChoice,
    TextReply,
    TokenIds,
    UsageReply,
)


@dataclass(frozen=True, slots=True)
class Head:
    """What all chunks of a reply have in common."""

    id: str
    created: int
    model: str

    @classmethod
    def new(cls, prefix: str, model: str) -> Head:
        return cls(f"{prefix}-{uuid.uuid4().hex}", int(time.time()), model)


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """What the client wants to be told besides the text."""

    token_ids: bool
    usage: bool


class Shape(Protocol):
    """How one endpoint words its replies. A chunk has a choice, or none and the usage."""

    id_prefix: str

    def whole(self, head: Head, answers: Sequence[Answer], usage: UsageReply, options: ReplyOptions) -> Struct: ...

    def opening(self, head: Head, index: int, options: ReplyOptions) -> Struct | None:
        """The chunk that comes before the first text of a choice, if there is one."""
        ...

    def delta(self, head: Head, index: int, text: str, options: ReplyOptions) -> Struct: ...

    def closing(self, head: Head, index: int, reason: str, options: ReplyOptions) -> Struct: ...

    def usage(self, head: Head, usage: UsageReply) -> Struct: ...


class ChatShape:
    """/v1/chat/completions."""

    id_prefix = "chatcmpl"

    def whole(self, head: Head, answers: Sequence[Answer], usage: UsageReply, options: ReplyOptions) -> ChatReply:
        choices = [
            ChatChoice(
                index=index,
                message=ChatMessage(content=answer.text),
                finish_reason=answer.reason,
                token_ids=answer.token_ids if options.token_ids else UNSET,
            )
            for index, answer in enumerate(answers)
        ]
        return ChatReply(id=head.id, created=head.created, model=head.model, choices=choices, usage=usage)

    def opening(self, head: Head, index: int, options: ReplyOptions) -> ChatChunk:
        return self._chunk(head, index, ChatDelta(role="assistant", content=""), None, options)

    def delta(self, head: Head, index: int, text: str, options: ReplyOptions) -> ChatChunk:
        return self._chunk(head, index, ChatDelta(content=text), None, options)

    def closing(self, head: Head, index: int, reason: str, options: ReplyOptions) -> ChatChunk:
        return self._chunk(head, index, ChatDelta(), reason, options)

    def usage(self, head: Head, usage: UsageReply) -> ChatChunk:
        return ChatChunk(id=head.id, created=head.created, model=head.model, choices=[], usage=usage)

    def _chunk(
        self, head: Head, index: int, delta: ChatDelta, reason: str | None, options: ReplyOptions
    ) -> ChatChunk:
        choice = ChatChunkChoice(index=index, delta=delta, finish_reason=reason, token_ids=_no_ids(options))
        return ChatChunk(
            id=head.id, created=head.created, model=head.model, choices=[choice], usage=_no_usage(options)
        )


class TextShape:
    """/v1/completions."""

    id_prefix = "cmpl"

    def whole(self, head: Head, answers: Sequence[Answer], usage: UsageReply, options: ReplyOptions) -> TextReply:
        choices = [
            TextChoice(
                text=answer.text,
                index=index,
                finish_reason=answer.reason,
                token_ids=answer.token_ids if options.token_ids else UNSET,
            )
            for index, answer in enumerate(answers)
        ]
        return TextReply(id=head.id, created=head.created, model=head.model, choices=choices, usage=usage)

    def opening(self, head: Head, index: int, options: ReplyOptions) -> None:
        return None

    def delta(self, head: Head, index: int, text: str, options: ReplyOptions) -> TextReply:
        return self._chunk(head, index, text, None, options)

    def closing(self, head: Head, index: int, reason: str, options: ReplyOptions) -> TextReply:
        return self._chunk(head, index, "", reason, options)

    def usage(self, head: Head, usage: UsageReply) -> TextReply:
        return TextReply(id=head.id, created=head.created, model=head.model, choices=[], usage=usage)

    def _chunk(self, head: Head, index: int, text: str, reason: str | None, options: ReplyOptions) -> TextReply:
        choice = TextChoice(text=text, index=index, finish_reason=reason, token_ids=_no_ids(options))
        return TextReply(
            id=head.id, created=head.created, model=head.model, choices=[choice], usage=_no_usage(options)
        )


def _no_ids(options: ReplyOptions) -> TokenIds:
    return () if options.token_ids else UNSET


def _no_usage(options: ReplyOptions) -> UnsetType | None:
    """Where usage comes at the end, the chunks before say that they have none."""
    return None if options.usage else UNSET
