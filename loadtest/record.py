"""Records: everything about one run in one JSON file, so that it can be judged and repeated later."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from loadtest.arrivals import RatePoint
from loadtest.cohort import Round
from loadtest.environment import Environment
from loadtest.errors import ConfigError
from loadtest.figures import Spread, refusals, spreads
from loadtest.interfere import Interference
from loadtest.outcome import Outcome
from loadtest.parity import Against
from loadtest.requests import Request, Shape, digest
from loadtest.soak import SoakResult

SCHEMA_VERSION = 1

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ServerNote:
    """What is known of the server: facts a client cannot see, stated by whoever ran it."""

    name: str
    threads: int | None = None
    policy: str = ""
    """Free words for what decides its behaviour: flags, kernel recipe, scheduling policy."""
    command: tuple[str, ...] = ()
    """As in the suite file, with its variables unfilled."""


@dataclass(frozen=True, slots=True)
class Load:
    """What was sent."""

    shape: Shape
    num_streams: int
    requests_sha256: str

    @classmethod
    def of(cls, shape: Shape, requests: tuple[Request, ...]) -> "Load":
        """Describe requests that are sent at once."""
        return cls(shape, len(requests), digest(requests))


@dataclass(frozen=True, slots=True)
class Record:
    """One run. The parts that belong to another kind of run are empty or None."""

    schema_version: int
    kind: str
    """The subcommand that made it."""
    made_at: str
    """UTC, ISO 8601."""
    command: tuple[str, ...]
    server: ServerNote
    environment: Environment
    load: Load
    figures: tuple[Spread, ...]
    refusals: dict[str, int]
    rounds: tuple[Round, ...]
    """Raw samples."""
    alone: tuple[Outcome, ...] | None = None
    parity: tuple[Against, ...] = ()
    arrivals: tuple[RatePoint, ...] = ()
    knee_per_s: float | None = None
    interference: Interference | None = None
    intruders: tuple[tuple[Outcome, ...], ...] = ()
    """The long prompts beside the steady streams of each round."""
    soak: SoakResult | None = None

    def figure(self, name: str) -> Spread | None:
        """One figure by its field name in `RoundFigures`."""
        return next((spread for spread in self.figures if spread.name == name), None)

    @property
    def references(self) -> tuple[Outcome, ...]:
        """The outcomes later runs are compared with: alone where that was run, else the first round."""
        return self.alone if self.alone is not None else self.rounds[0].outcomes


@dataclass(frozen=True, slots=True)
class Context:
    """What all records of one command share."""

    command: tuple[str, ...]
    server: ServerNote
    environment: Environment


def make_record(kind: str, context: Context, load: Load, rounds: tuple[Round, ...], **parts: Any) -> Record:
    """Put a record together; `parts` are fields of Record that this kind of run has."""
    return Record(
        schema_version=SCHEMA_VERSION,
        kind=kind,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        command=context.command,
        server=context.server,
        environment=context.environment,
        load=load,
        figures=spreads([r.figures for r in rounds]),
        refusals=refusals([o for r in rounds for o in r.outcomes]),
        rounds=rounds,
        **parts,
    )


def save(value: object, path: Path) -> None:
    """Write as JSON. The file appears whole or not at all, so that an interrupted run leaves no half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(msgspec.json.encode(value) + b"\n")
    partial.replace(path)


def load_record(path: Path) -> Record:
    """Read a record. ConfigError when there is none, or it is of another schema version."""
    file = path / "record.json" if path.is_dir() else path
    record = load_json(file, Record)
    if record.schema_version != SCHEMA_VERSION:
        raise ConfigError(f"{file} has schema {record.schema_version}, this version reads {SCHEMA_VERSION}")
    return record


def load_json(path: Path, kind: type[_T]) -> _T:
    """Read a JSON file this package wrote. ConfigError names the file and what is wrong with it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} is no {kind.__name__.lower()} of schema {SCHEMA_VERSION}: {error}") from error
