"""What the scheduler needs from the outside: something that runs a step, and a vocabulary."""

from __future__ import annotations

from typing import Protocol

from scheduler.plan import StepPlan, StepResult


class Engine(Protocol):
    """Runs one step at a time. Called from one thread only, which may block."""

    def execute(self, plan: StepPlan) -> StepResult:
        """Run `plan`.

        Raises:
            StepFailed: the moves stand, but no row was kept; each sequence may be tried again.
            EngineError: the sequences of the step are lost.
        """
        ...


class Vocabulary(Protocol):
    """Token ids to bytes; constant for the life of a model."""

    def piece(self, token: int) -> bytes:
        """The bytes that `token` adds to the text; empty for control tokens."""
        ...

    def ends_generation(self, token: int) -> bool:
        """True for the model's end-of-text and end-of-turn tokens."""
        ...
