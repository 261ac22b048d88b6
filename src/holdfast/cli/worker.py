"""`python -m holdfast.cli.worker`: a further process of `holdfast serve --workers N`, which starts it."""

from __future__ import annotations

import importlib
import signal
import sys


def main() -> None:
    """Serve until the server ends. Ctrl-C reaches all of its processes, and is for the first of them to take."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    crew = importlib.import_module("..server.crew", __package__)  # which takes its time
    sys.exit(0 if crew.work(sys.stdin.fileno()) else 1)


if __name__ == "__main__":
    main()
