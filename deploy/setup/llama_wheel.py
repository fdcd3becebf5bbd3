"""Install llama-cpp-python into this interpreter's environment, compiled once with the flags of llama.cmake.

pip keeps a wheel it built under the package's name alone: one compiled without those flags would be taken
again without a word. So the wheel is built past pip's cache and kept in ours, under a key made of all that
shapes it. Standard library only: this runs before anything is installed.
"""

import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

HERE = Path(__file__).resolve().parent
FLAGS = HERE / "llama.cmake"
PYPROJECT = HERE.parent.parent / "pyproject.toml"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]

STAGES = {
    "Downloading llama_cpp_python": "downloading the sources of llama.cpp",
    "Installing build dependencies": "fetching the build tools",
    "*** Configuring CMake": "configuring",
    "*** Making wheel": "packing",
}
NINJA = re.compile(r"^\s*\[(\d+)/(\d+)\] (.*)")
MAKE = re.compile(r"^\s*\[ *(\d+)%\] (Building|Linking) (.*)")
SOURCE = re.compile(r"([^/\s]+\.(?:cpp|cc|c|m|S))(?:\.o)?\b")


def requirement(pyproject: Path = PYPROJECT) -> str:
    """Return the pinned requirement, which pyproject.toml alone states."""
    dependencies = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]["dependencies"]
    return next(str(d) for d in dependencies if d.startswith("llama-cpp-python=="))


def cpu() -> str:
    """Return what `-march=native` goes by: a wheel made for another CPU may not run on this one."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else [platform.processor()]
    return next((line for line in lines if line.startswith(("flags", "Features"))), lines[0])


def compilers() -> str:
    """Return the version lines of the compilers CMake will pick."""
    names = [os.environ.get("CC", "cc"), os.environ.get("CXX", "c++")]
    runs = [subprocess.run([*shlex.split(n), "--version"], capture_output=True, text=True) for n in names]
    return "".join(run.stdout for run in runs)


def key() -> str:
    """Name a wheel by everything that shapes its code."""
    flags = [os.environ.get(name, "") for name in ("CMAKE_ARGS", "CFLAGS", "CXXFLAGS", "LDFLAGS")]
    host = [platform.system(), platform.machine(), *platform.libc_ver(), cpu()]
    parts = [requirement(), FLAGS.read_text(encoding="utf-8"), *host, compilers(), *flags]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def progress(lines: Iterable[str]) -> Iterator[tuple[str, int | None]]:
    """Turn the build's output into what a person wants to know, and the percentage where there is one."""
    for line in lines:
        if match := NINJA.match(line):
            done, total = int(match[1]), int(match[2])
            yield f"[{done:3}/{total}] {describe(match[3])}", 100 * done // total
        elif match := MAKE.match(line):
            yield f"[{match[1]:>3}%] {describe(match[3])}", int(match[1])
        else:
            for start, stage in STAGES.items():
                if line.strip().startswith(start):
                    yield stage, None


def describe(command: str) -> str:
    """Say what a compiler's command line is about."""
    sources = SOURCE.findall(command)
    return f"compiling {sources[-1]}" if sources else "linking"


class Report:
    """One live line on a terminal; elsewhere a line for each stage and for about every tenth of the way."""

    def __init__(self, out: TextIO) -> None:
        self.out = out
        self.live = out.isatty()
        self.begin = time.monotonic()
        self.next = 0
        self.last = ""

    def show(self, text: str, percent: int | None) -> None:
        """Take one step of the build."""
        if self.live:
            line = f"{text}  {self.elapsed()}"
            self.out.write("\r\x1b[2K" + line[: shutil.get_terminal_size().columns - 1])
        elif (percent is None and text != self.last) or (percent is not None and percent >= self.next):
            self.out.write(f"{text}  {self.elapsed()}\n")
            self.next = 0 if percent is None else percent // 10 * 10 + 10
        self.out.flush()
        self.last = text

    def end(self, text: str) -> None:
        """Replace the live line by the outcome."""
        self.out.write(("\r\x1b[2K" if self.live else "") + f"{text}  {self.elapsed()}\n")

    def elapsed(self) -> str:
        """Return the time since the begin, as m:ss."""
        seconds = int(time.monotonic() - self.begin)
        return f"{seconds // 60}:{seconds % 60:02}"


def build(target: Path, log: Path) -> None:
    """Compile the wheel into the folder `target`; on failure print the end of the log and exit."""
    print(f"compiling llama.cpp, once for this machine: some minutes (log: {log})", flush=True)
    report = Report(sys.stdout)
    folder = Path(tempfile.mkdtemp(dir=target.parent))
    try:
        with log.open("w", encoding="utf-8") as record:
            code = compile_into(folder, record, report)
        if code:
            report.end("building llama.cpp failed")
            sys.exit(f"{excerpt(log)}\nerror: llama.cpp could not be built; the whole log: {log}")
        # A rename is all or nothing: a build that was interrupted never looks like a finished one.
        folder.rename(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report.end("llama.cpp compiled")


def compile_into(folder: Path, record: TextIO, report: Report) -> int:
    """Run pip's build of the wheel, its output into `record`, and return its exit code."""
    command = [*PIP, "wheel", "--verbose", "--no-deps", "--no-cache-dir"]
    command += ["--no-binary=llama-cpp-python", f"--wheel-dir={folder}", requirement()]
    include = shlex.quote(f"-DCMAKE_PROJECT_llama_cpp_INCLUDE={FLAGS}")
    env = os.environ | {"CMAKE_ARGS": f"{include} {os.environ.get('CMAKE_ARGS', '')}"}
    # The build tools would count the CPUs of the machine, not those given to this process.
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    env.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(cpus))
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout
        for text, percent in progress(recorded(process.stdout, record)):
            report.show(text, percent)
    return process.returncode


def recorded(lines: Iterable[str], record: TextIO) -> Iterator[str]:
    """Pass lines on, and keep them."""
    for line in lines:
        record.write(line)
        yield line


def excerpt(log: Path, length: int = 25) -> str:
    """Return the first lines that name an error, and the end of the log."""
    lines = [line[:300] for line in log.read_text(encoding="utf-8").splitlines()]
    errors = [line for line in lines[:-length] if re.search(r"\b[Ee]rror:|FAILED:|CMake Error", line)]
    return "\n".join([*errors[:5], "  ...", *lines[-length:]])


def main() -> None:
    """Build the wheel unless it is there, and install it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "batchserve" / "llama"
    cache.mkdir(parents=True, exist_ok=True)
    wheels = cache / key()
    if not wheels.exists():
        build(wheels, cache / f"{wheels.name}.log")
    [wheel] = wheels.glob("*.whl")
    # Forced, because pip takes a wheel of the installed version for the installed one.
    install = [*PIP, "install", "--quiet", "--no-deps", "--force-reinstall", str(wheel)]
    sys.exit(subprocess.run(install).returncode)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
