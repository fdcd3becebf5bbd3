"""The scheduler as a state machine: submit, cancel, plan, apply. No I/O, no clock, no model.

The driver calls `plan`, has an engine execute it, and hands the result to `apply` (or the error to `fail`).
`submit` and `cancel` may come at any time in between; what concerns a step in flight waits for its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from scheduler import policy
from scheduler.engine import Vocabulary
from scheduler.errors import (
    Draining,
    EngineError,
    PromptTooLong,
    QueueFull,
    RequestRejected,
    StepFailed,
    TooManySequences,
)
from scheduler.events import Event, Failed, Finished, FinishReason
from scheduler.plan import Chunk, Opening, StepKind, StepPlan, StepResult
from scheduler.request import Request
from scheduler.sequence import Sequence, State
from scheduler.slots import Slots
from scheduler.stats import Observer, StepStats

Events = list[tuple[str, Event]]


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one server: streams that run together, requests that wait, tokens per stream, rows per chunk.

    `chunk_half_at` is the position in a prompt at which attention costs as much as all the rest (see policy.Cut).
    """

    max_streams: int
    max_queue: int
    ctx_per_stream: int
    prefill_chunk: int = 256
    chunk_half_at: int = 4096

    def __post_init__(self) -> None:
        if min(self.max_streams, self.max_queue + 1, self.ctx_per_stream - 1) < 1:
            raise ValueError("max_streams >= 1, max_queue >= 0 and ctx_per_stream >= 2 are needed")
        if self.prefill_chunk < 4:
            raise ValueError("prefill_chunk is at least 4 rows, so that no chunk is left with a single row")


