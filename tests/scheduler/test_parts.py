"""The transition table, the slots and the policy, each alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler import Limits, Move, Request, StepKind
from scheduler.policy import Cut, next_kind
from scheduler.sequence import TRANSITIONS, IllegalTransition, Sequence, State
from scheduler.slots import Slots


def sequence(handle: int, computed: int = 0) -> Sequence:
    made = Sequence(handle, Request(str(handle), (1, 2, 3)), now=0.0)
    made.computed = computed
    return made


@pytest.mark.parametrize("start", State)
@pytest.mark.parametrize("end", State)
def test_only_moves_of_the_table_are_possible(start: State, end: State) -> None:
    one = sequence(0)
    one.state = start
    if end in TRANSITIONS[start]:
        one.move_to(end)
        assert one.state is end
    else:
        with pytest.raises(IllegalTransition, match=f"cannot become {end}"):
            one.move_to(end)
        assert one.state is start


def test_slots_are_given_from_the_lowest() -> None:
    slots = Slots(3)
    a, b, c = (sequence(handle) for handle in range(3))
    for one in (a, b, c):
        slots.acquire(one)
    assert not slots.has_free
    slots.release(b)
    slots.release(b)
    d = sequence(3)
    slots.acquire(d)
    assert [one.slot for one in (a, b, c, d)] == [0, None, 2, 1]


def test_compacting_moves_the_highest_down_and_swaps_what_is_in_the_way() -> None:
    slots = Slots(4)
    a, b, c, d = (sequence(handle, computed=3) for handle in range(4))
    for one in (a, b, c, d):
        slots.acquire(one)
    slots.release(a)
    assert slots.compact([c, d]) == (Move(2, 0), Move(3, 1), Move(1, 3))
    assert [one.slot for one in (b, c, d)] == [3, 0, 1]
    slots.check_integrity()


def test_compacting_what_is_compact_moves_nothing() -> None:
    slots = Slots(4)
    a, b, c = (sequence(handle, computed=3) for handle in range(3))
    for one in (a, b, c):
        slots.acquire(one)
    assert slots.compact([a, b]) == ()


def rows_of(length: int, cut: Cut) -> list[int]:
    made = Sequence(0, Request("0", (1,) * length), now=0.0)
    rows = []
    while made.prompt_left:
        rows.append(cut.rows(made))
        assert cut.is_last(made) == (rows[-1] == made.prompt_left)
        made.computed += rows[-1]
    return rows


@given(st.integers(1, 5000), st.integers(4, 600), st.integers(100, 10_000))
def test_chunks_cover_the_prompt_without_a_lone_row(length: int, chunk: int, half_at: int) -> None:
    rows = rows_of(length, Cut(chunk, half_at))
    assert sum(rows) == length and max(rows) <= chunk
    assert length == 1 or min(rows) >= 2


def test_chunks_get_shorter_as_attention_gets_dearer() -> None:
    rows = rows_of(2000, Cut(256, 576))
    assert rows[:6] == [256, 176, 144, 128, 112, 96] and rows[-2:] == [48, 32]
    assert rows_of(513, Cut(256, 1 << 30)) == [256, 240, 17]


def test_decode_comes_first_and_prefill_takes_turns() -> None:
    assert next_kind(1, 1, None) is StepKind.DECODE
    assert next_kind(1, 1, StepKind.DECODE) is StepKind.PREFILL
    assert next_kind(1, 1, StepKind.PREFILL) is StepKind.DECODE
    assert next_kind(1, 0, StepKind.PREFILL) is StepKind.PREFILL
    assert next_kind(0, 0, StepKind.DECODE) is None


@pytest.mark.parametrize("bad", [(0, 1, 8, 8), (1, -1, 8, 8), (1, 1, 1, 8), (1, 1, 8, 3)])
def test_limits_that_cannot_work_are_refused(bad: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"max_streams|prefill_chunk"):
        Limits(*bad)


def test_a_request_needs_a_prompt_and_room_for_a_token() -> None:
    with pytest.raises(ValueError, match="prompt"):
        Request("a", ())
    with pytest.raises(ValueError, match="max_tokens"):
        Request("a", (1,), max_tokens=0)
