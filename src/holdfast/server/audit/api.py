"""`/api/admin/audit`: the audit log, a page at a time or as JSON lines."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp

from ...access import ADMIN
from ...errors import BadRequest
from ...store.people.audit import AuditEntry, AuditFilter
from ...wires import native
from ..errors import PRIVATE, Json
from ..request import whole_number
from ..routing import Endpoint
from ..services import Parts

_NEWEST = 2**62
_PAGE = 500


async def read_audit(parts: Parts, request: Request) -> ASGIApp:
    """Return entries, the newest first; or all as JSON lines, the oldest first."""
    form = request.query_params.get("format", "json")
    if form not in ("json", "jsonl"):
        raise BadRequest("format is json or jsonl.", param="format")
    wanted = await _wanted(parts, request)
    if form == "jsonl":
        return StreamingResponse(
            _lines(parts, wanted, _cursor(request, "after", 0)),
            media_type="application/jsonl",
            headers={**PRIVATE, "content-disposition": 'attachment; filename="audit.jsonl"'},
        )
    limit = whole_number(request, "limit", 100, 500)
    entries = await parts.store.read_audit(wanted, before=_cursor(request, "before", _NEWEST), limit=limit)
    names = await _names(parts, entries)
    shown = [_shown(entry, names) for entry in entries]
    return Json({"entries": shown, "next": str(entries[-1].n) if len(entries) == limit else None})


async def _lines(parts: Parts, wanted: AuditFilter, after: int) -> AsyncIterator[bytes]:
    while entries := await parts.store.read_audit(wanted, after=after, limit=_PAGE):
        yield b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
        after = entries[-1].n


async def _wanted(parts: Parts, request: Request) -> AuditFilter:
    actor, reads = request.query_params.get("actor"), request.query_params.get("reads", "true")
    if reads not in ("true", "false"):
        raise BadRequest("reads is true or false.", param="reads")
    return AuditFilter(
        actors=None if actor is None else await parts.people.accounts.ids_of(actor),
        changes=reads == "false",
        action=request.query_params.get("action"),
        since=_moment(request, "since"),
        until=_moment(request, "until"),
    )


def _cursor(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 18):
        raise BadRequest(f"{name} is the number of an entry.", param=name)
    return int(text)


def _moment(request: Request, name: str) -> float | None:
    """Return a time of the query: a date, or a date with a time, in UTC unless it names another zone."""
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        moment = datetime.datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()
    except (ValueError, OverflowError, OSError):
        raise BadRequest(f"{name} is a time such as 2030-01-31 or 2030-01-31T08:00:00Z.", param=name) from None


async def _names(parts: Parts, entries: Sequence[AuditEntry]) -> dict[str, str]:
    """Return the names of people, groups and keys by their ids: the log has ids only."""
    ids = {id for entry in entries for id in (entry.actor, entry.target)}
    names = {group.id: group.body.name async for group in parts.people.callers.groups.all()}
    names |= {key.id: key.name for key in await parts.store.list_keys() if key.id in ids}
    for id in ids:
        if id.startswith("user_") and (account := await parts.people.accounts.get(id)) is not None:
            names[id] = account.body.name
    return names


def _shown(entry: AuditEntry, names: dict[str, str]) -> dict[str, Any]:
    """Return an entry as JSON, with the names of its actor and its target."""
    return {
        **{name: getattr(entry, name) for name in AuditEntry.__struct_fields__},
        "at": native.moment(entry.at),
        "actor": names.get(entry.actor, entry.actor),
        "actor_id": entry.actor,
        "target_name": names.get(entry.target, ""),
    }


ENDPOINTS = [
    Endpoint(
        "GET",
        "/api/admin/audit",
        read_audit,
        who=ADMIN,
        audit="audit.read",
        query={
            "format": "json or jsonl",
            "actor": "an id, or a part of a name or an e-mail address",
            "action": "such as key.revoke, or key for all of that kind",
            "reads": "false leaves out what admins have only read",
            "since": "the time of the oldest",
            "until": "the time before which the newest was",
            "before": "of json: the number to go on from",
            "after": "of jsonl: the number to go on from",
            "limit": "of json: 1 to 500",
        },
        answers={200: "the entries", 400: "a bad query"},
    ),
]
