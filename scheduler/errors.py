"""Errors, sorted by what the caller can do about them."""

from __future__ import annotations


class RequestRejected(Exception):
    """The request was not admitted; nothing was computed and nothing is held for it."""


class QueueFull(RequestRejected):
    """Every stream is busy and the waiting line is full: try again after `retry_after` seconds."""

    def __init__(self, waiting: int, limit: int, retry_after: int) -> None:
        super().__init__(f"the queue is full: {waiting} of {limit} requests are waiting")
        self.waiting = waiting
        self.limit = limit
        self.retry_after = retry_after


class PromptTooLong(RequestRejected):
    """The prompt leaves no room for a single generated token in its stream's context."""

    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(
            f"the prompt has {tokens} tokens; a stream's context holds {limit}, one of them for the answer"
        )
        self.tokens = tokens
        self.limit = limit


class TooManySequences(RequestRejected):
    """One submission asks for more sequences than can ever run together."""

    def __init__(self, wanted: int, limit: int) -> None:
        super().__init__(f"{wanted} sequences were asked for at once; this server runs {limit} streams")
        self.wanted = wanted
        self.limit = limit


class Draining(RequestRejected):
    """The server is shutting down and takes nothing new."""

    def __init__(self) -> None:
        super().__init__("the server is shutting down")


class EngineError(Exception):
    """The engine could not do its work; the requests it was working on end with this error."""


class StepFailed(EngineError):
    """One step failed and left the KV cache as it was before: its sequences may be tried again."""
