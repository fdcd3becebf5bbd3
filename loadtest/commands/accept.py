"""``loadtest accept``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from loadtest.accept import Rule, judge, load_pairs
from loadtest.commands.common import console
from loadtest.compare import HIGHER_IS_BETTER, METRICS
from loadtest.errors import ConfigError
from loadtest.options import option
from loadtest.worklog import append, entry


@dataclass(frozen=True, slots=True)
class RuleOptions:
    """The tolerances; shares, 0.05 is five percent."""

    metric: Annotated[str, option("Figure that must be better.")] = Rule().metric
    min_gain: Annotated[float, option("Share it must gain.")] = Rule().min_gain
    max_loss: Annotated[float, option("Share it may lose in any one load.")] = Rule().max_loss
    max_ttft_growth: Annotated[float, option("Share TTFT p50, p95 may grow.")] = Rule().max_ttft_growth
    max_itl_growth: Annotated[float, option("Share ITL p50, p99 may grow.")] = Rule().max_itl_growth
    max_memory_growth: Annotated[float, option("Share peak RSS may grow.")] = Rule().max_memory_growth
    min_rounds: Annotated[int, option("Repeated runs wanted on each side.", min=1)] = Rule().min_rounds
    allow_text: Annotated[bool, option("Accept traces compared as text.")] = Rule().allow_text

    def rule(self) -> Rule:
        """The rule. ConfigError for a metric that is none."""
        known = sorted({*METRICS, *HIGHER_IS_BETTER})
        if self.metric not in known:
            raise ConfigError(f"--metric {self.metric}: one of {', '.join(known)}")
        return Rule(
            metric=self.metric,
            min_gain=self.min_gain,
            max_loss=self.max_loss,
            max_ttft_growth=self.max_ttft_growth,
            max_itl_growth=self.max_itl_growth,
            max_memory_growth=self.max_memory_growth,
            min_rounds=self.min_rounds,
            allow_text=self.allow_text,
        )


def accept(
    base: Annotated[Path, typer.Argument(help="Before: a record, or a folder of records of a suite.")],
    new: Annotated[Path, typer.Argument(help="After: the same.")],
    reason: Annotated[str, option("What was changed and why, one line for the worklog.")],
    rule: RuleOptions,
    worklog: Annotated[Path, option("File the entry is added to.")] = Path("docs/benchmarks/worklog.md"),
) -> None:
    """Decide whether a change is kept, and write it down.

    Exit code 0: KEEP. 1: DISCARD.
    """
    judgement = judge(load_pairs(base, new), rule.rule())
    append(worklog, judgement, reason)
    console.print(entry(judgement, reason), markup=False, highlight=False)
    if not judgement.kept:
        raise typer.Exit(1)
