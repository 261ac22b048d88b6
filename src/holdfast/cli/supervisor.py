"""Keeps several nodes running on this machine, each in a process of its own: `holdfast serve --nodes`."""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import wait

from ..concurrency.retry import Backoff

logger = logging.getLogger(__name__)

ENDING = (signal.SIGTERM, signal.SIGINT)
PASSED_ON = (*ENDING, signal.SIGHUP)
_STEADY = 60.0  # seconds after which a node counts as one that works
_READY = 128  # added to the number of a node that is ready, in the pipe that also gets the numbers of signals
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class NodeLink:
    """The channel by which a node reports to its supervisor. Nodes are numbered from 0."""

    number: int
    pipe: int

    def ready(self) -> None:
        """Report that this node is ready."""
        os.write(self.pipe, bytes([_READY + self.number]))

    def reload_all(self) -> None:
        """Let all nodes reload their settings, as SIGHUP to the supervisor does."""
        os.write(self.pipe, bytes([signal.SIGHUP]))


NodeMain = Callable[[NodeLink], int]
"""Serves as a node until a signal, and returns its exit code. It reports when it is ready."""


class Supervisor:
    """Starts the nodes, starts those again that die, passes signals on, and waits for the last one to end.

    A node that ends before all have been ready once ends the others: a wrong setting is an error, not a loop.
    """

    def __init__(self, count: int, node: NodeMain, on_ready: Callable[[], None]) -> None:
        self._node = node
        self._on_ready = on_ready
        self._processes: dict[int, multiprocessing.context.ForkProcess] = {}
        self._begun = dict.fromkeys(range(count), 0.0)
        self._due = dict.fromkeys(range(count), 0.0)
        self._pauses = {number: Backoff(1.0, 30.0) for number in range(count)}  # until a dead node is started again
        self._ready: set[int] = set()
        self._is_up = self._is_ending = False
        self._code = 0
        self._pipe, self._wake = os.pipe()

    def run(self) -> int:
        """Run until all nodes have ended. Return 0 if a signal asked for it and each of them ended well."""
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(self._wake)
        is_at_terminal = sys.stdin is not None and sys.stdin.isatty()  # SIGHUP then means that it was closed
        for each in ENDING if is_at_terminal else PASSED_ON:
            signal.signal(each, lambda *_: None)  # the pipe has it
        while not self._is_ending or self._processes:
            self._start_those_due()
            if self._pipe in wait(
                [self._pipe, *(process.sentinel for process in self._processes.values())], timeout=1.0
            ):
                for byte in os.read(self._pipe, 1024):
                    self._signalled(byte) if byte in PASSED_ON else self._is_ready(byte - _READY)
            for number, process in list(self._processes.items()):
                if process.exitcode is not None:
                    self._ended(number, self._processes.pop(number).exitcode or 0)
        return self._code

    def _start_those_due(self) -> None:
        for number in self._due.keys() - self._processes.keys() if not self._is_ending else ():
            if self._due[number] <= time.monotonic():
                self._begun[number] = time.monotonic()
                signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)  # a child begins with our handlers
                made = multiprocessing.get_context("fork").Process(target=self._be_node, args=(number, os.getpid()))
                made.start()
                signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
                self._processes[number] = made

    def _be_node(self, number: int, parent: int) -> None:
        signal.set_wakeup_fd(-1)
        for each in ENDING:
            signal.signal(each, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it reads the settings in a moment
        os.setpgid(0, 0)  # Ctrl+C of a terminal reaches this process by its parent only, and so once
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)  # it ends with its parent
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        if os.getppid() != parent:
            sys.exit(1)
        sys.exit(self._node(NodeLink(number, self._wake)))

    def _is_ready(self, number: int) -> None:
        self._ready.add(number)
        if not self._is_up and len(self._ready) == len(self._due):
            self._is_up = True
            self._on_ready()

    def _signalled(self, number: int) -> None:
        self._is_ending = self._is_ending or number in ENDING
        for process in self._processes.values():
            assert process.pid is not None
            os.kill(process.pid, number)

    def _ended(self, number: int, code: int) -> None:
        was_starting = number not in self._ready and -code in ENDING
        self._ready.discard(number)
        if self._is_ending:
            self._code = self._code or int(code != 0 and not was_starting)
        elif not self._is_up:
            self._code = 1
            logger.error("node %d ended with %d before it was ready: the others are ended too", number + 1, code)
            self._signalled(signal.SIGTERM)
        else:
            if time.monotonic() - self._begun[number] > _STEADY:
                self._pauses[number].reset()
            pause = self._pauses[number].next()
            self._due[number] = time.monotonic() + pause
            logger.error("node %d ended with %d, and is started again in %g s", number + 1, code, pause)
