"""Which sessions of each owner have changed, so that a list of sessions can be kept up to date."""

from __future__ import annotations

from collections.abc import Callable

from ..concurrency.watchers import KeyedWatchers

MOST = 1000
"""Changed sessions that are remembered for each owner. A reader who is further behind loads the list again."""


class ChangedSessions:
    """The newest changes of each owner's sessions, numbered.

    A cursor is `NODE:N`: the process that numbered the changes, and the last one that a reader has seen. A session that
    changed twice is remembered once. Costs one number for each session that has changed since the start.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._of: dict[str, _Changed] = {}
        self._watchers = KeyedWatchers()

    def note(self, owner: str, session_id: str) -> None:
        """Remember that a session changed, and wake those who watch its owner's."""
        self._of.setdefault(owner, _Changed()).note(session_id)
        self._watchers.notify(owner)

    def cursor(self, owner: str) -> str:
        """Return the cursor of a reader who has seen everything."""
        changed = self._of.get(owner)
        return f"{self._node}:{changed.last if changed else 0}"

    def after(self, owner: str, cursor: str) -> list[str] | None:
        """Return the sessions that changed after a cursor, in order; None if that is not known."""
        node, _, n = cursor.rpartition(":")
        changed = self._of.get(owner) or _Changed()
        if node != self._node or not n.isascii() or not n.isdigit() or len(n) > 15:
            return None
        return changed.after(int(n))

    def watch(self, owner: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever a session of an owner changed, until the returned function is called."""
        return self._watchers.watch(owner, wake)


class _Changed:
    """The changes of one owner's sessions."""

    def __init__(self) -> None:
        self.last = 0
        self._forgotten = 0
        self._at: dict[str, int] = {}

    def note(self, session_id: str) -> None:
        self.last += 1
        self._at.pop(session_id, None)
        self._at[session_id] = self.last
        if len(self._at) > MOST:
            self._forgotten = self._at.pop(next(iter(self._at)))

    def after(self, n: int) -> list[str] | None:
        if not self._forgotten <= n <= self.last:
            return None
        newer = []
        for session_id in reversed(self._at):
            if self._at[session_id] <= n:
                break
            newer.append(session_id)
        return newer[::-1]
