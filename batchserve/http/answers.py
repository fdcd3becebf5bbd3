"""Reading a choice's events to their end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from batchserve.http import errors
from scheduler import (
    EngineError,
    Failed,
    Finished,
    FinishReason,
    Request,
    RequestRejected,
    Runner,
    TokenDelta,
    TokenStream,
    Usage,
)


@dataclass(frozen=True, slots=True)
class Answer:
    """One choice as it came out."""

    text: str
    token_ids: tuple[int, ...]
    reason: str
    usage: Usage


@contextmanager
def admitted(runner: Runner, requests: Sequence[Request], prompt_param: str) -> Iterator[list[TokenStream]]:
    """Submit `requests` together; those that have not ended on leaving are cancelled.

    A client that goes away cancels its handler, which leaves through here.

    Raises:
        ApiError: the scheduler does not take them.
    """
    try:
        streams = runner.submit(requests)
    except RequestRejected as error:
        raise errors.rejected(error, prompt_param) from None
    except EngineError:
        raise errors.engine_unavailable() from None
    try:
        yield streams
    finally:
        for request, stream in zip(requests, streams, strict=True):
            if not stream.has_ended:
                runner.cancel(request.id)


async def collect(stream: TokenStream) -> Answer:
    """Wait for the whole answer.

    Raises:
        ApiError: it did not end as it should.
    """
    deltas: list[TokenDelta] = []
    while isinstance(event := await stream.next(), TokenDelta):
        deltas.append(event)
    finished = ended_well(event)
    text = "".join(delta.text for delta in deltas)
    token_ids = tuple(token for delta in deltas for token in delta.token_ids)
    return Answer(text, token_ids, finished.reason, finished.usage)


def ended_well(event: Finished | Failed) -> Finished:
    """`event`, if the client may see it as a finish reason.

    Raises:
        EngineError: the engine failed.
        ApiError: the server cancelled the request, which it does only when it shuts down.
    """
    if isinstance(event, Failed):
        raise event.error
    if event.reason is FinishReason.CANCELLED:
        raise errors.draining()
    return event
