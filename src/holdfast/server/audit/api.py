"""`/api/admin/audit`: the audit log, a page at a time or as JSON lines."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator
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
    shown = [await _shown(parts, entry) for entry in entries]
    return Json({"entries": shown, "next": str(entries[-1].n) if len(entries) == limit else None})


async def _lines(parts: Parts, wanted: AuditFilter, after: int) -> AsyncIterator[bytes]:
    while entries := await parts.store.read_audit(wanted, after=after, limit=_PAGE):
        yield b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
        after = entries[-1].n


async def _wanted(parts: Parts, request: Request) -> AuditFilter:
    actor = request.query_params.get("actor")
    account = None if actor is None else await parts.people.accounts.find(actor)
    return AuditFilter(
        actor=actor if account is None else account.id,
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


async def _shown(parts: Parts, entry: AuditEntry) -> dict[str, Any]:
    """Return an entry as JSON. The name of its actor is looked up: the log has ids only."""
    account = await parts.people.accounts.get(entry.actor) if entry.actor.startswith("user_") else None
    return {
        **{name: getattr(entry, name) for name in AuditEntry.__struct_fields__},
        "at": native.moment(entry.at),
        "actor": entry.actor if account is None else account.body.name,
        "actor_id": entry.actor,
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
            "actor": "a name, an e-mail address or an id",
            "action": "such as key.revoke",
            "since": "the time of the oldest",
            "until": "the time before which the newest was",
            "before": "of json: the number to go on from",
            "after": "of jsonl: the number to go on from",
            "limit": "of json: 1 to 500",
        },
        answers={200: "the entries", 400: "a bad query"},
    ),
]
