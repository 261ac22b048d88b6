"""Writes the audit log. A change by a known caller is written before it takes effect, and its result afterwards."""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.types import Scope

from ....access import ACCESS, Access
from ....errors import HoldfastError
from ....ids import new_id
from ....store import Store
from ....store.people.audit import TRIMMED, AuditEntry, AuditFilter, AuditResult

logger = logging.getLogger(__name__)
T = TypeVar("T")

REFUSALS_A_MINUTE = 120
"""Maximum number of refusals of unknown callers that a server writes in a minute."""
_LONGEST_TARGET = 128
_NOTE = "holdfast.audit"


class AuditUnavailable(HoldfastError):
    """The audit log cannot be written, so audited changes are refused."""

    code = "audit_unavailable"
    status = 503
    type = "server_error"
    message = "The audit log cannot be written, so this was not done. Check the store of the server, then try again."


class AuditNote(msgspec.Struct):
    """The details that a handler adds to its call's entry. Ids and names of fields only: no contents, no secrets."""

    target: str = ""
    actor: str = ""
    """The person, if the caller was not known before the call: at a sign-in."""
    details: dict[str, str] = {}


def note_of(request: Request) -> AuditNote:
    """Return the details of this call's entry, for the handler to change. Without an audit they have no effect."""
    note: AuditNote = request.scope.setdefault(_NOTE, AuditNote())
    return note


