"""Request fields beyond those in `schema`: which are refused, which pass in silence, which get a warning."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from batchserve.http.errors import ApiError, Kind

log = logging.getLogger("batchserve.http")

#: Fields that would change the answer but are not supported, with the values (besides null) that ask for
#: nothing and so do no harm.
REFUSED: dict[str, tuple[object, ...]] = {
    "audio": (),
    "echo": (False,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "grammar": ("",),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "json_schema": (),
    "logprobs": (False,),
    "min_tokens": (0,),
    "modalities": (["text"],),
    "prediction": (),
    "prompt_logprobs": (),
    "response_format": ({"type": "text"},),
    "stop_token_ids": ([],),
    "structured_outputs": (),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "truncate_prompt_tokens": (),
    "use_beam_search": (False,),
    "web_search_options": (),
}

#: Fields that change nothing here and nothing the client would miss.
SILENT = frozenset(
    {
        "metadata",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    }
)


def refuse_unsupported(body: Mapping[str, object]) -> None:
    """Raises ApiError for the first field in REFUSED with a value that asks for something."""
    for name in REFUSED.keys() & body.keys():
        if not _is_neutral(body[name], REFUSED[name]):
            raise ApiError(Kind.UNSUPPORTED_VALUE, f"This value of `{name}` is not supported.", name)


def _is_neutral(value: object, neutral: Iterable[object]) -> bool:
    # `0 == False` must not make `"logprobs": 0`, which asks for the sampled token's, a neutral value.
    return value is None or any(type(value) is type(other) and value == other for other in neutral)


class UnknownFields:
    """Warns once per field name that nobody here knows; remembers a bounded number of names."""

    MAX_NAMES = 256
    MAX_LENGTH = 64

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def note(self, names: Iterable[str]) -> None:
        """Warn about those of `names` that are new."""
        for name in names:
            short = name[: self.MAX_LENGTH]
            if short not in self._seen and len(self._seen) < self.MAX_NAMES:
                self._seen.add(short)
                log.warning("the unknown request field %r is ignored", short)
