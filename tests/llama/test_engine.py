"""The engine on the real model: the same tokens, bit for bit the same logits, alone and in a crowd."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from batchserve.llama.bindings import lib
from batchserve.llama.engine import LlamaEngine
from batchserve.llama.model import LoadedModel
from scheduler import (
    Chunk,
    Core,
    Failed,
    Finished,
    Limits,
    Move,
    Opening,
    Request,
    SamplingParams,
    StepKind,
    StepPlan,
    TokenDelta,
)
from tests.llama.driver import Recorder, run_step, serve

pytestmark = pytest.mark.model

GREEDY = SamplingParams(temperature=0)
TEXTS = [
    "Once upon a time",
    "The capital of France is",
    "Water boils when",
    "def fibonacci(n):",
    "In the year 1850, the city of London",
    "My favourite food is",
    "The three primary colours are red,",
    "A short list of animals:" + " cat, dog, horse," * 40,
]


@pytest.fixture
def engine(smollm2: LoadedModel) -> Iterator[LlamaEngine]:
    made = LlamaEngine(smollm2)
    yield made
    made.close()


@pytest.fixture(scope="module")
def prompts(smollm2: LoadedModel) -> list[tuple[int, ...]]:
    return [tuple(smollm2.vocab.tokenize(text, add_special=True)) for text in TEXTS]


def make(prompts: list[tuple[int, ...]], sampling: SamplingParams, count: int = 8) -> list[Request]:
    return [
        Request(str(index), prompt, replace(sampling, seed=index), 12 + 3 * index, ignore_eos=True)
        for index, prompt in enumerate(prompts[:count])
    ]


SAMPLINGS = {
    "greedy": GREEDY,
    "sampled": SamplingParams(),
    "filtered": SamplingParams(temperature=0.8, top_k=40, top_p=0.9, min_p=0.05, typical_p=0.95),
    "penalised": SamplingParams(
        temperature=0.7,
        repetition_penalty=1.2,
        frequency_penalty=0.5,
        presence_penalty=0.3,
        logit_bias=((28, 1.5),),
    ),
}


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_cohorts_get_the_bits_of_solo_runs(
    smollm2: LoadedModel, prompts: list[tuple[int, ...]], sampling: SamplingParams
) -> None:
    requests = make(prompts, sampling)
    alone = [serve(smollm2, [request]) for request in requests]
    for cohort in (2, 4, 8):
        tokens, logits = serve(smollm2, requests[:cohort])
        for index in range(cohort):
            assert tokens[str(index)] == alone[index][0][str(index)]
            assert logits[str(index)] == alone[index][1][str(index)]


def test_order_joins_and_cancels_change_nothing(smollm2: LoadedModel, prompts: list[tuple[int, ...]]) -> None:
    requests = make(prompts, GREEDY)
    expected, bits = serve(smollm2, requests)
    backwards, back_bits = serve(smollm2, requests[::-1], join_every=2)
    assert backwards == expected and back_bits == bits
    cancelled, cancel_bits = serve(smollm2, requests, join_every=3, cancel_at={17: "2", 30: "0"})
    for request in requests:
        count = len(cancelled[request.id])
        assert cancelled[request.id] == expected[request.id][:count]
        assert cancel_bits[request.id][:count] == bits[request.id][:count]
        assert count == len(expected[request.id]) or request.id in {"0", "2"}


def test_solo_greedy_equals_plain_llama_cpp(smollm2: LoadedModel, prompts: list[tuple[int, ...]]) -> None:
    """A loop of its own over llama.cpp's convenience batch, in a context of one sequence."""
    ctx = lib.llama_init_from_model(smollm2.model, smollm2.kernels.context_params(1, 1024, 1024))
    try:
        for index, prompt in enumerate(prompts):
            lib.llama_memory_clear(lib.llama_get_memory(ctx), True)
            plain = _plain_greedy(ctx, prompt, 40, smollm2.vocab.size)
            request = Request("a", prompt, GREEDY, 40, ignore_eos=True)
            assert serve(smollm2, [request])[0]["a"] == plain, TEXTS[index]
    finally:
        lib.llama_free(ctx)


def _plain_greedy(ctx: object, prompt: Sequence[int], count: int, num_tokens: int) -> list[int]:
    generated: list[int] = []
    feed = list(prompt)
    for _ in range(count):
        array = (lib.llama_token * len(feed))(*feed)
        assert lib.llama_decode(ctx, lib.llama_batch_get_one(array, len(feed))) == 0
        logits = np.ctypeslib.as_array(lib.llama_get_logits_ith(ctx, -1), (num_tokens,))
        generated.append(int(logits.argmax()))
        feed = generated[-1:]
    return generated


def test_seeds_differ_and_repeat(smollm2: LoadedModel, prompts: list[tuple[int, ...]]) -> None:
    def run(seed: int) -> list[int]:
        request = Request("a", prompts[0], SamplingParams(seed=seed), 20, ignore_eos=True)
        return serve(smollm2, [request])[0]["a"]

    assert run(0) == run(0) and run(7) == run(7)
    assert run(0) != run(7)


