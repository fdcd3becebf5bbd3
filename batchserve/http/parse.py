"""From bytes to a checked request body; every complaint names the field, or the place in the JSON."""

from __future__ import annotations

import re
from functools import cache
from typing import TypeVar

import msgspec
import orjson
from aiohttp import web

from batchserve.http.errors import ApiError, Kind
from batchserve.http.fields import REFUSED, SILENT, UnknownFields, refuse_unsupported

Body = TypeVar("Body", bound=msgspec.Struct)
JsonObject = dict[str, object]

_COMPLAINT = re.compile(r"(?P<what>.*?)(?: - at `(?:key in )?\$(?P<path>.*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")


async def read_object(request: web.Request) -> JsonObject:
    """The request's body as a JSON object, whatever its Content-Type says.

    Raises:
        ApiError: it is too large, or not a JSON object.
    """
    limit = request.client_max_size
    too_large = ApiError(Kind.BODY_TOO_LARGE, f"The request body is larger than the limit of {limit} bytes.")
    if (request.content_length or 0) > limit:
        raise too_large
    try:
        return decode_object(await request.read())
    except web.HTTPRequestEntityTooLarge:
        raise too_large from None
    except web.RequestPayloadError as error:
        raise ApiError(Kind.BAD_REQUEST, f"The request body cannot be read: {error}") from None


def decode_object(data: bytes) -> JsonObject:
    """Decode a JSON object.

    Raises:
        ApiError: it is not one, and where it stops being one.
    """
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise _not_json(data, error) from None
    if not isinstance(body, dict):
        raise ApiError(Kind.INVALID_TYPE, "The request body must be a JSON object.")
    return body


def _not_json(data: bytes, error: orjson.JSONDecodeError) -> ApiError:
    try:
        data.decode()
    except UnicodeDecodeError as bad:
        message = f"The request body is not UTF-8: {bad.reason} at byte {bad.start}."
        return ApiError(Kind.INVALID_UTF8, message)
    return ApiError(Kind.INVALID_JSON, f"The request body is not JSON: {error}.")


def parse(body: JsonObject, kind: type[Body], unknown: UnknownFields) -> Body:
    """Check `body` against `kind`.

    Raises:
        ApiError: a field is missing, of the wrong type, out of bounds or not supported.
    """
    known = _known_fields(kind)
    refuse_unsupported(body)
    unknown.note(body.keys() - known - REFUSED.keys() - SILENT)
    given = {name: value for name, value in body.items() if value is not None}
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from None


@cache
def _known_fields(kind: type[msgspec.Struct]) -> frozenset[str]:
    return frozenset(field.name for field in msgspec.structs.fields(kind))


def _invalid(complaint: str) -> ApiError:
    match = _COMPLAINT.fullmatch(complaint)
    assert match is not None
    what = match["what"]
    param = (match["path"] or "").replace("[...]", "").removeprefix(".")
    if missing := _MISSING.fullmatch(what):
        param = f"{param}.{missing[1]}".removeprefix(".")
        return ApiError(Kind.MISSING_PARAMETER, f"Missing required parameter: `{param}`.", param)
    kind = Kind.INVALID_TYPE if ", got " in what else Kind.INVALID_VALUE
    return ApiError(kind, f"Invalid value for `{param}`: {what[0].lower()}{what[1:]}.", param)
