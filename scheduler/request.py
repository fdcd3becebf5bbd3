"""What a caller asks for: immutable values, already tokenised and validated."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen from the logits.

    The defaults are neutral: sample from the model's own distribution. `temperature` 0 (below 1e-6) is greedy.
    `top_k` 0, `top_p` 1, `min_p` 0 and `typical_p` 1 switch a filter off. `repetition_penalty` (1 is off) looks at
    prompt and answer; `frequency_penalty` and `presence_penalty` (0 is off) look at the answer alone. `logit_bias`
    holds pairs of token id and a value added to its logit.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int = 0

    @property
    def is_greedy(self) -> bool:
        """True when the likeliest token is taken.

        Logits divided by still smaller temperatures would overflow the samplers' 32-bit floats.
        """
        return self.temperature < 1e-6

    @property
    def has_penalties(self) -> bool:
        return (self.repetition_penalty, self.frequency_penalty, self.presence_penalty) != (1.0, 0.0, 0.0)

    @property
    def is_plain_greedy(self) -> bool:
        """True when the choice is the argmax of the raw logits."""
        return self.is_greedy and not self.logit_bias and not self.has_penalties


@dataclass(frozen=True, slots=True)
class Request:
    """One sequence to generate.

    `prompt` is a non-empty tuple of token ids. `max_tokens` None means: until the stream's context is full.
    `stop` strings end the answer and are not part of it. With `ignore_eos` the model's end-of-generation
    tokens do not end the answer.
    """

    id: str
    prompt: tuple[int, ...]
    sampling: SamplingParams = SamplingParams()
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if not self.prompt:
            raise ValueError("a prompt has at least one token")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ValueError("max_tokens is at least 1")
