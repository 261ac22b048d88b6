"""Instructions that a request or a stream takes in the server's user code, counted by callgrind.

    python -m bench.instructions            # all of them
    python -m bench.instructions json       # one
    python -m bench.instructions --keep DIR # leaves callgrind's files there, for callgrind_annotate
    python -m bench.instructions --save     # writes the counts to bench/results/, for docs/performance.md

Needs valgrind. Unlike seconds the counts hardly depend on the machine and its load: two runs differ by less than 1%.
They leave out the kernel and cache misses, and what an idle server does in the same time. Python's hashes are not
random, so that two versions can be compared.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from bench import report
from bench.instruments import Failed, Upstream
from bench.targets import Holdfast

LOADS = {
    "json": (200, {"model": "json", "json": True, "expect": 1}),
    "stream": (200, {"model": "flat:1", "expect": 1}),
    "chunks": (3, {"model": "paced:201:50", "expect": 201}),
}
"""What is counted, how often: an answer without a stream, a stream of one chunk, and one of 201 that come alone."""
IDLE = 5.0  # seconds


class Counted(Holdfast):
    """The server under callgrind, which counts only between `on` and `off`."""

    name = "holdfast-counted"
    patience = 300
    idle = 0.0
    """Instructions of an idle server in a second."""

    @classmethod
    def missing(cls) -> str | None:
        return super().missing() if shutil.which("valgrind") else "no valgrind (apt-get install valgrind)"

    def command(self) -> list[str]:
        out = f"--callgrind-out-file={self.folder}/callgrind"
        return ["valgrind", "--tool=callgrind", "--instr-atstart=no", out, *super().command()]

    def environment(self) -> dict[str, str]:
        return super().environment() | {"PYTHONHASHSEED": "0"}

    def count(self, work: Callable[[], object]) -> float:
        """Instructions during some work, without those of an idle server."""
        self._control("-i", "on")
        self._control("-z")
        began = time.monotonic()
        work()
        seconds = time.monotonic() - began
        self._control("-d")
        self._control("-i", "off")
        return total_of(self.dump()) - self.idle * seconds

    def count_load(self, requests: int, load: dict[str, object]) -> float:
        """Instructions for each of so many requests, one after the other."""
        self.load(streams=1, requests=requests // 3, timeout=120, **load)
        seen: dict[str, int] = {}
        total = self.count(lambda: seen.update(self.load(streams=1, requests=requests, timeout=120, **load)))
        if seen["answered"] != requests:
            raise Failed(f"{seen['answered']} of {requests} answers were whole")
        return total / requests

    def dump(self) -> Path:
        """What callgrind wrote last."""
        return max(self.folder.glob("callgrind.*"), key=lambda path: int(path.suffix[1:]))

    def _control(self, *what: str) -> None:
        subprocess.run(["callgrind_control", *what, str(self.pid)], check=True, capture_output=True)


def total_of(path: Path) -> int:
    """The sum of a dump."""
    (total,) = re.findall(r"^(?:summary|totals): (\d+)", path.read_text(errors="replace"), re.MULTILINE)[:1]
    return int(total)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=list(LOADS), metavar="|".join(LOADS))
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    counts: dict[str, float] = {}
    upstream = Upstream()
    server = Counted(upstream.port, ["bench", *(str(load["model"]) for _, load in LOADS.values())])
    try:
        server.count_load(*LOADS["json"])  # what is made once is made
        server.idle = server.count(lambda: time.sleep(IDLE)) / IDLE
        print(f"idle     {server.idle:12,.0f} in a second", flush=True)
        for what in options.what:
            counts[what] = server.count_load(*LOADS[what])
            print(f"{what:8} {counts[what]:12,.0f}", flush=True)
            if options.keep:
                shutil.copy(server.dump(), options.keep / f"callgrind.{what}")
    finally:
        server.stop()
        upstream.stop()
    if options.save:
        scenarios = {what: {"median": {Holdfast.name: {"instructions": count}}} for what, count in counts.items()}
        print(report.save({"kind": "instructions", "scenarios": scenarios}, None, "instructions"))


if __name__ == "__main__":
    main()
