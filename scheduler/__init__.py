"""Continuous batching without I/O: who runs in the next step, and what became of the last one.

The package knows neither llama.cpp nor HTTP. `Core` is a pure state machine; `Runner` is the only part that
awaits anything. See docs/life-of-a-request.md for the way of one request through it.
"""

from scheduler.core import Core, Limits
from scheduler.engine import Engine, Vocabulary
from scheduler.errors import (
    Draining,
    EngineError,
    PromptTooLong,
    QueueFull,
    RequestRejected,
    StepFailed,
    TooManySequences,
)
from scheduler.events import Event, Failed, Finished, FinishReason, TokenDelta, Usage
from scheduler.plan import Chunk, Move, Opening, StepKind, StepPlan, StepResult
from scheduler.request import Request, SamplingParams
from scheduler.runner import Runner
from scheduler.stats import RequestStats, StepStats
from scheduler.stream import TokenStream
from scheduler.worker import Worker

__all__ = [
    "Chunk",
    "Core",
    "Draining",
    "Engine",
    "EngineError",
    "Event",
    "Failed",
    "FinishReason",
    "Finished",
    "Limits",
    "Move",
    "Opening",
    "PromptTooLong",
    "QueueFull",
    "Request",
    "RequestRejected",
    "RequestStats",
    "Runner",
    "SamplingParams",
    "StepFailed",
    "StepKind",
    "StepPlan",
    "StepResult",
    "StepStats",
    "TokenDelta",
    "TokenStream",
    "TooManySequences",
    "Usage",
    "Vocabulary",
    "Worker",
]
