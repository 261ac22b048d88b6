"""Child processes of a tool call, and how all of them end: also those that left their group, or ignore the signal.

Every process that a call starts carries the call's mark in its environment, and what it starts inherits the mark. So
on Linux the whole tree is found in `/proc`, wherever it has moved; elsewhere it is the process group that is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

import msgspec

from ..ids import new_id

MARK = "HOLDFAST_CALL"
POLITE = 0.4
"""Seconds between the signal that asks and the one that does not."""
LAST = 4.0
"""Seconds after which what is still there is reported as having refused to die."""
_LOOK = 0.02
_MUCH = 1 << 20
_REST = 0.02
"""Bytes after which an output is not read for a moment, and how long that is."""

_PROC = "/proc"
_HAS_PROC = os.path.exists("/proc/self/environ")
_MARKED = f"{MARK}=".encode()
_ENVIRONMENT, _NOWHERE = 47, b"0"
"""Which number of a process's `stat`, after its name, tells where its environment lies; 0 for one being set up."""
_KERNEL = 0x00200000
"""The flag of the kernel's own threads."""
_SET_UP = 0.1
"""Seconds for which processes are waited for that have no program yet, all of them together."""


def _server() -> str:
    """Return this process in a way that no later one shares: its number, and when it was born."""
    born = ""
    with contextlib.suppress(OSError), open("/proc/self/stat", "rb") as file:
        born = file.read().rpartition(b")")[2].split()[19].decode()
    return f"{os.getpid()}.{born}"


_SERVER = _server()


class Survivor(msgspec.Struct, frozen=True):
    """A process that did not end when it was asked to."""

    pid: int
    name: str
    is_gone: bool
    """It was killed; otherwise it is still there."""

    def __str__(self) -> str:
        verdict = "ignored the stop and was killed" if self.is_gone else "could not be killed and is still there"
        return f"process {self.pid} ({self.name}) {verdict}"


class Child(asyncio.SubprocessProtocol):
    """A child process, with what it says on both of its outputs.

    It has exited when it has, also where something that it started goes on holding its outputs open.
    """

    def __init__(self, on_output: Callable[[bytes], None] | None) -> None:
        self.pid = 0
        self.returncode: int | None = None
        self._on_output = on_output
        self._exited = asyncio.Event()
        self._transport: asyncio.SubprocessTransport | None = None
        self._read = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take note of the process."""
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self.pid = self._transport.get_pid()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Pass on what it says. One that never pauses is made to: it must not keep the loop for itself."""
        self._read += len(data)
        if self._on_output is not None:
            self._on_output(data)
        pipe = self._transport.get_pipe_transport(fd) if self._transport else None
        if self._read >= _MUCH and isinstance(pipe, asyncio.ReadTransport):
            self._read = 0
            pipe.pause_reading()
            asyncio.get_running_loop().call_later(_REST, _resume, pipe)

    def process_exited(self) -> None:
        """Note how it ended."""
        self.returncode = self._transport.get_returncode() if self._transport else None
        self._exited.set()

    async def wait(self) -> int:
        """Wait until it has exited; the code is negative for a signal."""
        await self._exited.wait()
        return self.returncode or 0

    async def said_all(self, within: float) -> None:
        """Wait until both outputs are closed, but not for long: others may hold them."""
        pipe = self._transport.get_pipe_transport(1) if self._transport else None
        loop = asyncio.get_running_loop()
        until = loop.time() + within
        while pipe is not None and not pipe.is_closing() and loop.time() < until:  # noqa: ASYNC110 - asyncio tells no one
            await asyncio.sleep(_LOOK)

    def close(self) -> None:
        """Let go of its outputs."""
        if self._transport is not None:
            self._transport.close()


def _resume(pipe: asyncio.ReadTransport) -> None:
    if not pipe.is_closing():
        pipe.resume_reading()


