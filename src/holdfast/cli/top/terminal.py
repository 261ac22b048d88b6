"""A view that is drawn again and again on a terminal, until `q` is typed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Generator

from ..screen import safe, unfiltered

try:
    import termios
    import tty
except ImportError:  # Windows has none: Ctrl-C ends the view there
    termios = tty = None  # type: ignore[assignment]

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""Use the second screen of the terminal without a cursor, and return to the first."""
HOME, REST_OF_LINE, REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"

DrawScreen = Callable[[int, int], list[str]]
"""Returns the lines for a width and a height."""


class LiveView:
    """Draws the newest lines. A change of the window's size draws them again at once."""

    def __init__(self, draw: DrawScreen) -> None:
        self._draw = draw
        self._out = unfiltered(sys.stdout)
        self.ended = asyncio.Event()
        """Set by `q` and Ctrl-C."""

    @contextlib.contextmanager
    def full_screen(self) -> Generator[None]:
        """Draw on the terminal's second screen, and read single keys, until the block is left."""
        loop = asyncio.get_running_loop()
        self._out.write(ENTER)
        try:
            with _single_keys():
                loop.add_reader(sys.stdin.fileno(), self._typed)
                loop.add_signal_handler(signal.SIGWINCH, self.draw)
                loop.add_signal_handler(signal.SIGINT, self.ended.set)
                try:
                    yield
                finally:
                    loop.remove_reader(sys.stdin.fileno())
                    loop.remove_signal_handler(signal.SIGWINCH)
                    loop.remove_signal_handler(signal.SIGINT)
        finally:
            self._out.write(LEAVE)
            self._out.flush()

    def draw(self) -> None:
        """Draw the lines in the present size of the window."""
        width, height = os.get_terminal_size(self._out.fileno())
        lines = [safe(line)[:width] + REST_OF_LINE for line in self._draw(width, height)[:height]]
        self._out.write(HOME + "\r\n".join(lines) + REST_OF_SCREEN)
        self._out.flush()

    def _typed(self) -> None:
        if os.read(sys.stdin.fileno(), 64).lower() in (b"q", b"", b"\x03"):
            self.ended.set()


@contextlib.contextmanager
def _single_keys() -> Generator[None]:
    """Read keys as they are typed, and do not show them."""
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
