"""What happens to a request, as its consumer sees it: any number of TokenDelta, then one Finished or Failed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from scheduler.errors import EngineError


class FinishReason(StrEnum):
    """Why a request ended; `stop` and `length` are OpenAI's own words."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one request. `cached_tokens` are the prompt tokens that were not computed for it."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TokenDelta:
    """New text, and the ids of exactly those tokens whose text it completes."""

    text: str
    token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a request that ended as it should, or was cancelled."""

    reason: FinishReason
    usage: Usage


@dataclass(frozen=True, slots=True)
class Failed:
    """The last event of a request that the engine could not go on with."""

    error: EngineError
    usage: Usage


Event = TokenDelta | Finished | Failed
