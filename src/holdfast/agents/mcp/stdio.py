"""MCP over the standard input and output of a program: one message for each line.

The SDK's transport takes quadratic time for a long line, and has no limit. This one limits the length of a line.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from ..processes import Processes
from ..processes.children import ChildProcess, OnOutput
from .described import McpServer
from .limit import MOST_BYTES, TOO_LARGE, is_too_large

logger = logging.getLogger(__name__)

POLITE = 1.0
"""Seconds that a program has to exit after its input was closed."""
_LAST_WRITES = 0.5
"""Seconds for writing the remaining messages when the connection is closed."""


class MessageTooLarge(ValueError):
    """A message is longer than the limit, or made of too many values."""

    def __init__(self) -> None:
        super().__init__(TOO_LARGE)


class StdioLines:
    """The lines of a program's output. Reading pauses while more than `MOST_BYTES` are buffered."""

    def __init__(self, on_error: OnOutput | None = None) -> None:
        self.child = ChildProcess(self._feed, self._end, on_error)
        self._whole: deque[bytes] = deque()
        self._waiting = 0
        self._begun: list[bytes] = []
        self._size = 0
        self._is_over = self._is_too_long = False
        self._more = asyncio.Event()

    async def next(self) -> bytes | None:
        """Return the next line; None at the end. After a `MessageTooLarge` there are no more."""
        while not self._whole and not self._is_over:
            self._more.clear()
            await self._more.wait()
        if self._whole:
            line = self._whole.popleft()
            self._waiting -= len(line)
            if self._waiting <= MOST_BYTES:
                self.child.resume()
            return line
        if self._is_too_long:
            raise MessageTooLarge
        return None

    def ignore(self) -> None:
        """Drop all further output. It is still read, so that the program can exit."""
        self._is_over = True
        self._whole.clear()
        self._begun.clear()
        self._more.set()
        self.child.resume()

    def _feed(self, data: bytes) -> None:
        if self._is_over:
            return
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._add(end)
            self._finish_line()
        self._add(rest)
        self._more.set()

    def _add(self, piece: bytes) -> None:
        self._begun.append(piece)
        self._size += len(piece)
        if self._size > MOST_BYTES:
            self._is_too_long = self._is_over = True
            self._begun.clear()

    def _finish_line(self) -> None:
        if self._is_over:
            return
        line = b"".join(self._begun)
        self._begun, self._size = [], 0
        if is_too_large(line):
            self._is_too_long = self._is_over = True
            return
        self._whole.append(line)
        self._waiting += len(line)
        if self._waiting > MOST_BYTES:
            self.child.pause()

    def _end(self) -> None:
        self._is_over = True
        self._more.set()


class ErrorOutput:
    """A program's error output: each line goes to the log, and the last ones are kept to explain a failure."""

    def __init__(self, described: McpServer) -> None:
        self._described = described
        self._rest = b""
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._over = asyncio.Event()

    def feed(self, data: bytes) -> None:
        """Add a piece; an empty one is the end."""
        *lines, self._rest = (self._rest + (data or b"\n")).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._add(self._described.hidden(line[:_LONGEST_LINE].decode(errors="replace").rstrip()))
        if not data:
            self._over.set()

    def _add(self, line: str) -> None:
        if line.strip():
            self._last.append(line)
            logger.info("MCP server %s: %s", self._described.name, line)

    async def ended(self) -> None:
        """Wait until the program has closed it."""
        await self._over.wait()

    def reason(self) -> str:
        """Return the line that explains best why the program ended: the last with an error, else the last."""
        errors = [line for line in self._last if _NAMES_AN_ERROR.search(line)]
        return (errors or list(self._last) or [""])[-1].strip()


_LAST_LINES = 20
_LONGEST_LINE = 2000
"""Maximum length of a line in bytes."""
_NAMES_AN_ERROR = re.compile(r"error|exception|cannot|not found|no such|denied|failed|usage:", re.IGNORECASE)


@asynccontextmanager
async def stdio(
    described: McpServer, processes: Processes, env: dict[str, str], errors: ErrorOutput, on_end: Any
) -> AsyncGenerator[Any]:
    """Start the program and yield the streams of messages from it and to it. `on_end` gets the reason of their end."""
    lines = StdioLines(errors.feed)
    child = await processes.start_server(
        described.command, *described.args, child=lines.child, env=env, cwd=described.cwd or None
    )
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    reading = asyncio.create_task(_read(lines, incoming, on_end))
    writing = asyncio.create_task(_write(child, outgoing, incoming))
    try:
        yield read, write
    finally:
        lines.ignore()
        await write.aclose()
        await asyncio.wait({writing}, timeout=_LAST_WRITES)
        child.close_input()
        for task in (reading, writing):
            task.cancel()
        await asyncio.wait({reading, writing})
        await read.aclose()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(POLITE):
                await child.wait()
                await errors.ended()


async def _read(lines: StdioLines, incoming: Any, on_end: Any) -> None:
    """Pass on the program's messages until it ends, or one is too large."""
    why = ""
    with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        async with incoming:
            try:
                while (line := await lines.next()) is not None:
                    await incoming.send(_message(line))
            except MessageTooLarge as error:
                why = str(error)
            on_end(why)


def _message(line: bytes) -> SessionMessage | Exception:
    """Return a line as a message, or the error if it is not one."""
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


async def _write(child: ChildProcess, outgoing: Any, incoming: Any) -> None:
    """Write messages to the program. A closed input ends the connection."""
    async with outgoing:
        async for sent in outgoing:
            line = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                await child.write(f"{line}\n".encode())
            except OSError:
                await incoming.aclose()
                return
