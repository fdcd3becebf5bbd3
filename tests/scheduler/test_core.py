"""Core driven step by step with FakeEngine: every token must be the one the request would get alone."""

from __future__ import annotations

import pytest

from scheduler import (
    Core,
    Draining,
    EngineError,
    Event,
    Failed,
    Finished,
    FinishReason,
    Limits,
    PromptTooLong,
    QueueFull,
    Request,
    RequestRejected,
    SamplingParams,
    StepFailed,
    StepKind,
    TokenDelta,
    TooManySequences,
)
from scheduler.policy import MAX_OVERTAKES
from scheduler.testing import FakeEngine, FakeVocabulary


class Bench:
    """A Core, an engine and everything that was said to the consumers."""

    def __init__(self, streams: int = 4, queue: int = 8, ctx: int = 64, chunk: int = 8, **engine: object) -> None:
        self.core = Core(Limits(streams, queue, ctx, chunk), FakeVocabulary())
        self.engine = FakeEngine(**engine)  # type: ignore[arg-type]
        self.events: dict[str, list[Event]] = {}
        self.now = 0.0

    def submit(self, *requests: Request) -> None:
        self.core.submit(requests, self.now)

    def step(self) -> StepKind | None:
        self.now += 1.0
        plan = self.core.plan(self.now)
        if plan is None:
            return None
        try:
            result = self.engine.execute(plan)
        except EngineError as error:
            self.hear(self.core.fail(error, self.now))
        else:
            self.hear(self.core.apply(result, self.now))
        self.core.check_integrity()
        return plan.kind

    def run(self) -> None:
        while self.step() is not None:
            pass
        assert self.core.is_idle

    def cancel(self, request_id: str) -> None:
        self.hear(self.core.cancel(request_id, self.now))
        self.core.check_integrity()

    def hear(self, events: list[tuple[str, Event]]) -> None:
        for request_id, event in events:
            self.events.setdefault(request_id, []).append(event)

    def tokens(self, request_id: str) -> list[int]:
        deltas = [event for event in self.events[request_id] if isinstance(event, TokenDelta)]
        return [token for delta in deltas for token in delta.token_ids]

    def last(self, request_id: str) -> Event:
        return self.events[request_id][-1]


def request(name: str, length: int = 5, max_tokens: int = 10, seed: int = 0, **more: object) -> Request:
    prompt = tuple((ord(name[0]) + 7 * index) % 60 + 1 for index in range(length))
    return Request(name, prompt, SamplingParams(seed=seed), max_tokens, **more)  # type: ignore[arg-type]


def solo(bench: Bench, wanted: Request) -> list[int]:
    assert wanted.max_tokens is not None
    tokens = bench.engine.solo(wanted.prompt, wanted.max_tokens, wanted.sampling.seed)
    return [token for token in tokens if token != 0]


def test_a_request_gets_the_tokens_of_a_solo_run() -> None:
    bench = Bench()
    wanted = request("a", length=20, max_tokens=12)
    bench.submit(wanted)
    bench.run()
    assert bench.tokens("a") == solo(bench, wanted)


def test_a_crowd_gets_the_tokens_of_solo_runs() -> None:
    bench = Bench(queue=20)
    wanted = [request(name, length=3 + 5 * index, seed=index) for index, name in enumerate("abcdefghij")]
    bench.submit(*wanted[:4])
    for late in wanted[4:]:
        bench.step()
        bench.submit(late)
    bench.run()
    assert {one.id: bench.tokens(one.id) for one in wanted} == {one.id: solo(bench, one) for one in wanted}


def test_the_last_event_tells_reason_and_usage() -> None:
    bench = Bench()
    wanted = request("a", max_tokens=3)
    bench.submit(wanted)
    bench.run()
    last = bench.last("a")
    assert isinstance(last, Finished)
    assert (last.reason, last.usage.prompt_tokens, last.usage.completion_tokens) == (
        FinishReason.LENGTH,
        5,
        3,
    )


def test_generation_ends_where_the_context_ends() -> None:
    bench = Bench(ctx=16)
    bench.submit(request("a", length=10, max_tokens=100, ignore_eos=True))
    bench.run()
    last = bench.last("a")
    assert isinstance(last, Finished)
    assert last.reason is FinishReason.LENGTH and last.usage.completion_tokens == 6


