"""Which kernels run: the settings that decide whether answers are the same alone and in a crowd."""

from __future__ import annotations

from dataclasses import dataclass

from batchserve.llama.bindings import Pointer, lib


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """The streams recipe (docs/exactness.md): every sequence has a KV buffer of its own, no flash attention.

    `extra_buffers` lets ggml repack weights for the CPU's matrix units; `num_threads` computes one step.
    """

    num_threads: int
    extra_buffers: bool = True

    def model_params(self) -> Pointer:
        """`llama_model_params`: weights in memory of the CPU, all layers computed there."""
        params = lib.llama_model_default_params()
        params.n_gpu_layers = 0
        params.use_extra_bufts = self.extra_buffers
        return params

    def context_params(self, num_streams: int, ctx_per_stream: int, max_rows: int) -> Pointer:
        """`llama_context_params` for `num_streams` sequences of `ctx_per_stream` tokens each.

        A call never has more than `max_rows` rows, so that llama.cpp never cuts one into micro-batches.
        """
        params = lib.llama_context_default_params()
        params.n_ctx = num_streams * ctx_per_stream
        params.n_seq_max = num_streams
        params.n_batch = params.n_ubatch = max(max_rows, num_streams)
        params.n_threads = params.n_threads_batch = self.num_threads
        params.kv_unified = False
        params.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.offload_kqv = params.op_offload = False
        params.no_perf = True
        return params

    def describe(self) -> str:
        """One line for logs and reports."""
        buffers = "on" if self.extra_buffers else "off"
        return f"streams, flash attention off, extra buffers {buffers}, {self.num_threads} threads"
