"""`/api/shared`: the contents of a link, for anyone who has it: the messages, the answer as it grows, and the files.

A spectator is one more cursor on the events of the active run. Every other change is reported as one
event, `shared.changed`, after which a client reads the link again. So the stream shows nothing that the link does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import ACCESS, LINK
from ....engine.core import Core
from ....errors import HoldfastError, NotFound, RunNotFound
from ....events import Event, Settled
from ....history import Message, Session, branch
from ....runs.run import Run
from ....store import FeedEntry, OpenedSession, Store
from ....store.documents import Stored
from ....store.files import referred_to
from ....wires import native, sse
from ....wires.shapes import SharedRunJson, SharedSessionJson, SharedSettledJson
from ...kit.caller import access_of
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import NoContent, file_response, json_of
from ...kit.session_reader import SessionReader
from ...kit.streams import Streams
from ..accounts.people.people import People
from .shares import Share, Shares
from .shown import shown_event, shown_messages, shown_settlement, shown_title

_encode = msgspec.json.Encoder().encode
_UNSEEN = frozenset({"run.queued", "queue.changed"})
"""Entries of a feed that do not change the contents of a link."""
HIDDEN_FROM_SEARCH = {"x-robots-tag": "noindex, nofollow", "referrer-policy": "no-referrer"}


class LinkNotFound(NotFound):
    """The link is wrong, was revoked, or has expired. All look the same."""

    code = "link_not_found"
    message = "This link does not exist, or no longer. Ask the person who sent it for another."


class LinkNeedsSignIn(HoldfastError):
    """The link is for signed-in people."""

    code = "link_needs_sign_in"
    status = 401
    type = "authentication_error"
    message = "This link is for people with an account. Sign in, and open it again."


@dataclass(frozen=True)
class _Contents:
    """The current contents of a link."""

    session: Session
    title: str
    path: list[Message]
    run: Run | None
    """The run whose answer is the next message."""
    feed_end: int


class Spectator(SessionReader):
    """One reader of a link: it begins at the end of the session's feed, in the active run.

    The id of a frame is `n:seq`, as in a session's feed.
    """

    def __init__(self, engine: Core, store: Store, share: Share, feed_end: int) -> None:
        super().__init__(engine, store, share.session_id, feed_end)
        self._share = share
        self._is_behind = False
        """True if the cursor was outdated: then the link has to be read again."""

    async def begin(self, run: Run | None, cursor: str) -> None:
        """Begin at a cursor. An outdated one is answered with `shared.changed`."""
        n, _, seq = cursor.partition(":")
        is_current = n == str(self._n)
        self._is_behind = bool(cursor) and not is_current
        if run is not None:
            is_number = seq.isascii() and seq.isdigit() and len(seq) < 16
            await self._enter(run.id, int(seq) if is_current and is_number else 0)
        self.is_over = run is None and self._share.head_id is not None and not self._is_behind

    async def next(self) -> bytes:
        """Return the frames that can be read now."""
        if self._is_behind:
            self._is_behind = False
            return self._change_frame()
        return await super().next()

    def _is_shown(self, entry: FeedEntry) -> bool:
        """Return whether an entry changes the contents of the link."""
        if self._share.head_id is None:
            return entry.type not in _UNSEEN
        message = entry.data.get("message") or {}
        return self._share.head_id in (entry.data.get("message_id"), message.get("id"))

    def _is_complete(self) -> bool:
        return self._share.head_id is not None and self._run is None

    async def _entry_frame(self, entry: FeedEntry) -> bytes:
        return self._change_frame()

    def _event_frame(self, seq: int, event: Event) -> bytes:
        id = b"%d:%d" % (self._n, seq)
        if isinstance(event, Settled):
            ended: SharedSettledJson = {
                "seq": seq,
                "type": "run.settled",
                "settlement": shown_settlement(event.settlement),
            }
            return sse.frame(id, b"run.settled", _encode(ended))
        shown = shown_event(event, self._share)
        if shown is None:
            return b""
        kind, rest = native.body(shown)
        return sse.frame(id, kind, b'{"seq":%d,%b' % (seq, rest))

    def _change_frame(self) -> bytes:
        return sse.frame(b"%d" % self._n, b"shared.changed", b'{"type":"shared.changed"}')


_NOT = {401: "the link asks for a sign-in", 404: "no such link"}


class LinksApi(Feature):
    """What links show."""

    def __init__(self, streams: Streams, people: People, shares: Shares, engine: Core, store: Store) -> None:
        self._streams, self._people, self._shares, self._engine = streams, people, shares, engine
        self._store = store

    async def _share(self, request: Request) -> Stored[Share]:
        """Return the share of the link in the path. From here on the request has a loan, which ends with the share."""
        share = await self._shares.find_link(request.path_params["token"])
        if share is None:
            raise LinkNotFound
        if share.body.sign_in and access_of(request).role is None:
            raise LinkNeedsSignIn
        request.scope[ACCESS] = self._shares.lend(access_of(request), share)
        return share

    async def _open(self, share: Share) -> _Contents:
        opened = await self._store.open_session(share.session_id)
        if opened is None:
            raise LinkNotFound
        run = await self._run_of(opened, share)
        known = {each.id for each in opened.messages}
        last, before = share.head_id or opened.session.head_id, share.before_id
        if run is not None:
            last, before = run.record.message_id, run.record.parent_id
        path = branch(opened.messages, last if last in known else before)
        title = shown_title(opened.session.title if share.head_id is None else share.title, opened.messages, path)
        return _Contents(opened.session, title, path, run, opened.feed_end)

    async def _run_of(self, opened: OpenedSession, share: Share) -> Run | None:
        """Return the active run, if the link shows its answer."""
        if opened.running is None:
            return None
        try:
            run = await self._engine.open(opened.running)
        except RunNotFound:
            return None
        is_shown = share.head_id in (None, run.record.message_id)
        return run if is_shown and run.status == "running" else None

    @Endpoint("GET", "/api/shared/{token}", who=LINK, answers=_NOT)
    async def read_link(self, request: Request) -> ASGIApp:
        """Return the messages of a link, and the cursor of the events that follow."""
        share = await self._share(request)
        contents = await self._open(share.body)
        names = "names" in share.body.include
        owner = await self._people.accounts.of_owner(share.owner) if names else None
        view: SharedSessionJson = {
            "title": contents.title,
            "owner": owner.body.name if owner is not None else None,
            "system": contents.session.system if "system" in share.body.include else None,
            "messages": shown_messages(contents.path, share.body),
            "active_run": _run_json(contents.run),
            "follows": share.body.head_id is None,
            "expires_at": native.moment(share.body.expires_at),
            "cursor": str(contents.feed_end),
        }
        return json_of(view, headers=HIDDEN_FROM_SEARCH)

    @Endpoint("GET", "/api/shared/{token}/files/{sha256}", who=LINK, answers=_NOT, files=True)
    async def read_link_file(self, request: Request) -> ASGIApp:
        """Return a picture or file of a message that a link shows."""
        share = await self._share(request)
        contents = await self._open(share.body)
        sha256 = request.path_params["sha256"]
        named = sha256 in referred_to(contents.path)
        found = (await self._store.read_files(contents.session.id, [sha256])).get(sha256) if named else None
        if found is None:
            raise NotFound(f"The chat has no file {sha256[:64]!r}.")
        return file_response(found, HIDDEN_FROM_SEARCH)

    @Endpoint(
        "GET",
        "/api/shared/{token}/events",
        who=LINK,
        query={"after": "the cursor of the view, or the last id seen"},
        answers={200: "events, live", 204: "nothing more will come", 429: "too many readers", **_NOT},
        streams=True,
    )
    async def read_link_events(self, request: Request) -> ASGIApp:
        """Send the changes of a shared session after a cursor, live. A fixed link ends with its last answer."""
        share = await self._share(request)
        self._shares.check_spectators(share)
        contents = await self._open(share.body)
        cursor = request.headers.get("last-event-id") or request.query_params.get("after", "")
        spectator = Spectator(self._engine, self._store, share.body, contents.feed_end)
        await spectator.begin(contents.run, cursor)
        if spectator.is_over:
            return NoContent(headers=HIDDEN_FROM_SEARCH)
        headers = [(name.encode(), value.encode()) for name, value in HIDDEN_FROM_SEARCH.items()]
        return self._streams.stream(spectator, headers=headers, opening=sse.HEARTBEAT, farewell=sse.farewell(1000))


def _run_json(run: Run | None) -> SharedRunJson | None:
    if run is None:
        return None
    record = run.record
    return {"message_id": record.message_id, "model": record.model, "started_at": native.moment(record.started_at)}
