"""Child processes of a tool call, and how all of them end: also those that left their group, or ignore the signal.

Every process that a call starts carries the call's mark in its environment, and what it starts inherits the mark. So
on Linux the whole tree is found in `/proc`, wherever it has moved; elsewhere it is the process group that is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import signal
from collections.abc import Mapping
from typing import Any

import msgspec

from ..ids import new_id

MARK = "HOLDFAST_CALL"
POLITE = 0.4
"""Seconds between the signal that asks and the one that does not."""
LAST = 4.0
"""Seconds after which what is still there is reported as having refused to die."""
_LOOK = 0.02

_PROC = pathlib.Path("/proc")


class Survivor(msgspec.Struct, frozen=True):
    """A process that did not end when it was asked to."""

    pid: int
    name: str
    is_gone: bool
    """It was killed; otherwise it is still there."""

    def __str__(self) -> str:
        verdict = "ignored the stop and was killed" if self.is_gone else "could not be killed and is still there"
        return f"process {self.pid} ({self.name}) {verdict}"


class Processes:
    """The processes of one call. Costs nothing until one is started."""

    def __init__(self, call_id: str = "") -> None:
        self._mark = f"{call_id or 'call'}:{new_id('tree')}"
        self._groups: set[int] = set()
        self._has_started = False
        self._started: list[Any] = []

    def environment(self, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Return the environment for a child process, with the mark by which it and its children are found."""
        return {**environ, MARK: self._mark}

    def register(self, pid: int) -> None:
        """Name a child process that leads a process group of its own, whoever started it."""
        self._has_started = True
        self._groups.add(pid)

    async def start(self, *command: str, env: Mapping[str, str] | None = None, **options: Any) -> Any:
        """Start a child process in a session of its own, so that a signal meets it and its children together."""
        marked = self.environment(os.environ if env is None else env)
        self._has_started = True  # whoever is cancelled in the next line has a child that nobody named
        process = await asyncio.create_subprocess_exec(*command, env=marked, start_new_session=True, **options)
        self._groups.add(process.pid)
        self._started.append(process)
        return process

    async def end(self) -> list[Survivor]:
        """End every process of the call: ask, and a moment later insist. Return those that had to be killed.

        Where this is cancelled on the way, the rest is killed at once.
        """
        if not self._has_started:
            return []
        try:
            return await self._end()
        except asyncio.CancelledError:
            self.kill()
            raise
        finally:
            for process in self._started:
                process._transport.close()  # its pipes may be held open by someone who is none of ours
            self._started.clear()

    async def _end(self) -> list[Survivor]:
        alive = await self._signal(signal.SIGTERM)
        if not await self._gone_within(POLITE, alive):
            return []
        refused = await asyncio.to_thread(self._find)
        await self._signal(signal.SIGKILL)
        left = await self._gone_within(LAST - POLITE, refused, again=signal.SIGKILL)
        return [Survivor(pid, name, pid not in left) for pid, name in sorted(refused.items())]

    async def _gone_within(
        self, seconds: float, alive: dict[int, str], again: signal.Signals | None = None
    ) -> dict[int, str]:
        """Wait for the processes to be gone; return those that are not. What they start meanwhile counts too."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while alive and loop.time() < until:
            await asyncio.sleep(_LOOK)
            alive = await asyncio.to_thread(self._find)
            if again is not None and alive:
                _send(alive, again)
        return alive

    async def _signal(self, number: signal.Signals) -> dict[int, str]:
        found = await asyncio.to_thread(self._find)
        _send(found, number)
        return found

    def kill(self) -> None:
        """Kill everything, now: the last line, for where there is no time to wait."""
        for _ in range(5):  # what forks while it is looked for is found the next time
            found = self._find()
            if not found:
                break
            _send(found, signal.SIGKILL)

    def _find(self) -> dict[int, str]:
        """Return the living processes of the call, by their ids."""
        if not _PROC.joinpath("self/environ").exists():
            return {pid: "group" for pid in self._groups if _group_lives(pid)}
        return _marked(f"{MARK}={self._mark}".encode(), self._groups)


def _marked(mark: bytes, groups: set[int]) -> dict[int, str]:
    """Return the processes that carry a mark, lead a group of ours, or come from one that does."""
    parents: dict[int, int] = {}
    ours: dict[int, str] = {}
    names: dict[int, str] = {}
    for entry in os.listdir(_PROC):
        if not entry.isdigit():
            continue
        pid = int(entry)
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = (_PROC / entry / "stat").read_bytes()
            name, rest = stat[stat.index(b"(") + 1 : stat.rindex(b")")], stat[stat.rindex(b")") + 2 :].split()
            if rest[0] in (b"Z", b"X"):
                continue
            parents[pid], names[pid] = int(rest[1]), name.decode(errors="replace")
            if int(rest[2]) in groups or int(rest[3]) in groups or _carries(entry, mark):
                ours[pid] = names[pid]
    grew = True
    while grew:
        children = {pid: names[pid] for pid, parent in parents.items() if parent in ours and pid not in ours}
        ours |= children
        grew = bool(children)
    ours.pop(os.getpid(), None)
    return ours


def _carries(entry: str, mark: bytes) -> bool:
    with contextlib.suppress(OSError):
        return mark in (_PROC / entry / "environ").read_bytes().split(b"\0")
    return False


def _group_lives(leader: int) -> bool:
    try:
        os.killpg(leader, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _send(found: Mapping[int, str], number: signal.Signals) -> None:
    for pid, name in found.items():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number) if name == "group" else os.kill(pid, number)
