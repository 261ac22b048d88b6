"""What an agent asks a person, and steering, in the terminal while it runs."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

from .. import show
from ..client import Api, CallFailed, Object
from .printer import Printer
from .questions import ANSWERED, KINDS, TerminalQuestion, parts_of

APPROVAL_MISSING = 5
"""The exit code if a person was asked and standard input is not a terminal."""


class Attendant:
    """Answers what agents ask, and sends typed lines to them. Costs one task while an agent runs.

    Events of the run and typed lines go through one queue to that task, so that an answer always belongs to the
    question on the screen.
    """

    def __init__(self, api: Api, approve: Collection[str] = ()) -> None:
        self._api = api
        self._approve = frozenset(approve)
        self.is_person = sys.stdin is not None and sys.stdin.isatty() and show.err.is_terminal
        self._inbox: asyncio.Queue[Object | str] = asyncio.Queue()
        self._waiting: dict[str, TerminalQuestion] = {}
        self._parts: tuple[str, list[str]] = ("", [])
        """The id of the open question, and the parts of it that were not shown yet."""
        self._typed = b""
        self._run_id = ""
        self._printer = Printer(silent=True)
        self.missed = False
        """True if a run was stopped because it asked a person and standard input is not a terminal."""

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
        """Handle an event of the run if it is a question or its answer."""
        if event["type"] in KINDS or event["type"] in ANSWERED:
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

    # questions

    async def _see(self, event: Object) -> None:
        if event["type"] in ANSWERED:
            if self._waiting.pop(event["id"], None):  # in another client
                self._ask()
            return
        question = KINDS[event["type"]](event)
        if event["type"] == "approval.requested" and event["tool"] in self._approve:
            await self._send(event["id"], question, {"decision": "allow"})
        elif self.is_person:
            self._waiting[event["id"]] = question
            if len(self._waiting) == 1:
                self._ask()
        elif question.alone is not None:
            await self._send(event["id"], question, question.alone)
        else:
            await self._refuse(question)

    def _ask(self) -> None:
        """Show the next question, if there is one: all of it, one part after the other."""
        id, question = next(iter(self._waiting.items()), ("", None))
        if question is None:
            return
        shown, parts = self._parts
        if shown != id or not parts:
            parts = parts_of(question.shown(), *show.err.size)
            self._printer.aside(question.title, "bold")
        self._parts = id, parts[1:]
        if parts:
            self._printer.aside(parts[0], "")
        more = f"{show.plural(len(parts) - 1, 'more part')}. Enter for the next part, {question.refusals}"
        self._printer.aside(f"{more if parts[1:] else question.choices}: ", "bold", end="")

    async def _refuse(self, question: TerminalQuestion) -> None:
        """Stop a run that would wait for ever. After a mere denial it might end as completed."""
        self.missed = True
        self._printer.aside(f"Stopped: {question.needs}", "yellow")
        await self._api.call("POST", f"/api/runs/{self._run_id}/stop")

    async def _answer(self, id: str, question: TerminalQuestion, line: str) -> None:
        choice, _, note = line.partition(" ")
        reply = question.reply(choice, note.strip(), is_whole=self._parts == (id, []))
        if reply is not None:
            del self._waiting[id]
            try:
                await self._send(id, question, reply)
            except CallFailed as error:
                if error.status != HTTPStatus.CONFLICT:  # it is still open
                    self._waiting = {id: question, **self._waiting}
                raise
        self._ask()

    async def _send(self, id: str, question: TerminalQuestion, reply: Object) -> None:
        await self._api.call("POST", f"/api/runs/{self._run_id}/{question.path}/{id}", reply)

    # steering

    async def _handle_line(self, line: str) -> None:
        """Use a line as the answer to the open question. Without one, send it to the agent."""
        id, question = next(iter(self._waiting.items()), ("", None))
        if question is not None:
            await self._answer(id, question, line)
        elif line.startswith("/"):
            self._printer.aside("Commands are not available while the agent is running. Ctrl-C stops it.", "yellow")
        elif line:
            await self._api.call("POST", f"/api/runs/{self._run_id}/steer", {"input": line})
