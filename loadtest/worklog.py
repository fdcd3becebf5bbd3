"""The worklog of optimisations: what was tried, what it gave, and whether it was kept."""

from collections.abc import Iterator
from pathlib import Path

from loadtest.accept import Judgement, Pair, improvement
from loadtest.environment import GitState
from loadtest.record import Record
from loadtest.sheets import label_of, span

_TITLE = "# Worklog\n\nEvery change tried for speed, kept or not. Entries are written by `loadtest accept`.\n"
_SHOWN = ("total_tokens_per_s", "stream_tokens_per_s", "ttft_p50_s", "ttft_p95_s", "itl_p50_s", "itl_p99_s")
_MEMORY = "rss_peak_mib"


def append(path: Path, judgement: Judgement, reason: str) -> None:
    """Add one entry at the end; the file is made when it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_text(encoding="utf-8") if path.exists() else _TITLE
    path.write_text(f"{before.rstrip()}\n\n{entry(judgement, reason)}", encoding="utf-8")


def entry(judgement: Judgement, reason: str) -> str:
    """One entry as Markdown."""
    word = "KEEP" if judgement.kept else "DISCARD"
    new = judgement.pairs[0].new
    lines = [f"## {new.made_at[:10]} {word}: {reason}", "", *_facts(judgement)]
    for pair in judgement.pairs:
        lines += ["", *_numbers(pair)]
    return "\n".join(lines) + "\n"


def _facts(judgement: Judgement) -> Iterator[str]:
    base, new = judgement.pairs[0].base, judgement.pairs[0].new
    gain = "not known" if judgement.gain is None else f"{judgement.gain - 1:+.1%}"
    yield f"- {label_of(judgement.rule.metric)}: {gain} over {len(judgement.pairs)} load(s)"
    yield f"- base: {_where(base)}; new: {_where(new)}"
    yield f"- {new.environment.cpu}, {new.environment.num_cpus} CPUs; model {new.load.shape.model}"
    yield f"- traces after against before: {judgement.traces}"
    yield from (f"- objection: {objection}" for objection in judgement.objections)


def _where(record: Record) -> str:
    return f"{record.server.name}{_git(record.environment.git)}, {len(record.rounds)} rounds"


def _git(git: GitState | None) -> str:
    if git is None:
        return ""
    return f" at {git.branch} {(git.commit or 'without a commit')[:12]}{' (dirty)' if git.dirty else ''}"


def _numbers(pair: Pair) -> Iterator[str]:
    yield f"| {pair.name} | base | new | better by |"
    yield "| --- | ---: | ---: | ---: |"
    for name in (*_SHOWN, _MEMORY):
        base, new = pair.base.figure(name), pair.new.figure(name)
        if base is not None and new is not None:
            gain = improvement(pair, name)
            shown = "-" if gain is None else f"{gain - 1:+.1%}"
            yield f"| {label_of(name)} | {span(base)} | {span(new)} | {shown} |"