class Core:
    """All scheduling state of one engine."""

    def __init__(self, limits: Limits, vocabulary: Vocabulary, observer: Observer | None = None) -> None:
        self.limits = limits
        self._vocabulary = vocabulary
        self._observer = observer or Observer()
        self._slots = Slots(limits.max_streams)
        self._cut = policy.Cut(limits.prefill_chunk, limits.chunk_half_at)
        self._waiting: deque[Sequence] = deque()
        self._live: dict[str, Sequence] = {}
        self._by_handle: dict[int, Sequence] = {}
        self._next_handle = 0
        self._in_flight: StepPlan | None = None
        self._last_kind: StepKind | None = None
        self._suspects: deque[Sequence] = deque()
        self._closes: list[int] = []
        self._notices: list[Callable[[], None]] = []
        self._is_draining = False
        self._mean_service = 1.0

    # -- what callers ask ------------------------------------------------------------------------------------

    @property
    def num_running(self) -> int:
        return len(self._slots.running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """True when no request is left, running or waiting."""
        return not self._live

    def submit(self, requests: Seq[Request], now: float) -> None:
        """Admit all of `requests` together, or none.

        Raises:
            RequestRejected: one of its kinds, which says why; nothing was changed.
        """
        self._check_admission(requests)
        for request in requests:
            sequence = Sequence(self._next_handle, request, now)
            self._next_handle += 1
            self._live[request.id] = sequence
            self._by_handle[sequence.handle] = sequence
            self._waiting.append(sequence)

    def cancel(self, request_id: str, now: float) -> Events:
        """End a request. Idempotent; unknown and finished ids are ignored.

        A sequence whose rows are being computed right now ends when that step is applied.
        """
        sequence = self._live.get(request_id)
        if sequence is None:
            return []
        if self._is_in_flight(sequence):
            sequence.cancel_requested = True
            return []
        return self._finish(sequence, FinishReason.CANCELLED, now)

    def report(self) -> None:
        """Tell the observer what has happened since the last report: for when the engine is busy."""
        notices, self._notices = self._notices, []
        for notice in notices:
            notice()

    def drain(self) -> None:
        """Refuse new requests from now on; those admitted go on."""
        self._is_draining = True

    def _check_admission(self, requests: Seq[Request]) -> None:
        if self._is_draining:
            raise Draining
        if len(requests) > self.limits.max_streams:
            raise TooManySequences(len(requests), self.limits.max_streams)
        for request in requests:
            if len(request.prompt) >= self.limits.ctx_per_stream:
                raise PromptTooLong(len(request.prompt), self.limits.ctx_per_stream)
        ids = [request.id for request in requests]
        if taken := next((name for name in ids if name in self._live or ids.count(name) > 1), None):
            raise RequestRejected(f"the id {taken!r} is in use")
        if len(self._live) + len(requests) > self.limits.max_streams + self.limits.max_queue:
            raise QueueFull(self.num_waiting, self.limits.max_queue, self._expected_wait())

    def _expected_wait(self) -> int:
        """Seconds until a place in the line is likely to be free, at least 1."""
        return max(1, round(self._mean_service / self.limits.max_streams))

    # -- plan ------------------------------------------------------------------------------------------------

    def plan(self, now: float) -> StepPlan | None:
        """The next step, or None when there is nothing to do. Every plan must be applied or failed."""
        assert self._in_flight is None, "the last step was neither applied nor failed"
        self._admit(now)
        if self._suspects:
            self._in_flight = self._plan_alone(self._suspects[0])
            return self._in_flight
        running = self._slots.running
        decoding = [sequence for sequence in running if sequence.state is State.DECODE]
        prefilling = [sequence for sequence in running if sequence.state is State.PREFILL]
        kind = policy.next_kind(len(prefilling), len(decoding), self._last_kind)
        if kind is StepKind.PREFILL:
            self._in_flight = self._plan_prefill(prefilling, bool(decoding))
        elif kind is StepKind.DECODE:
            self._in_flight = self._plan_decode(decoding)
        self._last_kind = kind
        return self._in_flight

    def _admit(self, now: float) -> None:
        while self._waiting and self._slots.has_free:
            sequence = self._waiting.popleft()
            self._slots.acquire(sequence)
            sequence.move_to(State.PREFILL)
            sequence.admitted_at = now

    def _plan_prefill(self, prefilling: list[Sequence], is_decoding: bool) -> StepPlan:
        chosen = policy.choose_prefill(prefilling, self._cut, is_decoding)
        opens = tuple(
            Opening(sequence.handle, sequence.request.sampling, sequence.request.prompt)
            for sequence in chosen
            if sequence.computed == 0
        )
        return StepPlan(
            StepKind.PREFILL,
            tuple(self._prompt_chunk(sequence) for sequence in chosen),
            opens=opens,
            closes=self._take_closes(),
        )

    def _plan_alone(self, suspect: Sequence) -> StepPlan:
        """After a failed step: one of its sequences by itself."""
        if suspect.state is State.PREFILL:
            return self._plan_prefill([suspect], is_decoding=True)
        return StepPlan(StepKind.DECODE, (_decode_row(suspect),), closes=self._take_closes())

    def _prompt_chunk(self, sequence: Sequence) -> Chunk:
        assert sequence.slot is not None
        start = sequence.computed
        rows = self._cut.rows(sequence)
        tokens = sequence.request.prompt[start : start + rows]
        return Chunk(sequence.handle, sequence.slot, start, tokens, sample=rows == sequence.prompt_left)

    def _plan_decode(self, decoding: list[Sequence]) -> StepPlan:
        moves = self._slots.compact(decoding)
        rows = sorted((_decode_row(sequence) for sequence in decoding), key=lambda chunk: chunk.slot)
        return StepPlan(StepKind.DECODE, tuple(rows), moves=moves, closes=self._take_closes())

    def _take_closes(self) -> tuple[int, ...]:
        closes, self._closes = tuple(self._closes), []
        return closes

    # -- apply -----------------------------------------------------------------------------------------------

    def apply(self, result: StepResult, now: float) -> Events:
        """Take over what the step in flight gave; returns what its consumers should hear."""
        plan = self._end_step()
        latencies = _Latencies()
        events: Events = []
        for chunk in plan.chunks:
            sequence = self._by_handle[chunk.handle]
            sequence.computed += len(chunk.tokens)
            if sequence in self._suspects:
                self._suspects.remove(sequence)
        for handle, token in result.sampled:
            events += self._accept(self._by_handle[handle], token, now, latencies)
        for handle, message in result.failures:
            events += self._fail_one(self._by_handle[handle], EngineError(message), now)
        events += self._end_cancelled(plan, now)
        stats = self._step_stats(plan, result, latencies)
        self._notices.append(lambda: self._observer.on_step(stats))
        return events

    def fail(self, error: EngineError, now: float) -> Events:
        """The step in flight failed.

        When the cache is intact and several sequences took part, each is tried alone, so that only the one
        that cannot be computed ends; otherwise all sequences of the step, also those only moved by it, end
        with `error`.
        """
        plan = self._end_step()
        self._notices.append(lambda: self._observer.on_step_failed(plan.kind))
        events = self._end_cancelled(plan, now)
        members = [self._by_handle[chunk.handle] for chunk in plan.chunks if chunk.handle in self._by_handle]
        if isinstance(error, StepFailed) and len(members) > 1:
            self._suspects = deque(members)
            return events
        moved = {move.target for move in plan.moves}
        members += [other for other in self._slots.running if other.slot in moved and other not in members]
        for member in members:
            events += self._fail_one(member, error, now)
        return events

    def fail_all(self, error: EngineError, now: float) -> Events:
        """The engine is gone: every request ends with `error`."""
        self._in_flight = None
        return [event for member in list(self._live.values()) for event in self._fail_one(member, error, now)]

    def cancel_all(self, now: float) -> Events:
        """End every request; those in flight when their step is applied."""
        return [event for request_id in list(self._live) for event in self.cancel(request_id, now)]

    def _end_step(self) -> StepPlan:
        plan, self._in_flight = self._in_flight, None
        assert plan is not None, "no step is in flight"
        return plan

    def _accept(self, sequence: Sequence, token: int, now: float, latencies: _Latencies) -> Events:
        sequence.generated.append(token)
        latencies.note_token(sequence, now)
        if sequence.state is State.PREFILL:
            sequence.move_to(State.DECODE)
        if sequence.cancel_requested:
            return []
        ended = self._vocabulary.ends_generation(token) and not sequence.request.ignore_eos
        delta = None if ended else sequence.text.push(token, self._vocabulary.piece(token))
        events: Events = [(sequence.request.id, delta)] if delta else []
        if ended or sequence.text.stopped:
            events += self._finish(sequence, FinishReason.STOP, now)
        elif sequence.is_exhausted(self.limits.ctx_per_stream):
            events += self._finish(sequence, FinishReason.LENGTH, now)
        return events

    def _end_cancelled(self, plan: StepPlan, now: float) -> Events:
        members = [self._by_handle.get(chunk.handle) for chunk in plan.chunks]
        cancelled = [member for member in members if member and member.cancel_requested]
        return [event for member in cancelled for event in self._finish(member, FinishReason.CANCELLED, now)]

    # -- endings ---------------------------------------------------------------------------------------------

    def _finish(self, sequence: Sequence, reason: FinishReason, now: float) -> Events:
        was_stopped = sequence.text.stopped
        rest = None if was_stopped or reason is FinishReason.CANCELLED else sequence.text.flush()
        self._retire(sequence, State.CANCELLED if reason is FinishReason.CANCELLED else State.FINISHED)
        self._note_service(sequence, now)
        self._note_end(sequence, reason, now)
        events: list[Event] = [rest] if rest else []
        events.append(Finished(reason, sequence.usage))
        return [(sequence.request.id, event) for event in events]

    def _fail_one(self, sequence: Sequence, error: EngineError, now: float) -> Events:
        self._retire(sequence, State.FAILED)
        self._note_end(sequence, "error", now)
        return [(sequence.request.id, Failed(error, sequence.usage))]

    def _retire(self, sequence: Sequence, state: State) -> None:
        if sequence.state is State.WAITING:
            self._waiting.remove(sequence)
        else:
            self._closes.append(sequence.handle)
        sequence.move_to(state)
        self._slots.release(sequence)
        if sequence in self._suspects:
            self._suspects.remove(sequence)
        del self._live[sequence.request.id]
        del self._by_handle[sequence.handle]

    def _note_end(self, sequence: Sequence, outcome: str, now: float) -> None:
        stats = sequence.stats(outcome, now)
        self._notices.append(lambda: self._observer.on_request(stats))

    def _note_service(self, sequence: Sequence, now: float) -> None:
        if sequence.admitted_at is not None:
            self._mean_service += 0.1 * (now - sequence.admitted_at - self._mean_service)

    # -- self-knowledge --------------------------------------------------------------------------------------

    def _is_in_flight(self, sequence: Sequence) -> bool:
        plan = self._in_flight
        return plan is not None and any(chunk.handle == sequence.handle for chunk in plan.chunks)

    def _step_stats(self, plan: StepPlan, result: StepResult, latencies: _Latencies) -> StepStats:
        return StepStats(
            kind=plan.kind,
            num_rows=plan.num_rows,
            num_sequences=len(plan.chunks),
            seconds=result.seconds,
            running=self.num_running,
            waiting=self.num_waiting,
            generated_tokens=len(result.sampled),
            first_token_latencies=tuple(latencies.first_tokens),
            token_gaps=tuple(latencies.gaps),
        )

    def check_integrity(self) -> None:
        """Raises AssertionError when the books do not balance. For tests; cheap enough to run after each step."""
        self._slots.check_integrity()
        running, waiting = self._slots.running, list(self._waiting)
        assert set(self._live.values()) == set(running) | set(waiting) == set(self._by_handle.values())
        assert len(self._live) == len(running) + len(waiting) == len(self._by_handle)
        assert len(self._live) <= self.limits.max_streams + self.limits.max_queue
        assert set(self._suspects) <= set(running)
        for sequence in waiting:
            assert sequence.state is State.WAITING and sequence.slot is None and not sequence.computed, sequence
        for sequence in running:
            _check_running(sequence)
            assert sequence.total <= self.limits.ctx_per_stream, sequence


class _Latencies:
    """What one step revealed: times to first tokens, and gaps between tokens, in seconds."""

    def __init__(self) -> None:
        self.first_tokens: list[float] = []
        self.gaps: list[float] = []

    def note_token(self, sequence: Sequence, now: float) -> None:
        if sequence.last_token_at is None:
            sequence.first_token_at = now
            self.first_tokens.append(now - sequence.arrived_at)
        else:
            self.gaps.append(now - sequence.last_token_at)
        sequence.last_token_at = now


def _decode_row(sequence: Sequence) -> Chunk:
    assert sequence.slot is not None
    return Chunk(sequence.handle, sequence.slot, sequence.computed, (sequence.generated[-1],), sample=True)


def _check_running(sequence: Sequence) -> None:
    if sequence.state is State.PREFILL:
        assert sequence.prompt_left > 0 and not sequence.generated, sequence
    else:
        assert sequence.state is State.DECODE and sequence.computed == sequence.total - 1, sequence
