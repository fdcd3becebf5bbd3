"""What an observer is told: one frozen record per step, with the requests that ended in it."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.events import Usage
from scheduler.plan import StepKind


@dataclass(frozen=True, slots=True)
class RequestStats:
    """The life of one request. Times are seconds on the clock the scheduler was given; None: never reached."""

    id: str
    outcome: str
    usage: Usage
    arrived_at: float
    admitted_at: float | None
    first_token_at: float | None
    finished_at: float


@dataclass(frozen=True, slots=True)
class StepStats:
    """One step: its size and cost, and the latencies that became known with it (seconds)."""

    kind: StepKind
    num_rows: int
    num_sequences: int
    seconds: float
    running: int
    waiting: int
    generated_tokens: int
    first_token_latencies: tuple[float, ...]
    token_gaps: tuple[float, ...]


class Observer:
    """Receives what happens; the base class looks away. Called on the event loop, must not block."""

    def on_step(self, stats: StepStats) -> None:
        """A step was applied."""

    def on_step_failed(self, kind: StepKind) -> None:
        """A step failed; what it was for is tried again or ends."""

    def on_request(self, stats: RequestStats) -> None:
        """A request ended, whatever the outcome."""
