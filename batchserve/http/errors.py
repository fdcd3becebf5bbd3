"""Every error a client can see, and how errors from below become one of them. docs/errors.md lists them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import Enum

import msgspec
from aiohttp import web

from batchserve.http.replies import json_response
from scheduler import (
    Draining,
    EngineError,
    PromptTooLong,
    QueueFull,
    RequestRejected,
    TooManySequences,
)

log = logging.getLogger("batchserve.http")

#: Seconds after which a client may try again, where nothing better is known.
RETRY_AFTER = 5


class Kind(Enum):
    """The `code` of an error, with its HTTP status and OpenAI `type`."""

    INVALID_UTF8 = ("invalid_utf8", 400, "invalid_request_error")
    INVALID_JSON = ("invalid_json", 400, "invalid_request_error")
    INVALID_TYPE = ("invalid_type", 400, "invalid_request_error")
    INVALID_VALUE = ("invalid_value", 400, "invalid_request_error")
    MISSING_PARAMETER = ("missing_required_parameter", 400, "invalid_request_error")
    UNSUPPORTED_VALUE = ("unsupported_value", 400, "invalid_request_error")
    TEMPLATE_FAILED = ("chat_template_error", 400, "invalid_request_error")
    CONTEXT_EXCEEDED = ("context_length_exceeded", 400, "invalid_request_error")
    BAD_REQUEST = ("bad_request", 400, "invalid_request_error")
    MODEL_NOT_FOUND = ("model_not_found", 404, "invalid_request_error")
    UNKNOWN_URL = ("unknown_url", 404, "invalid_request_error")
    METHOD_NOT_ALLOWED = ("method_not_allowed", 405, "invalid_request_error")
    BODY_TOO_LARGE = ("body_too_large", 413, "invalid_request_error")
    QUEUE_FULL = ("queue_full", 429, "rate_limit_error")
    MODEL_LOADING = ("model_loading", 503, "server_error")
    SERVER_DRAINING = ("server_draining", 503, "server_error")
    ENGINE_UNAVAILABLE = ("engine_unavailable", 503, "server_error")
    ENGINE_FAILED = ("engine_failed", 500, "server_error")
    INTERNAL = ("internal_error", 500, "server_error")

    def __init__(self, code: str, status: int, type: str) -> None:
        self.code = code
        self.status = status
        self.type = type

    @property
    def is_refusal(self) -> bool:
        """True when the request was not served at all, rather than failed."""
        return self.status != 500


class ErrorObject(msgspec.Struct, frozen=True):
    """OpenAI's error object."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorReply(msgspec.Struct, frozen=True):
    """The body of an error response, and the data of an error event."""

    error: ErrorObject


class ApiError(Exception):
    """An error with everything its response needs."""

    def __init__(
        self,
        kind: Kind,
        message: str,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.param = param
        self.headers = headers

    def reply(self) -> ErrorReply:
        return ErrorReply(ErrorObject(self.message, self.kind.type, self.param, self.kind.code))

    def response(self) -> web.Response:
        response = json_response(self.reply(), self.kind.status, self.headers)
        if self.kind is Kind.SERVER_DRAINING:
            response.force_close()
        return response


def draining() -> ApiError:
    """The server takes nothing new, or ended a request because it shuts down."""
    return ApiError(Kind.SERVER_DRAINING, "The server is shutting down.", headers=_retry_after())


def model_loading() -> ApiError:
    """Nothing can be served yet."""
    return ApiError(Kind.MODEL_LOADING, "The model is being loaded.", headers=_retry_after())


def engine_failed() -> ApiError:
    """This request was lost in the engine; another one may go well."""
    return ApiError(Kind.ENGINE_FAILED, "The model could not go on with this request.")


def engine_unavailable() -> ApiError:
    """There is no engine, and there will be none."""
    return ApiError(Kind.ENGINE_UNAVAILABLE, "The model is not available.")


def too_many_choices(wanted: int, limit: int, param: str) -> ApiError:
    """More choices than can ever run together; `param` is the field to make smaller."""
    message = f"{wanted} choices were asked for; this server runs {limit} streams."
    return ApiError(Kind.INVALID_VALUE, message, param)


def not_a_token(token: int | str, n_vocab: int, param: str) -> ApiError:
    """`token` is outside the vocabulary of `n_vocab` tokens."""
    message = f"{token!r} is not a token id of this model, whose vocabulary has {n_vocab} tokens."
    return ApiError(Kind.INVALID_VALUE, message, param)


def rejected(error: RequestRejected, prompt_param: str) -> ApiError:
    """The scheduler's refusal in OpenAI's words; `prompt_param` is the field that holds the prompt."""
    match error:
        case QueueFull():
            message = f"All streams are busy and {error.waiting} requests are waiting. Try again later."
            return ApiError(Kind.QUEUE_FULL, message, headers=_retry_after(error.retry_after))
        case PromptTooLong():
            message = (
                f"This model's maximum context length is {error.limit} tokens, one of them for the answer, "
                f"but the prompt has {error.tokens} tokens."
            )
            return ApiError(Kind.CONTEXT_EXCEEDED, message, prompt_param)
        case TooManySequences():
            return too_many_choices(error.wanted, error.limit, "n")
        case Draining():
            return draining()
    return ApiError(Kind.BAD_REQUEST, str(error))


def _retry_after(seconds: int = RETRY_AFTER) -> dict[str, str]:
    return {"Retry-After": str(seconds)}


def translate(error: Exception, request: web.BaseRequest, request_id: str) -> ApiError:
    """What the client is told about `error`. What it cannot do anything about is logged, not told."""
    match error:
        case ApiError():
            return error
        case web.HTTPException():
            return _from_http(error, request)
        case EngineError():
            log.error("request %s failed: %s", request_id, error)
            return engine_failed()
    log.error("request %s failed", request_id, exc_info=error)
    return ApiError(Kind.INTERNAL, f"Something went wrong in the server. The request's id is {request_id}.")


def _from_http(error: web.HTTPException, request: web.BaseRequest) -> ApiError:
    match error:
        case web.HTTPNotFound():
            return ApiError(Kind.UNKNOWN_URL, f"There is nothing at {request.method} {request.path}.")
        case web.HTTPMethodNotAllowed():
            allow = ", ".join(sorted(error.allowed_methods))
            message = f"{request.path} does not take {request.method}, only {allow}."
            return ApiError(Kind.METHOD_NOT_ALLOWED, message, headers={"Allow": allow})
        case web.HTTPRequestEntityTooLarge():
            return ApiError(Kind.BODY_TOO_LARGE, "The request body is too large.")
    return ApiError(Kind.BAD_REQUEST, error.reason)
