"""The machine: which core does what, what a process costs, and what the figures were measured on."""

import ctypes
import os
import platform
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.cli.doctor.interpreter import this_build

TICK = os.sysconf("SC_CLK_TCK")
CORES = sorted(os.sched_getaffinity(0))
PLACES = {"target": {CORES[0]}, "load": {CORES[-1]}}
"""Who has which cores."""
LOAD_BEFORE = os.getloadavg()[0]
"""Taken when this is imported: later on it would be that of the bench itself."""
ROOT = Path(__file__).parent.parent
PR_SET_PDEATHSIG = 1


def share_cores() -> None:
    """From here on everything may run wherever there is room, on the cores that it had before."""
    both = PLACES["target"] | PLACES["load"]
    PLACES.update(target=both, load=both)


def become_target() -> None:
    """For a fresh process: its own group, so that all of it can be ended, and an end together with its parent."""
    os.setsid()
    os.sched_setaffinity(0, PLACES["target"])
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def pin_load() -> None:
    os.sched_setaffinity(0, PLACES["load"])


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
    """User and system time of a process and its children, the ended ones too. Exact, save for the ended ones' ticks."""
    return sum(_own_cpu_seconds(each) + _ended_cpu_seconds(each) for each in processes(pid))


def _own_cpu_seconds(pid: int) -> float:
    """What the scheduler has counted for a process in ns: /proc/<pid>/stat has it in ticks of 10 ms only."""
    try:
        return time.clock_gettime((~pid << 3) | 2)  # the kernel's number for the CPU clock of another process
    except OSError:
        return 0.0


def _ended_cpu_seconds(pid: int) -> float:
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, after_name[13:15])) / TICK


def waited_seconds(pid: int) -> float:
    """How long the threads of a process were ready to run and did not, because others had their core."""
    waited = 0
    for each in processes(pid):
        for thread in Path(f"/proc/{each}/task").glob("*/schedstat"):
            try:
                waited += int(thread.read_text().split()[1])
            except (OSError, IndexError):
                continue
    return waited / 1e9


def everybody() -> dict[int, float]:
    """The CPU seconds of every process there is."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return {pid: _own_cpu_seconds(pid) for pid in pids}


def stolen_seconds() -> float:
    """How long the two cores were wanted here and used by other machines of the same host."""
    names = {f"cpu{core}" for cores in PLACES.values() for core in cores}
    lines = map(str.split, Path("/proc/stat").read_text().splitlines())
    return sum(int(line[8]) for line in lines if line[0] in names) / TICK


@dataclass
class Memory:
    rss_kb: int
    pss_kb: int

    def figures(self, before: "Memory", streams: int) -> dict[str, float]:
        """What so many streams have added to what was there before them."""
        return {
            "rss_before_mb": before.rss_kb / 1024,
            "rss_mb": self.rss_kb / 1024,
            "kb_per_stream": (self.rss_kb - before.rss_kb) / streams,
            "pss_kb_per_stream": (self.pss_kb - before.pss_kb) / streams,
        }


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
        "python": " ".join([platform.python_version(), this_build()]).strip(),
        "load_before": LOAD_BEFORE,
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
