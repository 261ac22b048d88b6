"""Ctrl-C while a person types or waits: noticed at once, and only where somebody waits."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

T = TypeVar("T")

NUDGED_EVERY = 0.02
"""Seconds between two nudges of a main thread that has not noticed yet."""


class CtrlC:
    """Raises KeyboardInterrupt in what the main thread waits for. Costs a thread that sleeps until a signal comes.

    Python takes notice of a signal between two of its own steps, or when the system call that it waits in is
    interrupted. One that comes after the last step and before that call is noticed only when the call ends, and
    readline's ends with the line. So each Ctrl-C wakes a thread, and that nudges the main one, with a signal that does
    nothing but interrupt, until it has noticed.
    """

    def __init__(self) -> None:
        self._came_between = False
        self._noticed = True

    def __enter__(self) -> CtrlC:
        self._before = signal.signal(signal.SIGINT, self._take)
        if hasattr(signal, "pthread_kill"):  # Windows ends a wait by itself
            self._start_to_nudge()
        return self

    def __exit__(self, *exc: object) -> None:
        if hasattr(signal, "pthread_kill"):
            self._stop_to_nudge()
        signal.signal(signal.SIGINT, self._before)

    def during(self, wait: Callable[[], T]) -> T:
        """Return what is waited for. A Ctrl-C meanwhile, or since the last such wait, raises KeyboardInterrupt."""
        if self._came_between:
            self._came_between = False
            raise KeyboardInterrupt
        try:
            return wait()
        except SystemError as fault:
            if isinstance(fault.__cause__, KeyboardInterrupt):  # input() has let another signal in on its way out
                raise KeyboardInterrupt from None
            raise

    def _take(self, _: int, frame: FrameType | None) -> None:
        """End the wait, or else the next one: what is done between them is not left half done."""
        if _waits(frame):
            raise KeyboardInterrupt
        self._came_between = True

    # the thread that nudges

    def _start_to_nudge(self) -> None:
        self._ear, self._mouth = socket.socketpair()
        self._mouth.setblocking(False)
        self._nudged_before = signal.signal(signal.SIGURG, self._notice)
        self._woken_before = signal.set_wakeup_fd(self._mouth.fileno(), warn_on_full_buffer=False)
        self._nudging = threading.Thread(target=self._listen, name="holdfast-ctrl-c", daemon=True)
        self._nudging.start()

    def _stop_to_nudge(self) -> None:
        signal.set_wakeup_fd(self._woken_before)
        self._mouth.close()
        self._nudging.join()
        self._ear.close()
        signal.signal(signal.SIGURG, self._nudged_before)

    def _listen(self) -> None:
        while signals := self._ear.recv(64):
            if signal.SIGINT in signals:
                self._nudge()

    def _nudge(self) -> None:
        self._noticed = False
        while not self._noticed:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGURG)
            time.sleep(NUDGED_EVERY)

    def _notice(self, *_: object) -> None:
        """Tell the thread that handlers run again: that of Ctrl-C, a lower signal, has run before this one."""
        self._noticed = True


def _waits(frame: FrameType | None) -> bool:
    """Say whether a step of the main thread is one of a wait. No flag could be set and cleared at the right moment."""
    while frame is not None and frame.f_code is not CtrlC.during.__code__:
        frame = frame.f_back
    return frame is not None
