"""Around every request: an id, and an OpenAI error object for whatever goes wrong."""

from __future__ import annotations

import re
import uuid

from aiohttp import web
from aiohttp.typedefs import Handler

from batchserve.http import errors
from batchserve.http.keys import METRICS, REQUEST_ID

HEADER = "X-Request-ID"

_ACCEPTABLE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,126}[\x21-\x7e])?")


def request_id(given: str | None) -> str:
    """The client's own id if it is printable ASCII of up to 128 characters, else a new one."""
    return given if given and _ACCEPTABLE.fullmatch(given) else uuid.uuid4().hex


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Run `handler`; what it raises becomes an error reply."""
    request[REQUEST_ID] = request_id(request.headers.get(HEADER))
    try:
        return await handler(request)
    except Exception as error:
        answer = errors.translate(error, request, request[REQUEST_ID])
        if answer.kind.is_refusal:
            request.app[METRICS].on_rejected(answer.kind.code)
        return answer.response()


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Signal before the headers go out: the request's id, and no version numbers."""
    response.headers["Server"] = "batchserve"
    if REQUEST_ID in request:
        response.headers[HEADER] = request[REQUEST_ID]
