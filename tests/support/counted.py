"""The server with a counter: `python -m tests.support.counted SOCKET serve ...` counts the calls of its event loop.

Calls of Python functions in Holdfast and in the packages it runs on, each step of a coroutine included; those of the
standard library differ between versions of Python and are left out. Unlike seconds they are the same on every machine
and under every load. Whoever connects to SOCKET is told how many there have been.
"""

import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from holdfast.cli import main

PACKAGES = ("/holdfast/", "/uvicorn/", "/starlette/", "/anyio/")
INLINED = {"<listcomp>", "<dictcomp>", "<setcomp>"}  # calls in Python 3.11, and none from 3.12 on


class Counter:
    """Counts in the thread that runs it, which is the one with the event loop."""

    def __init__(self) -> None:
        self.calls = 0
        self._is_counted: dict[Any, bool] = {}

    def profile(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        counts = self._is_counted.get(code)
        if counts is None:
            counts = code.co_name not in INLINED and any(part in code.co_filename for part in PACKAGES)
            self._is_counted[code] = counts
        self.calls += counts


def tell(counted: Callable[[], int], path: Path) -> None:
    """Answer everybody who connects, from a thread that is not counted."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def answer() -> None:
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(str(counted()).encode())

    threading.Thread(target=answer, daemon=True).start()


if __name__ == "__main__":
    counter = Counter()
    tell(lambda: counter.calls, Path(sys.argv.pop(1)))
    sys.setprofile(counter.profile)
    main()
