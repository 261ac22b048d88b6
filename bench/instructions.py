"""Instructions that a request or a stream takes in the server's user code, counted by callgrind.

    python -m bench.instructions            # all of them
    python -m bench.instructions json       # one
    python -m bench.instructions --keep DIR # leaves callgrind's files there, for callgrind_annotate

Needs valgrind. Unlike seconds the counts hardly depend on the machine and its load: two runs differ by less than 1%.
They leave out the kernel and cache misses. Python's hashes are not random, so that two versions can be compared.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from pathlib import Path

from bench.instruments import Failed, Upstream
from bench.targets import Holdfast

WARM_UP, COUNTED = 60, 200
SHORT, LONG = 1, 201
LOADS = {
    "json": {"model": "json", "json": True, "expect": 1},
    "stream": {"model": f"flat:{SHORT}", "expect": SHORT},
    "chunk": {"model": f"paced:{LONG}:200", "expect": LONG},
}
"""What is counted: an answer without a stream, a stream of one chunk, and 201 chunks that come alone."""


class Counted(Holdfast):
    """The server under callgrind, which counts only between `begin` and `end`."""

    name = "holdfast-counted"
    patience = 300
    dump: Path
    """What callgrind wrote of the last load."""

    @classmethod
    def missing(cls) -> str | None:
        return super().missing() if shutil.which("valgrind") else "no valgrind (apt-get install valgrind)"

    def command(self) -> list[str]:
        out = f"--callgrind-out-file={self.folder}/callgrind"
        return ["valgrind", "--tool=callgrind", "--instr-atstart=no", out, *super().command()]

    def environment(self) -> dict[str, str]:
        return super().environment() | {"PYTHONHASHSEED": "0"}

    def control(self, *what: str) -> None:
        subprocess.run(["callgrind_control", *what, str(self.pid)], check=True, capture_output=True)

    def count(self, requests: int, **load: object) -> float:
        """Instructions for each of so many requests, one after the other."""
        self.load(streams=1, requests=WARM_UP, timeout=120, **load)
        self.control("-i", "on")
        self.control("-z")
        seen = self.load(streams=1, requests=requests, timeout=120, **load)
        self.control("-d")
        self.control("-i", "off")
        if seen["answered"] != requests:
            raise Failed(f"{seen['answers']} of {requests} answers were whole")
        newest = max(self.folder.glob("callgrind.*"), key=lambda path: int(path.suffix[1:]))
        self.dump = newest
        return total_of(newest) / requests


def total_of(path: Path) -> int:
    """The sum of a dump."""
    (total,) = re.findall(r"^(?:summary|totals): (\d+)", path.read_text(errors="replace"), re.MULTILINE)[:1]
    return int(total)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=list(LOADS), metavar="|".join(LOADS))
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    upstream = Upstream()
    server = Counted(upstream.port, [str(load["model"]) for load in LOADS.values()])
    try:
        for what in options.what:
            each = server.count(COUNTED if what != "chunk" else 3, **LOADS[what])
            print(f"{what:8} {each:12,.0f}", flush=True)
            if options.keep:
                shutil.copy(server.dump, options.keep / f"callgrind.{what}")
    finally:
        server.stop()
        upstream.stop()


if __name__ == "__main__":
    main()