class Audit:
    """The audit log of a server. `noted` wraps an audited call; `note` writes a single entry."""

    def __init__(self, store: Store, *, now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._now = now
        self._refusal_limit = _RefusalLimit()

    async def noted(self, request: Request, action: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work of a call, and write an entry with the actor, the target and the result.

        A change by a known caller is written first. A read, and a call by a caller that is not known yet, is written
        before it is answered. If the log cannot be written then, the call is refused.
        """
        access: Access = request.scope[ACCESS]
        note = request.scope[_NOTE] = AuditNote(target=_named(request))
        entry = self._entry(request.scope, action, "begun", note)
        if request.method != "GET" and access.role is not None:
            return await self._around(entry, note, work)
        try:
            answer = await work()
        except Exception as error:
            result, code = _end_of(error)
            if self._refusal_limit.may_be_written(access, action, code, self._now()):
                await self._end(entry, "", note, result, code)
            raise
        if not await self._end(entry, "", note, *_end_of_answer(answer)):
            raise AuditUnavailable
        return answer

    async def by_command(self, action: str, user: str, note: AuditNote, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work of a command beside the server, and write an entry with the actor, the target and the result."""
        entry = replace(self._of_server(action, note.target), via="command", actor=user, result="begun")
        return await self._around(entry, note, work)

    async def _around(self, entry: AuditEntry, note: AuditNote, work: Callable[[], Awaitable[T]]) -> T:
        """Write the `begun` entry, do the work, and write the result. Without the first entry the work is not done."""
        await self._add(entry)
        try:
            answer = await work()
        except Exception as error:
            await self._end(entry, entry.id, note, *_end_of(error))
            raise
        await self._end(entry, entry.id, note, *_end_of_answer(answer))
        return answer

    async def note(
        self, request: Request, action: str, target: str = "", result: AuditResult = "done", **details: str
    ) -> None:
        """Write one entry about the caller of a request. `AuditUnavailable` if it cannot be written."""
        await self._add(self._entry(request.scope, action, result, AuditNote(target=target, details=details)))

    async def refused(self, request: Request, action: str, code: str) -> None:
        """Write the refusal of an audited call. It is refused even if this cannot be written."""
        note = AuditNote(target=_named(request))
        try:
            await self._add(replace(self._entry(request.scope, action, "refused", note), code=code))
        except AuditUnavailable:
            pass  # it was logged, and the caller is refused

    async def trim(self, store: Store, before: float) -> int:
        """Delete the entries from before a time, and write an entry about it. Returns the number of deleted entries."""
        if not (last := await store.read_audit(AuditFilter(until=before), before=sys.maxsize, limit=1)):
            return 0
        through = {"through": str(last[0].n), "hash": last[0].hash}
        await self._add(self._of_server(TRIMMED, details=through))
        return await store.delete_audit(last[0].n)

    async def by_server(self, action: str, target: str, **details: str) -> None:
        """Write one entry about an action of the server itself."""
        await self._add(self._of_server(action, target, details))

    async def write_left_out(self) -> None:
        """Write how many refusals of unknown callers were left out: an entry for each action and code."""
        left_out = self._refusal_limit.left_out
        for (action, code), count in [each for each in left_out.items() if each[1]]:
            entry = self._of_server(action, details={"count": str(count)})
            await self._add(replace(entry, via="", result="refused", code=code))
            left_out[action, code] -= count

    async def key_refused(self, reason: str, count: int, *, address: str, key: str) -> None:
        """Write one entry about requests with a refused key, with the reason."""
        entry = self._of_server("key.refused", details={"count": str(count)})
        await self._add(replace(entry, via="", result="refused", code=reason, address=address, credential=key))

    def _of_server(self, action: str, target: str = "", details: dict[str, str] | None = None) -> AuditEntry:
        at, id = self._now(), new_id("aud")
        return AuditEntry(
            id=id, at=at, action=action, result="done", via="server", target=target, details=details or {}
        )

    def _entry(self, scope: Scope, action: str, result: AuditResult, note: AuditNote) -> AuditEntry:
        access: Access = scope[ACCESS]
        is_known = access.role is not None
        client = scope.get("client")
        return AuditEntry(
            id=new_id("aud"),
            at=self._now(),
            action=action,
            result=result,
            actor=(access.account or access.owner) if is_known else note.actor,
            via=access.via if is_known else "",
            credential=_credential(access),
            address=client[0] if client else "",
            target=note.target,
            details=note.details,
        )

    async def _end(self, entry: AuditEntry, of: str, note: AuditNote, result: AuditResult, code: str) -> bool:
        """Write the result of a call; False if that is not possible. `of` is the id of its `begun` entry."""
        ended = replace(
            entry,
            id=new_id("aud"),
            at=self._now(),
            result=result,
            code=code,
            actor=entry.actor or note.actor,
            target=note.target,
            details=note.details,
            of=of,
        )
        try:
            await self._add(ended)
        except AuditUnavailable:
            return False
        return True

    async def _add(self, entry: AuditEntry) -> AuditEntry:
        try:
            return await self._store.add_audit(entry)
        except Exception as error:
            logger.error("The audit log cannot be written: %s %s %s: %s", entry.action, entry.id, entry.result, error)
            raise AuditUnavailable from error


class _RefusalLimit:
    """Limits the refusals of unknown callers that are written in a minute: they could fill the disk. Counts others."""

    def __init__(self) -> None:
        self._minute, self._written = 0, 0
        self.left_out: Counter[tuple[str, str]] = Counter()
        """How many refusals of each action and code were left out, and are not written as a count yet."""

    def may_be_written(self, access: Access, action: str, code: str, now: float) -> bool:
        """Return whether to write a refusal. Always True for a known caller."""
        if access.role is not None:
            return True
        minute = int(now // 60)
        self._written = self._written + 1 if minute == self._minute else 1
        self._minute = minute
        if self._written == REFUSALS_A_MINUTE:
            logger.warning("More refusals of unknown callers in this minute are only counted in the audit log.")
        if self._written > REFUSALS_A_MINUTE:
            self.left_out[action, code] += 1
        return self._written <= REFUSALS_A_MINUTE


def _end_of(error: Exception) -> tuple[AuditResult, str]:
    if isinstance(error, HoldfastError):
        return ("refused" if error.status < 500 else "failed"), error.code
    return "failed", "internal_error"


def _end_of_answer(answer: object) -> tuple[AuditResult, str]:
    status = getattr(answer, "status_code", 200)
    return ("done", "") if status < 400 else ("refused" if status < 500 else "failed", str(status))


def _named(request: Request) -> str:
    """Return the ids in the path of a request. A caller may have put any text there."""
    ids = " ".join(request.path_params.values())[:_LONGEST_TARGET]
    return "".join(character if character.isprintable() else "?" for character in ids)


def _credential(access: Access) -> str:
    return f"in_{access.credential[:16]}" if access.via == "sign_in" else access.credential
