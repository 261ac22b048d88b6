"""The prompt of a chat: a line editor for a person at a terminal, plain lines for a pipe."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from .. import show
from ..client import Object
from ..screen import safe
from .ctrl_c import CtrlC


def screen() -> Any:
    """Return the terminal's stream for the prompt; None without a terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        return None
    return next((stream for stream in (sys.stderr, sys.stdout) if stream is not None and stream.isatty()), None)


class TerminalPrompt:
    """Asks for one message after the other. The editor is loaded only on a terminal."""

    def __init__(self, ctrl_c: CtrlC) -> None:
        self._ctrl_c = ctrl_c
        self._screen = screen()
        self._lines = Lines(ctrl_c)
        self._sent: list[str] = []
        self._editor: Any = None

    def remember(self, messages: Sequence[Object]) -> None:
        """Offer the messages of a session as history. They come from a server, so control characters are removed."""
        own = (message for message in messages if message["role"] == "user" and not message.get("automatic"))
        contents = (message["content"] for message in own)
        self._sent += [safe(content) for content in contents if isinstance(content, str)]

    async def ask(self) -> str | None:
        """Return the next message: None at the end of the input, and "" if Ctrl-C discarded the text."""
        if self._screen is None:
            line = await self._lines.next()
            return None if line is None else line.strip()
        try:
            return (await self._edit()).strip()
        except EOFError:
            return None
        except KeyboardInterrupt:
            show.note("Press Ctrl-D to quit.")
            return ""

    async def _edit(self) -> str:
        if self._editor is None:  # a tenth of a second to load
            self._editor = importlib.import_module(".editor", __package__).Editor(self._screen, self._sent)
        with self._ctrl_c.reaches(self._editor.interrupt):
            text: str = await self._editor.edit()
        return well_formed(text)


class Lines:
    """Lines of standard input. A thread reads each of them, so that the event loop is not blocked.

    `os.read` and not `sys.stdin`: a thread that waits in `sys.stdin` holds its lock when the process ends.
    """

    def __init__(self, ctrl_c: CtrlC) -> None:
        self._ctrl_c = ctrl_c
        self._rest = b""

    async def next(self) -> str | None:
        """Return the next line without its end: None at the end of the input, or at Ctrl-C."""
        while b"\n" not in self._rest:
            data = await self._read()
            if not data and not self._rest:
                return None
            self._rest += data or b"\n"
        line, _, self._rest = self._rest.partition(b"\n")
        return well_formed(line.decode(sys.stdin.encoding, "surrogateescape"))

    async def _read(self) -> bytes:
        if sys.stdin is None:
            return b""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[bytes] = loop.create_future()

        def deliver(data: bytes) -> None:
            if not done.done():
                done.set_result(data)

        def read() -> None:
            data = os.read(sys.stdin.fileno(), 65536)
            with suppress(RuntimeError):  # the loop is closed: there is no waiter any more
                loop.call_soon_threadsafe(deliver, data)

        threading.Thread(target=read, name="holdfast-input", daemon=True).start()
        with self._ctrl_c.reaches(lambda: deliver(b"")):
            return await done


def well_formed(text: str) -> str:
    """Return a text that JSON can encode. Bytes that the locale could not decode are read as UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
