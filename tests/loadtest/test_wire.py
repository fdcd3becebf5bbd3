"""The client on a real socket: what it records, and every way in which a server can let it down."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from loadtest.decode import decode
from loadtest.errors import ConfigError
from loadtest.outcome import Outcome
from loadtest.wire import Fault, Recording, Target, exchange

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
EVENT = b'data: {"choices": [{"index": 0, "text": " a", "token_ids": [7]}]}\n\n'
LAST = b'data: {"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@asynccontextmanager
async def raw_server(*writes: bytes, hang: bool = False) -> AsyncIterator[Target]:
    """Writes exactly these bytes, a moment apart, after the request head has come."""

    over = asyncio.Event()
    over.set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        over.clear()
        with suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            for data in writes:
                writer.write(data)
                await writer.drain()
                await asyncio.sleep(0.002)
            if hang:
                await reader.read()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        over.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield Target.parse(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        await over.wait()


async def ask(target: Target, timeout_s: float = 5.0) -> tuple[Recording, Outcome]:
    recording = await exchange(target, "POST", "/v1/completions", b"{}", timeout_s=timeout_s)
    return recording, decode(recording, recording.started_at)


async def outcome_of(*writes: bytes) -> Outcome:
    async with raw_server(*writes) as target:
        return (await ask(target))[1]


async def test_a_chunked_stream_ends_at_its_last_chunk_though_the_connection_stays_open() -> None:
    body = chunk(EVENT) + chunk(LAST) + chunk(DONE) + b"0\r\n\r\n"
    async with raw_server(CHUNKED + body, hang=True) as target:
        recording, outcome = await ask(target)
    assert outcome.ok
    assert outcome.choices[0].token_ids == (7,)
    assert recording.ended_at - recording.started_at < 2


async def test_framing_may_be_split_at_any_byte() -> None:
    body = CHUNKED + chunk(EVENT) + chunk(LAST + DONE) + b"0\r\n\r\n"
    for size in (1, 3, 7, 50):
        writes = [body[i : i + size] for i in range(0, len(body), size)]
        joined = [b"".join(writes[:-3]), *writes[-3:]] if size < 7 else writes
        outcome = await outcome_of(*joined)
        assert outcome.ok, size
        assert outcome.choices[0].text == " a"


async def test_content_length_ends_an_answer() -> None:
    body = EVENT + LAST + DONE
    head = HEAD + b"Content-Length: %d\r\n\r\n" % len(body)
    async with raw_server(head + body, hang=True) as target:
        assert (await ask(target))[1].ok


async def test_end_of_file_ends_an_answer_without_framing() -> None:
    assert (await outcome_of(HEAD + b"\r\n", EVENT, LAST, DONE)).ok


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
async def test_both_line_ends_and_comments(line_end: bytes) -> None:
    body = (b": waiting\n\n" + EVENT + b"event: x\n" + LAST + DONE).replace(b"\n", line_end)
    assert (await outcome_of(HEAD + b"\r\n", body)).ok


async def test_nobody_listens() -> None:
    async with raw_server() as target:
        pass
    outcome = (await ask(target))[1]
    assert outcome.fault is Fault.CONNECTION_REFUSED
    assert outcome.reason == "connection refused"


async def test_a_name_that_does_not_exist_is_unreachable() -> None:
    outcome = (await ask(Target.parse("http://no-such-host.invalid:1")))[1]
    assert outcome.fault is Fault.UNREACHABLE


async def test_a_server_that_never_answers_times_out() -> None:
    async with raw_server(hang=True) as target:
        outcome = (await ask(target, timeout_s=0.1))[1]
    assert outcome.fault is Fault.TIMED_OUT


async def test_a_stream_that_stalls_times_out_and_keeps_what_came() -> None:
    async with raw_server(CHUNKED + chunk(EVENT), hang=True) as target:
        outcome = (await ask(target, timeout_s=0.2))[1]
    assert outcome.fault is Fault.TIMED_OUT
    assert len(outcome.arrivals_s) == 1


@pytest.mark.parametrize(
    ("writes", "fault"),
    [
        ([b""], Fault.CUT_OFF),
        ([CHUNKED], Fault.CUT_OFF),
        ([CHUNKED + chunk(EVENT)], Fault.CUT_OFF),
        ([CHUNKED + chunk(EVENT)[:-9]], Fault.CUT_OFF),
        ([CHUNKED + chunk(EVENT + LAST)], Fault.CUT_OFF),
        ([CHUNKED + b"zz\r\nno chunk\r\n"], Fault.CUT_OFF),
        ([HEAD + b"\r\n", EVENT], Fault.CUT_OFF),
        ([b"SSH-2.0-hello\r\n\r\n"], Fault.MALFORMED),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"], Fault.MALFORMED),
        ([HEAD + b"\r\n", b"data: {broken\n\n", DONE], Fault.MALFORMED),
        ([HEAD + b"\r\n", b'data: {"choices": 5}\n\n', DONE], Fault.MALFORMED),
        ([HEAD + b"\r\n", b"data: \xff\xfe\n\n", DONE], Fault.MALFORMED),
        ([HEAD + b"\r\n", b'data: {"error": {"message": "x", "code": "oops"}}\n\n'], Fault.ERROR_EVENT),
        ([HEAD + b"\r\n", b'data: {"error": "plain words"}\n\n', DONE], Fault.ERROR_EVENT),
        ([HEAD + b"\r\n", LAST, DONE], Fault.NO_TOKENS),
    ],
)
async def test_every_failure_has_a_name(writes: list[bytes], fault: Fault) -> None:
    assert (await outcome_of(*writes)).fault is fault


async def test_a_refusal_is_named_by_status_and_code() -> None:
    body = b'{"error": {"message": "full", "type": "x", "param": null, "code": "queue_full"}}'
    head = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: %d\r\n\r\n" % len(body)
    assert (await outcome_of(head + body)).reason == "http 429 queue_full"
    assert (await outcome_of(b"HTTP/1.1 502 Bad Gateway\r\n\r\n<html>")).reason == "http 502"


async def test_an_event_with_several_tokens_is_one_arrival() -> None:
    event = b'data: {"choices": [{"index": 0, "text": " a b", "token_ids": [7, 8]}]}\n\n'
    outcome = await outcome_of(HEAD + b"\r\n", event, LAST, DONE)
    assert outcome.token_counts == (2,)
    assert outcome.num_tokens == 2


async def test_ids_inside_logprobs_are_read() -> None:
    event = b'data: {"choices": [{"index": 0, "text": " a", "logprobs": {"content": [{"id": 9}]}}]}\n\n'
    assert (await outcome_of(HEAD + b"\r\n", event, LAST, DONE)).choices[0].token_ids == (9,)


async def test_one_chunk_of_text_without_ids_makes_all_ids_untrustworthy() -> None:
    bare = b'data: {"choices": [{"index": 0, "text": " b"}]}\n\n'
    assert (await outcome_of(HEAD + b"\r\n", EVENT, bare, LAST, DONE)).choices[0].token_ids is None


async def test_choices_of_one_request_are_kept_apart() -> None:
    other = EVENT.replace(b'"index": 0', b'"index": 1').replace(b"[7]", b"[8]")
    last = LAST.replace(b'"index": 0', b'"index": 1')
    outcome = await outcome_of(HEAD + b"\r\n", other, EVENT, LAST, last, DONE)
    assert [choice.token_ids for choice in outcome.choices] == [(7,), (8,)]


def test_addresses() -> None:
    assert Target.parse("http://h:1/v1/") == Target("h", 1, False, "")
    assert Target.parse("https://h/api/v1") == Target("h", 443, True, "/api")
    for bad in ("h:1", "ftp://h", "http://h:x", ""):
        with pytest.raises(ConfigError):
            Target.parse(bad)


def test_the_head_carries_the_key_and_the_prefix() -> None:
    head = Target.parse("http://h:1/api", "secret").head("POST", "/v1/completions", 2)
    assert head.startswith(b"POST /api/v1/completions HTTP/1.1\r\nHost: h:1\r\n")
    assert b"Authorization: Bearer secret\r\n" in head