def test_ignore_eos_goes_past_the_end_token() -> None:
    bench = Bench(ctx=512)
    bench.submit(request("a", max_tokens=300, ignore_eos=True))
    bench.run()
    assert len(bench.tokens("a")) == 300 and 0 in bench.tokens("a")


def test_a_stop_string_ends_the_answer_before_it() -> None:
    bench = Bench()
    free = request("a", max_tokens=10)
    text = "".join(chr(97 + token % 26) for token in solo(bench, free))
    bench.submit(request("a", max_tokens=10, stop=(text[3:5],)))
    bench.run()
    assert "".join(event.text for event in bench.events["a"] if isinstance(event, TokenDelta)) == text[:3]
    assert bench.tokens("a") == solo(bench, free)[:3]
    assert isinstance(last := bench.last("a"), Finished) and last.reason is FinishReason.STOP


def test_prefill_and_decode_alternate_and_never_mix() -> None:
    bench = Bench(chunk=4)
    bench.submit(request("a", length=4, max_tokens=20, ignore_eos=True))
    bench.step()
    bench.submit(request("b", length=13, max_tokens=2))
    kinds = [bench.step() for _ in range(8)]
    assert kinds == [StepKind.DECODE, StepKind.PREFILL] * 4


def test_no_chunk_is_a_lone_row_and_cuts_do_not_depend_on_the_company() -> None:
    alone, crowd = Bench(chunk=8, ctx=100), Bench(chunk=8, ctx=100)
    wanted = request("a", length=25)
    alone.submit(wanted)
    crowd.submit(request("x", length=3), wanted, request("y", length=17))
    alone.run()
    crowd.run()
    handle = {id(alone): 0, id(crowd): 1}
    cuts = [
        [
            len(chunk.tokens)
            for plan in bench.engine.plans
            for chunk in plan.chunks
            if plan.kind is StepKind.PREFILL and chunk.handle == handle[id(bench)]
        ]
        for bench in (alone, crowd)
    ]
    assert cuts == [[8, 8, 7, 2], [8, 8, 7, 2]]


def test_a_short_prompt_overtakes_a_long_one_a_bounded_number_of_times() -> None:
    bench = Bench(streams=4, queue=64, chunk=4, ctx=100)
    bench.submit(request("long", length=61, max_tokens=1))
    for index in range(40):
        bench.submit(request(f"{index}", length=4, max_tokens=1))
    bench.run()
    steps = [[chunk.handle for chunk in plan.chunks] for plan in bench.engine.plans if plan.kind == "prefill"]
    with_long = [index for index, handles in enumerate(steps) if 0 in handles]
    assert with_long[-1] + 1 - len(with_long) == MAX_OVERTAKES


def test_a_full_queue_rejects_and_changes_nothing() -> None:
    bench = Bench(streams=1, queue=2)
    bench.submit(
        request("a"),
    )
    bench.submit(request("b"))
    bench.submit(request("c"))
    with pytest.raises(QueueFull) as caught:
        bench.submit(request("d"))
    assert caught.value.limit == 2 and caught.value.retry_after >= 1
    bench.core.check_integrity()
    bench.run()
    assert set(bench.events) == {"a", "b", "c"}


def test_a_group_is_admitted_whole_or_not_at_all() -> None:
    bench = Bench(streams=2, queue=1)
    bench.submit(request("a"), request("b"))
    with pytest.raises(QueueFull):
        bench.submit(request("c"), request("d"))
    with pytest.raises(TooManySequences):
        bench.submit(request("e"), request("f"), request("g"))
    bench.submit(request("c"))
    bench.run()
    assert set(bench.events) == {"a", "b", "c"}


def test_a_prompt_that_fills_the_context_is_rejected_with_both_numbers() -> None:
    bench = Bench(ctx=16)
    with pytest.raises(PromptTooLong, match=r"16 tokens.*16") as caught:
        bench.submit(request("a", length=16))
    assert (caught.value.tokens, caught.value.limit) == (16, 16)
    bench.submit(request("a", length=15))
    bench.run()
    assert isinstance(bench.last("a"), Finished)


def test_an_id_in_use_is_rejected() -> None:
    bench = Bench()
    with pytest.raises(RequestRejected, match="'a' is in use"):
        bench.submit(request("a"), request("a"))
    bench.submit(request("a"))
    with pytest.raises(RequestRejected, match="'a' is in use"):
        bench.submit(request("a"))


