"""The child processes of a tool call, and how they are ended, even if they left their group or ignore signals.

On Linux every command is started below a guardian, so that all of its descendants are found in `/proc` by their
parents. A process that a tool starts by itself is found by the call's mark, which it inherits in its environment.
On other systems only the process group is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from ...environment import child_environment
from ...ids import new_id
from . import children
from .children import ChildProcess, OnOutput

EFFECT_ID = "HOLDFAST_EFFECT_ID"
"""The variable with the effect id of the call that has started a process: an idempotency key."""
MARK = "HOLDFAST_CALL"
POLITE = 0.4
"""Seconds between SIGTERM and SIGKILL."""
LAST = 4.0
"""Seconds after which processes that still run are reported."""
_LOOK = 0.02
_GUARDIAN_ENDS = 1.0
"""Seconds for a guardian without processes to exit."""

_PROC = "/proc"
_HAS_PROC = os.path.exists("/proc/self/environ")
_MARKED = f"{MARK}=".encode()
_ENVIRONMENT, _NOWHERE = 47, b"0"
"""The field of a process's `stat`, after its name, with the address of its environment; 0 while it is set up."""
_KERNEL = 0x00200000
"""The flag of kernel threads."""
_SET_UP = 0.1
"""Total wait, in seconds, for processes that have no program yet."""


class _ThisProcess:
    """The unique identity of this process: its pid and its start time. Each forked node has its own."""

    def __init__(self) -> None:
        self.find()
        if hasattr(os, "register_at_fork"):  # not on Windows
            os.register_at_fork(after_in_child=self.find)

    def find(self) -> None:
        """Read the identity."""
        born = ""
        with contextlib.suppress(OSError), open("/proc/self/stat", "rb") as file:
            born = file.read().rpartition(b")")[2].split()[19].decode()
        self.id = f"{os.getpid()}.{born}"


_SERVER = _ThisProcess()


class Survivor(msgspec.Struct, frozen=True):
    """A process that did not end at SIGTERM."""

    pid: int
    name: str
    is_gone: bool
    """Whether it was killed; otherwise it still runs."""

    def __str__(self) -> str:
        verdict = "ignored the stop and was killed" if self.is_gone else "could not be killed and is still running"
        return f"process {self.pid} ({self.name}) {verdict}"


