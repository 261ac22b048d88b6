"""A session's feed: all changes, including the user's messages, so that several tabs show the same.

Entries are numbered 1, 2, ... The events of a running run are sent between them. These, and the entries before its end,
have the id `n:seq`: the last entry, and the run's last event. So one cursor is the position of a reader, even in the
middle of an answer.

Several feeds can be read through one connection: a browser allows six connections to a server, and may have more tabs.
It also has the changes of the owner's list of sessions: which of them runs, waits for approval, or was renamed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial

from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import READ_SHARED
from ....asgi.event_stream import Frames
from ....engine.core import Core
from ....errors import BadRequest, RunNotFound, SessionNotFound
from ....events import Event, Settled
from ....pricing import Prices
from ....store import FeedEntry, Store
from ....wires import native, sse
from ...kit.caller import owner_of
from ...kit.feature import Endpoint, Feature
from ...kit.session_reader import SessionReader
from ...kit.streams import Streams
from ..sharing.reach import Reach
from .sessions import session_in_list

Cursor = tuple[int, int]

MOST_FEEDS = 50
"""Maximum number of feeds on one connection."""


class _Feed(SessionReader):
    """The position of one reader in a session's feed."""

    def __init__(
        self, engine: Core, store: Store, prices: Prices, session_id: str, cursor: Cursor, *, named: bool = False
    ) -> None:
        super().__init__(engine, store, session_id, *cursor)
        self._prices = prices
        self._name = session_id if named else ""
        self._is_placed = cursor == (0, 0)

    async def next(self) -> bytes:
        """Return the frames that can be read now."""
        if not self._is_placed:
            await self._find_place()
        return await super().next()

    async def _find_place(self) -> None:
        """Resume in the run of the cursor. A cursor beyond the end begins at the start."""
        self._is_placed, self._has_news = True, False
        seq, self._seq = self._seq, 0
        place = await self._store.feed_place(self._session_id, self._n)
        if place is None:
            self.is_over = True
        elif self._n > place.end:
            self._n, self._has_news = 0, True
        else:
            self._has_news = self._has_news or self._n < place.end
            if place.run_id is not None:
                await self._enter(place.run_id, seq)

    async def _entry_frame(self, entry: FeedEntry) -> bytes:
        """Return an entry; the end of a run has its settlement."""
        data = native.feed_entry_data(entry, self._prices)
        if entry.type == "run.settled":
            with contextlib.suppress(RunNotFound):
                run = await self._engine.open(entry.data["run_id"])
                data["settlement"] = native.settlement(await run.settled())  # the store has it a moment before the run
        return native.feed_frame(entry, self._seq, data, self._name)

    async def _batch(self) -> Sequence[Event]:
        """Return the next events of the run but its settlement, which is an entry of the feed."""
        return [event for event in await super()._batch() if not isinstance(event, Settled)]

    def _event_frame(self, seq: int, event: Event) -> bytes:
        assert self._run is not None
        return native.feed_run_frame(self._n, self._run.id, seq, event, self._name)


