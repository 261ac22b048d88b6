"""Approvals and steering in the terminal while an agent runs."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager, suppress

import msgspec
from rich.cells import chop_cells

from .. import show
from ..client import Api, CallFailed, Object
from ..screen import visible
from .printer import Printer

SCOPES = {"y": "once", "s": "session", "a": "always"}
CHOICES = "[y]es, [s]ession, [a]lways, [n]o + reason"
MORE = "Enter for the next part, [n]o + reason"
"""The choices until the whole call was shown."""
APPROVAL_MISSING = 5
"""The exit code if a call needed approval and standard input is not a terminal."""


class Attendant:
    """Answers approval requests of agents, and sends typed lines to them. Costs one task while an agent runs.

    Events of the run and typed lines go through one queue to that task, so that an answer always belongs to the
    question on the screen.
    """

    def __init__(self, api: Api, approve: Collection[str] = ()) -> None:
        self._api = api
        self._approve = frozenset(approve)
        self.is_person = sys.stdin is not None and sys.stdin.isatty() and show.err.is_terminal
        self._inbox: asyncio.Queue[Object | str] = asyncio.Queue()
        self._waiting: dict[str, Object] = {}
        self._parts: tuple[str, list[str]] = ("", [])
        """The id of the call that needs approval, and the parts of it that were not shown yet."""
        self._typed = b""
        self._run_id = ""
        self._printer = Printer(silent=True)
        self.missed = False
        """True if a run was stopped because a tool call needed approval and standard input is not a terminal."""

    @asynccontextmanager
    async def beside(self, run_id: str, printer: Printer) -> AsyncGenerator[None]:
        """Read the keyboard until the block is left. Then the prompt reads it again."""
        self._run_id, self._printer = run_id, printer
        self._inbox, self._waiting, self._parts = asyncio.Queue(), {}, ("", [])
        attending = asyncio.create_task(self._attend())
        self._listen()
        try:
            yield
        finally:
            self._stop_listening()
            attending.cancel()
            await asyncio.wait({attending})

    def take(self, event: Object) -> None:
        """Handle an event of the run if it is about approvals."""
        if event["type"] in ("approval.requested", "approval.decided"):
            self._inbox.put_nowait(event)

    async def _attend(self) -> None:
        while True:
            item = await self._inbox.get()
            try:
                await (self._handle_line(item.strip()) if isinstance(item, str) else self._see(item))
            except CallFailed as error:
                self._printer.aside(str(error), "yellow")
                self._ask()

    # the keyboard

    def _listen(self) -> None:
        if self.is_person:
            with suppress(NotImplementedError):  # not possible on Windows: approve in the browser
                asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._read)

    def _stop_listening(self) -> None:
        if self.is_person:
            with suppress(NotImplementedError):
                asyncio.get_running_loop().remove_reader(sys.stdin.fileno())

    def _read(self) -> None:
        """Read the typed lines. A terminal delivers whole lines."""
        data = os.read(sys.stdin.fileno(), 65536)
        if not data:
            self._stop_listening()  # Ctrl-D: no more input for this run
        *lines, self._typed = (self._typed + data).split(b"\n")
        for line in lines:
            self._inbox.put_nowait(line.decode("utf-8", "replace"))

    # approvals

    async def _see(self, event: Object) -> None:
        if event["type"] == "approval.decided":
            if self._waiting.pop(event["id"], None):  # in another client
                self._ask()
        elif event["tool"] in self._approve:
            await self._decide(event, {"decision": "allow"})
        elif self.is_person:
            self._waiting[event["id"]] = event
            if len(self._waiting) == 1:
                self._ask()
        else:
            await self._refuse(event)

    def _ask(self) -> None:
        """Show the next question, if there is one: the whole call, one part after the other."""
        request = next(iter(self._waiting.values()), None)
        if request is None:
            return
        call, parts = self._parts
        if call != request["id"] or not parts:
            parts = parts_of(request["arguments"], *show.err.size)
            self._printer.aside(f"Allow {visible(request['tool'])}?", "bold")
        self._parts = request["id"], parts[1:]
        self._printer.aside(parts[0], "")
        left = f"{show.plural(len(parts) - 1, 'more part')}. {MORE}" if parts[1:] else CHOICES
        self._printer.aside(f"{left}: ", "bold", end="")

    async def _refuse(self, event: Object) -> None:
        """Stop a run that would wait for ever. After a mere denial it might end as completed."""
        self.missed = True
        tool = event["tool"]
        self._printer.aside(
            f"Stopped: {tool} needs approval, and this is not a terminal. Use --approve {tool} to allow it.",
            "yellow",
        )
        await self._api.call("POST", f"/api/runs/{self._run_id}/stop")

    async def _answer(self, request: Object, line: str) -> None:
        choice, _, note = line.partition(" ")
        if choice in SCOPES and not note and not self._is_cut(request):
            decision = {"decision": "allow", "scope": SCOPES[choice]}
        elif choice == "n":
            decision = {"decision": "deny", "note": note.strip()}
        else:
            self._ask()
            return
        del self._waiting[request["id"]]
        await self._decide(request, decision)
        self._ask()

    def _is_cut(self, request: Object) -> bool:
        """True while part of the call was not shown yet: only a call that was shown whole can be allowed."""
        call, parts = self._parts
        return call != request["id"] or bool(parts)

    async def _decide(self, request: Object, decision: Object) -> None:
        await self._api.call("POST", f"/api/runs/{self._run_id}/approvals/{request['id']}", decision)

    # steering

    async def _handle_line(self, line: str) -> None:
        """Use a line as the answer to the open question. Without one, send it to the agent."""
        request = next(iter(self._waiting.values()), None)
        if request is not None:
            await self._answer(request, line)
        elif line.startswith("/"):
            self._printer.aside("Commands are not available while the agent is running. Ctrl-C stops it.", "yellow")
        elif line:
            await self._api.call("POST", f"/api/runs/{self._run_id}/steer", {"input": line})


MARGIN = "  │ "
"""Prefix of each line of a call, so that no call can imitate our own output."""


def parts_of(arguments: str, width: int, height: int) -> list[str]:
    """Return all arguments of a call in parts that fit on a screen, with every character visible."""
    lines = [MARGIN + piece for line in _lines_of(arguments) for piece in chop_cells(line, max(width - 6, 20)) or [""]]
    size = max(height - 4, 4)
    return ["\n".join(lines[first : first + size]) for first in range(0, len(lines), size)]


def _lines_of(arguments: str) -> list[str]:
    """Return JSON as lines. A line end in a string stays visible, and also begins a new line on the screen."""
    with suppress(msgspec.DecodeError):
        arguments = msgspec.json.format(arguments)
    return visible(_LINE_END.sub(r"\1\n", arguments)).split("\n")


_LINE_END = re.compile(r"((?<!\\)(?:\\\\)*\\n)(?!\")")
