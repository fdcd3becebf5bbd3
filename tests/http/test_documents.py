"""docs/api.md and docs/errors.md say what the code does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import NODEFAULT

from batchserve.http import Metrics, Readiness, Settings, create_app
from batchserve.http.errors import Kind
from batchserve.http.fields import REFUSED, SILENT
from batchserve.http.schema import ChatBody, CompletionBody

DOCS = Path(__file__).parents[2] / "docs"


def section(page: str, title: str) -> str:
    text = (DOCS / page).read_text()
    return text.partition(f"## {title}\n")[2].partition("\n## ")[0] if title else text


def rows(page: str, title: str = "") -> Iterator[list[str]]:
    """The cells of a section's table, without its head."""
    lines = [line for line in section(page, title).splitlines() if line.startswith("|")]
    for line in lines[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


def plain(cell: str) -> str:
    return cell.strip("`")


def defaults(kind: type[msgspec.Struct]) -> dict[str, str]:
    def text(value: object) -> str:
        if value is NODEFAULT:
            return "required"
        return "-" if value is None else f"`{json.dumps(value)}`"

    return {field.name: text(field.default) for field in msgspec.structs.fields(kind)}


def test_supported_fields_and_their_defaults() -> None:
    documented: dict[str, dict[str, str]] = {"chat": {}, "completions": {}}
    for name, endpoint, default, _ in rows("api.md", "Fields that are supported"):
        for one in ["chat", "completions"] if endpoint == "both" else [endpoint]:
            documented[one][plain(name)] = default
    assert documented == {"chat": defaults(ChatBody), "completions": defaults(CompletionBody)}


def test_refused_fields() -> None:
    documented = {plain(name): values for name, values in rows("api.md", "Fields that are refused")}
    assert documented == {
        name: ", ".join(f"`{json.dumps(value)}`" for value in values) or "-" for name, values in REFUSED.items()
    }


def test_ignored_fields() -> None:
    documented = re.findall(r"`(\w+)`", section("api.md", "Fields that are ignored"))
    assert documented == sorted(SILENT)


def test_endpoints() -> None:
    documented = {(method, plain(path)) for method, path, _ in rows("api.md", "Endpoints")}
    app = create_app(Readiness(), Metrics(), Settings())
    routes = {(route.method, route.resource.canonical) for route in app.router.routes() if route.resource}
    assert documented == {(method, path) for method, path in routes if method != "HEAD"}


def test_heartbeat() -> None:
    assert f"every {Settings().heartbeat_seconds:.0f} seconds" in section("api.md", "Streams").replace("\n", " ")


def test_every_error_is_tested() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert [kind.code for kind in Kind if f'"{kind.code}"' not in tests] == []


def test_errors() -> None:
    documented = [(plain(code), int(status), plain(kind)) for code, status, kind, _ in rows("errors.md")]
    assert documented == [(kind.code, kind.status, kind.type) for kind in Kind]
