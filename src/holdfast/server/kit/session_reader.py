"""A reader of a session: the entries of its feed, and between them the events of the run that is active."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ...asgi.cursor import as_many_as_fit
from ...engine.core import Core
from ...errors import RunNotFound
from ...events import Event
from ...log.segment import NOTHING
from ...runs.run import Run
from ...store import FeedEntry, Store
from ...watchers import Wake


class SessionReader(ABC):
    """A cursor on a session: the last entry of its feed, and the last event of the run that is active there.

    The store is read when the session has changed or the run has ended, and not for an event of the run.
    """

    def __init__(self, engine: Core, store: Store, session_id: str, n: int, seq: int = 0) -> None:
        self._engine, self._store = engine, store
        self._session_id = session_id
        self._n, self._seq = n, seq
        self._run: Run | None = None
        """At most one at a time, entered at its start and left at its end."""
        self._has_news = True
        """True if the session may have changed since its feed was read to the end."""
        self._wake: Wake | None = None
        """None until the stream begins: nothing is watched before."""
        self._unwatch: Wake | None = None
        self.is_over = False

    def watch(self, wake: Wake) -> Wake:
        """Call `wake` at every change of the session or its active run."""
        self._wake = wake
        if self._run is not None:
            self._unwatch = self._run.log.watch(wake)
        unwatch = self._engine.watch_session(self._session_id, self._changed)

        def stop() -> None:
            unwatch()
            self._leave()

        return stop

    def _changed(self) -> None:
        self._has_news = True
        if self._wake is not None:
            self._wake()

    async def next(self) -> bytes:
        """Return the frames that can be read now."""
        if frames := await self._run_frames():
            return frames
        while (entry := await self._next_entry()) is not None:
            if self._is_ended_by(entry) and self._run is not None and self._run.settlement is None:
                await self._enter(self._run.id, self._seq, has_ended=True)
            if frames := await self._run_frames():
                return frames  # emitted before the entry, which is read again
            self._n = entry.n
            if self._is_ended_by(entry) or self._is_shown(entry):
                await self._apply(entry)
                return await self._entry_frame(entry)
        return b""

    async def _next_entry(self) -> FeedEntry | None:
        """Return the next entry of the feed. The end of the run is one, even if no change was reported."""
        if not self._has_news and (self._run is None or not self._run.log.closed):
            return None
        self._has_news = False
        entries = await self._store.read_feed(self._session_id, self._n, limit=1)
        if entries:
            self._has_news = True  # there may be more
            return entries[0]
        self.is_over = self._is_complete() or await self._store.get_session(self._session_id) is None
        return None

    async def _run_frames(self) -> bytes:
        """Return the next events of the run as frames. A batch may have none, and then the next is read."""
        while events := await self._batch():
            first, self._seq = self._seq + 1, self._seq + len(events)
            if frames := b"".join(self._event_frame(seq, event) for seq, event in enumerate(events, first)):
                return frames
        return b""

    async def _batch(self) -> Sequence[Event]:
        """Return the next events of the run, if it has any, also after another node has taken it over."""
        if self._run is not None and self._run.log.successor is not None:
            await self._enter(self._run.id, self._seq)
        return NOTHING if self._run is None else as_many_as_fit(await self._run.log.batch(self._seq))

    async def _apply(self, entry: FeedEntry) -> None:
        """Enter a run that starts; leave the one that has ended."""
        if entry.type == "run.started":
            await self._enter(entry.data["run_id"])
        elif self._is_ended_by(entry):
            self._leave()  # a queued run that was dropped settles while another runs

    async def _enter(self, run_id: str, seq: int = 0, *, has_ended: bool = False) -> None:
        """Read a run from a place. If it `has_ended`, the log on this node may lack its last events."""
        self._leave()
        try:
            run = await self._engine.open(run_id)
        except RunNotFound:
            return  # deleted with its session
        is_behind = run.status == "queued" or (has_ended and run.settlement is None)  # it has begun, elsewhere
        self._run = run = await self._engine.at(run, run.seq + 1 if is_behind else seq)
        self._seq = max(seq if seq <= run.seq else 0, run.log.oldest - 1)
        self._unwatch = None if self._wake is None else run.log.watch(self._wake)

    def _leave(self) -> None:
        """Read no run, until the next is entered."""
        if self._unwatch is not None:
            self._unwatch()
        self._run = self._unwatch = None
        self._seq = 0

    def _is_ended_by(self, entry: FeedEntry) -> bool:
        """Return whether an entry is the end of the run."""
        return self._run is not None and entry.type == "run.settled" and entry.data["run_id"] == self._run.id

    def _is_shown(self, entry: FeedEntry) -> bool:
        """Return whether an entry has a frame."""
        return True

    def _is_complete(self) -> bool:
        """Return whether nothing more will come, although the session exists."""
        return False

    @abstractmethod
    async def _entry_frame(self, entry: FeedEntry) -> bytes:
        """Return the frame of an entry."""

    @abstractmethod
    def _event_frame(self, seq: int, event: Event) -> bytes:
        """Return the frame of an event of the run; empty if it has none."""
