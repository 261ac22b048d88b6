"""`/api/shares`: the caller's shares; `/api/shared-sessions`: sessions that others share with the caller."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import ADMIN, CHAT, READ
from ....engine.core import Core
from ....errors import BadRequest, Conflict, MessageNotFound, NotFound
from ....history import Session
from ....store import Store
from ....store.documents import Stored
from ....store.filing import unfiled
from ....wires import native
from ....wires.shapes import GroupNameJson, NewLinkJson, SharedListJson, ShareJson
from ...config.settings import Settings
from ...kit.caller import access_of, owner_of
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json, NoContent
from ...kit.request import Bodies, decode, whole_number
from ..accounts.people.people import People
from .reach import Reach
from .shares import Included, May, Share, Shares

LONGEST_LINK = 10 * 366 * 86400
"""Maximum seconds after which a link may expire."""
Lasting = Annotated[float, msgspec.Meta(ge=1, le=LONGEST_LINK)]
"""Seconds after which a share expires. A link without it ends after `link_days`; null is for one without an end."""
MOST_LISTED = 100
"""Maximum number of sessions that are listed as shared with one group."""


class NewShare(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A link to a session, or a group that it is shared with.

    A link shows the session up to `message_id`, or up to its last message or the answer that is being written; with
    `follow` it shows what comes later too.
    """

    group: str = ""
    may: May = "read"
    follow: bool = False
    message_id: str | None = None
    include: tuple[Included, ...] = ()
    sign_in: bool = False
    expires_in: Lasting | UnsetType | None = UNSET


