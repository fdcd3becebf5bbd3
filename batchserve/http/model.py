"""What the HTTP side needs to know of a loaded model."""

from __future__ import annotations

from typing import Protocol

from batchserve.http.errors import ApiError, Kind

#: Names that stand for whatever model is loaded.
ANY_MODEL = ("", "local-model")


class ServedModel(Protocol):
    """A model with its tokeniser; constant while it is served."""

    @property
    def id(self) -> str:
        """The name clients ask for."""
        ...

    @property
    def created(self) -> int:
        """Seconds since 1970; shown in the list of models."""
        ...

    @property
    def n_vocab(self) -> int: ...

    @property
    def ctx_per_stream(self) -> int:
        """Tokens one stream's context holds, prompt and answer together."""
        ...

    @property
    def chat_template(self) -> str | None:
        """The Jinja source that came with the model."""
        ...

    @property
    def bos_text(self) -> str:
        """How the start token is written; empty without one."""
        ...

    @property
    def eos_text(self) -> str: ...

    def tokenize(self, text: str, *, add_special: bool) -> list[int]:
        """Token ids of `text`, in which special tokens are recognised. Blocks; may be called from any thread.

        With `add_special` the model's own start and end tokens are added, where it asks for them.
        """
        ...

    def facts(self) -> dict[str, object]:
        """What /v1/models/{id} says beyond the OpenAI fields."""
        ...


def check_model(name: str, model: ServedModel) -> None:
    """Raises ApiError unless `name` is the loaded model's, or stands for any."""
    if name not in (*ANY_MODEL, model.id):
        message = f"The model {name[:128]!r} does not exist here. Loaded: {model.id!r}."
        raise ApiError(Kind.MODEL_NOT_FOUND, message, "model")
