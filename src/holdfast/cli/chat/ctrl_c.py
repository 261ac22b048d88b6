"""Ctrl-C in a command that runs an event loop: the first one stops the current work, the second one exits."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

from .. import show
from ..client import Api, CallFailed


class CtrlC:
    """Handles SIGINT until the block is left.

    The signal goes to an open prompt, or to the current work. Between two pieces of work it goes to the next one.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._prompt: Callable[[], None] | None = None
        self._stop: asyncio.Event | None = None
        self._came_early = False

    def __enter__(self) -> CtrlC:
        with suppress(NotImplementedError):  # Windows has no such handlers
            self._loop.add_signal_handler(signal.SIGINT, self._take)
        return self

    def __exit__(self, *exc: object) -> None:
        with suppress(NotImplementedError):
            self._loop.remove_signal_handler(signal.SIGINT)

    @contextmanager
    def stops(self) -> Generator[asyncio.Event]:
        """Yield an event that is set when the work of the block should stop."""
        self._stop = asyncio.Event()
        if self._came_early:
            self._stop.set()
        try:
            yield self._stop
        finally:
            self._stop, self._came_early = None, False

    @contextmanager
    def reaches(self, prompt: Callable[[], None]) -> Generator[None]:
        """Call `prompt` for each Ctrl-C within the block. A Ctrl-C before the block was for the previous work."""
        self._prompt, self._came_early = prompt, False
        try:
            yield
        finally:
            self._prompt = None

    def _take(self) -> None:
        if self._prompt is not None:
            self._prompt()
        elif self._stop is None:
            self._came_early = True
        elif not self._stop.is_set():
            self._stop.set()
        else:
            self._leave()

    def _leave(self) -> None:
        """Raise KeyboardInterrupt in the loop, so that the command ends even if the server does not answer."""
        self._loop.remove_signal_handler(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)


@contextmanager
def interruptible() -> Generator[asyncio.Event]:
    """Yield an event that the first Ctrl-C sets, to stop the run. The second one exits."""
    with CtrlC() as ctrl_c, ctrl_c.stops() as stop:
        yield stop


@contextmanager
def stopped_by(requested: asyncio.Event, api: Api, path: str, what: str) -> Generator[None]:
    """Stop the object at a path of the API when `requested` is set in the block. `what` is its name in a message."""
    stopper = asyncio.create_task(_stop_when(requested, api, path, what))
    try:
        yield
    finally:
        stopper.cancel()


async def _stop_when(requested: asyncio.Event, api: Api, path: str, what: str) -> None:
    await requested.wait()
    try:
        await api.call("POST", f"{path}/stop")
    except CallFailed as error:
        show.note(f"Could not stop the {what}: {error!s}", "red")
