"""Callbacks for changes: `watch` adds one, and returns the function that removes it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

Wake = Callable[[], None]


class Watchers:
    """The callbacks for changes of one thing, in the order in which they were added. Each is called once."""

    __slots__ = ("_callbacks",)

    def __init__(self) -> None:
        self._callbacks: dict[Wake, None] = {}

    def __len__(self) -> int:
        return len(self._callbacks)

    def watch(self, wake: Wake) -> Wake:
        """Call `wake` at every change, until the returned function is called."""
        self._callbacks[wake] = None
        return partial(self._callbacks.pop, wake, None)

    def notify(self) -> None:
        """Call every callback. One that is added meanwhile is first called at the next change."""
        for wake in tuple(self._callbacks):
            wake()


class KeyedWatchers:
    """The callbacks of many things that change, each under its key. A key that nobody watches takes no memory."""

    def __init__(self) -> None:
        self._of: dict[str, Watchers] = {}

    def watch(self, key: str, wake: Wake) -> Wake:
        """Call `wake` at every change of one thing, until the returned function is called."""
        watchers = self._of.setdefault(key, Watchers())
        unwatch = watchers.watch(wake)

        def leave() -> None:
            unwatch()
            if not len(watchers) and self._of.get(key) is watchers:
                del self._of[key]

        return leave

    def notify(self, key: str) -> None:
        """Call every callback of one thing."""
        if (watchers := self._of.get(key)) is not None:
            watchers.notify()

    def notify_all(self) -> None:
        """Call every callback of everything."""
        for watchers in tuple(self._of.values()):
            watchers.notify()
