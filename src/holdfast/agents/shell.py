"""A shell as a tool: off by default, and with an approval for each call unless the settings say otherwise."""

from __future__ import annotations

import asyncio
import codecs
import os
import pathlib
from typing import Any

from ..events import Replay
from .tools import Approval, ToolContext, ToolOutput
from .tools.beginnings import begins_with, first_words

MOST_OUTPUT = 1_000_000
"""Maximum size of a stored output in bytes; a longer one keeps its head and tail."""
_DRAIN_TIMEOUT = 0.3
"""Seconds for reading the rest of the output after the command has ended: its children may hold the pipe open."""


class Shell:
    """Runs a command in a folder. Everything that the command started is gone when the call is over."""

    name = "shell"
    replay: Replay = "never"
    description = (
        "Run a shell command and return its output, error output included. "
        "Whatever it starts in the background ends with it."
    )
    parameters: dict[str, Any] = {  # noqa: RUF012 - never changed
        "type": "object",
        "properties": {"command": {"type": "string", "description": "the command, as for sh -c"}},
        "required": ["command"],
        "additionalProperties": False,
    }

    def __init__(
        self, folder: str | os.PathLike[str], *, approval: Approval = "ask", timeout: float | None = 120.0
    ) -> None:
        self.approval = approval
        self.timeout = timeout
        self._folder = pathlib.Path(folder)

    def beginning(self, arguments: dict[str, Any]) -> str:
        """Return the first words of a command that is only one program with its arguments."""
        return first_words(str(arguments["command"]))

    def begins(self, arguments: dict[str, Any], beginning: str) -> bool:
        """Return whether a command is one program with its arguments, and begins with these words."""
        return begins_with(str(arguments["command"]), beginning)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Run the command, and return its output and exit code."""
        command = arguments.get("command")
        if not isinstance(command, str) or not command.strip() or "\0" in command:
            return ToolOutput("command is missing.", is_error=True)
        await asyncio.to_thread(self._folder.mkdir, parents=True, exist_ok=True)
        kept = _Kept(context)
        child = await context.processes.start("/bin/sh", "-c", command, on_output=kept.take, cwd=str(self._folder))
        code = await child.wait()
        await child.drained(_DRAIN_TIMEOUT)
        return _output(kept.text(), code)


def _output(output: str, code: int) -> ToolOutput:
    if code == 0:
        return ToolOutput(output)
    ending = f"[ended with status {code}]" if code > 0 else f"[ended by signal {-code}]"
    return ToolOutput(f"{output.rstrip()}\n{ending}".lstrip(), is_error=True)


class _Kept:
    """The head and the tail of an output, collected as it arrives."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def take(self, data: bytes) -> None:
        """Add output, and report it with its last line as progress."""
        self._keep(data)
        lines = data[-1000:].rstrip().rsplit(b"\n", 1)
        self._context.progress(lines[-1][-200:].decode(errors="replace"), output=self._decoder.decode(data))

    def _keep(self, data: bytes) -> None:
        half = MOST_OUTPUT // 2
        room = half - len(self._head)
        self._head += data[:room] if room > 0 else b""
        self._tail += data[max(room, 0) :]
        if len(self._tail) > 2 * half:
            self._dropped += len(self._tail) - half
            del self._tail[:-half]

    def text(self) -> str:
        if not self._dropped:
            return (self._head + self._tail).decode(errors="replace")
        head, tail = self._head.decode(errors="replace"), self._tail.decode(errors="replace")
        return f"{head}\n[... {self._dropped} bytes are left out here ...]\n{tail}"
