"""Builds the instruments with whatever C compiler there is, once for each version of their source."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parent
BUILD = SOURCES.parent / ".build"
FLAGS = ["-std=c11", "-O2", "-Wall", "-Wextra"]


def compiler() -> list[str]:
    """The command that compiles C: the system's compiler, or the one in PyPI's ziglang."""
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and shutil.which(name):
            return [name]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc"]
    raise SystemExit("bench: no C compiler; install one, or `pip install ziglang`")


def build(name: str) -> Path:
    """The program made from `<name>.c`, compiled now unless this source has been compiled before."""
    source, common = SOURCES / f"{name}.c", SOURCES / "common.h"
    version = hashlib.sha256(source.read_bytes() + common.read_bytes() + repr(FLAGS).encode()).hexdigest()[:12]
    program = BUILD / f"{name}-{version}"
    if not program.exists():
        BUILD.mkdir(exist_ok=True)
        unfinished = program.with_suffix(f".{os.getpid()}")
        subprocess.run([*compiler(), *FLAGS, str(source), "-o", str(unfinished)], check=True)
        unfinished.rename(program)
    return program


if __name__ == "__main__":
    for each in ("upstream", "client"):
        print(build(each))