class Processes:
    """The processes of one call. Costs nothing until one is started."""

    def __init__(
        self,
        call_id: str = "",
        table: ProcessTable | None = None,
        environ: Mapping[str, str] | None = None,
        effect_id: str = "",
    ) -> None:
        self._table = table or ProcessTable()
        self._environ = environ
        self._effect = {EFFECT_ID: effect_id} if effect_id else {}
        self.groups: set[int] = set()
        """The process groups of the call's children."""
        self._mark = f"{_SERVER.id}:{call_id or 'call'}:{new_id('tree')}"
        self._has_started = False
        self._started: list[asyncio.Future[ChildProcess]] = []

    def environment(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment for a child process, with the mark by which it and its children are found.

        The default is the environment of tools: it has no secret of the server unless the settings name it.
        """
        self._has_started = True  # or the caller is about to start one
        given = self._environ if environ is None else environ
        return {**(child_environment() if given is None else given), **self._effect, MARK: self._mark}

    def register(self, pid: int) -> None:
        """Register a child process that leads a process group."""
        self._has_started = True
        self.groups.add(pid)

    async def start(
        self,
        *command: str,
        on_output: OnOutput | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> ChildProcess:
        """Start a child process in a new session, with stdout and stderr in one pipe and no input."""
        return await self._start(ChildProcess(on_output), command, self.environment(env), cwd)

    async def start_server(
        self, *command: str, child: ChildProcess, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> ChildProcess:
        """Start a child process with pipes for input, output and errors."""
        return await self._start(child, command, self.environment(env), cwd, stdin=True, stderr=subprocess.PIPE)

    async def _start(
        self,
        child: ChildProcess,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: str | None,
        *,
        stdin: bool = False,
        stderr: int | None = subprocess.STDOUT,
    ) -> ChildProcess:
        start = children.start_child(self._table.starting, command, child, env=env, cwd=cwd, stdin=stdin, stderr=stderr)
        starting = asyncio.ensure_future(start)
        self._started.append(starting)
        await asyncio.shield(starting)  # a cancel here does not undo the start of the child
        self.groups.add(child.pid)
        return child

    async def end(self) -> list[Survivor]:
        """End every process of the call: SIGTERM, then SIGKILL. Return those that had to be killed.

        If this is cancelled, the rest is killed at once.
        """
        if not self._has_started:
            return []
        try:
            if starting := [start for start in self._started if not start.done()]:
                await asyncio.wait(starting)
            self.groups |= {child.pid for child in self._children()}
            survivors = await self._end()
            await asyncio.gather(*(child.is_ended(_GUARDIAN_ENDS) for child in self._children()))
            return survivors
        except asyncio.CancelledError:
            self.kill()
            raise
        finally:
            self._close_pipes()

    def _close_pipes(self) -> None:
        """Close the pipes: another process may hold them open."""
        for child in self._children():
            child.close()
        self._started.clear()

    def _children(self) -> list[ChildProcess]:
        """Return the children whose start has finished."""
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
        """Wait for the processes to end; return those that have not. New descendants count too."""
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
        """Kill everything at once, when there is no time to wait."""
        for _ in range(5):  # a process that forks meanwhile is found in the next round
            found = self._find_now()
            if not found:
                break
            self._send(found, signal.SIGKILL)

    async def find(self) -> dict[int, str]:
        """Return the running processes of the call: pid and name."""
        if not _HAS_PROC:
            return self._living_groups()
        return self._of_call(await self._table.look())

    def _find_now(self) -> dict[int, str]:
        return self._of_call(self._table.look_now()) if _HAS_PROC else self._living_groups()

    def _of_call(self, seen: Sequence[SeenProcess]) -> dict[int, str]:
        """Return the processes with the mark or in a group of the call, and their descendants.

        Guardians are left out: they exit when they have no children left.
        """
        guardians = {child.guardian for child in self._children()} - {0}
        ours = {each.pid for each in seen if each.mark == self._mark or {each.group, each.session} & self.groups}
        found = _with_descendants(seen, ours | guardians)
        return {pid: name for pid, name in found.items() if pid not in guardians and pid != os.getpid()}

    def _living_groups(self) -> dict[int, str]:
        return {pid: "process group" for pid in self.groups if _group_lives(pid)}


class SeenProcess(msgspec.Struct, frozen=True, gc=False):
    """A running process, from `/proc`."""

    pid: int
    parent: int
    group: int
    session: int
    born: str
    name: str
    mark: str


class ProcessTable:
    """Lists the machine's processes for all calls: one scan at a time, shared by all that wait for one.

    It also starts processes one after the other, so that many calls at once do not block the event loop.
    """

    def __init__(self) -> None:
        self.starting = asyncio.Lock()
        self._looking: asyncio.Task[list[SeenProcess]] | None = None
        self._next: asyncio.Task[list[SeenProcess]] | None = None
        self._marks: dict[tuple[int, bytes], tuple[str, bytes]] = {}

    async def look(self) -> list[SeenProcess]:
        """Return the processes that run at some time after the call."""
        if self._next is None or self._next.done():
            self._next = asyncio.create_task(self._look_after(self._looking))
        return await asyncio.shield(self._next)

    async def _look_after(self, before: asyncio.Task[list[SeenProcess]] | None) -> list[SeenProcess]:
        if before is not None and not before.done():
            await asyncio.wait({before})
        self._looking, self._next = asyncio.current_task(), None  # a later caller needs a later scan
        return await asyncio.to_thread(self.look_now)

    async def end_left_behind(self) -> dict[int, str]:
        """Kill the processes that the tools of a dead server have left running."""
        if not _HAS_PROC:
            return {}
        seen = await self.look()
        alive = {f"{each.pid}.{each.born}" for each in seen}
        marked = {each.pid for each in seen if each.mark and each.mark.partition(":")[0] not in alive}
        left = await asyncio.to_thread(_in_our_namespace, _with_descendants(seen, marked))
        _send(left, signal.SIGKILL)
        return left

    def look_now(self) -> list[SeenProcess]:
        """Return the running processes. Blocks: not for the event loop."""
        marks: dict[tuple[int, bytes], tuple[str, bytes]] = {}
        until = time.monotonic() + _SET_UP
        found = [seen for entry in os.listdir(_PROC) if entry.isdigit() and (seen := self._see(entry, marks, until))]
        self._marks = marks
        return found

    def _see(self, entry: str, marks: dict[tuple[int, bytes], tuple[str, bytes]], until: float) -> SeenProcess | None:
        try:
            name, rest = _begun(entry, until)
        except OSError:
            return None  # it has just ended
        if rest[0] in (b"Z", b"X"):
            return None
        born = (int(entry), rest[19])
        mark, _ = marks[born] = self._mark(entry, born, _where(rest))
        group, session, moment = int(rest[2]), int(rest[3]), born[1].decode()
        return SeenProcess(born[0], int(rest[1]), group, session, moment, name.decode(errors="replace"), mark)

    def _mark(self, entry: str, born: tuple[int, bytes], environment: bytes) -> tuple[str, bytes]:
        """Return a process's mark, and the address of its environment, which changes with each program that it runs.

        Between fork and exec a child has the environment of its parent, and for a moment none: so a process without a
        mark is read again when the address has changed, and one that had a mark keeps it.
        """
        mark, seen = self._marks.get(born, ("", b""))
        if environment == seen and environment != _NOWHERE:
            return mark, seen
        return _mark_of(entry) or mark, environment


def _begun(entry: str, until: float) -> tuple[bytes, list[bytes]]:
    """Return the name and the fields of a process. Waits a moment for one that is between fork and exec.

    Until then it has no environment, and could not be recognised; on a busy machine that takes a while.
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
    """Return the address of a process's environment."""
    return rest[_ENVIRONMENT] if len(rest) > _ENVIRONMENT else _NOWHERE


def _is_being_set_up(entry: str, rest: Sequence[bytes]) -> bool:
    """Return whether a process has no environment yet. Kernel threads never have one; other users' are not readable."""
    if _where(rest) != _NOWHERE or rest[0] in (b"Z", b"X") or int(rest[6]) & _KERNEL:
        return False
    try:
        with open(f"/proc/{entry}/environ", "rb") as file:
            return not file.read(1)
    except PermissionError:
        return False


def _in_our_namespace(found: Mapping[int, str]) -> dict[int, str]:
    """Leave out processes of containers: their pids are of another namespace."""
    ours: dict[int, str] = {}
    for pid, name in found.items():
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/ns/pid") == os.readlink("/proc/self/ns/pid"):
                ours[pid] = name
    return ours


def _mark_of(entry: str) -> str:
    """Return the mark of a call from the environment of a process."""
    with contextlib.suppress(OSError), open(f"/proc/{entry}/environ", "rb") as file:
        for line in file.read().split(b"\0"):
            if line.startswith(_MARKED):
                return line[len(_MARKED) :].decode(errors="replace")
    return ""


def _with_descendants(seen: Sequence[SeenProcess], roots: Iterable[int]) -> dict[int, str]:
    """Return processes and all of their descendants, with their names."""
    ours = set(roots)
    grew = True
    while grew:
        below = {each.pid for each in seen if each.parent in ours} - ours
        ours |= below
        grew = bool(below)
    return {each.pid: each.name for each in seen if each.pid in ours}


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
