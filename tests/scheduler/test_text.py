"""Text assembly: whole characters, stop strings in any cut, and tokens reported with the text they complete."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler import TokenDelta
from scheduler.text import TextAssembler


def feed(pieces: list[bytes], stops: tuple[str, ...] = ()) -> tuple[list[TokenDelta], bool]:
    assembler = TextAssembler(stops)
    deltas = []
    for token, piece in enumerate(pieces):
        deltas.append(assembler.push(token, piece))
        if assembler.stopped:
            break
    if not assembler.stopped:
        deltas.append(assembler.flush())
    return [delta for delta in deltas if delta], assembler.stopped


def text_of(deltas: list[TokenDelta]) -> str:
    return "".join(delta.text for delta in deltas)


def test_plain_text_comes_at_once_with_its_token() -> None:
    assert feed([b"Hello", b" you"]) == ([TokenDelta("Hello", (0,)), TokenDelta(" you", (1,))], False)


def test_a_character_split_across_tokens_comes_whole_with_all_its_tokens() -> None:
    euro = "€".encode()
    deltas, _ = feed([b"a" + euro[:1], euro[1:2], euro[2:] + b"b"])
    assert deltas == [TokenDelta("a", ()), TokenDelta("€b", (0, 1, 2))]


def test_a_broken_character_becomes_a_replacement_at_the_end() -> None:
    deltas, _ = feed([b"a", b"\xe2\x82"])
    assert deltas == [TokenDelta("a", (0,)), TokenDelta("�", (1,))]


def test_a_token_without_text_is_reported() -> None:
    assert feed([b"a", b"", b"b"])[0] == [TokenDelta("a", (0,)), TokenDelta("", (1,)), TokenDelta("b", (2,))]


def test_a_stop_string_across_tokens_is_cut_away_with_its_tokens() -> None:
    deltas, stopped = feed([b"one", b" E", b"N", b"D more"], ("END",))
    assert stopped and text_of(deltas) == "one "
    assert [token for delta in deltas for token in delta.token_ids] == [0]


def test_a_false_start_of_a_stop_string_is_given_out_later() -> None:
    deltas, stopped = feed([b"a E", b"N", b"T"], ("END",))
    assert not stopped
    assert deltas == [TokenDelta("a ", ()), TokenDelta("ENT", (0, 1, 2))]


def test_what_is_held_back_comes_with_the_end() -> None:
    assert feed([b"so ", b"EN"], ("END",)) == ([TokenDelta("so ", (0,)), TokenDelta("EN", (1,))], False)


@pytest.mark.parametrize("pieces", [[b"xabcd"], [b"xa", b"bcd"], [b"x", b"a", b"b", b"c", b"d"]])
def test_the_stop_that_is_complete_first_wins_however_the_text_is_cut(pieces: list[bytes]) -> None:
    deltas, stopped = feed(pieces, ("abcd", "bc"))
    assert stopped and text_of(deltas) == "xa"


def cut(data: bytes, marks: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(mark % (len(data) + 1) for mark in marks)})
    return [data[start:end] for start, end in pairwise(edges)]


@given(
    st.text(alphabet="abé€😀", max_size=30),
    st.lists(st.text(alphabet="abé", min_size=1, max_size=4), max_size=4),
    st.lists(st.integers(0, 200), max_size=12),
)
def test_the_text_never_depends_on_the_cut(text: str, stops: list[str], marks: list[int]) -> None:
    data = text.encode()
    whole = feed([bytes([byte]) for byte in data], tuple(stops))
    pieces = cut(data, marks)
    deltas, stopped = feed(pieces, tuple(stops))
    assert (text_of(deltas), stopped) == (text_of(whole[0]), whole[1])
    tokens = [token for delta in deltas for token in delta.token_ids]
    assert tokens == list(range(len(tokens)))
    if not stopped:
        assert text_of(deltas) == text and len(tokens) == len(pieces)


@given(st.lists(st.binary(max_size=5), max_size=12))
def test_any_bytes_give_what_a_whole_decoding_gives(pieces: list[bytes]) -> None:
    deltas, _ = feed(pieces)
    assert text_of(deltas) == b"".join(pieces).decode("utf-8", "replace")
    assert [token for delta in deltas for token in delta.token_ids] == list(range(len(pieces)))
