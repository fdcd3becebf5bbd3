"""What Prometheus reads at /metrics, kept up to date by the scheduler's observer calls."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from scheduler import RequestStats, StepKind, StepStats
from scheduler.stats import Observer

FIRST_TOKEN_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
GAP_BUCKETS = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics(Observer):
    """All metrics of one server, in a registry of their own. A request here is one sequence, one choice."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._running = self._gauge("requests_running", "Requests that hold a stream.")
        self._waiting = self._gauge("requests_waiting", "Requests in the queue.")
        self._prompt_tokens = self._counter("prompt_tokens", "Prompt tokens computed.")
        self._generated_tokens = self._counter("generated_tokens", "Tokens generated.")
        self._requests = self._counter("requests", "Requests that were admitted and have ended.", "outcome")
        self._rejected = self._counter("requests_rejected", "HTTP requests refused, by error code.", "reason")
        first_token = self._histogram(
            "time_to_first_token_seconds", "From arrival to the first token.", FIRST_TOKEN_BUCKETS
        )
        gap = self._histogram("inter_token_seconds", "Between two tokens of the same request.", GAP_BUCKETS)
        step = self._histogram("step_seconds", "Time the engine took for one step.", GAP_BUCKETS, "kind")
        self._failed_steps = self._counter("failed_steps", "Steps that failed.", "kind")
        self._observe_first_token = first_token.observe
        self._observe_gap = gap.observe
        self._observe_step = {kind: step.labels(kind.value).observe for kind in StepKind}

    def watch(self, num_running: Callable[[], int], num_waiting: Callable[[], int]) -> None:
        """Where the numbers of requests are read when somebody asks for them."""
        self._running.set_function(num_running)
        self._waiting.set_function(num_waiting)

    def on_step(self, stats: StepStats) -> None:
        self._observe_step[stats.kind](stats.seconds)
        self._generated_tokens.inc(stats.generated_tokens)
        if stats.kind is StepKind.PREFILL:
            self._prompt_tokens.inc(stats.num_rows)
        for seconds in stats.first_token_latencies:
            self._observe_first_token(seconds)
        for seconds in stats.token_gaps:
            self._observe_gap(seconds)

    def on_step_failed(self, kind: StepKind) -> None:
        self._failed_steps.labels(kind.value).inc()

    def on_request(self, stats: RequestStats) -> None:
        self._requests.labels(stats.outcome).inc()

    def on_rejected(self, reason: str) -> None:
        """An HTTP request was answered with an error, whose code is `reason`."""
        self._rejected.labels(reason).inc()

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"batchserve_{name}", text, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"batchserve_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"batchserve_{name}", text, labels, buckets=buckets, registry=self.registry)
