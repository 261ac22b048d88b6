"""Who is beside an agent at work: a person who allows, denies and steers in the terminal, or nobody."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager, suppress

from . import show
from .client import Api, CallFailed, Object
from .printer import WIDEST, Printer

SCOPES = {"y": "once", "s": "session", "a": "always"}
CHOICES = "y once, s for this session, a always, n (and why) no"
NOBODY = 5
"""The exit code where a call had to be allowed and nobody was there to do it."""


class Attendant:
    """Answers what agents ask for, and passes on what is typed while they work. Costs a task while one does.

    Everything comes to that task in one line: what the run says and what the person types, so that an answer is for
    the question that stood there.
    """

    def __init__(self, api: Api, approve: Collection[str] = ()) -> None:
        self._api = api
        self._approve = frozenset(approve)
        self.is_person = sys.stdin is not None and sys.stdin.isatty() and show.err.is_terminal
        self._heard: asyncio.Queue[Object | str] = asyncio.Queue()
        self._waiting: dict[str, Object] = {}
        self._typed = b""
        self._run_id = ""
        self._printer = Printer(silent=True)
        self.missed = False
        """A run was stopped because nobody could allow what it asked for."""

    @asynccontextmanager
    async def beside(self, run_id: str, printer: Printer) -> AsyncGenerator[None]:
        """Stay until the block is left. Then the keyboard is the prompt's again."""
        self._run_id, self._printer = run_id, printer
        self._heard, self._waiting = asyncio.Queue(), {}
        attending = asyncio.create_task(self._attend())
        self._listen()
        try:
            yield
        finally:
            self._stop_listening()
            attending.cancel()
            await asyncio.wait({attending})

    def take(self, event: Object) -> None:
        """Take in what the run says of its approvals."""
        if event["type"] in ("approval.requested", "approval.decided"):
            self._heard.put_nowait(event)

    async def _attend(self) -> None:
        while True:
            heard = await self._heard.get()
            try:
                await (self._hear(heard.strip()) if isinstance(heard, str) else self._see(heard))
            except CallFailed as error:
                self._printer.aside(str(error), "yellow")
                self._ask()

    # the keyboard

    def _listen(self) -> None:
        if self.is_person:
            with suppress(NotImplementedError):  # Windows cannot: there a person answers in the browser
                asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._read)

    def _stop_listening(self) -> None:
        if self.is_person:
            with suppress(NotImplementedError):
                asyncio.get_running_loop().remove_reader(sys.stdin.fileno())

    def _read(self) -> None:
        """Take what was typed, line by line: a terminal hands over whole ones."""
        data = os.read(sys.stdin.fileno(), 65536)
        if not data:
            self._stop_listening()  # Ctrl-D: nothing more is said to this run
        *lines, self._typed = (self._typed + data).split(b"\n")
        for line in lines:
            self._heard.put_nowait(line.decode("utf-8", "replace"))

    # approvals

    async def _see(self, event: Object) -> None:
        if event["type"] == "approval.decided":
            if self._waiting.pop(event["id"], None):  # by someone else, somewhere else
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
        """Show the question that is next, if there is one."""
        for asked in self._waiting.values():
            called = f"{asked['tool']} {show.line(asked['arguments'], 4 * WIDEST)}"
            self._printer.aside(f"May it call {called}?\n{CHOICES}: ", "bold", end="")
            return

    async def _refuse(self, event: Object) -> None:
        """Stop a run that would wait for ever: a denial alone might let it end as if all were well."""
        self.missed = True
        tool = event["tool"]
        self._printer.aside(
            f"{tool} has to be allowed, and nobody is here to do it: the run is stopped. --approve {tool} allows it.",
            "yellow",
        )
        await self._api.call("POST", f"/api/runs/{self._run_id}/stop")

    async def _answer(self, asked: Object, line: str) -> None:
        word, _, note = line.partition(" ")
        if word in SCOPES and not note:
            said = {"decision": "allow", "scope": SCOPES[word]}
        elif word == "n":
            said = {"decision": "deny", "note": note.strip()}
        else:
            self._ask()
            return
        del self._waiting[asked["id"]]
        await self._decide(asked, said)
        self._ask()

    async def _decide(self, asked: Object, said: Object) -> None:
        await self._api.call("POST", f"/api/runs/{self._run_id}/approvals/{asked['id']}", said)

    # steering

    async def _hear(self, line: str) -> None:
        """Take a line for the answer to what was asked, or else for something to tell the agent."""
        asked = next(iter(self._waiting.values()), None)
        if asked is not None:
            await self._answer(asked, line)
        elif line.startswith("/"):
            self._printer.aside("Commands wait until the agent is done. Ctrl-C stops it.", "yellow")
        elif line:
            await self._api.call("POST", f"/api/runs/{self._run_id}/steer", {"input": line})