async def _start(
    table: ProcessTable,
    command: Sequence[str],
    on_output: Callable[[bytes], None] | None,
    env: Mapping[str, str],
    cwd: str | None,
) -> Child:
    async with table.starting:
        _, child = await asyncio.get_running_loop().subprocess_exec(
            lambda: Child(on_output),
            *command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
    return child


class Processes:
    """The processes of one call. Costs nothing until one is started."""

    def __init__(self, call_id: str = "", table: ProcessTable | None = None) -> None:
        self._table = table or ProcessTable()
        self.groups: set[int] = set()
        """The process groups that the call's own children lead."""
        self._mark = f"{_SERVER}:{call_id or 'call'}:{new_id('tree')}"
        self._has_started = False
        self._started: list[asyncio.Future[Child]] = []

    def environment(self, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Return the environment for a child process, with the mark by which it and its children are found."""
        self._has_started = True  # or is about to be, by whoever asks
        return {**environ, MARK: self._mark}

    def register(self, pid: int) -> None:
        """Name a child process that leads a process group of its own, whoever started it."""
        self._has_started = True
        self.groups.add(pid)

    async def start(
        self,
        *command: str,
        on_output: Callable[[bytes], None] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Child:
        """Start a child process in a session of its own, so that a signal meets it and its children together."""
        marked = self.environment(os.environ if env is None else env)
        self._has_started = True
        starting = asyncio.ensure_future(_start(self._table, command, on_output, marked, cwd))
        self._started.append(starting)
        child = await asyncio.shield(starting)  # whoever is cancelled here has a child all the same
        self.groups.add(child.pid)
        return child

    async def end(self) -> list[Survivor]:
        """End every process of the call: ask, and a moment later insist. Return those that had to be killed.

        Where this is cancelled on the way, the rest is killed at once.
        """
        if not self._has_started:
            return []
        try:
            if starting := [start for start in self._started if not start.done()]:
                await asyncio.wait(starting)
            self.groups |= {child.pid for child in self._children()}
            return await self._end()
        except asyncio.CancelledError:
            self.kill()
            raise
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Close the pipes: they may be held open by someone who is none of ours."""
        for child in self._children():
            child.close()
        self._started.clear()

    def _children(self) -> list[Child]:
        """Return the children that were started, whoever has waited for that."""
        done = [start for start in self._started if start.done() and not start.cancelled()]
        return [start.result() for start in done if start.exception() is None]

    async def _end(self) -> list[Survivor]:
        alive = await self._signal(signal.SIGTERM)
        if not await self._gone_within(POLITE, alive):
            return []
        refused = await self.find()
        await self._signal(signal.SIGKILL)
        left = await self._gone_within(LAST - POLITE, refused, again=signal.SIGKILL)
        return [Survivor(pid, name, pid not in left) for pid, name in sorted((refused | left).items())]

    async def _gone_within(
        self, seconds: float, alive: dict[int, str], again: signal.Signals | None = None
    ) -> dict[int, str]:
        """Wait for the processes to be gone; return those that are not. What they start meanwhile counts too."""
        loop = asyncio.get_running_loop()
        until, pause = loop.time() + seconds, _LOOK
        while alive and loop.time() < until:
            await asyncio.sleep(min(pause, max(0.0, until - loop.time())))
            pause *= 1.5
            alive = await self.find()
            if again is not None and alive:
                self._send(alive, again)
        return alive

    async def _signal(self, number: signal.Signals) -> dict[int, str]:
        found = await self.find()
        self._send(found, number)
        return found

    def _send(self, found: Mapping[int, str], number: signal.Signals) -> None:
        _send(found, number, os.kill if _HAS_PROC else os.killpg)

    def kill(self) -> None:
        """Kill everything, now: the last line, for where there is no time to wait."""
        for _ in range(5):  # what forks while it is looked for is found the next time
            found = self._find_now()
            if not found:
                break
            self._send(found, signal.SIGKILL)

    async def find(self) -> dict[int, str]:
        """Return the living processes of the call: their ids and names."""
        if not _HAS_PROC:
            return self._living_groups()
        return _of_call(await self._table.look(), self._mark, self.groups)

    def _find_now(self) -> dict[int, str]:
        return _of_call(self._table.look_now(), self._mark, self.groups) if _HAS_PROC else self._living_groups()

    def _living_groups(self) -> dict[int, str]:
        return {pid: "process group" for pid in self.groups if _group_lives(pid)}


class Seen(msgspec.Struct, frozen=True, gc=False):
    """A living process, as `/proc` shows it."""

    pid: int
    parent: int
    group: int
    session: int
    born: str
    name: str
    mark: str


class ProcessTable:
    """Looks at the machine's processes for all calls together: one look at a time, shared by whoever waits for one.

    Also starts processes one after the other, so that many calls at once do not hold the loop.
    """

    def __init__(self) -> None:
        self.starting = asyncio.Lock()
        self._looking: asyncio.Task[list[Seen]] | None = None
        self._next: asyncio.Task[list[Seen]] | None = None
        self._marks: dict[tuple[int, bytes], tuple[str, bytes]] = {}

    async def look(self) -> list[Seen]:
        """Return the processes that live at some moment after this was called."""
        if self._next is None or self._next.done():
            self._next = asyncio.create_task(self._look_after(self._looking))
        return await asyncio.shield(self._next)

    async def _look_after(self, before: asyncio.Task[list[Seen]] | None) -> list[Seen]:
        if before is not None and not before.done():
            await asyncio.wait({before})
        self._looking, self._next = asyncio.current_task(), None  # who asks from now on wants to see what comes later
        return await asyncio.to_thread(self.look_now)

    async def end_left_behind(self) -> dict[int, str]:
        """Kill what the tools of a server that is gone have left running: nobody else could stop it any more."""
        if not _HAS_PROC:
            return {}
        seen = await self.look()
        alive = {f"{each.pid}.{each.born}" for each in seen}
        left = {each.pid: each.name for each in seen if each.mark and each.mark.partition(":")[0] not in alive}
        left = await asyncio.to_thread(_in_our_namespace, left)
        _send(left, signal.SIGKILL)
        return left

    def look_now(self) -> list[Seen]:
        """Return the living processes; it takes a moment, so not in a loop that others wait for."""
        marks: dict[tuple[int, bytes], tuple[str, bytes]] = {}
        until = time.monotonic() + _SET_UP
        found = [seen for entry in os.listdir(_PROC) if entry.isdigit() and (seen := self._see(entry, marks, until))]
        self._marks = marks
        return found

    def _see(self, entry: str, marks: dict[tuple[int, bytes], tuple[str, bytes]], until: float) -> Seen | None:
        try:
            name, rest = _begun(entry, until)
        except OSError:
            return None  # it has just ended
        if rest[0] in (b"Z", b"X"):
            return None
        born = (int(entry), rest[19])
        mark, _ = marks[born] = self._mark(entry, born, _where(rest))
        group, session, moment = int(rest[2]), int(rest[3]), born[1].decode()
        return Seen(born[0], int(rest[1]), group, session, moment, name.decode(errors="replace"), mark)

    def _mark(self, entry: str, born: tuple[int, bytes], environment: bytes) -> tuple[str, bytes]:
        """Return a process's mark, and where its environment lies, which is elsewhere with each program that it runs.

        Between its birth and its program's beginning a child has the environment of its parent, and for a moment none:
        so one without a mark is looked at again when that has changed, and one that had a mark keeps it.
        """
        mark, seen = self._marks.get(born, ("", b""))
        if environment == seen and environment != _NOWHERE:
            return mark, seen
        return _mark_of(entry) or mark, environment


def _begun(entry: str, until: float) -> tuple[bytes, list[bytes]]:
    """Return the name and the numbers of a process. One that is just being given a program is waited for, a moment.

    Until it has it, it has no environment either, and would not be known as ours; on a busy machine that takes a while.
    """
    name, rest = _stat(entry)
    while _is_being_set_up(entry, rest) and time.monotonic() < until:
        time.sleep(_SET_UP / 20)
        name, rest = _stat(entry)
    return name, rest


def _stat(entry: str) -> tuple[bytes, list[bytes]]:
    with open(f"/proc/{entry}/stat", "rb") as file:
        stat = file.read()
    return stat[stat.index(b"(") + 1 : stat.rindex(b")")], stat[stat.rindex(b")") + 2 :].split()


def _where(rest: Sequence[bytes]) -> bytes:
    """Return where a process's environment lies."""
    return rest[_ENVIRONMENT] if len(rest) > _ENVIRONMENT else _NOWHERE


def _is_being_set_up(entry: str, rest: Sequence[bytes]) -> bool:
    """Tell whether a process has no environment yet. The kernel's own have none at all; those of others do not tell."""
    if _where(rest) != _NOWHERE or rest[0] in (b"Z", b"X") or int(rest[6]) & _KERNEL:
        return False
    try:
        with open(f"/proc/{entry}/environ", "rb") as file:
            return not file.read(1)
    except PermissionError:
        return False


def _in_our_namespace(found: Mapping[int, str]) -> dict[int, str]:
    """Leave out what runs in a container: the numbers of its processes mean nothing here."""
    ours: dict[int, str] = {}
    for pid, name in found.items():
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/ns/pid") == os.readlink("/proc/self/ns/pid"):
                ours[pid] = name
    return ours


def _mark_of(entry: str) -> str:
    """Return the mark of the call that a process belongs to, as its environment has it now."""
    with contextlib.suppress(OSError), open(f"/proc/{entry}/environ", "rb") as file:
        for line in file.read().split(b"\0"):
            if line.startswith(_MARKED):
                return line[len(_MARKED) :].decode(errors="replace")
    return ""


def _of_call(seen: Sequence[Seen], mark: str, groups: set[int]) -> dict[int, str]:
    """Return the processes that carry a mark, are in a group of ours, or come from one that does."""
    ours = {each.pid: each.name for each in seen if each.mark == mark or {each.group, each.session} & groups}
    grew = bool(ours)
    while grew:
        children = {each.pid: each.name for each in seen if each.parent in ours and each.pid not in ours}
        ours |= children
        grew = bool(children)
    ours.pop(os.getpid(), None)
    return ours


def _group_lives(leader: int) -> bool:
    try:
        os.killpg(leader, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _send(found: Iterable[int], number: signal.Signals, how: Callable[[int, int], None] = os.kill) -> None:
    for pid in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            how(pid, number)
