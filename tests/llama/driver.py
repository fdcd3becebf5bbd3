"""Drives Core and the real engine without HTTP, and keeps the logits of every sampled row."""

from __future__ import annotations

from collections.abc import Sequence

from batchserve.llama.engine import LlamaEngine
from batchserve.llama.model import LoadedModel
from scheduler import Core, Event, Finished, Limits, Request, StepFailed, StepPlan, TokenDelta


class Recorder(LlamaEngine):
    """Keeps the logits of every sampled row, by handle."""

    def __init__(self, loaded: LoadedModel) -> None:
        super().__init__(loaded)
        self.logits: dict[int, list[bytes]] = {}

    def _sample(self, handles: Sequence[int], rows: Sequence[int]):  # type: ignore[no-untyped-def]
        for handle, row in zip(handles, self._outputs.rows(len(handles)), strict=True):
            self.logits.setdefault(handle, []).append(row.tobytes())
        return super()._sample(handles, rows)


def serve(
    loaded: LoadedModel,
    requests: Sequence[Request],
    *,
    join_every: int = 0,
    cancel_at: dict[int, str] | None = None,
) -> tuple[dict[str, list[int]], dict[str, list[bytes]]]:
    """Run `requests` to the end; with `join_every` n, one more joins every n steps. Returns tokens and logits."""
    core = Core(Limits(loaded.num_streams, 64, loaded.ctx_per_stream, 64), loaded.vocab)
    engine = Recorder(loaded)
    tokens: dict[str, list[int]] = {request.id: [] for request in requests}
    late = list(requests)
    step = 0
    while late or not core.is_idle:
        while late and (not join_every or step % join_every == 0 or core.is_idle):
            core.submit([late.pop(0)], step)
            if join_every:
                break
        core.cancel((cancel_at or {}).get(step, ""), step)
        plan = core.plan(step)
        step += 1
        if plan is None:
            continue
        for name, event in run_step(core, engine, plan, step):
            if isinstance(event, TokenDelta):
                tokens[name] += event.token_ids
            else:
                assert isinstance(event, Finished)
        core.check_integrity()
    engine.close()
    return tokens, {request.id: engine.logits[handle] for handle, request in enumerate(requests)}


def run_step(core: Core, engine: LlamaEngine, plan: StepPlan, step: int) -> list[tuple[str, Event]]:
    """Execute `plan` and tell `core` how it went, as the runner does."""
    try:
        result = engine.execute(plan)
    except StepFailed as error:
        return core.fail(error, step)
    return core.apply(result, step)
