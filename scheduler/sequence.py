"""One request in flight, and the only moves its state can make."""

from __future__ import annotations

from enum import StrEnum

from scheduler.events import Usage
from scheduler.request import Request
from scheduler.stats import RequestStats
from scheduler.text import TextAssembler


class State(StrEnum):
    """Where a request is in its life; the last three are final."""

    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"


#: Every legal change of state. What is not here is a bug in the scheduler, not in the request.
TRANSITIONS: dict[State, frozenset[State]] = {
    State.WAITING: frozenset({State.PREFILL, State.CANCELLED, State.FAILED}),
    State.PREFILL: frozenset({State.DECODE, State.FINISHED, State.CANCELLED, State.FAILED}),
    State.DECODE: frozenset({State.FINISHED, State.CANCELLED, State.FAILED}),
    State.FINISHED: frozenset(),
    State.CANCELLED: frozenset(),
    State.FAILED: frozenset(),
}


class IllegalTransition(RuntimeError):
    """A sequence was asked to make a move that the table does not have; nothing was changed."""


class Sequence:
    """A request with its progress: `computed` rows are in the KV cache, out of `total` known tokens."""

    def __init__(self, handle: int, request: Request, now: float) -> None:
        self.handle = handle
        self.request = request
        self.state = State.WAITING
        self.slot: int | None = None
        self.computed = 0
        self.generated: list[int] = []
        self.text = TextAssembler(request.stop)
        self.overtaken = 0
        self.cancel_requested = False
        self.arrived_at = now
        self.admitted_at: float | None = None
        self.first_token_at: float | None = None
        self.last_token_at: float | None = None

    def __repr__(self) -> str:
        progress = f"{self.computed}/{self.total}"
        return f"<Sequence {self.request.id} {self.state} {progress} rows slot={self.slot}>"

    @property
    def total(self) -> int:
        """Tokens known so far: the prompt and what was generated."""
        return len(self.request.prompt) + len(self.generated)

    @property
    def prompt_left(self) -> int:
        """Prompt rows still to compute."""
        return max(0, len(self.request.prompt) - self.computed)

    @property
    def usage(self) -> Usage:
        return Usage(len(self.request.prompt), len(self.generated))

    def move_to(self, state: State) -> None:
        """Change the state.

        Raises:
            IllegalTransition: the table has no such move.
        """
        if state not in TRANSITIONS[self.state]:
            raise IllegalTransition(f"{self!r} cannot become {state}")
        self.state = state

    def is_exhausted(self, ctx_per_stream: int) -> bool:
        """True when neither its own limit nor the context leaves room for another token."""
        limit = self.request.max_tokens
        return self.total >= ctx_per_stream or (limit is not None and len(self.generated) >= limit)

    def stats(self, outcome: str, now: float) -> RequestStats:
        return RequestStats(
            id=self.request.id,
            outcome=str(outcome),
            usage=self.usage,
            arrived_at=self.arrived_at,
            admitted_at=self.admitted_at,
            first_token_at=self.first_token_at,
            finished_at=now,
        )
