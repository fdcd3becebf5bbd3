"""From a conversation to the prompt text: the model's own Jinja template, in a sandbox."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from batchserve.http.errors import ApiError, Kind
from batchserve.http.schema import ContentPart, Message

log = logging.getLogger("batchserve.http")

#: Roles a conversation may have here, and what a template is told: `developer` is the newer name of `system`.
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

Render = Callable[[Sequence["Turn"]], str]


@dataclass(frozen=True, slots=True)
class Turn:
    """A checked message: a known role, and plain text."""

    role: str
    content: str
    name: str | None = None

    def variables(self) -> dict[str, str]:
        """The message as templates expect it."""
        variables = {"role": self.role, "content": self.content}
        return variables | {"name": self.name} if self.name else variables


def read_turns(messages: Sequence[Message]) -> list[Turn]:
    """Check the messages.

    Raises:
        ApiError: a role, or a kind of content, that is not supported.
    """
    return [_read_turn(message, f"messages[{at}]") for at, message in enumerate(messages)]


def _read_turn(message: Message, path: str) -> Turn:
    if message.role not in ROLES:
        roles = ", ".join(ROLES)
        raise _unsupported(f"The role {message.role!r} is not supported, only {roles}.", f"{path}.role")
    if message.tool_calls:
        raise _unsupported("Tool calls are not supported.", f"{path}.tool_calls")
    return Turn(ROLES[message.role], _read_content(message, f"{path}.content"), message.name)


def _read_content(message: Message, path: str) -> str:
    if message.content is None:
        raise ApiError(Kind.MISSING_PARAMETER, f"Missing required parameter: `{path}`.", path)
    if isinstance(message.content, str):
        return message.content
    return "\n".join(_read_part(part, f"{path}[{at}]") for at, part in enumerate(message.content))


def _read_part(part: ContentPart, path: str) -> str:
    if part.type != "text":
        raise _unsupported(f"Content of type {part.type!r} is not supported, only text.", f"{path}.type")
    if part.text is None:
        raise ApiError(Kind.MISSING_PARAMETER, f"Missing required parameter: `{path}.text`.", f"{path}.text")
    return part.text


def _unsupported(message: str, param: str) -> ApiError:
    return ApiError(Kind.UNSUPPORTED_VALUE, message, param)


class ChatTemplate:
    """Renders conversations; compiled once. Without a template, turns are labelled with their role."""

    def __init__(self, source: str | None, bos_text: str, eos_text: str) -> None:
        self._variables = {"bos_token": bos_text, "eos_token": eos_text}
        self._template = _compile(source)

    def render(self, turns: Sequence[Turn]) -> str:
        """The prompt that asks for the assistant's next turn.

        Raises:
            ApiError: the template refuses this conversation, or fails at it.
        """
        if self._template is None:
            return render_labelled(turns)
        messages = [turn.variables() for turn in turns]
        try:
            return self._template.render(
                messages=messages, tools=None, documents=None, add_generation_prompt=True, **self._variables
            )
        except Exception as error:  # a template is a program from a model file: it may raise anything
            raise _template_failed(error) from error


def render_labelled(turns: Sequence[Turn]) -> str:
    """`System: ...`, `User: ...`, `Assistant: ...`, a blank line in between, and `Assistant:` at the end."""
    lines = [f"{turn.role.capitalize()}: {turn.content}\n\n" for turn in turns]
    return "".join(lines) + "Assistant:"


def _template_failed(error: Exception) -> ApiError:
    reason = str(error) if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: {error}"
    return ApiError(Kind.TEMPLATE_FAILED, f"The model's chat template failed: {reason}", "messages")


def _compile(source: str | None) -> jinja2.Template | None:
    if source is None:
        return None
    try:
        return _new_environment().from_string(source)
    except jinja2.TemplateError as error:
        log.warning("the model's chat template does not compile (%s): turns are labelled instead", error)
        return None


def _new_environment() -> ImmutableSandboxedEnvironment:
    """The dialect of Jinja that model authors test their templates with, which is that of transformers."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationBlock]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class _GenerationBlock(Extension):
    """`{% generation %}` marks the assistant's text for training; here it stands for its content."""

    tags = {"generation"}  # noqa: RUF012  (Jinja declares it as a plain class attribute)

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the HTML escapes of Jinja's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)
