"""One sampler chain per sequence: a request's choices depend on its own parameters, seed and tokens alone."""

from __future__ import annotations

from collections.abc import Sequence

from batchserve.llama.bindings import Pointer, lib
from scheduler import SamplingParams


class SamplerChain:
    """A llama.cpp sampler chain in the order bias, penalties, filters, temperature, choice.

    `num_tokens` is the size of the vocabulary; the penalties look back over `window` tokens.
    """

    def __init__(self, params: SamplingParams, prompt: Sequence[int], num_tokens: int, window: int) -> None:
        self._num_tokens = num_tokens
        self._window = window
        chain_params = lib.llama_sampler_chain_default_params()
        chain_params.no_perf = True
        self._chain: Pointer = lib.llama_sampler_chain_init(chain_params)
        self._add_bias(params)
        self._add_penalties(params, prompt)
        self._add_choice(params)

    def sample(self, ctx: Pointer, row: int) -> int:
        """Choose from the logits of `row` of the last batch, and remember the choice for the penalties."""
        token: int = lib.llama_sampler_sample(self._chain, ctx, row)
        return token

    def close(self) -> None:
        """Free the chain; idempotent."""
        if self._chain is not None:
            lib.llama_sampler_free(self._chain)
            self._chain = None

    def _add(self, sampler: Pointer) -> None:
        lib.llama_sampler_chain_add(self._chain, sampler)

    def _add_bias(self, params: SamplingParams) -> None:
        if params.logit_bias:
            biases = (lib.llama_logit_bias * len(params.logit_bias))(*params.logit_bias)
            self._add(lib.llama_sampler_init_logit_bias(self._num_tokens, len(biases), biases))

    def _add_penalties(self, params: SamplingParams, prompt: Sequence[int]) -> None:
        """Two samplers, because repetition looks at prompt and answer, the other two at the answer alone."""
        if params.repetition_penalty != 1:
            sampler = self._penalties(params.repetition_penalty, 0.0, 0.0)
            for token in prompt:
                lib.llama_sampler_accept(sampler, token)
            self._add(sampler)
        if params.frequency_penalty or params.presence_penalty:
            self._add(self._penalties(1.0, params.frequency_penalty, params.presence_penalty))

    def _penalties(self, repeat: float, frequency: float, presence: float) -> Pointer:
        return lib.llama_sampler_init_penalties(self._num_tokens, self._window, repeat, frequency, presence)

    def _add_choice(self, params: SamplingParams) -> None:
        if params.is_greedy:
            self._add(lib.llama_sampler_init_greedy())
            return
        if params.top_k > 0:
            self._add(lib.llama_sampler_init_top_k(params.top_k))
        if params.typical_p < 1:
            self._add(lib.llama_sampler_init_typical(params.typical_p, 1))
        if params.top_p < 1:
            self._add(lib.llama_sampler_init_top_p(params.top_p, 1))
        if params.min_p > 0:
            self._add(lib.llama_sampler_init_min_p(params.min_p, 1))
        self._add(lib.llama_sampler_init_temp(params.temperature))
        self._add(lib.llama_sampler_init_dist(params.seed))
