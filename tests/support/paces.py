"""Runs some tests on machines of several speeds: `python -m tests.support.paces [FILE ...]`.

Each file alone on idle cores and with its page slowed down, then several files at once with and without other work,
always in a random order. What is a race at one speed is a failure at another. The first failure ends it, with the
command that repeats it.
"""

import argparse
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

SOME = [
    "tests/browser/test_composer.py",
    "tests/browser/test_lifecycle.py",
    "tests/browser/test_temporary.py",
    "tests/browser/test_turns.py",
    "tests/acceptance/test_busy.py",
    "tests/acceptance/test_stop.py",
    "tests/acceptance/test_subscribe.py",
    "tests/unit/test_forked.py",
]
"""Pages, real servers and processes: a few minutes in all."""


@dataclass(frozen=True)
class Pace:
    """A speed: how much slower pages compute, files at once (0: each alone), and other processes that are busy."""

    throttle: int = 1
    at_once: int = 0
    busy: int = 0


PACES = [Pace(), Pace(throttle=6), Pace(at_once=1), Pace(at_once=4, busy=4), Pace(at_once=8, throttle=2)]


def runs(pace: Pace, files: list[str]) -> list[list[str]]:
    """The arguments of pytest for each of its runs."""
    if pace.at_once:
        return [["--numprocesses", str(pace.at_once), "--dist", "loadfile", *files]]
    return [["--numprocesses", "0", file] for file in files]


def repeats(pace: Pace, arguments: list[str], seed: str) -> str:
    """The command that repeats a run, for a shell."""
    beside = f"  # beside {pace.busy} busy processes" if pace.busy else ""
    variables = f"HOLDFAST_TEST_SEED={seed} HOLDFAST_TEST_THROTTLE={pace.throttle}"
    return f"{variables} {sys.executable} -m pytest {' '.join(arguments)}{beside}"


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Other work: processes that compute all the time."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def play(pace: Pace, files: list[str], seed: str) -> bool:
    environment = {**os.environ, "HOLDFAST_TEST_SEED": seed, "HOLDFAST_TEST_THROTTLE": str(pace.throttle)}
    with busy(pace.busy):
        for arguments in runs(pace, files):
            print(repeats(pace, arguments, seed), flush=True)
            if subprocess.run([sys.executable, "-m", "pytest", "-q", *arguments], env=environment).returncode:
                print(f"Failed. Repeat it: {repeats(pace, arguments, seed)}")
                return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", default=SOME, help="Files of tests, or folders; some of each kind without.")
    parser.add_argument("--seed", help="Of the order; a new one for each pace without it.")
    given = parser.parse_args()
    seeds = [given.seed or str(random.SystemRandom().randrange(1_000_000)) for _ in PACES]
    return 0 if all(play(pace, given.files, seed) for pace, seed in zip(PACES, seeds, strict=True)) else 1


if __name__ == "__main__":
    sys.exit(main())
