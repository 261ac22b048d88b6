"""One child process: its start, below a guardian on Linux, and its pipes."""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, cast

_GUARDIAN = pathlib.Path(__file__).with_name("guardian.py")
_GUARDS = sys.platform == "linux" and bool(sys.executable) and _GUARDIAN.is_file()
_LOOK = 0.02
_MUCH = 1 << 20
_REST = 0.02
"""Bytes of output after which reading pauses, and the length of the pause."""

OnOutput = Callable[[bytes], None]


class ChildProcess(asyncio.SubprocessProtocol):
    """A command with pipes to it.

    With a guardian, the process that is started is the guardian, and the command is its child. The command counts as
    exited even while one of its children holds its outputs open.
    """

    def __init__(
        self,
        on_output: OnOutput | None = None,
        on_output_end: Callable[[], None] | None = None,
        on_error: OnOutput | None = None,
    ) -> None:
        self.pid = 0
        """The pid of the command, which leads a session."""
        self.guardian = 0
        """The pid of the guardian; 0 without one."""
        self.returncode: int | None = None
        self._on_output = on_output
        self._on_output_end = on_output_end
        self._on_error = on_error
        """The callback for the error output, if that has its own pipe. An empty piece is the end."""
        self._exited = asyncio.Event()
        self._ended = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.SubprocessTransport | None = None
        self._read = 0
        self._is_paused = self._rests = self._is_guarded = False

    # called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the process."""
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self.pid = self._transport.get_pid()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Pass on output. A process that never pauses is paused, so that it does not keep the event loop busy."""
        self._read += len(data)
        listener = self._on_error if fd == 2 else self._on_output
        if listener is not None:
            listener(data)
        if self._read >= _MUCH and not self._rests:
            self._read, self._rests = 0, True
            self._set_reading()
            asyncio.get_running_loop().call_later(_REST, self._rested)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Note the end of a pipe."""
        if fd == 0:
            self._writable.set()
        elif fd == 2:
            if self._on_error is not None:
                self._on_error(b"")
        elif self._on_output_end is not None:
            self._on_output_end()

    def pause_writing(self) -> None:
        """The input pipe is full."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The input pipe has room again."""
        self._writable.set()

    def process_exited(self) -> None:
        """Note that the process that was started has ended: the guardian, or the command itself."""
        if not self._is_guarded and self._transport is not None:
            self.exited(self._transport.get_returncode())
        self._ended.set()

    # its end

    def expect_guardian(self) -> None:
        """Expect a guardian, which reports on the command."""
        self._is_guarded = True

    def guarded(self, pid: int) -> None:
        """Note the pid of the command."""
        self.guardian, self.pid = self.pid, pid

    def exited(self, code: int | None) -> None:
        """Note how the command ended. The first report counts."""
        if not self._exited.is_set():
            self.returncode = code
            self._exited.set()

    async def wait(self) -> int:
        """Wait until the command has exited; the code is negative for a signal."""
        await self._exited.wait()
        return self.returncode or 0

    async def is_ended(self, within: float) -> bool:
        """Wait for the end of the process that was started. A guardian ends after everything below it."""
        try:
            async with asyncio.timeout(within):
                await self._ended.wait()
        except TimeoutError:
            return False
        return True

    async def drained(self, within: float) -> None:
        """Wait until both outputs are closed, at most `within` seconds: another process may hold them open."""
        pipe = self._pipe(1)
        loop = asyncio.get_running_loop()
        until = loop.time() + within
        while pipe is not None and not pipe.is_closing() and loop.time() < until:  # noqa: ASYNC110 - asyncio has no event
            await asyncio.sleep(_LOOK)

    def close(self) -> None:
        """Close the pipes. A guardian that still runs is killed."""
        if self._transport is not None:
            self._transport.close()

    # its pipes

    def pause(self) -> None:
        """Read no more of its output until `resume`."""
        self._is_paused = True
        self._set_reading()

    def resume(self) -> None:
        """Read its output again."""
        self._is_paused = False
        self._set_reading()

    async def write(self, data: bytes) -> None:
        """Write to its input, and wait while the pipe is full. Raises `BrokenPipeError` if the pipe is closed."""
        pipe = self._pipe(0)
        if pipe is None or pipe.is_closing():
            raise BrokenPipeError
        cast(asyncio.WriteTransport, pipe).write(data)
        await self._writable.wait()

    def close_input(self) -> None:
        """Close its input."""
        if (pipe := self._pipe(0)) is not None:
            pipe.close()

    def _rested(self) -> None:
        self._rests = False
        self._set_reading()

    def _set_reading(self) -> None:
        for fd in (1, 2):
            pipe = cast(asyncio.ReadTransport | None, self._pipe(fd))
            if pipe is None or pipe.is_closing():
                continue
            if self._is_paused or self._rests:
                pipe.pause_reading()
            else:
                pipe.resume_reading()

    def _pipe(self, fd: int) -> asyncio.BaseTransport | None:
        return self._transport.get_pipe_transport(fd) if self._transport is not None else None


class _Reports(asyncio.Protocol):
    """Reads the reports of a guardian."""

    def __init__(self, child: ChildProcess, command: str) -> None:
        self._child = child
        self._command = command
        self._rest = b""
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        """Handle whole lines."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for word, number in (line.split() for line in lines):
            self._handle(word, int(number))

    def _handle(self, word: bytes, number: int) -> None:
        if word == b"started":
            self._child.guarded(number)
            self.started.set_result(None)
        elif word == b"exited":
            self._child.exited(number)
        else:
            self.started.set_exception(OSError(number, os.strerror(number), self._command))

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the guardian has ended. If a report is missing, it was killed."""
        if not self.started.done():
            self.started.set_exception(OSError(f"{self._command} could not be started: its guardian ended."))
        self._child.exited(-signal.SIGKILL)


async def start_child(
    starting: asyncio.Lock,
    command: Sequence[str],
    child: ChildProcess,
    *,
    env: Mapping[str, str],
    cwd: str | None = None,
    stdin: bool = False,
    stderr: int | None = subprocess.STDOUT,
) -> ChildProcess:
    """Start a command in a new session, below a guardian on Linux. One at a time: a start blocks the event loop."""
    options: dict[str, Any] = {
        "stdin": subprocess.PIPE if stdin else subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": stderr,
        "env": env,
        "cwd": cwd,
        "start_new_session": True,
    }
    if _GUARDS:
        return await _start_guarded(starting, command, child, options)
    async with starting:
        await asyncio.get_running_loop().subprocess_exec(lambda: child, *command, **options)
    return child


async def _start_guarded(
    starting: asyncio.Lock, command: Sequence[str], child: ChildProcess, options: dict[str, Any]
) -> ChildProcess:
    loop = asyncio.get_running_loop()
    reading, writing = os.pipe()
    reports: IO[bytes] = os.fdopen(reading, "rb", 0)
    guardian = (sys.executable, "-I", "-S", str(_GUARDIAN), str(writing))
    child.expect_guardian()
    try:
        async with starting:
            await loop.subprocess_exec(lambda: child, *guardian, *command, pass_fds=(writing,), **options)
    except BaseException:
        reports.close()
        raise
    finally:
        os.close(writing)
    try:
        _, protocol = await loop.connect_read_pipe(lambda: _Reports(child, command[0]), reports)
        await protocol.started
    except BaseException:
        child.close()
        raise
    return child
