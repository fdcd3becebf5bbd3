"""What one request came to."""

from dataclasses import dataclass
from itertools import pairwise

from loadtest.wire import Fault


@dataclass(frozen=True, slots=True)
class ChoiceTrace:
    """Everything one choice produced, in order."""

    text: str
    token_ids: tuple[int, ...] | None
    """None when the server gave no ids, or gave text without ids in at least one chunk."""
    finish_reason: str | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """One request as its client saw it. Durations are seconds from just before the connection was made.

    An event that carries several tokens is one arrival: a gap is a gap for the reader of the stream.
    """

    e2e_s: float
    fault: Fault | None = None
    detail: str = ""
    started_at: float = 0.0
    """Seconds since the start of the round."""
    arrivals_s: tuple[float, ...] = ()
    token_counts: tuple[int, ...] = ()
    """Tokens of each arrival, in step with `arrivals_s`."""
    choices: tuple[ChoiceTrace, ...] = ()
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    malformed_events: int = 0

    @property
    def ok(self) -> bool:
        return self.fault is None

    @property
    def reason(self) -> str:
        """Why it failed, in a few words fit for a table; empty when it did not."""
        return "" if self.fault is None else f"{self.fault} {self.detail}".rstrip()

    @property
    def num_tokens(self) -> int:
        """Tokens received: the server's own count where it states one, else what the events carried."""
        return self.completion_tokens or sum(self.token_counts)

    @property
    def ttft_s(self) -> float | None:
        """Time to first token."""
        return self.arrivals_s[0] if self.arrivals_s else None

    @property
    def gaps_s(self) -> tuple[float, ...]:
        """Inter-token latencies: the gaps between arrivals that carried tokens."""
        return tuple(b - a for a, b in pairwise(self.arrivals_s))

    @property
    def tokens_per_s(self) -> float | None:
        """Rate after the first arrival, as a reader sees it; None with fewer than two arrivals."""
        if len(self.arrivals_s) < 2:
            return None
        elapsed = self.arrivals_s[-1] - self.arrivals_s[0]
        return (self.num_tokens - self.token_counts[0]) / elapsed if elapsed > 0 else None
