"""Outcomes and records made by hand."""

from dataclasses import replace

from loadtest.cohort import Round
from loadtest.environment import Environment
from loadtest.figures import round_figures
from loadtest.outcome import ChoiceTrace, Outcome
from loadtest.record import Context, Load, Record, ServerNote, make_record
from loadtest.requests import Shape
from loadtest.watch import ProcessUse
from loadtest.wire import Fault

ENVIRONMENT = Environment(
    host="host",
    system="Linux",
    cpu="a CPU",
    num_cpus=2,
    memory_mib=4096,
    load_average=0.0,
    python="3.11",
    packages={},
    model_sha256="abc",
    git=None,
)
CONTEXT = Context(("loadtest", "cohort"), ServerNote("server", 2, "defaults"), ENVIRONMENT)


def make_outcome(
    tokens: tuple[int, ...] = (1, 2, 3),
    *,
    ttft_s: float = 0.1,
    gap_s: float = 0.01,
    started_at: float = 0.0,
    with_ids: bool = True,
) -> Outcome:
    """A stream that went well, one token per event."""
    text = "".join(f" t{token}" for token in tokens)
    arrivals = tuple(round(ttft_s + i * gap_s, 6) for i in range(len(tokens)))
    return Outcome(
        e2e_s=arrivals[-1],
        started_at=started_at,
        arrivals_s=arrivals,
        token_counts=(1,) * len(tokens),
        choices=(ChoiceTrace(text, tokens if with_ids else None, "length"),),
        prompt_tokens=9,
        completion_tokens=len(tokens),
    )


def failed_outcome(fault: Fault = Fault.CUT_OFF, detail: str = "") -> Outcome:
    return Outcome(e2e_s=0.1, fault=fault, detail=detail)


def make_round(*outcomes: Outcome, wall_s: float = 1.0, rss_mib: float = 100.0) -> Round:
    use = ProcessUse(rss_mib, rss_mib, 50.0, 50.0)
    return Round(outcomes, wall_s, round_figures(outcomes, wall_s, use))


def record_of(*rounds: Round, context: Context = CONTEXT, requests_sha256: str = "same") -> Record:
    load = Load(Shape("model"), len(rounds[0].outcomes), requests_sha256)
    return make_record("cohort", context, load, rounds)


def with_model(record: Record, sha256: str | None) -> Record:
    return replace(record, environment=replace(record.environment, model_sha256=sha256))
