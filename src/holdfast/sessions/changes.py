"""The changes of sessions: watchers of a session, or of a list of sessions, are woken on every node."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from ..errors import StoreUnavailable
from ..runs.shared import Shared
from ..watchers import KeyedWatchers

MOST = 1000
"""Maximum number of changed sessions in memory for each owner. A reader that is further behind reloads the list."""


_JOINED = 0.02  # seconds for which changes of sessions are collected into one hint


class SessionWatchers:
    """Wakes the watchers of a session, or of an owner's list of sessions, on this node and by hints on the others."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        # for the life of the engine, a bounded number for each owner
        self.lists = ChangedSessions(shared.node_id)
        # while there are watchers
        self._of_session = KeyedWatchers()
        # until the hint to the other nodes is sent
        self._hinted: set[str] = set()

    def watch(self, session_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` at each change of a session, until the returned function is called."""
        return self._of_session.watch(session_id, wake)

    def touch(self, session_id: str | None, owner: str | None) -> None:
        """Wake the watchers of a changed session, and of its owner's list, on every node.

        Without an owner, only those of the session: its position in the list is unchanged.
        """
        if session_id is not None:
            self.apply(_change(session_id, owner))
            self.hint(session_id, owner)

    def apply(self, change: str) -> str:
        """Wake the watchers on this node, and return the session.

        A change has the id of the session, and its owner if there is one.
        """
        session_id, is_listed, owner = change.partition("\n")
        self._of_session.notify(session_id)
        if is_listed:
            self.lists.note(owner, session_id)
        return session_id

    def wake_all(self) -> None:
        """Wake the watchers of all sessions on this node."""
        self._of_session.notify_all()

    def hint(self, session_id: str | None, owner: str | None) -> None:
        """Send a hint about a change to the other nodes, together with other changes of the next moment."""
        if session_id is not None and self.shared.others:
            if not self._hinted:
                asyncio.get_running_loop().call_later(_JOINED, self._send_hints)
            self._hinted.add(_change(session_id, owner))

    def leave(self, session_id: str) -> None:
        """Send a hint about a session whose queue this node leaves to the others when it shuts down."""
        if self.shared.others:
            self.shared.tasks.start(self._send("left", [session_id]))

    def _send_hints(self) -> None:
        hinted, self._hinted = sorted(self._hinted), set()
        self.shared.tasks.start(self._send("session", hinted))

    async def _send(self, topic: str, ids: list[str]) -> None:
        with contextlib.suppress(StoreUnavailable):  # a hint may be lost
            await self.shared.store.hint(topic, ids)


def _change(session_id: str, owner: str | None) -> str:
    return session_id if owner is None else f"{session_id}\n{owner}"


class ChangedSessions:
    """The newest changes of each owner's sessions, numbered.

    A cursor is `NODE:N`: the node that numbered the changes, and the last one that a reader has seen. A session that
    changed twice is listed once. Costs one number for each changed session, at most `MOST` for each owner.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._of: dict[str, _Changed] = {}
        self._watchers = KeyedWatchers()

    def note(self, owner: str, session_id: str) -> None:
        """Record that a session changed, and wake the watchers of its owner's list."""
        self._of.setdefault(owner, _Changed()).note(session_id)
        self._watchers.notify(owner)

    def cursor(self, owner: str) -> str:
        """Return the cursor of a reader that has seen everything."""
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
        """Call `wake` whenever a session of an owner changes, until the returned function is called."""
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
