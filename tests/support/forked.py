"""Processes that a fork server starts in place of `python -m holdfast`: the side of the test process."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from tests.support.fork_server import Request
from tests.support.long import EVERYTHING
from tests.support.waiting import LONG

ROOT = Path(__file__).resolve().parents[2]
POLL = 0.005

CAN_FORK = sys.platform == "linux" and not EVERYTHING and "COVERAGE_PROCESS_CONFIG" not in os.environ
"""False in `make test-all`, where every start is a real one."""

AT_START = re.compile(r"PYTHON|LD_|MALLOC_|GLIBC_|OPENSSL_|COV|LANG|LC_|TZ$|WEBSOCKETS_")
"""Variables that are read by the interpreter, its libraries or the imports. The fork server must have the same."""


class ForkedProcess:
    """A process that the fork server has forked, with what tests use of `asyncio.subprocess.Process`."""

    def __init__(self, report: socket.socket, why_ended: Callable[[], str]) -> None:
        self._report = report
        self._why_ended = why_ended
        self._report.setblocking(False)
        self._said = b""
        self.pid = 0

    async def started(self) -> None:
        """Wait until it has a process id. If that is cancelled the process is killed."""
        try:
            async with asyncio.timeout(LONG):
                while b"\n" not in self._said:
                    self._take(await asyncio.get_running_loop().sock_recv(self._report, 100))
        except BaseException:
            self._report.close()
            raise
        self.pid = int(self._said.partition(b"\n")[0])

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal. None as long as it runs."""
        if self._said.count(b"\n") == 1:
            try:
                self._take(self._report.recv(100))
            except BlockingIOError:
                return None
        return int(self._said.split()[1])

    def _take(self, said: bytes) -> None:
        """Take in a part of the report, and close the socket after the last one."""
        self._said += said
        if not said or self._said.count(b"\n") == 2:
            self._report.close()
        if not said:
            raise ForkServerEnded(self._why_ended())

    async def wait(self) -> int:
        """Wait for its end, on any event loop."""
        while (code := self.returncode) is None:  # noqa: ASYNC110 - several may wait
            await asyncio.sleep(POLL)
        return code


class ForkServerEnded(AssertionError):
    """The fork server has ended before a process that it has started. The message is what it printed."""


class Starter:
    """The fork server of this test process. It ends with this process, and all that it has started with it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._printed: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `stop`
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.fork_server", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._printed,
                stderr=self._printed,
                env=environment,
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def can_start(self, command: Sequence[str], environment: Mapping[str, str]) -> bool:
        """Return whether a forked process would be as one that the command starts."""
        is_ours = list(command[:3]) == [sys.executable, "-m", "holdfast"]
        return is_ours and at_start(environment) == at_start(self._environment)

    async def start(
        self, command: Sequence[str], *, output: IO[bytes], environment: Mapping[str, str], folder: Path
    ) -> ForkedProcess:
        """Start `python -m MODULE …` without its imports, in a session of its own and with an empty stdin."""
        request = Request(command[2], list(command[3:]), dict(environment), str(folder), own_umask())
        ours, theirs = socket.socketpair()
        process = ForkedProcess(ours, self.why_ended)
        with theirs, open(os.devnull, "rb") as nothing:
            streams = [nothing.fileno(), output.fileno(), output.fileno()]
            socket.send_fds(self._requests, [json.dumps(request._asdict()).encode()], [*streams, theirs.fileno()])
        await process.started()
        return process

    def why_ended(self) -> str:
        """Return how the fork server has ended, and what it printed."""
        code = self._process.wait(LONG)
        printed = b"" if self._printed.closed else os.pread(self._printed.fileno(), 100_000, 0)
        return f"the fork server ended with {code}:\n{printed.decode(errors='replace')}"

    def stop(self) -> None:
        """End it."""
        self._requests.close()
        self._process.wait(LONG)
        self._printed.close()


_shared: list[Starter] = []


def starter(environment: Mapping[str, str]) -> Starter | None:
    """Return the fork server of this test process, started with the environment of its first use.

    None if there is none. The kernel ends it with the thread that started it, so only the main thread does.
    """
    if not _shared and CAN_FORK and threading.current_thread() is threading.main_thread():
        _shared.append(Starter(environment))
    return _shared[0] if _shared else None


def stop_starter() -> None:
    """End the fork server of this test process, if there is one."""
    while _shared:
        _shared.pop().stop()


def own_umask() -> int:
    """Return the mask of this process, which a process that it starts would inherit."""
    match = re.search(r"^Umask:\s+(\d+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert match is not None
    return int(match[1], 8)


def at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that take effect before a command runs."""
    return {name: value for name, value in environment.items() if AT_START.match(name)}
