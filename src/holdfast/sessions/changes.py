"""The changes of sessions: who watches one, or a list of them, is woken on every node."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from ..concurrency.watchers import KeyedWatchers
from ..errors import StoreUnavailable
from ..runs.pump import Shared

MOST = 1000
"""Changed sessions that are remembered for each owner. A reader who is further behind loads the list again."""


_JOINED = 0.02  # seconds in which changes of sessions become one hint


class SessionWatchers:
    """Wakes those who watch a session, or the list of an owner's sessions, on this node and by hints on the others."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        # for the life of the engine, a bounded number for each owner
        self.lists = ChangedSessions(shared.node_id)
        # while somebody watches
        self._of_session = KeyedWatchers()
        # until the other nodes are hinted at it
        self._hinted: set[str] = set()

    def watch(self, session_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever something happened in a session, until the returned function is called."""
        return self._of_session.watch(session_id, wake)

    def touch(self, session_id: str | None, owner: str | None) -> None:
        """Wake those who watch a session, or all sessions of its owner, on every node: something happened in it.

        Without an owner, its place in the list of sessions is the same as before.
        """
        if session_id is not None:
            self.hear(_change(session_id, owner))
            self.hint(session_id, owner)

    def hear(self, change: str) -> str:
        """Wake the watchers on this node, and return the session.

        A change has the id of the session, and its owner if there is one.
        """
        session_id, is_listed, owner = change.partition("\n")
        self._of_session.notify(session_id)
        if is_listed:
            self.lists.note(owner, session_id)
        return session_id

    def wake_all(self) -> None:
        """Wake those who watch any session on this node."""
        self._of_session.notify_all()

    def hint(self, session_id: str | None, owner: str | None) -> None:
        """Hint at a change to the other nodes, together with what else changes in the next moment."""
        if session_id is not None and self._shared.others:
            if not self._hinted:
                asyncio.get_running_loop().call_later(_JOINED, self._send_hints)
            self._hinted.add(_change(session_id, owner))

    def leave(self, session_id: str) -> None:
        """Hint at a session whose queue this node, which ends, leaves to the others."""
        if self._shared.others:
            self._shared.tasks.start(self._send("left", [session_id]))

    def _send_hints(self) -> None:
        hinted, self._hinted = sorted(self._hinted), set()
        self._shared.tasks.start(self._send("session", hinted))

    async def _send(self, topic: str, ids: list[str]) -> None:
        with contextlib.suppress(StoreUnavailable):  # a hint may be lost
            await self._shared.store.hint(topic, ids)


def _change(session_id: str, owner: str | None) -> str:
    return session_id if owner is None else f"{session_id}\n{owner}"


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
