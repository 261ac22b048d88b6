"""`/api/shares`: the caller's shares; `/api/shared-sessions`: sessions that others share with the caller."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.types import ASGIApp

from ...access import ADMIN, CHAT, READ
from ...errors import BadRequest, Conflict, MessageNotFound, NotFound
from ...history import Session
from ...store.documents import Stored
from ...wires import native
from ...wires.shapes import GroupNameJson, NewLinkJson, SharedListJson, ShareJson
from ..caller import access_of, own_run, own_session, owner_of
from ..errors import Json, NoContent
from ..request import decode, read_body, whole_number
from ..routing import Endpoint
from ..services import Parts
from .shares import Included, May, Share

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

    def __init__(self) -> None:
        super().__init__(
            "This run belongs to no session, so a link has nothing to show: its text is kept for no one else. "
            "Start it in a session to share it."
        )


async def share_run(parts: Parts, request: Request) -> ASGIApp:
    """Create a link to a run of a session: the messages before it, and its answer as it grows."""
    run = await own_run(parts, request)
    body = decode(await read_body(parts, request), NewRunShare)
    if run.record.session_id is None or run.record.message_id is None:
        raise NoSession
    session = await own_session(parts, request, run.record.session_id)
    options = msgspec.structs.asdict(body)
    return await _made_link(parts, session, NewShare(message_id=run.record.message_id, **options))


async def share_session(parts: Parts, request: Request) -> ASGIApp:
    """Create a link to a session, or share it with a group."""
    session = await own_session(parts, request)
    body = decode(await read_body(parts, request), NewShare)
    if body.group:
        stored = await parts.shares.add_group(session.owner, await _with_group(parts, request, session, body))
        made: NewLinkJson = {**(await _share_json(parts, stored)), "token": None}
        return Json(made, status_code=201)
    return await _made_link(parts, session, body)


async def _made_link(parts: Parts, session: Session, body: NewShare) -> ASGIApp:
    token, stored = await parts.shares.add_link(session.owner, await _link(parts, session, body))
    made: NewLinkJson = {**(await _share_json(parts, stored)), "token": token}
    return Json(made, status_code=201)


async def _with_group(parts: Parts, request: Request, session: Session, body: NewShare) -> Share:
    for field in ("follow", "message_id", "include", "sign_in"):
        if getattr(body, field):
            raise BadRequest(f"{field} is for links only: a group gets the whole chat.", param=field)
    if body.group not in [group["id"] for group in await _groups(parts, request)]:
        raise NotFound(f"You are in no group {body.group[:64]!r}.")
    return Share(session_id=session.id, group=body.group, may=body.may, expires_at=_end(parts, body))


async def _link(parts: Parts, session: Session, body: NewShare) -> Share:
    if body.may != "read":
        raise BadRequest("A link is for reading only. Share the chat with a group to write together.", param="may")
    if body.follow and body.message_id is not None:
        raise BadRequest("A link follows the chat, or ends with a message.", param="message_id")
    head, before = (None, None) if body.follow else await _last(parts, session, body.message_id)
    return Share(
        session_id=session.id,
        head_id=head,
        before_id=before,
        title=session.title,
        include=body.include,
        sign_in=body.sign_in,
        expires_at=_end(parts, body),
    )


async def _last(parts: Parts, session: Session, message_id: str | None) -> tuple[str, str | None]:
    """Return the last message that a link shows, and the one before: a stored one, or the answer of a live run."""
    runs = await parts.engine.of_session(session.id)
    running = next((run.record for run in runs if run.status == "running"), None)
    if running is not None and running.message_id is not None and message_id in (None, running.message_id):
        return running.message_id, running.parent_id
    last_id = message_id or session.head_id
    if last_id is None:
        raise BadRequest("There is nothing to share yet: the chat has no messages.", param="message_id")
    for message in await parts.store.messages(session.id):
        if message.id == last_id:
            return last_id, message.parent_id
    raise MessageNotFound(last_id)


def _end(parts: Parts, body: NewShare) -> float | None:
    """Return when a share ends. Who wants a link without an end says so; a group has the share until it is revoked."""
    lasts = body.expires_in
    if lasts is UNSET:
        lasts = None if body.group else parts.settings.link_days * 86400
    return None if lasts is None else parts.engine.now() + lasts


async def list_session_shares(parts: Parts, request: Request) -> ASGIApp:
    """List the shares of a session, and the groups that it can be shared with."""
    session = await own_session(parts, request)
    shares = await parts.shares.of_owner(session.owner, session.id)
    return Json({"shares": await _listed(parts, shares), "groups": await _groups(parts, request)})


async def list_shares(parts: Parts, request: Request) -> ASGIApp:
    """List the caller's shares, the newest first."""
    return Json({"shares": await _listed(parts, await parts.shares.of_owner(owner_of(request)))})


