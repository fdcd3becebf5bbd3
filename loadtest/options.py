"""Options that several commands share, as dataclasses that typer can read."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from loadtest.client import Client
from loadtest.environment import describe_environment
from loadtest.errors import ConfigError
from loadtest.prompts import Workload
from loadtest.record import Context, ServerNote
from loadtest.requests import Endpoint, IdSource, Request, Sampling, Shape, read_requests, repeat
from loadtest.watch import check_pid
from loadtest.wire import Target

_DEFAULT_STREAMS = 4


def option(text: str, *names: str, **settings: Any) -> Any:
    """An option with its help text."""
    return typer.Option(*names, help=text, **settings)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Which server is driven, and what is known of it."""

    url: Annotated[str, option("Address of the server, for example http://127.0.0.1:8080.")]
    model: Annotated[str | None, option("Model name to ask for; the first one listed by default.")] = None
    api_key: Annotated[str | None, option("Sent as a bearer token.", envvar="LOADTEST_API_KEY")] = None
    timeout: Annotated[float, option("Seconds allowed for each whole request.")] = 600.0
    server_pid: Annotated[int | None, option("Process whose memory and CPU are watched.")] = None
    server_name: Annotated[str, option("Name of the server in records.")] = "server"
    server_threads: Annotated[int | None, option("Threads of the server, for records.")] = None
    server_policy: Annotated[str, option("Flags or recipe of the server, in your words, for records.")] = ""

    def client(self) -> Client:
        """A client for this server. ConfigError for a bad address or process id."""
        check_pid(self.server_pid)
        return Client(Target.parse(self.url, self.api_key), self.timeout)

    async def model_id(self, client: Client) -> str:
        """The model to ask for."""
        return self.model or await client.model_id()


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """What is sent."""

    endpoint: Annotated[Endpoint, option("API to drive.")] = Endpoint.CHAT
    workload: Annotated[Workload, option("How prompts relate to each other.")] = Workload.DISTINCT
    prompt_words: Annotated[int, option("Words of a prompt, about one token each.", min=1)] = 50
    max_tokens: Annotated[int, option("Tokens to generate per stream.", min=1)] = 64
    temperature: Annotated[float, option("0 is greedy.", min=0)] = 0.0
    seed: Annotated[int, option("Of prompts, arrivals, and sampling.")] = 0
    prompts: Annotated[Path | None, option("Prompts, one a line; or whole requests in a .jsonl file.")] = None
    ids: Annotated[IdSource, option("How token ids are asked for.")] = IdSource.TOKEN_IDS

    def shape(self, model: str) -> Shape:
        """The shape of all requests."""
        sampling = Sampling(self.temperature, self.seed)
        return Shape(
            model=model,
            endpoint=self.endpoint,
            workload=self.workload,
            prompt_words=self.prompt_words,
            max_tokens=self.max_tokens,
            sampling=sampling,
            seed=self.seed,
            ids=self.ids,
        )

    def requests(self, shape: Shape, count: int | None) -> tuple[Request, ...]:
        """`count` requests; without a count, all of the file, or four."""
        if self.prompts is None:
            return shape.requests(count or _DEFAULT_STREAMS)
        found = read_requests(self.prompts, shape)
        return repeat(found, count or len(found))


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """What is kept."""

    out: Annotated[Path | None, option("Folder for record.json, report.md and plots.")] = None
    plots: Annotated[bool, option("Draw plots into --out; needs matplotlib.")] = True
    host: Annotated[str | None, option("Name of this machine in records; its host name by default.")] = None
    model_file: Annotated[Path | None, option("Model file, hashed into records; needed by accept.")] = None

    def context(self, server: ServerOptions, command: tuple[str, ...]) -> Context:
        """What records say about this command; makes the folder, so that trouble with it comes first."""
        if self.out is not None:
            make_folder(self.out)
        note = ServerNote(server.server_name, server.server_threads, server.server_policy)
        return Context(command, note, describe_environment(self.host, self.model_file))


def make_folder(path: Path) -> None:
    """Make a folder for results. ConfigError when that is not possible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write to {path}: {error.strerror}") from error


def parse_list(text: str, kind: Callable[[str], Any], name: str) -> tuple[Any, ...]:
    """Positive numbers from a text like ``1,2,4``. ConfigError names the option."""
    try:
        values = tuple(kind(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from error
    if min(values) <= 0:
        raise ConfigError(f"{name}: every number must be above zero")
    return values


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Give typer one option for every field of the command's dataclass parameters.

    typer reads plain parameters only; this lets commands share groups of options without repeating them.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if is_dataclass(kind)}

    @wraps(command)
    def flat(**values: Any) -> None:
        for name, kind in groups.items():
            values[name] = kind(**{field.name: values.pop(field.name) for field in fields(kind)})  # type: ignore[operator]
        command(**values)

    parameters = [p for name in inspect.signature(command).parameters for p in _flatten(name, command, groups)]
    parameters.sort(key=lambda parameter: parameter.default is not parameter.empty)
    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def _flatten(name: str, command: Callable[..., None], groups: dict[str, Any]) -> list[inspect.Parameter]:
    if name not in groups:
        kept = inspect.signature(command).parameters[name]
        hint = get_type_hints(command, include_extras=True)[name]
        return [kept.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hint)]
    return [_parameter(field) for field in fields(groups[name])]


def _parameter(field: Field[Any]) -> inspect.Parameter:
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(field.name, kind, default=default, annotation=field.type)
