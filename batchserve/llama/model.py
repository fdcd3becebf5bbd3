"""A loaded model with its context, and everything the server tells about it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from batchserve.llama.bindings import Pointer, first_complaint, lib, route_log
from batchserve.llama.errors import ModelError
from batchserve.llama.hugepages import use_huge_pages
from batchserve.llama.kernels import KernelConfig
from batchserve.llama.vocab import Vocab

#: A stream's context when the user names none: the model's training context, but no more than this.
DEFAULT_CTX = 4096


class MemoryKind(StrEnum):
    """What a model remembers of a sequence, and so what can be taken back or copied."""

    ATTENTION = "attention"
    SLIDING_WINDOW = "sliding window"
    RECURRENT = "recurrent"
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the model file says of itself."""

    description: str
    num_parameters: int
    num_bytes: int
    num_tokens: int
    ctx_train: int
    num_embd: int
    memory: MemoryKind
    chat_template: str | None

    @property
    def chunk_half_at(self) -> int:
        """Where a prompt row's attention costs about as much as its weights (see scheduler.policy.Cut).

        Weights cost some 24 d^2 operations a row and layer, attention 4 d for each earlier row: even at 6 d, on
        equal kernels. Attention kernels are several times slower than the matrix units; d fits SmolLM2 here
        (docs/benchmarks/). A recurrent model pays the same for every row.
        """
        return 1 << 30 if self.memory is MemoryKind.RECURRENT else self.num_embd


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """Raw pointers with the lifetime of `load`, and what was decided when loading."""

    model: Pointer
    ctx: Pointer
    vocab: Vocab
    facts: ModelFacts
    kernels: KernelConfig
    num_streams: int
    ctx_per_stream: int
    max_rows: int


@contextmanager
def load(
    path: Path, kernels: KernelConfig, num_streams: int, ctx_per_stream: int | None, max_rows: int
) -> Iterator[LoadedModel]:
    """Load `path` and make a context of `num_streams` sequences; both are freed at the end.

    `ctx_per_stream` None takes the smaller of DEFAULT_CTX and the training context.

    Raises:
        ModelError: the file cannot be loaded or served, with the reason.
    """
    route_log()
    first_complaint()
    lib.llama_backend_init()
    model = lib.llama_model_load_from_file(str(path).encode(), kernels.model_params())
    if not model:
        reason = first_complaint() or "not a GGUF model it knows"
        raise ModelError(f"llama.cpp cannot load {path}: {reason}")
    ctx = None
    try:
        facts = _read_facts(model)
        tokens = ctx_per_stream or min(DEFAULT_CTX, facts.ctx_train)
        _check(model, path, facts, tokens)
        ctx = lib.llama_init_from_model(model, kernels.context_params(num_streams, tokens, max_rows))
        if not ctx:
            raise ModelError(f"no memory for {num_streams} streams of {tokens} tokens: lower one of them")
        use_huge_pages()
        yield LoadedModel(model, ctx, Vocab(model), facts, kernels, num_streams, tokens, max_rows)
    finally:
        if ctx:
            lib.llama_free(ctx)
        lib.llama_model_free(model)


def _check(model: Pointer, path: Path, facts: ModelFacts, ctx_per_stream: int) -> None:
    if lib.llama_model_has_encoder(model) or not lib.llama_model_has_decoder(model):
        raise ModelError(f"{path} has an encoder: only decoder-only models can be served")
    if not facts.num_tokens:
        raise ModelError(f"{path} has no vocabulary, so it cannot generate text")
    if ctx_per_stream > facts.ctx_train:
        raise ModelError(
            f"--ctx-per-stream {ctx_per_stream} is more than the {facts.ctx_train} tokens the model was trained on"
        )


def _read_facts(model: Pointer) -> ModelFacts:
    description = ctypes.create_string_buffer(256)
    lib.llama_model_desc(model, description, len(description))
    template = lib.llama_model_chat_template(model, None)
    return ModelFacts(
        description=description.value.decode("utf-8", "replace"),
        num_parameters=lib.llama_model_n_params(model),
        num_bytes=lib.llama_model_size(model),
        num_tokens=lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model)),
        ctx_train=lib.llama_model_n_ctx_train(model),
        num_embd=lib.llama_model_n_embd(model),
        memory=_memory_kind(model),
        chat_template=template.decode("utf-8", "replace") if template else None,
    )


def _memory_kind(model: Pointer) -> MemoryKind:
    if lib.llama_model_is_hybrid(model):
        return MemoryKind.HYBRID
    if lib.llama_model_is_recurrent(model):
        return MemoryKind.RECURRENT
    return MemoryKind.SLIDING_WINDOW if lib.llama_model_n_swa(model) else MemoryKind.ATTENTION