def test_moved_rows_are_the_same_rows(smollm2: LoadedModel, prompts: list[tuple[int, ...]]) -> None:
    """Two sequences change places; each goes on with the bits it would have had."""
    bits = []
    for moves in ((), (Move(0, 1), Move(1, 0))):
        engine = Recorder(smollm2)
        chunks = [Chunk(handle, handle, 0, prompts[handle], True) for handle in (0, 1)]
        opens = tuple(Opening(handle, GREEDY, prompts[handle]) for handle in (0, 1))
        engine.execute(StepPlan(StepKind.PREFILL, tuple(chunks), opens=opens))
        slots = (1, 0) if moves else (0, 1)
        rows = [Chunk(handle, slots[handle], len(prompts[handle]), (42,), True) for handle in (0, 1)]
        engine.execute(StepPlan(StepKind.DECODE, tuple(sorted(rows, key=lambda row: row.slot)), moves=moves))
        bits.append(engine.logits)
    assert bits[0] == bits[1]


def test_a_bias_decides_and_a_ban_holds(smollm2: LoadedModel, prompts: list[tuple[int, ...]]) -> None:
    free = serve(smollm2, [Request("a", prompts[0], GREEDY, 8, ignore_eos=True)])[0]["a"]
    banned = replace(GREEDY, logit_bias=((free[0], -100.0),))
    without = serve(smollm2, [Request("a", prompts[0], banned, 8, ignore_eos=True)])[0]["a"]
    forced = replace(GREEDY, logit_bias=((1234, 100.0),))
    assert without[0] != free[0]
    assert serve(smollm2, [Request("a", prompts[0], forced, 3, ignore_eos=True)])[0]["a"] == [1234] * 3


def test_a_batch_that_llama_cpp_refuses_leaves_the_neighbours_alone(
    engine: LlamaEngine, smollm2: LoadedModel, prompts: list[tuple[int, ...]]
) -> None:
    """A token id outside the vocabulary makes llama_decode return -1; the good chunk of the same call is served."""
    bad = (1, smollm2.vocab.size + 5, 3, 4)
    plan = StepPlan(
        StepKind.PREFILL,
        (Chunk(0, 0, 0, bad, True), Chunk(1, 1, 0, prompts[0], True)),
        opens=(Opening(0, GREEDY, bad), Opening(1, GREEDY, prompts[0])),
    )
    result = engine.execute(plan)
    assert result.failures == ((0, "llama_decode refused the batch as invalid"),)
    alone = serve(smollm2, [Request("a", prompts[0], GREEDY, 1, ignore_eos=True)])[0]["a"]
    assert result.sampled == ((1, alone[0]),)


def test_one_invalid_row_in_a_cohort_ends_one_request(smollm2: LoadedModel, prompts: list[tuple[int, ...]]) -> None:
    core = Core(Limits(4, 4, 512, 64), smollm2.vocab)
    engine = LlamaEngine(smollm2)
    core.submit([Request(str(index), prompts[index], GREEDY, 10, ignore_eos=True) for index in range(3)], 0)
    while len(core._slots.running) < 3 or any(s.state != "decode" for s in core._slots.running):
        plan = core.plan(0)
        assert plan is not None
        core.apply(engine.execute(plan), 0)
    victim = core._live["1"]
    victim.generated[-1] = smollm2.vocab.size + 1
    ended = {}
    while not core.is_idle:
        plan = core.plan(0)
        assert plan is not None
        events = run_step(core, engine, plan, 0)
        ended.update({name: type(event) for name, event in events if not isinstance(event, TokenDelta)})
    assert ended == {"0": Finished, "1": Failed, "2": Finished}
    engine.close()


@pytest.mark.parametrize("code", [1, 2, -1, -3])
def test_a_failing_decode_call_is_tried_again_and_changes_no_token(
    smollm2: LoadedModel, prompts: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The fifth call writes its rows and then reports `code`: they are taken back, and each sequence goes on."""
    requests = make(prompts, GREEDY, 3)
    expected, bits = serve(smollm2, requests)
    calls = []

    def decode(ctx: object, batch: object) -> int:
        calls.append(batch)
        real = plain_decode(ctx, batch)
        return code if len(calls) == 5 else real

    plain_decode = lib.llama_decode
    monkeypatch.setattr(lib, "llama_decode", decode)
    assert serve(smollm2, requests) == (expected, bits)


@pytest.mark.parametrize("temperature", [1e-5, 1e-6, 6e-38, 1e-40, 1e-320])
@pytest.mark.parametrize("top_k", [0, 40])
def test_a_tiny_temperature_is_greedy(
    smollm2: LoadedModel, prompts: list[tuple[int, ...]], temperature: float, top_k: int
) -> None:
    def run(sampling: SamplingParams) -> list[int]:
        return serve(smollm2, [Request("a", prompts[0], sampling, 6, ignore_eos=True)])[0]["a"]

    assert run(SamplingParams(temperature=temperature, top_k=top_k, seed=1)) == run(GREEDY)


@pytest.mark.parametrize("penalty", [0.01, 100.0])
def test_the_extreme_penalties_still_choose_by_logits(
    smollm2: LoadedModel, prompts: list[tuple[int, ...]], penalty: float
) -> None:
    """Overflow in the chain showed as the last id of the vocabulary."""
    params = SamplingParams(repetition_penalty=penalty, frequency_penalty=2, presence_penalty=-2, seed=1)
    tokens = serve(smollm2, [Request("a", prompts[0], params, 6, ignore_eos=True)])[0]["a"]
    assert smollm2.vocab.size - 1 not in tokens
