"""A process that has imported what `holdfast serve` imports, and forks for each start of a server.

Nearly all processor time of a start is spent on imports, and a run of the tests starts hundreds of servers. The forked
process then does what `python -m` does. It differs from a real start only in what happened before `__main__`
(docs/testing.md has the differences).

A request is one message on the socket whose descriptor is the only argument: a `Request` in JSON, with four
descriptors: stdin, stdout, stderr and a socket. That socket gets the process id in one line, and the exit code in
another, as `subprocess` counts it. A process is killed if the other end of its socket is closed. The end of the first
socket ends this process, and that ends all that it forked.
"""

import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
from typing import NamedTuple

PRELOADED = (
    "holdfast.cli.serve",
    "holdfast.upstreams.openai.provider",
    "holdfast.upstreams.scripted",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.loops.uvloop",
    "encodings.idna",
)
"""What a start of `holdfast serve` with the usual settings imports."""

LARGEST = 1 << 20
"""More bytes than any request has."""

_PR_SET_PDEATHSIG = 1


class Request(NamedTuple):
    """What to run: `python -m module …`, and where."""

    module: str
    arguments: list[str]
    environment: dict[str, str]
    folder: str
    umask: int


class ForkServer:
    """Forks for each request, and reports the end of each process that it has forked."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._woken, self._waker = socket.socketpair()
        self._reports: dict[int, socket.socket] = {}
        self._watched: dict[int, socket.socket] = {}
        self._me = os.getpid()

    def serve(self) -> Request | None:
        """Serve until the socket is closed. Return None then; in each forked process, return what it has to run."""
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)  # the socket has it
        while True:
            ready, _, _ = select.select([self._requests, self._woken, *self._watched.values()], [], [])
            self._kill_those_left(ready)
            if self._woken in ready:
                self._woken.recv(4096)
                self._report_ends()
            if self._requests in ready:
                message, descriptors, _, _ = socket.recv_fds(self._requests, LARGEST, 4)
                if not message:
                    return None
                if self._forked(descriptors):
                    return Request(**json.loads(message))

    def _forked(self, descriptors: list[int]) -> bool:
        """Fork. Return True in the new process, which then has nothing of this one but its modules."""
        *streams, report = descriptors
        pid = os.fork()
        if pid == 0:
            self._become_own(streams)
            os.close(report)
            return True
        for each in streams:
            os.close(each)
        self._reports[pid] = self._watched[pid] = socket.socket(fileno=report)
        self._say(self._reports[pid], pid)
        return False

    def _become_own(self, streams: list[int]) -> None:
        os.setsid()
        die_with_parent()
        if os.getppid() != self._me:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for each in (self._requests, self._woken, self._waker, *self._reports.values()):
            each.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)

    def _kill_those_left(self, ready: list[socket.socket]) -> None:
        """Kill the processes that nobody waits for any more: a start that was cancelled leaves one behind."""
        for pid in [pid for pid, report in self._watched.items() if report in ready]:
            del self._watched[pid]
            os.kill(pid, signal.SIGKILL)

    def _report_ends(self) -> None:
        while self._reports:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._watched.pop(pid, None)
            with self._reports.pop(pid) as report:
                self._say(report, os.waitstatus_to_exitcode(status))

    def _say(self, report: socket.socket, number: int) -> None:
        try:
            report.sendall(b"%d\n" % number)
        except BrokenPipeError:
            pass  # nobody waits for it any more


def die_with_parent() -> None:
    """Let the kernel kill this process when the one that started it ends, even by SIGKILL."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def run(request: Request) -> None:
    """Do what the interpreter does for `python -m`, with other modules in memory."""
    os.umask(request.umask)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    sys.path[0] = request.folder
    importlib.invalidate_caches()
    sys.orig_argv[1:] = ["-m", request.module, *request.arguments]
    sys.argv[1:] = request.arguments  # the first one is set with the module
    runpy.run_module(request.module, run_name="__main__", alter_sys=True)


def main() -> None:
    """Import, and serve the socket whose descriptor is the only argument. A forked process returns from here too."""
    die_with_parent()
    requests = socket.socket(fileno=int(sys.argv[1]))
    requests.set_inheritable(False)
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy the pages of all that is shared
    if (request := ForkServer(requests).serve()) is not None:
        run(request)


if __name__ == "__main__":
    main()