class _List:
    """The position of one reader in the changes of an owner's list of sessions.

    A frame has the current state of a session in the list, so reading a change twice is harmless.
    """

    def __init__(self, engine: Core, store: Store, owner: str, cursor: str) -> None:
        self._engine, self._store = engine, store
        self._owner = owner
        self._cursor = cursor

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` at every change of one of the sessions."""
        return self._engine.changes.watch(self._owner, wake)

    async def next(self) -> bytes:
        """Return the frames of the sessions that have changed since the last call."""
        changes = self._engine.changes
        before, self._cursor = self._cursor, changes.cursor(self._owner)
        changed = changes.after(self._owner, before)
        if changed is None:
            return native.list_frame(self._cursor, {"type": "sessions.changed"})
        cursors = [before] * (len(changed) - 1) + [self._cursor]  # a reader that got only some of them reads all again
        return b"".join([await self._frame(*each) for each in zip(changed, cursors, strict=False)])

    async def _frame(self, session_id: str, cursor: str) -> bytes:
        session = await self._store.get_session(session_id)
        if session is None:
            return native.list_frame(cursor, {"type": "session.deleted", "session_id": session_id})
        if session.kind != "chat" or session.owner != self._owner:
            return b""
        running = (run for run in await self._engine.of_session(session_id) if run.status == "running")
        known = await self._store.standings(self._owner, [session_id])
        listed = session_in_list(session, next(running, None), known.get(session_id))
        return native.list_frame(cursor, {"type": "session.listed", "session": listed})


class _Feeds:
    """Several feeds on one connection, read in turn, and the changes of the list of sessions if requested.

    A session that does not exist is reported as deleted; the others continue. A feed that was not woken is not read.
    """

    def __init__(self, feeds: dict[str, _Feed | None], sessions: _List | None) -> None:
        self._feeds = feeds
        self._list = sessions
        self._due = dict.fromkeys(feeds)
        self.is_over = False

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` at every change of one of the sessions."""

        def wake_for(session_id: str) -> None:
            self._due[session_id] = None
            wake()

        unwatches = [feed.watch(partial(wake_for, id)) for id, feed in self._feeds.items() if feed is not None]
        if self._list is not None:
            unwatches.append(self._list.watch(wake))

        def stop() -> None:
            for unwatch in unwatches:
                unwatch()

        return stop

    async def next(self) -> bytes:
        """Return the frames that can be read now, of each feed."""
        due, self._due = self._due, {}
        frames = [await self._next_of(session_id) for session_id in due if session_id in self._feeds]
        if self._list is not None:
            frames.append(await self._list.next())
        self.is_over = not self._feeds and self._list is None
        return b"".join(frames)

    async def _next_of(self, session_id: str) -> bytes:
        feed = self._feeds[session_id]
        frames = await feed.next() if feed is not None else b""
        if feed is None or feed.is_over:
            del self._feeds[session_id]
            return native.feed_gone_frame(session_id)
        if frames:
            self._due[session_id] = None  # there may be more
        return frames


class FeedApi(Feature):
    """The feeds of sessions."""

    def __init__(self, streams: Streams, reach: Reach, engine: Core, store: Store, prices: Prices) -> None:
        self._streams, self._reach, self._engine, self._store = streams, reach, engine, store
        self._prices = prices

    @Endpoint(
        "GET", "/api/sessions/{session_id}/events", who=READ_SHARED, query={"after": "the last id seen"}, streams=True
    )
    async def read_feed(self, request: Request) -> ASGIApp:
        """Send the events of a session after a cursor, then live ones, without end."""
        session = await self._reach.session(request)
        cursor = request.headers.get("last-event-id") or request.query_params.get("after", "0")
        return self._stream(self._feed(session.id, cursor))

    @Endpoint(
        "GET",
        "/api/events",
        who=READ_SHARED,
        query={
            "session": "a session's id, or ID@CURSOR; once for each session",
            "list": "the `feed` of the list of sessions: changes of the list are sent too",
        },
        answers={400: "nothing is asked for, or too many sessions"},
        streams=True,
    )
    async def read_feeds(self, request: Request) -> ASGIApp:
        """Send the events of several sessions, each after its cursor, through one connection."""
        requested = request.query_params.getlist("session")
        after = request.query_params.get("list")
        if len(requested) > MOST_FEEDS or (after is None and not requested):
            raise BadRequest(
                f"Name 1 to {MOST_FEEDS} sessions, each as session=ID or session=ID@CURSOR.", param="session"
            )
        feeds: dict[str, _Feed | None] = {}
        for session_id, _, cursor in (item.partition("@") for item in requested):
            feeds[session_id] = None
            with contextlib.suppress(SessionNotFound):
                await self._reach.session(request, session_id)
                feeds[session_id] = self._feed(session_id, cursor, named=True)
        changes = None if after is None else _List(self._engine, self._store, owner_of(request), after)
        return self._stream(_Feeds(feeds, changes))

    def _feed(self, session_id: str, cursor: str, *, named: bool = False) -> _Feed:
        return _Feed(self._engine, self._store, self._prices, session_id, _parse(cursor), named=named)

    def _stream(self, frames: Frames) -> ASGIApp:
        return self._streams.stream(frames, opening=sse.HEARTBEAT, farewell=sse.farewell(1000))


def _parse(text: str) -> Cursor:
    """Return a cursor; an invalid one is the start."""
    n, _, seq = text.strip().partition(":")
    return (_number(n), _number(seq))


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
