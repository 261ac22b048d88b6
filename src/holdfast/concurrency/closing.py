"""The end of a server's streams: the signal that wakes them when it shuts down."""

from __future__ import annotations

from typing import Protocol

from ..watchers import Wake, Watchers


class OpenStream(Protocol):
    """A stream that is being sent."""

    @property
    def lag(self) -> int:
        """The number of events that are not sent yet."""
        ...


class Closing:
    """The open streams of a server, and the signal that wakes them when it shuts down."""

    def __init__(self) -> None:
        self.has_begun = False
        self.streams: dict[OpenStream, None] = {}
        self._watchers = Watchers()

    def begin(self) -> None:
        """Wake all streams."""
        self.has_begun = True
        self._watchers.notify()

    def watch(self, wake: Wake) -> Wake:
        """Call `wake` when the shutdown begins, until the returned function is called."""
        return self._watchers.watch(wake)

    def lags(self) -> list[int]:
        """Return the number of events that each open stream is behind."""
        return [stream.lag for stream in self.streams]
