"""Whatever a body holds, it is either understood or refused in words: never a bug."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from batchserve.http.errors import ApiError
from batchserve.http.fields import REFUSED, UnknownFields
from batchserve.http.parse import decode_object, parse
from batchserve.http.requests import build_requests, check_options
from batchserve.http.schema import ChatBody, CompletionBody, GenerationBody

NAMES = sorted({*CompletionBody.__struct_fields__, *ChatBody.__struct_fields__, *REFUSED, "unknown"})

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "0", "5", "text", "user", "\x00", "é"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "type", "text", "5", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
GOOD = {"messages": [{"role": "user", "content": "hi"}], "prompt": "hi"}


@given(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4))
def test_any_object(fields: dict[str, object]) -> None:
    for kind in (ChatBody, CompletionBody):
        with suppress(ApiError):
            body = parse(GOOD | fields, kind, UnknownFields())
            check_options(body, max_streams=4)
            check_requests(body)


def check_requests(body: GenerationBody) -> None:
    requests = build_requests("id", [(1, 2)] * body.num_prompts, body, n_vocab=64)
    assert len({request.id for request in requests}) == body.n * body.num_prompts <= 4
    for request in requests:
        assert 0 <= request.sampling.seed < 2**32 - 1
        assert request.sampling.top_k >= 0
        assert all(request.stop)


@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_any_bytes(data: bytes) -> None:
    with suppress(ApiError):
        assert isinstance(decode_object(data), dict)
