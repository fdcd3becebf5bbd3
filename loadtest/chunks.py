"""The JSON of an OpenAI-compatible stream, as far as it is read.

Wrong types are malformed; unknown fields are ignored.
"""

import msgspec


class Delta(msgspec.Struct):
    """The part of a chat chunk that is read."""

    content: str | None = None
    reasoning_content: str | None = None


class TokenLogprob(msgspec.Struct):
    """One token as llama-server describes it; servers that leave the id out give no ids this way."""

    id: int | None = None


class Logprobs(msgspec.Struct):
    """The logprobs of a chunk. Completions of other servers have other fields here; they are not read."""

    content: list[TokenLogprob] | None = None


class Choice(msgspec.Struct):
    """One choice of a chunk; chat carries `delta`, completions carry `text`."""

    index: int = 0
    text: str | None = None
    delta: Delta | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    logprobs: Logprobs | None = None

    @property
    def ids(self) -> list[int] | None:
        """The chunk's token ids, wherever the server put them."""
        if self.token_ids is not None or self.logprobs is None or self.logprobs.content is None:
            return self.token_ids
        ids = [token.id for token in self.logprobs.content if token.id is not None]
        return ids if len(ids) == len(self.logprobs.content) else None

    @property
    def content(self) -> str:
        if self.delta is None:
            return self.text or ""
        return (self.delta.reasoning_content or "") + (self.delta.content or "")

    @property
    def num_tokens(self) -> int:
        """Tokens this chunk carries; a chunk of text without ids counts as one."""
        return bool(self.content) if (ids := self.ids) is None else len(ids)


class Usage(msgspec.Struct):
    """Token counts as the server states them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


class ApiError(msgspec.Struct):
    """An OpenAI error object."""

    message: str = ""
    type: str | None = None
    code: str | int | None = None


class Chunk(msgspec.Struct):
    """One SSE event of an OpenAI-compatible stream."""

    choices: list[Choice] = []
    usage: Usage | None = None
    error: ApiError | str | None = None


class ErrorBody(msgspec.Struct):
    """The body of a refusal."""

    error: ApiError | str


def refusal(status: int, body: bytes) -> str:
    """Status and error code of a refusal, for example ``429 queue_full``."""
    try:
        error = msgspec.json.decode(body, type=ErrorBody).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return str(status)
    return f"{status} {error_code(error)}"


def error_code(error: ApiError | str) -> str:
    """The code of an error, or whatever else names its kind."""
    return "unknown" if isinstance(error, str) else str(error.code or error.type or "unknown")
