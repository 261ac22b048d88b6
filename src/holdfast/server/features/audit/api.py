"""`/api/admin/audit`: the audit log, a page at a time or as JSON lines."""

from __future__ import annotations

import datetime
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp

from ....access import ADMIN
from ....engine.core import Core
from ....errors import BadRequest, HoldfastError
from ....store import Store
from ....store.people.audit import AuditEntry, AuditFilter
from ....wires import native
from ...kit.chores import Chores
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import PRIVATE, Json
from ...kit.request import whole_number
from .audit import Audit
from .refused_keys import RefusedKeys

_NEWEST = 2**62
logger = logging.getLogger(__name__)
_PAGE = 500


class Names(Protocol):
    """Knows the names of people and groups."""

    async def ids_of(self, text: str) -> tuple[str, ...]:
        """Return the ids of the accounts that a text means."""
        ...

    async def names_of(self, ids: Iterable[str]) -> dict[str, str]:
        """Return the names of groups, and of the accounts among some ids."""
        ...


class AuditFeature(Feature):
    """The audit log, for admins."""

    def __init__(self, store: Store, people: Names, engine: Core, days: float) -> None:
        self._store, self._people, self._engine, self._days = store, people, engine, days
        self.audit = Audit(store)
        self.refused_keys = RefusedKeys(self.audit)

    def begin(self, chores: Chores) -> None:
        """Delete old entries, log the head, and write the counts of refused keys."""
        chores.by_one_node("old audit entries", 3600.0, self._trim)
        chores.by_one_node("head of the audit log", 3600.0, self._log_head)
        chores.every("refused keys", 60.0, self.refused_keys.write, first=60.0)

    async def close(self) -> None:
        """Write the last counts."""
        with suppress(HoldfastError):
            await self.refused_keys.write()

    async def _trim(self) -> None:
        """Delete entries of the audit log that are older than `audit_days`."""
        await self.audit.trim(self._store, self._engine.now() - self._days * 86400)

    async def _log_head(self) -> None:
        """Log the newest entry's number and digest: logs are kept elsewhere, and `audit verify --head` takes it."""
        n, digest = await self._store.audit_end()
        if n:
            logger.info("the head of the audit log is %d:%s", n, digest)

    @Endpoint(
        "GET",
        "/api/admin/audit",
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
    )
    async def read_audit(self, request: Request) -> ASGIApp:
        """Return entries, the newest first; or all as JSON lines, the oldest first."""
        form = request.query_params.get("format", "json")
        if form not in ("json", "jsonl"):
            raise BadRequest("format is json or jsonl.", param="format")
        wanted = await self._wanted(request)
        if form == "jsonl":
            return StreamingResponse(
                self._lines(wanted, _cursor(request, "after", 0)),
                media_type="application/jsonl",
                headers={**PRIVATE, "content-disposition": 'attachment; filename="audit.jsonl"'},
            )
        limit = whole_number(request, "limit", 100, 500)
        entries = await self._store.read_audit(wanted, before=_cursor(request, "before", _NEWEST), limit=limit)
        names = await self._names(entries)
        shown = [_shown(entry, names) for entry in entries]
        return Json({"entries": shown, "next": str(entries[-1].n) if len(entries) == limit else None})

    async def _lines(self, wanted: AuditFilter, after: int) -> AsyncIterator[bytes]:
        while entries := await self._store.read_audit(wanted, after=after, limit=_PAGE):
            yield b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
            after = entries[-1].n

    async def _wanted(self, request: Request) -> AuditFilter:
        actor, reads = request.query_params.get("actor"), request.query_params.get("reads", "true")
        if reads not in ("true", "false"):
            raise BadRequest("reads is true or false.", param="reads")
        return AuditFilter(
            actors=None if actor is None else await self._people.ids_of(actor),
            changes=reads == "false",
            action=request.query_params.get("action"),
            since=_moment(request, "since"),
            until=_moment(request, "until"),
        )

    async def _names(self, entries: Sequence[AuditEntry]) -> dict[str, str]:
        """Return the names of people, groups and keys by their ids: the log has ids only."""
        ids = {id for entry in entries for id in (entry.actor, entry.target)}
        keys = {key.id: key.name for key in await self._store.list_keys() if key.id in ids}
        return {**await self._people.names_of(ids), **keys}


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


def _shown(entry: AuditEntry, names: dict[str, str]) -> dict[str, Any]:
    """Return an entry as JSON, with the names of its actor and its target."""
    return {
        **{name: getattr(entry, name) for name in AuditEntry.__struct_fields__},
        "at": native.moment(entry.at),
        "actor": names.get(entry.actor, entry.actor),
        "actor_id": entry.actor,
        "target_name": names.get(entry.target, ""),
    }
