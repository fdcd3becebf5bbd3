"""POST /v1/chat/completions and /v1/completions: one way through, from the body to the last byte."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from aiohttp import web

from batchserve.http import errors
from batchserve.http.answers import admitted, collect, ended_well
from batchserve.http.keys import READINESS, REQUEST_ID, SETTINGS, UNKNOWN_FIELDS
from batchserve.http.model import check_model
from batchserve.http.parse import parse, read_object
from batchserve.http.prompts import Prompt, chat_prompts, completion_prompts
from batchserve.http.readiness import Serving
from batchserve.http.replies import UsageReply, json_response
from batchserve.http.requests import build_requests, check_options
from batchserve.http.schema import ChatBody, CompletionBody, GenerationBody
from batchserve.http.shapes import ChatShape, Head, ReplyOptions, Shape, TextShape
from batchserve.http.sse import DONE, HEADERS, ChoiceFrames, EventStream, event_stream, frame
from scheduler import TokenDelta, TokenStream, Usage

Body = TypeVar("Body", bound=GenerationBody)


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[Body]):
    """What differs between the two: the body, how prompts come out of it, and the wording of the reply."""

    body: type[Body]
    prompt_param: str
    read_prompts: Callable[[Serving, Body], Awaitable[list[Prompt]]]
    shape: Shape


CHAT = Endpoint(ChatBody, "messages", chat_prompts, ChatShape())
COMPLETION = Endpoint(CompletionBody, "prompt", completion_prompts, TextShape())


@dataclass(frozen=True, slots=True)
class Reply:
    """The choices being generated for one request, and how to word them."""

    streams: Sequence[TokenStream]
    n: int
    shape: Shape
    head: Head
    options: ReplyOptions

    def usage(self, usages: Sequence[Usage]) -> UsageReply:
        return UsageReply.of(usages, self.n)


async def chat_completions(request: web.Request) -> web.StreamResponse:
    """POST /v1/chat/completions."""
    return await _generate(request, CHAT)


async def completions(request: web.Request) -> web.StreamResponse:
    """POST /v1/completions."""
    return await _generate(request, COMPLETION)


async def _generate(request: web.Request, endpoint: Endpoint[Body]) -> web.StreamResponse:
    serving = request.app[READINESS].serving()
    body = parse(await read_object(request), endpoint.body, request.app[UNKNOWN_FIELDS])
    check_model(body.model, serving.model)
    check_options(body, serving.runner.core.limits.max_streams)
    prompts = await endpoint.read_prompts(serving, body)
    head = Head.new(endpoint.shape.id_prefix, serving.model.id)
    requests = build_requests(head.id, prompts, body, serving.model.n_vocab)
    options = ReplyOptions(token_ids=body.return_token_ids, usage=body.wants_usage)
    with admitted(serving.runner, requests, endpoint.prompt_param) as streams:
        reply = Reply(streams, body.n, endpoint.shape, head, options)
        return await (_stream(request, reply) if body.stream else _whole(reply))


async def _whole(reply: Reply) -> web.Response:
    answers = [await collect(stream) for stream in reply.streams]
    usage = reply.usage([answer.usage for answer in answers])
    whole = reply.shape.whole(reply.head, answers, usage, reply.options)
    return json_response(whole)


async def _stream(request: web.Request, reply: Reply) -> web.StreamResponse:
    response = web.StreamResponse(headers=HEADERS)
    with suppress(ConnectionError):  # the client is gone: nothing is left to say
        await response.prepare(request)
        with event_stream(response, request.app[SETTINGS].heartbeat_seconds) as events:
            end = await _send_reply(request, reply, events)
        await response.write_eof(end)
    return response


async def _send_reply(request: web.Request, reply: Reply, events: EventStream) -> bytes:
    """Send all choices as they come; returns the last events: usage and [DONE], or an error without it."""
    try:
        usages = await _send_choices(reply, events)
    except ConnectionError:
        raise
    except Exception as error:  # the status is out: what remains is an error event
        return frame(errors.translate(error, request, request[REQUEST_ID]).reply())
    if not reply.options.usage:
        return DONE
    return frame(reply.shape.usage(reply.head, reply.usage(usages))) + DONE


async def _send_choices(reply: Reply, events: EventStream) -> list[Usage]:
    frames = [ChoiceFrames(reply.shape, reply.head, i, reply.options) for i in range(len(reply.streams))]
    sending = [_send_choice(stream, choice, events) for stream, choice in zip(reply.streams, frames, strict=True)]
    if len(sending) == 1:
        return [await sending[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in sending]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


async def _send_choice(stream: TokenStream, frames: ChoiceFrames, events: EventStream) -> Usage:
    while isinstance(event := await stream.next(), TokenDelta):
        if data := frames.delta(event):
            await events.send(data)
    finished = ended_well(event)
    await events.send(frames.closing(finished.reason))
    return finished.usage
