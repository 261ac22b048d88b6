"""The signals that ask a process to end, heard besides those who handle them."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def heard_at_signals(call: Callable[[], object]) -> Iterator[None]:
    """Call a function in the running event loop at each signal to end, before the present handler of the signal.

    A server handles these signals and tells its application nothing: it waits for open responses first. In a thread,
    which gets no signals, and for a signal that no Python code handles, nothing is heard.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    restore = [_hear(number, lambda: loop.call_soon_threadsafe(call)) for number in ENDING]
    try:
        yield
    finally:
        for undo in restore:
            undo()


def _hear(number: signal.Signals, call: Callable[[], object]) -> Callable[[], None]:
    """Put a function before the handler of a signal, and return what takes it away again."""
    handler = signal.getsignal(number)
    if not callable(handler):
        return lambda: None

    def hear(received: int, frame: FrameType | None) -> None:
        call()
        handler(received, frame)

    signal.signal(number, hear)

    def undo() -> None:
        if signal.getsignal(number) is hear:  # otherwise somebody has put another handler before this one
            signal.signal(number, handler)

    return undo
