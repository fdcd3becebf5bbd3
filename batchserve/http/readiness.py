"""Whether the server can take requests, and what serves them. `app` sets it; handlers ask."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from batchserve.http import errors
from batchserve.http.chat import ChatTemplate
from batchserve.http.errors import ApiError
from batchserve.http.model import ServedModel
from scheduler import Runner


class ServerState(StrEnum):
    """What /ready says; only `ready` is a 200."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Serving:
    """A loaded model with everything needed to answer from it."""

    model: ServedModel
    runner: Runner
    template: ChatTemplate


class Readiness:
    """Starts as loading, so that the socket can open before the model is there."""

    def __init__(self) -> None:
        self._state = ServerState.LOADING
        self._serving: Serving | None = None

    @property
    def state(self) -> ServerState:
        if self._serving is not None and self._serving.runner.failure is not None:
            return ServerState.FAILED
        return self._state

    @property
    def num_running(self) -> int:
        return self._serving.runner.core.num_running if self._serving else 0

    @property
    def num_waiting(self) -> int:
        return self._serving.runner.core.num_waiting if self._serving else 0

    def set_ready(self, model: ServedModel, runner: Runner) -> None:
        """The model is loaded, and `runner` runs; compiles the chat template."""
        template = ChatTemplate(model.chat_template, model.bos_text, model.eos_text)
        self._serving = Serving(model, runner, template)
        self._state = ServerState.READY

    def set_draining(self) -> None:
        """From now on nothing new is taken."""
        self._state = ServerState.DRAINING

    def set_failed(self) -> None:
        """The model could not be loaded."""
        self._state = ServerState.FAILED

    def model(self) -> ServedModel:
        """The loaded model, also while draining.

        Raises:
            ApiError: there is none yet.
        """
        if self._serving is None:
            raise self._refusal()
        return self._serving.model

    def serving(self) -> Serving:
        """What a new request is served with.

        Raises:
            ApiError: nothing new is taken now.
        """
        if self._serving is None or self.state is not ServerState.READY:
            raise self._refusal()
        return self._serving

    def _refusal(self) -> ApiError:
        match self.state:
            case ServerState.FAILED:
                return errors.engine_unavailable()
            case ServerState.DRAINING:
                return errors.draining()
        return errors.model_loading()
