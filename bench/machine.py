"""The machine: which core does what, what a process costs, and what the figures were measured on."""

import ctypes
import os
import platform
import resource
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TICK = os.sysconf("SC_CLK_TCK")
CORES = sorted(os.sched_getaffinity(0))
TARGET_CORE, LOAD_CORE = CORES[0], CORES[-1]
ROOT = Path(__file__).parent.parent
PR_SET_PDEATHSIG = 1


def pin_target() -> None:
    os.sched_setaffinity(0, {TARGET_CORE})


def become_target() -> None:
    """For a fresh process: a group of its own, so that all of it can be ended, and an end with whoever measures it."""
    os.setsid()
    pin_target()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def pin_load() -> None:
    os.sched_setaffinity(0, {LOAD_CORE})


def allow_many_files() -> None:
    """Thousands of streams need thousands of sockets; children inherit the limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def processes(pid: int) -> Iterator[int]:
    """A process and all below it."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            yield from processes(int(child))


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its children, the ended ones too. Resolution: one tick, 10 ms."""
    ticks = 0
    for each in processes(pid):
        after_name = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, after_name[11:15]))
    return ticks / TICK


def busy_seconds(core: int) -> float:
    """How long a core has not been idle."""
    lines = map(str.split, Path("/proc/stat").read_text().splitlines())
    counts = next(line for line in lines if line[0] == f"cpu{core}")
    return sum(int(counts[i]) for i in (1, 2, 3, 6, 7, 8)) / TICK


@dataclass
class Memory:
    rss_kb: int
    pss_kb: int


def memory(pid: int) -> Memory:
    """Resident memory of a process and its children; Pss counts pages they share once."""
    together = Memory(0, 0)
    for each in processes(pid):
        together.rss_kb += _kb(Path(f"/proc/{each}/status"), "VmRSS")
        together.pss_kb += _kb(Path(f"/proc/{each}/smaps_rollup"), "Pss")
    return together


def _kb(file: Path, field: str) -> int:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(field + ":")), 0)


def facts() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "cpu": _cpu_model(),
        "cores": len(CORES),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
    }


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def commit() -> str:
    """The short commit, with a plus where the tree differs from it."""
    try:
        head = _git("rev-parse", "--short=10", "HEAD")
        return head + ("+" if _git("status", "--porcelain", "--", "src") else "")
    except (OSError, subprocess.CalledProcessError):
        return "none"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()
