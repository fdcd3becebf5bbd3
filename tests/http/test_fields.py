"""Fields that are served, let through, or ignored."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler import SamplingParams
from scheduler.testing import FakeEngine
from tests.http.harness import serving


async def sampling(*, n: int = 1, **fields: object) -> list[SamplingParams]:
    """What the engine is told about a request with these fields."""
    engine = FakeEngine()
    async with serving(engine) as server:
        reply = await server.complete(n=n, max_tokens=1, **fields)
        assert reply.status == 200, reply.text
    return [opening.sampling for plan in engine.plans for opening in plan.opens]


async def test_every_sampling_field_reaches_the_engine() -> None:
    fields: dict[str, Any] = {
        "temperature": 0.5,
        "top_k": 40,
        "top_p": 0.9,
        "min_p": 0.05,
        "typical_p": 0.8,
        "repetition_penalty": 1.1,
        "frequency_penalty": -0.5,
        "presence_penalty": 2,
        "seed": 42,
    }
    assert await sampling(**fields, logit_bias={"5": -100, "7": 2.5}) == [
        SamplingParams(**fields, logit_bias=((5, -100.0), (7, 2.5)))
    ]


async def test_defaults() -> None:
    (params,) = await sampling(seed=0)
    assert params == SamplingParams(temperature=1.0, seed=0)
    assert await sampling(seed=0, temperature=None, top_p=None, stop=None, n=1, logit_bias=None) == [params]


@pytest.mark.parametrize("top_k", [-1, 0])
async def test_top_k_off(top_k: int) -> None:
    (params,) = await sampling(top_k=top_k)
    assert params.top_k == 0


@pytest.mark.parametrize(
    ("seed", "seeds"),
    [
        (0, [0, 1, 2]),
        (2**32 - 3, [2**32 - 3, 2**32 - 2, 0]),  # 2**32 - 1 means "random" to llama.cpp
        (2**32 - 1, [0, 1, 2]),
        (-1, [2**32 - 2, 0, 1]),
        (2**63 - 1, [(2**63 - 1) % (2**32 - 1) + i for i in range(3)]),
    ],
)
async def test_seeds(seed: int, seeds: list[int]) -> None:
    assert [params.seed for params in await sampling(seed=seed, n=3)] == seeds


async def test_without_a_seed_every_request_has_its_own() -> None:
    drawn = {params.seed for _ in range(3) for params in await sampling()}
    assert len(drawn) == 3
    assert all(0 <= seed < 2**32 - 1 for seed in drawn)


NEUTRAL: dict[str, Any] = {
    "logprobs": False,
    "top_logprobs": 0,
    "echo": False,
    "suffix": "",
    "tools": [],
    "tool_choice": "auto",
    "functions": [],
    "response_format": {"type": "text"},
    "modalities": ["text"],
    "best_of": 1,
    "min_tokens": 0,
    "grammar": None,
    "audio": None,
    "user": "someone",
    "metadata": {"a": "b"},
    "store": True,
    "service_tier": "auto",
    "parallel_tool_calls": False,
}


async def test_neutral_and_harmless_fields_pass_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as server:
        assert (await server.complete(max_tokens=1, **NEUTRAL)).status == 200
        chat = {name: value for name, value in NEUTRAL.items() if name != "best_of"}
        assert (await server.chat(max_tokens=1, **chat)).status == 200
    assert caplog.text == ""


async def test_unknown_fields_are_ignored_with_one_warning_each(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as server:
        for _ in range(2):
            reply = await server.complete(max_tokens=1, no_stop_trim=True, skip_special_tokens=1)
            assert reply.status == 200
        await server.complete(max_tokens=1, **{"new\nline" + "x" * 100: 1})
    assert sorted(record.getMessage() for record in caplog.records) == [
        f"the unknown request field {('new' + chr(10) + 'line' + 'x' * 56)!r} is ignored",
        "the unknown request field 'no_stop_trim' is ignored",
        "the unknown request field 'skip_special_tokens' is ignored",
    ]


async def test_the_number_of_remembered_names_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as server:
        for start in range(0, 600, 100):
            await server.complete(max_tokens=1, **{f"field{number}": 1 for number in range(start, start + 100)})
    assert len(caplog.records) == 256
