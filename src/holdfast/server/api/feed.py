"""A session's feed: all changes, including the user's messages, so that several tabs show the same.

Entries are numbered 1, 2, ... The events of a running run are sent between them. These, and the entries before its end,
have the id `n:seq`: the last entry, and the run's last event. So one cursor is the position of a reader, even in the
middle of an answer.

Several feeds can be read through one connection: a browser allows six connections to a server, and may have more tabs.
It also has the changes of the owner's list of sessions: which of them runs, waits for approval, or was renamed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp

from ...access import READ_SHARED
from ...asgi.event_stream import EventStream, Frames
from ...errors import BadRequest, RunNotFound, SessionNotFound
from ...events import Settled
from ...store import FeedEntry
from ...wires import native, sse
from ..caller import own_session, owner_of
from ..routing import Endpoint
from ..services import Parts
from .followed_run import FollowedRun
from .sessions import session_in_list

Cursor = tuple[int, int]

MOST_FEEDS = 50
"""Maximum number of feeds on one connection."""


async def read_feed(parts: Parts, request: Request) -> ASGIApp:
    """Send the events of a session after a cursor, then live ones, without end."""
    session = await own_session(parts, request)
    cursor = request.headers.get("last-event-id") or request.query_params.get("after", "0")
    return _stream(parts, _Feed(parts, session.id, _parse(cursor)))


async def read_feeds(parts: Parts, request: Request) -> ASGIApp:
    """Send the events of several sessions, each after its cursor, through one connection."""
    requested = request.query_params.getlist("session")
    after = request.query_params.get("list")
    if len(requested) > MOST_FEEDS or (after is None and not requested):
        raise BadRequest(f"Name 1 to {MOST_FEEDS} sessions, each as session=ID or session=ID@CURSOR.", param="session")
    feeds: dict[str, _Feed | None] = {}
    for session_id, _, cursor in (item.partition("@") for item in requested):
        feeds[session_id] = None
        with contextlib.suppress(SessionNotFound):
            await own_session(parts, request, session_id)
            feeds[session_id] = _Feed(parts, session_id, _parse(cursor), named=True)
    return _stream(parts, _Feeds(feeds, None if after is None else _List(parts, owner_of(request), after)))


def _stream(parts: Parts, frames: Frames) -> ASGIApp:
    return EventStream(
        frames,
        parts.closing,
        opening=sse.HEARTBEAT,
        farewell=sse.farewell(1000),
        heartbeat=parts.settings.heartbeat,
        send_timeout=parts.settings.send_timeout,
    )


def _parse(text: str) -> Cursor:
    """Return a cursor; an invalid one is the start."""
    n, _, seq = text.strip().partition(":")
    return (_number(n), _number(seq))


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


class _Feed:
    """The position of one reader in a session's feed."""

    def __init__(self, parts: Parts, session_id: str, cursor: Cursor, *, named: bool = False) -> None:
        self._parts = parts
        self._session_id = session_id
        self._name = session_id if named else ""
        self._n, seq = cursor
        self._followed = FollowedRun(parts.engine, seq)
        self._is_placed = cursor == (0, 0)
        self.is_over = False

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` at every change of the session or its active run."""
        self._followed.watch(wake)
        unwatch = self._parts.engine.watch_session(self._session_id, wake)

        def stop() -> None:
            unwatch()
            self._followed.leave()

        return stop

    async def next(self) -> bytes:
        """Return the frames that can be read now."""
        if not self._is_placed:
            await self._find_place()
        if frames := await self._run_frames():
            return frames
        followed = self._followed
        entries = await self._parts.store.read_feed(self._session_id, self._n, limit=1)
        if entries and followed.is_ended_by(entries[0]):
            await followed.enter(entries[0].data["run_id"], followed.seq, has_ended=True)
        if entries and (frames := await self._run_frames()):
            return frames  # emitted during the read, and before the entry: the entry is read again
        if entries:
            self._n = entries[0].n
            await self._enter(entries[0])
            return native.feed_frame(entries[0], followed.seq, await self._data_of(entries[0]), self._name)
        self.is_over = await self._parts.store.get_session(self._session_id) is None
        return b""

    async def _find_place(self) -> None:
        """Resume in the run of the cursor. A cursor beyond the end begins at the start."""
        self._is_placed = True
        entries: list[FeedEntry] = []
        while page := await self._parts.store.read_feed(self._session_id, entries[-1].n if entries else 0):
            entries += page
        seq, self._followed.seq = self._followed.seq, 0
        if self._n > len(entries):
            self._n = 0
        started = [entry for entry in entries[: self._n] if entry.type == "run.started"]
        ended = {entry.data.get("run_id") for entry in entries[: self._n] if entry.type == "run.settled"}
        if started and started[-1].data.get("run_id") not in ended:
            await self._followed.enter(started[-1].data["run_id"], seq)

    async def _enter(self, entry: FeedEntry) -> None:
        if entry.type == "run.started":
            await self._followed.enter(entry.data["run_id"])
        elif self._followed.is_ended_by(entry):
            self._followed.leave()  # a queued run that was dropped settles while another runs

    async def _data_of(self, entry: FeedEntry) -> dict[str, Any]:
        """Return the data of an entry; at the end of a run, with its settlement."""
        data = native.feed_entry_data(entry, self._parts.prices)
        if entry.type == "run.settled":
            with contextlib.suppress(RunNotFound):
                run = await self._parts.engine.open(entry.data["run_id"])
                data["settlement"] = native.settlement(await run.settled())  # the store has it a moment before the run
        return data

    async def _run_frames(self) -> bytes:
        """Return the next events of the active run. Its settlement is an entry of the feed."""
        followed = self._followed
        events = [event for event in await followed.batch() if not isinstance(event, Settled)]
        run = followed.run
        if run is None:
            return b""
        first, followed.seq = followed.seq + 1, followed.seq + len(events)
        return b"".join(
            native.feed_run_frame(self._n, run.id, seq, event, self._name) for seq, event in enumerate(events, first)
        )


class _List:
    """The position of one reader in the changes of an owner's list of sessions.

    A frame has the current state of a session in the list, so reading a change twice is harmless.
    """

    def __init__(self, parts: Parts, owner: str, cursor: str) -> None:
        self._parts = parts
        self._owner = owner
        self._cursor = cursor

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` at every change of one of the sessions."""
        return self._parts.engine.changes.watch(self._owner, wake)

    async def next(self) -> bytes:
        """Return the frames of the sessions that have changed since the last call."""
        changes = self._parts.engine.changes
        before, self._cursor = self._cursor, changes.cursor(self._owner)
        changed = changes.after(self._owner, before)
        if changed is None:
            return native.list_frame(self._cursor, {"type": "sessions.changed"})
        cursors = [before] * (len(changed) - 1) + [self._cursor]  # a reader that got only some of them reads all again
        return b"".join([await self._frame(*each) for each in zip(changed, cursors, strict=False)])

    async def _frame(self, session_id: str, cursor: str) -> bytes:
        session = await self._parts.store.get_session(session_id)
        if session is None:
            return native.list_frame(cursor, {"type": "session.deleted", "session_id": session_id})
        if session.kind != "chat" or session.owner != self._owner:
            return b""
        running = (run for run in await self._parts.engine.of_session(session_id) if run.status == "running")
        listed = session_in_list(session, next(running, None))
        return native.list_frame(cursor, {"type": "session.listed", "session": listed})


class _Feeds:
    """Several feeds on one connection, read in turn, and the changes of the list of sessions if requested.

    A session that does not exist is reported as deleted; the others continue.
    """

    def __init__(self, feeds: dict[str, _Feed | None], sessions: _List | None) -> None:
        self._feeds = feeds
        self._list = sessions
        self.is_over = False

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` at every change of one of the sessions."""
        unwatches = [feed.watch(wake) for feed in (*self._feeds.values(), self._list) if feed is not None]

        def stop() -> None:
            for unwatch in unwatches:
                unwatch()

        return stop

    async def next(self) -> bytes:
        """Return the frames that can be read now, of each feed."""
        frames = [await self._next_of(session_id, feed) for session_id, feed in tuple(self._feeds.items())]
        if self._list is not None:
            frames.append(await self._list.next())
        self.is_over = not self._feeds and self._list is None
        return b"".join(frames)

    async def _next_of(self, session_id: str, feed: _Feed | None) -> bytes:
        frames = await feed.next() if feed is not None else b""
        if feed is None or feed.is_over:
            del self._feeds[session_id]
            return native.feed_gone_frame(session_id)
        return frames


ENDPOINTS = [
    Endpoint(
        "GET",
        "/api/events",
        read_feeds,
        who=READ_SHARED,
        query={
            "session": "a session's id, or ID@CURSOR; once for each session",
            "list": "the `feed` of the list of sessions: changes of the list are sent too",
        },
        answers={200: "events of all of them", 400: "nothing is asked for, or too many sessions"},
        streams=True,
    ),
    Endpoint(
        "GET",
        "/api/sessions/{session_id}/events",
        read_feed,
        who=READ_SHARED,
        query={"after": "the last id seen"},
        answers={200: "past events, then live ones", 404: "no such session"},
        streams=True,
    ),
]
