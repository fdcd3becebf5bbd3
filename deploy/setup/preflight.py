"""Say in one go what this machine lacks before anything is made.

`make` runs it with whatever PYTHON is, so it keeps to a syntax that old interpreters read.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Iterator

OLDEST = (3, 11)


def lacks() -> Iterator[str]:
    """Yield what is missing, each with its cure."""
    mac = platform.system() == "Darwin"
    version = "{}.{}".format(*sys.version_info[:2])
    if sys.version_info < OLDEST:
        yield f"Python 3.11 or newer ({sys.executable} is {version}): name yours with make PYTHON=python3.12"
    elif not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
        # Debian and Ubuntu package these two apart from the interpreter.
        yield f"the venv module of {sys.executable}: apt-get install python{version}-venv"
    compilers = [os.environ.get("CC", "cc").split()[0], os.environ.get("CXX", "c++").split()[0]]
    if not all(shutil.which(compiler) for compiler in compilers):
        cure = "xcode-select --install" if mac else "apt-get install build-essential"
        yield f"a C and a C++ compiler ({compilers[0]}, {compilers[1]}): {cure}"


def main() -> None:
    """Exit with every complaint, or quietly."""
    missing = [f"\n  - {item}" for item in lacks()]
    if missing:
        sys.exit("error: batchserve cannot be set up here; it needs" + "".join(missing))


if __name__ == "__main__":
    main()