async def revoke_share(parts: Parts, request: Request) -> ASGIApp:
    """Revoke a share. Streams that depend on it end everywhere within a second."""
    return await _revoked(parts, request, owner_of(request))


async def list_all_shares(parts: Parts, request: Request) -> ASGIApp:
    """List the shares of all owners, the newest first, a page at a time. Titles are people's words, and not shown."""
    limit = whole_number(request, "limit", 50, 200)
    page = await parts.shares.page(before=request.query_params.get("before"), limit=limit)
    listed: list[dict[str, Any]] = []
    for each in page:
        shown: dict[str, Any] = {**await _share_json(parts, each)}
        del shown["title"]
        listed.append({**shown, "owner": each.owner, "person": await owner_name(parts, each.owner)})
    return Json({"shares": listed, "next": page[-1].id if len(page) == limit else None})


async def revoke_any_share(parts: Parts, request: Request) -> ASGIApp:
    """Revoke a share of any owner."""
    return await _revoked(parts, request, None)


async def _revoked(parts: Parts, request: Request, owner: str | None) -> ASGIApp:
    id = request.path_params["share_id"]
    if not await parts.shares.revoke(id, owner=owner):
        raise NotFound(f"There is no share {id[:64]!r}.")
    return NoContent()


async def list_shared_sessions(parts: Parts, request: Request) -> ASGIApp:
    """List the sessions that others share with the caller's groups."""
    access = access_of(request)
    listed: dict[str, SharedListJson] = {}
    async for share in parts.shares.with_groups(access.groups, MOST_LISTED):
        session = await parts.store.get_session(share.body.session_id)
        known = listed.get(share.body.session_id)
        is_better = known is None or known["shared"]["may"] == "read"
        if session is not None and session.owner != access.owner and is_better:
            owner = await owner_name(parts, session.owner)
            listed[session.id] = {
                **native.listed_session(session),
                "pinned": False,
                "shared": {"owner": owner, "may": share.body.may},
            }
    newest_first = sorted(listed.values(), key=lambda session: session["updated_at"], reverse=True)
    return Json({"sessions": newest_first})


async def owner_name(parts: Parts, owner: str) -> str:
    """Return the name of the person of an owner; empty if there is none."""
    account = await parts.people.accounts.of_owner(owner)
    return "" if account is None else account.body.name


async def _groups(parts: Parts, request: Request) -> list[GroupNameJson]:
    """Return the groups of the caller that exist."""
    found = [await parts.people.callers.groups.get(id) for id in access_of(request).groups]
    return [{"id": group.id, "name": group.body.name} for group in found if group is not None]


async def _listed(parts: Parts, shares: list[Stored[Share]]) -> list[ShareJson]:
    return [await _share_json(parts, share) for share in shares]


async def _share_json(parts: Parts, stored: Stored[Share]) -> ShareJson:
    share = stored.body
    session = await parts.store.get_session(share.session_id)
    group = await parts.people.callers.groups.get(share.group) if share.group else None
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


_BAD = {400: "bad input", 404: "no such session", 413: "too large"}
_GONE = {204: "revoked", 404: "no such share"}

ENDPOINTS = [
    Endpoint(
        "POST",
        "/api/sessions/{session_id}/shares",
        share_session,
        who=CHAT,
        audit="share.new",
        takes=NewShare,
        answers={201: "the share, with the token of a link", 409: "too many shares", **_BAD},
    ),
    Endpoint(
        "POST",
        "/api/runs/{run_id}/shares",
        share_run,
        who=CHAT,
        audit="share.new",
        takes=NewRunShare,
        answers={
            201: "the share, with the token of a link",
            400: "bad input",
            404: "no such run",
            409: "the run belongs to no session, or too many shares",
            413: "too large",
        },
    ),
    Endpoint(
        "GET",
        "/api/sessions/{session_id}/shares",
        list_session_shares,
        who=READ,
        answers={200: "the shares, and the groups", 404: "no such session"},
    ),
    Endpoint("GET", "/api/shares", list_shares, who=READ, answers={200: "the shares"}),
    Endpoint("DELETE", "/api/shares/{share_id}", revoke_share, who=CHAT, audit="share.revoke", answers=_GONE),
    Endpoint(
        "GET",
        "/api/admin/shares",
        list_all_shares,
        who=ADMIN,
        audit="share.list",
        query={"limit": "1 to 200", "before": "the last id before"},
        answers={200: "the shares, and the id to continue from", 400: "a bad query"},
    ),
    Endpoint(
        "DELETE", "/api/admin/shares/{share_id}", revoke_any_share, who=ADMIN, audit="share.revoke", answers=_GONE
    ),
    Endpoint("GET", "/api/shared-sessions", list_shared_sessions, who=READ, answers={200: "the sessions"}),
]
