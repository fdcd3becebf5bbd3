"""The layering of docs: imports point down only, and each package knows as little as it needs."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("scheduler", "batchserve", "loadtest")
FILES = {
    file.relative_to(ROOT).as_posix(): ast.parse(file.read_text(encoding="utf-8"))
    for package in PACKAGES
    for file in sorted((ROOT / package).rglob("*.py"))
}


def imports(tree: ast.Module) -> Iterator[str]:
    """Yield every module that is imported, wherever it stands in the file; also `a.b` of `from a import b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def importers(*modules: str, under: str = "") -> set[str]:
    """Return the files that import one of the modules, or something inside one."""
    return {
        name
        for name, tree in FILES.items()
        if name.startswith(under)
        and any(i == module or i.startswith(f"{module}.") for i in imports(tree) for module in modules)
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_the_packages_are_there(package: str) -> None:
    assert f"{package}/__init__.py" in FILES


def test_the_scheduler_imports_the_standard_library_alone() -> None:
    allowed = sys.stdlib_module_names | {"scheduler"}
    foreign = {
        f"{name}: {i}"
        for name, tree in FILES.items()
        if name.startswith("scheduler/")
        for i in imports(tree)
        if i.split(".")[0] not in allowed
    }
    assert not foreign


def test_only_driver_worker_and_stream_of_the_scheduler_know_asyncio() -> None:
    assert importers("asyncio", under="scheduler/") <= {
        "scheduler/runner.py",
        "scheduler/stream.py",
        "scheduler/worker.py",
    }


def test_the_scheduler_is_told_the_time() -> None:
    # The driver reads the clock for Core, and the fake engine sleeps.
    clocks = importers("time", "datetime", under="scheduler/")
    assert clocks <= {"scheduler/runner.py", "scheduler/testing.py"}


def test_the_load_tester_knows_the_server_by_http_alone() -> None:
    assert not importers("batchserve", "scheduler", under="loadtest/")


def test_http_and_llama_never_meet() -> None:
    assert not importers("batchserve.llama", "llama_cpp", under="batchserve/http/")
    assert not importers("batchserve.http", "aiohttp", under="batchserve/llama/")


def test_only_the_composition_root_knows_both() -> None:
    both = importers("batchserve.http") & importers("batchserve.llama")
    assert both <= {"batchserve/app.py", "batchserve/cli.py"}


def test_nothing_below_imports_the_composition_root() -> None:
    # The package itself may: `python -m batchserve` runs the command line.
    users = importers("batchserve.app", "batchserve.cli")
    assert users <= {"batchserve/app.py", "batchserve/cli.py", "batchserve/__main__.py"}
