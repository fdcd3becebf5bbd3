"""Requests: from prompts to HTTP bodies, or whole from a file."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import msgspec

from loadtest.errors import ConfigError
from loadtest.prompts import Workload, make_budgets, make_prompts

_NOT_THE_PROMPT = ("model", "return_token_ids", "logprobs", "top_logprobs")


class Endpoint(StrEnum):
    """Which API is driven."""

    CHAT = "chat"
    COMPLETIONS = "completions"

    @property
    def path(self) -> str:
        return "/v1/chat/completions" if self is Endpoint.CHAT else "/v1/completions"


class IdSource(StrEnum):
    """How token ids are asked for."""

    TOKEN_IDS = "token-ids"
    """The field `return_token_ids`."""
    LOGPROBS = "logprobs"
    """Ids inside logprobs, as llama-server gives them; it costs that server time, so not for speed."""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request, ready to send."""

    path: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Sampling:
    """Temperature 0 is greedy; else stream `i` of a cohort samples with `seed + i`."""

    temperature: float = 0.0
    seed: int = 0

    def describe(self) -> str:
        """In words, for reports."""
        greedy = self.temperature == 0
        return "greedy" if greedy else f"temperature {self.temperature} with seeds from {self.seed}"

    def fields(self, stream: int) -> dict[str, Any]:
        if self.temperature == 0:
            return {"temperature": 0}
        return {"temperature": self.temperature, "seed": self.seed + stream}


@dataclass(frozen=True, slots=True)
class Shape:
    """What the requests of a run have in common. Prompt length is in words, about one token each."""

    model: str
    endpoint: Endpoint = Endpoint.CHAT
    workload: Workload = Workload.DISTINCT
    prompt_words: int = 50
    max_tokens: int = 64
    sampling: Sampling = Sampling()
    seed: int = 0
    """Of the prompts."""
    ids: IdSource = IdSource.TOKEN_IDS

    def requests(self, count: int) -> tuple[Request, ...]:
        """`count` requests; the same for the same shape and count, on every machine."""
        prompts = make_prompts(self.workload, count, self.prompt_words, self.seed)
        budgets = make_budgets(self.workload, count, self.max_tokens)
        return tuple(self.request(i, p, b) for i, (p, b) in enumerate(zip(prompts, budgets, strict=True)))

    def request(self, stream: int, prompt: str, max_tokens: int) -> Request:
        """The request of one stream. The end-of-text token is ignored, so that token counts are equal."""
        fields = {"max_tokens": max_tokens, "ignore_eos": True, **self.sampling.fields(stream)}
        if self.endpoint is Endpoint.CHAT:
            fields["messages"] = [{"role": "user", "content": prompt}]
        else:
            fields["prompt"] = prompt
        return self.from_fields(self.endpoint, fields)

    def from_fields(self, endpoint: Endpoint, fields: Mapping[str, Any]) -> Request:
        """A streaming request that asks for usage and token ids; `fields` win over other defaults."""
        forced = {"stream": True, "stream_options": {"include_usage": True}, **self._id_fields(endpoint)}
        return Request(endpoint.path, msgspec.json.encode({"model": self.model, **fields, **forced}))

    def _id_fields(self, endpoint: Endpoint) -> dict[str, Any]:
        if self.ids is IdSource.TOKEN_IDS:
            return {"return_token_ids": True}
        return {"logprobs": True, "top_logprobs": 1} if endpoint is Endpoint.CHAT else {"logprobs": 1}


def digest(requests: Iterable[Request]) -> str:
    """SHA-256 of the requests, less the model's name and the way ids are asked for: servers differ there."""
    sha = hashlib.sha256()
    for request in requests:
        fields = msgspec.json.decode(request.body, type=dict[str, Any])
        for name in _NOT_THE_PROMPT:
            fields.pop(name, None)
        sha.update(request.path.encode() + msgspec.json.encode(fields, order="sorted"))
    return sha.hexdigest()


def read_requests(path: Path, shape: Shape) -> tuple[Request, ...]:
    """Prompts from a text file, one a line, or whole requests from a ``.jsonl`` file.

    Raises ConfigError for a file that cannot be read, is empty, or has a line that is no JSON object.
    """
    lines = read_lines(path)
    if path.suffix == ".jsonl":
        return tuple(_whole_request(line, path, number, shape) for number, line in enumerate(lines, 1))
    return tuple(shape.request(i, line, shape.max_tokens) for i, line in enumerate(lines))


def read_lines(path: Path) -> list[str]:
    """The lines of a text file that are not blank; ConfigError when there are none."""
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    if not lines:
        raise ConfigError(f"nothing in {path}")
    return lines


def _whole_request(line: str, path: Path, number: int, shape: Shape) -> Request:
    try:
        fields = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path}, request {number}: {error}") from error
    endpoint = Endpoint.CHAT if "messages" in fields else Endpoint.COMPLETIONS
    return shape.from_fields(endpoint, fields)


def repeat(requests: Sequence[Request], count: int) -> tuple[Request, ...]:
    """Exactly `count` requests: the first ones, or all of them over and over."""
    return tuple(islice(cycle(requests), count))
