"""Shared by all tests: uvloop as in production, the real model, and tiny random ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from batchserve.config import find_model
from batchserve.llama.kernels import KernelConfig
from batchserve.llama.model import LoadedModel, load
from batchserve.llama.threads import default_threads
from tests.tiny_gguf import write_tiny_llama


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], object]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The embedded model; the suite needs it (`make test` installs it)."""
    return find_model(None)


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path) -> Iterator[LoadedModel]:
    """SmolLM2 with 8 streams of 1,024 tokens and chunks of at most 256 rows."""
    with load(smollm2_path, KernelConfig(default_threads()), 8, 1024, 256) as loaded:
        yield loaded


@pytest.fixture(scope="session")
def tiny_llama_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer llama of a few hundred kilobytes, the same at every run."""
    return write_tiny_llama(tmp_path_factory.mktemp("gguf") / "tiny-llama.gguf")
