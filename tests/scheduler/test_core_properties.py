"""Core under random submit, cancel, fail and finish: the books balance after every step, traces are solo traces."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scheduler import (
    Core,
    EngineError,
    Event,
    Failed,
    Finished,
    FinishReason,
    Limits,
    Request,
    RequestRejected,
    SamplingParams,
    StepFailed,
    StepPlan,
    TokenDelta,
)
from scheduler.testing import FakeEngine, FakeVocabulary

LIMITS = Limits(max_streams=3, max_queue=4, ctx_per_stream=40, prefill_chunk=6)


class CoreMachine(RuleBasedStateMachine):
    """Rules are what a driver and its clients may do, in any order, also while a step is in flight."""

    def __init__(self) -> None:
        super().__init__()
        self.core = Core(LIMITS, FakeVocabulary())
        self.engine = FakeEngine()
        self.requests: dict[str, Request] = {}
        self.events: dict[str, list[Event]] = {}
        self.in_flight: StepPlan | None = None
        self.now = 0.0

    @rule(
        length=st.integers(1, 42),
        max_tokens=st.one_of(st.none(), st.integers(1, 12)),
        seed=st.integers(0, 3),
        copies=st.integers(1, 4),
    )
    def submit(self, length: int, max_tokens: int | None, seed: int, copies: int) -> None:
        first = len(self.requests)
        group = [
            Request(str(first + copy), tuple(range(1, length + 1)), SamplingParams(seed=seed + copy), max_tokens)
            for copy in range(copies)
        ]
        try:
            self.core.submit(group, self.now)
        except RequestRejected:
            return
        self.requests.update({request.id: request for request in group})
        self.events.update({request.id: [] for request in group})

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.hear(self.core.cancel(data.draw(st.sampled_from(sorted(self.requests))), self.now))

    @precondition(lambda self: self.in_flight is None)
    @rule()
    def plan(self) -> None:
        self.now += 1
        self.in_flight = self.core.plan(self.now)

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def execute(self) -> None:
        assert self.in_flight is not None
        result = self.engine.execute(self.in_flight)
        self.in_flight = None
        self.hear(self.core.apply(result, self.now))

    @precondition(lambda self: self.in_flight is not None)
    @rule(lost=st.booleans())
    def fail(self, lost: bool) -> None:
        assert self.in_flight is not None
        self.engine._prepare(self.in_flight)
        self.in_flight = None
        self.hear(self.core.fail(EngineError("lost") if lost else StepFailed("retry"), self.now))

    def hear(self, events: list[tuple[str, Event]]) -> None:
        for request_id, event in events:
            assert not self.has_ended(request_id), "an event after the last"
            self.events[request_id].append(event)

    def has_ended(self, request_id: str) -> bool:
        heard = self.events[request_id]
        return bool(heard) and isinstance(heard[-1], Finished | Failed)

    @invariant()
    def books_balance(self) -> None:
        self.core.check_integrity()
        assert self.core.is_idle == all(map(self.has_ended, self.requests))

    def teardown(self) -> None:
        if self.in_flight is not None:
            self.execute()
        while not self.core.is_idle:
            self.plan()
            self.execute()
            self.core.check_integrity()
        for request in self.requests.values():
            self.check_trace(request)

    def check_trace(self, request: Request) -> None:
        room = LIMITS.ctx_per_stream - len(request.prompt)
        count = min(room, request.max_tokens or room)
        alone = [token for token in self.engine.solo(request.prompt, count, request.sampling.seed) if token]
        heard = self.events[request.id]
        deltas = [event for event in heard if isinstance(event, TokenDelta)]
        trace = [token for delta in deltas for token in delta.token_ids]
        is_whole = isinstance(last := heard[-1], Finished) and last.reason is not FinishReason.CANCELLED
        assert trace == (alone if is_whole else alone[: len(trace)])


TestCoreMachine = CoreMachine.TestCase
TestCoreMachine.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
