"""What the documents say is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main

from batchserve.cli import app
from batchserve.config import Config

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def table_after(text: str, heading: str) -> list[list[str]]:
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def documented_flags() -> dict[str, tuple[str, str]]:
    rows = table_after((ROOT / "README.md").read_text(), "Flags")
    return {flag.strip("`"): (default, meaning) for flag, default, meaning in rows}


def real_flags() -> dict[str, tuple[str, str]]:
    command = typer.main.get_command(app)
    found = {}
    for option in command.params:
        shown = getattr(option, "show_default", None)
        default = shown if isinstance(shown, str) else option.default
        flag = option.opts[0]
        found[flag] = ("" if flag == "--version" else str(default), str(getattr(option, "help", "")))
    return found


def test_the_readme_lists_every_flag_with_its_default_and_meaning() -> None:
    assert documented_flags() == real_flags()


def test_the_flags_defaults_are_those_of_the_configuration() -> None:
    config = Config(Path("m.gguf"), "m")
    documented = documented_flags()
    for flag in (
        "max-batch-streams",
        "prefill-chunk",
        "host",
        "port",
        "max-body-mib",
        "drain-timeout",
        "extra-buffers",
    ):
        assert documented[f"--{flag}"][0] == str(getattr(config, flag.replace("-", "_"))), flag


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_named_files_exist(document: Path) -> None:
    text = document.read_text()
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    missing = [link for link in links if not (document.parent / link).exists()]
    named = re.findall(r"`((?:tests|scheduler|batchserve|loadtest|deploy|docs)/[\w./-]+)`", text)
    missing += [name for name in named if not (ROOT / name).exists()]
    assert not missing


def test_the_life_of_a_request_names_what_exists() -> None:
    """Every `name.attribute` or `name` in code font on that page is found in the sources."""
    text = (ROOT / "docs/life-of-a-request.md").read_text()
    sources = "\n".join(
        path.read_text() for package in ("scheduler", "batchserve") for path in (ROOT / package).rglob("*.py")
    )
    names = re.findall(r"`([A-Za-z_][\w.]*)`", text)
    words = {part for name in names for part in name.split(".")}
    assert [word for word in sorted(words) if not re.search(rf"\b{word}\b", sources)] == []