def test_draining_refuses_the_new_and_finishes_the_old() -> None:
    bench = Bench()
    wanted = request("a")
    bench.submit(wanted)
    bench.core.drain()
    with pytest.raises(Draining):
        bench.submit(request("b"))
    bench.run()
    assert bench.tokens("a") == solo(bench, wanted)


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4, 5])
def test_cancel_in_every_state_frees_the_slot_and_leaves_the_neighbours_alone(steps: int) -> None:
    bench = Bench(streams=2, chunk=4)
    neighbour = request("n", length=6, max_tokens=12)
    bench.submit(neighbour, request("a", length=14, max_tokens=30))
    bench.submit(request("w", max_tokens=3))
    for _ in range(steps):
        bench.step()
    bench.cancel("a")
    bench.cancel("a")
    assert isinstance(last := bench.last("a"), Finished) and last.reason is FinishReason.CANCELLED
    bench.run()
    assert bench.tokens("n") == solo(bench, neighbour)
    assert isinstance(bench.last("w"), Finished)


def test_cancel_during_a_step_takes_effect_when_it_is_applied() -> None:
    bench = Bench()
    bench.submit(request("a", length=3))
    plan = bench.core.plan(1.0)
    assert plan is not None
    assert bench.core.cancel("a", 1.0) == []
    bench.hear(bench.core.apply(bench.engine.execute(plan), 2.0))
    assert [type(event) for event in bench.events["a"]] == [Finished]
    assert bench.core.is_idle


def test_one_undecodable_row_ends_one_request() -> None:
    bench = Bench(streams=4)
    wanted = [request(name, max_tokens=8, seed=3) for name in "abcd"]
    others = [solo(bench, one) for one in wanted[:3]]
    poison = next(token for token in solo(bench, wanted[3]) if not any(token in other for other in others))
    bench = Bench(streams=4, poison={poison})
    bench.submit(*wanted)
    bench.run()
    assert [type(bench.last(one.id)) for one in wanted] == [Finished, Finished, Finished, Failed]
    assert [bench.tokens(one.id) for one in wanted[:3]] == others


def test_a_passing_failure_costs_nobody_anything() -> None:
    bench = Bench(fail={3: StepFailed("no room")})
    wanted = [request(name) for name in "abc"]
    bench.submit(*wanted)
    bench.run()
    assert {one.id: bench.tokens(one.id) for one in wanted} == {one.id: solo(bench, one) for one in wanted}


@pytest.mark.parametrize("step", [0, 1, 2, 3])
def test_a_failed_prefill_step_is_tried_again_one_by_one(step: int) -> None:
    bench = Bench(chunk=12, fail={step: StepFailed("no room")})
    wanted = [request(name, length=3) for name in "abcd"]
    bench.submit(*wanted)
    bench.run()
    assert {one.id: bench.tokens(one.id) for one in wanted} == {one.id: solo(bench, one) for one in wanted}


def test_an_engine_that_always_fails_ends_every_request() -> None:
    bench = Bench(chunk=12, fail={step: StepFailed("no room") for step in range(50)})
    bench.submit(*(request(name, length=3) for name in "abcd"))
    bench.run()
    assert {type(bench.last(name)) for name in "abcd"} == {Failed}


def test_a_lost_step_ends_its_sequences_only() -> None:
    bench = Bench(streams=2, fail={3: EngineError("broken")})
    waiting = request("w")
    bench.submit(request("a"), request("b"))
    bench.submit(waiting)
    bench.run()
    assert isinstance(bench.last("a"), Failed) and isinstance(bench.last("b"), Failed)
    assert bench.tokens("w") == solo(bench, waiting)


def test_fail_all_reaches_everyone() -> None:
    bench = Bench(streams=1)
    bench.submit(request("a"))
    bench.submit(request("b"))
    bench.step()
    bench.hear(bench.core.fail_all(EngineError("gone"), 9.0))
    assert isinstance(bench.last("a"), Failed) and isinstance(bench.last("b"), Failed)
    bench.core.check_integrity()
    assert bench.core.is_idle


def test_samplers_are_opened_once_and_closed_once() -> None:
    bench = Bench(streams=2)
    bench.submit(request("a"), request("b", length=14, max_tokens=2))
    bench.submit(request("c", max_tokens=2))
    bench.run()
    bench.submit(request("z", max_tokens=1))
    bench.run()
    opened = [opening.handle for plan in bench.engine.plans for opening in plan.opens]
    closed = [handle for plan in bench.engine.plans for handle in plan.closes]
    assert opened == [0, 1, 2, 3] and sorted(closed) == [0, 1, 2]