class NewRunShare(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A link to a run: its session up to the answer of the run, which may still be written."""

    include: tuple[Included, ...] = ()
    sign_in: bool = False
    expires_in: Lasting | UnsetType | None = UNSET


class NoSession(Conflict):
    """A link shows a session, and the run belongs to none."""

    code = "no_session"
    message = (
        "This run belongs to no session, so a link has nothing to show: its text is kept for no one else. "
        "Start it in a session to share it."
    )


class SharesApi(Feature):
    """Shares of sessions and runs."""

    def __init__(
        self,
        bodies: Bodies,
        reach: Reach,
        people: People,
        shares: Shares,
        engine: Core,
        store: Store,
        settings: Settings,
    ) -> None:
        self._bodies, self._reach, self._people, self._shares = bodies, reach, people, shares
        self._engine, self._store, self._settings = engine, store, settings

    @Endpoint(
        "POST",
        "/api/runs/{run_id}/shares",
        who=CHAT,
        audit="share.new",
        takes=NewRunShare,
        answers={201: "the share, with the token of a link", 409: "the run belongs to no session, or too many shares"},
    )
    async def share_run(self, request: Request) -> ASGIApp:
        """Create a link to a run of a session: the messages before it, and its answer as it grows."""
        run = await self._reach.run(request)
        body = decode(await self._bodies.read(request), NewRunShare)
        if run.record.session_id is None or run.record.message_id is None:
            raise NoSession
        session = await self._reach.session(request, run.record.session_id)
        options = msgspec.structs.asdict(body)
        return await self._made_link(session, NewShare(message_id=run.record.message_id, **options))

    @Endpoint(
        "POST",
        "/api/sessions/{session_id}/shares",
        who=CHAT,
        audit="share.new",
        takes=NewShare,
        answers={201: "the share, with the token of a link", 409: "too many shares"},
    )
    async def share_session(self, request: Request) -> ASGIApp:
        """Create a link to a session, or share it with a group."""
        session = await self._reach.session(request)
        body = decode(await self._bodies.read(request), NewShare)
        if body.group:
            stored = await self._shares.add_group(session.owner, await self._with_group(request, session, body))
            made: NewLinkJson = {**(await self._share_json(stored)), "token": None}
            return Json(made, status_code=201)
        return await self._made_link(session, body)

    async def _made_link(self, session: Session, body: NewShare) -> ASGIApp:
        token, stored = await self._shares.add_link(session.owner, await self._link(session, body))
        made: NewLinkJson = {**(await self._share_json(stored)), "token": token}
        return Json(made, status_code=201)

    async def _with_group(self, request: Request, session: Session, body: NewShare) -> Share:
        for field in ("follow", "message_id", "include", "sign_in"):
            if getattr(body, field):
                raise BadRequest(f"{field} is for links only: a group gets the whole chat.", param=field)
        if body.group not in [group["id"] for group in await self._groups(request)]:
            raise NotFound(f"You are in no group {body.group[:64]!r}.")
        return Share(session_id=session.id, group=body.group, may=body.may, expires_at=self._end(body))

    async def _link(self, session: Session, body: NewShare) -> Share:
        if body.may != "read":
            raise BadRequest("A link is for reading only. Share the chat with a group to write together.", param="may")
        if body.follow and body.message_id is not None:
            raise BadRequest("A link follows the chat, or ends with a message.", param="message_id")
        head, before = (None, None) if body.follow else await self._last(session, body.message_id)
        return Share(
            session_id=session.id,
            head_id=head,
            before_id=before,
            title=session.title,
            include=body.include,
            sign_in=body.sign_in,
            expires_at=self._end(body),
        )

    async def _last(self, session: Session, message_id: str | None) -> tuple[str, str | None]:
        """Return the last message that a link shows, and the one before: a stored one, or the answer of a live run."""
        runs = await self._engine.of_session(session.id)
        running = next((run.record for run in runs if run.status == "running"), None)
        if running is not None and running.message_id is not None and message_id in (None, running.message_id):
            return running.message_id, running.parent_id
        last_id = message_id or session.head_id
        if last_id is None:
            raise BadRequest("There is nothing to share yet: the chat has no messages.", param="message_id")
        for message in await self._store.messages(session.id):
            if message.id == last_id:
                return last_id, message.parent_id
        raise MessageNotFound(last_id)

    def _end(self, body: NewShare) -> float | None:
        """Return when a share ends.

        Who wants a link without an end says so; a group has the share until it is revoked.
        """
        lasts = body.expires_in
        if lasts is UNSET:
            lasts = None if body.group else self._settings.link_days * 86400
        return None if lasts is None else self._engine.now() + lasts

    @Endpoint("GET", "/api/sessions/{session_id}/shares", who=READ)
    async def list_session_shares(self, request: Request) -> ASGIApp:
        """List the shares of a session, and the groups that it can be shared with."""
        session = await self._reach.session(request)
        shares = await self._shares.of_owner(session.owner, session.id)
        return Json({"shares": await self._listed(shares), "groups": await self._groups(request)})

    @Endpoint("GET", "/api/shares", who=READ)
    async def list_shares(self, request: Request) -> ASGIApp:
        """List the caller's shares, the newest first."""
        return Json({"shares": await self._listed(await self._shares.of_owner(owner_of(request)))})

    @Endpoint("DELETE", "/api/shares/{share_id}", who=CHAT, audit="share.revoke")
    async def revoke_share(self, request: Request) -> ASGIApp:
        """Revoke a share. Streams that depend on it end everywhere within a second."""
        return await self._revoked(request, owner_of(request))

    @Endpoint(
        "GET",
        "/api/admin/shares",
        who=ADMIN,
        audit="share.list",
        query={"limit": "1 to 200", "before": "the last id before"},
    )
    async def list_all_shares(self, request: Request) -> ASGIApp:
        """List the shares of all owners, the newest first, in pages. Titles are people's words, and not shown."""
        limit = whole_number(request, "limit", 50, 200)
        page = await self._shares.page(before=request.query_params.get("before"), limit=limit)
        listed: list[dict[str, Any]] = []
        for each in page:
            shown: dict[str, Any] = {**await self._share_json(each)}
            del shown["title"]
            listed.append({**shown, "owner": each.owner, "person": await self.owner_name(each.owner)})
        return Json({"shares": listed, "next": page[-1].id if len(page) == limit else None})

    @Endpoint("DELETE", "/api/admin/shares/{share_id}", who=ADMIN, audit="share.revoke")
    async def revoke_any_share(self, request: Request) -> ASGIApp:
        """Revoke a share of any owner."""
        return await self._revoked(request, None)

    async def _revoked(self, request: Request, owner: str | None) -> ASGIApp:
        id = request.path_params["share_id"]
        if not await self._shares.revoke(id, owner=owner):
            raise NotFound(f"There is no share {id[:64]!r}.")
        return NoContent()

    @Endpoint("GET", "/api/shared-sessions", who=READ)
    async def list_shared_sessions(self, request: Request) -> ASGIApp:
        """List the sessions that others share with the caller's groups."""
        access = access_of(request)
        listed: dict[str, SharedListJson] = {}
        async for share in self._shares.with_groups(access.groups, MOST_LISTED):
            session = await self._store.get_session(share.body.session_id)
            known = listed.get(share.body.session_id)
            is_better = known is None or known["shared"]["may"] == "read"
            if session is not None and session.owner != access.owner and is_better:
                owner = await self.owner_name(session.owner)
                listed[session.id] = {
                    **native.listed_session(unfiled(session)),
                    "shared": {"owner": owner, "may": share.body.may},
                }
        newest_first = sorted(listed.values(), key=lambda session: session["updated_at"], reverse=True)
        return Json({"sessions": newest_first})

    async def owner_name(self, owner: str) -> str:
        """Return the name of the person of an owner; empty if there is none."""
        account = await self._people.accounts.of_owner(owner)
        return "" if account is None else account.body.name

    async def _groups(self, request: Request) -> list[GroupNameJson]:
        """Return the groups of the caller that exist."""
        found = [await self._people.callers.groups.get(id) for id in access_of(request).groups]
        return [{"id": group.id, "name": group.body.name} for group in found if group is not None]

    async def _listed(self, shares: list[Stored[Share]]) -> list[ShareJson]:
        return [await self._share_json(share) for share in shares]

    async def _share_json(self, stored: Stored[Share]) -> ShareJson:
        share = stored.body
        session = await self._store.get_session(share.session_id)
        group = await self._people.callers.groups.get(share.group) if share.group else None
        return {
            "id": stored.id,
            "session_id": share.session_id,
            "title": session.title if session is not None else share.title,
            "group": share.group or None,
            "group_name": group.body.name if group is not None else None,
            "may": share.may,
            "follows": share.head_id is None,
            "message_id": share.head_id,
            "include": list(share.include),
            "sign_in": share.sign_in,
            "created_at": native.moment(stored.created_at),
            "expires_at": native.moment(share.expires_at),
        }
