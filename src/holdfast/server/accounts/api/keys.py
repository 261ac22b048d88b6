"""`/api/keys`: a person's own keys; `/api/admin/keys`: all keys, and those of services."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import ADMIN, NO_BUDGET, PERSON, PERSON_FRESH, Access, Budget, KeyScope
from ....errors import BadRequest, HoldfastError, NotFound
from ....store import KeyDetails, KeyRecord
from ....wires import native
from ...audit.audit import note_of
from ...caller import access_of
from ...config.settings import SettingsError
from ...errors import Json, NoContent
from ...request import check_name, decode, read_body
from ...routing import Endpoint
from ...services import Parts
from ..made_keys import NewKey, check_key_name, new_key
from .sign_in import Short

MOST_KEYS = 50
"""Maximum number of active keys of one person."""
DEFAULT_SCOPES: tuple[KeyScope, ...] = ("chat", "batch")
OVERLAP = 24.0
"""Hours for which both keys work when a key is rotated."""


KeyDays = Annotated[float, msgspec.Meta(gt=0, le=3660)]


class PersonsKey(HoldfastError):
    """The key acts for a person, so nobody else may get its secret."""

    code = "persons_key"
    status = 403
    type = "permission_error"

    def __init__(self) -> None:
        super().__init__(
            "This key acts for a person, who alone can rotate it. You can revoke it, or let it end earlier."
        )


class NewApiKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new key: its name and its limits."""

    name: Short
    scopes: tuple[KeyScope, ...] = DEFAULT_SCOPES
    models: tuple[Short, ...] | None = None
    agents: tuple[Short, ...] | None = None
    expires_in_days: KeyDays | None = None
    budget: Budget = NO_BUDGET


class NewServiceKey(NewApiKey, frozen=True, forbid_unknown_fields=True):
    """A new key of a service."""

    owner: Short | None = None
    """The id of a service that gets one more key. Without it the key is that of a new service."""


class KeyChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of a key that an admin can change. Those that are left out stay; an end can only become earlier."""

    budget: Budget | UnsetType = UNSET
    expires_in_days: KeyDays | UnsetType = UNSET


class Rotation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The hours for which the old key still works."""

    overlap_hours: Annotated[float, msgspec.Meta(ge=0, le=2160)] = OVERLAP


async def list_own_keys(parts: Parts, request: Request) -> ASGIApp:
    """List the caller's active keys."""
    return Json({"keys": [shown_key(key) for key in await _own_keys(parts, request)]})


async def make_own_key(parts: Parts, request: Request) -> ASGIApp:
    """Create a key for the caller. Only this response contains the key."""
    given, access = decode(await read_body(parts, request), NewApiKey), access_of(request)
    check_name(given.name, "name")
    if "admin" in given.scopes and access.role != "admin":
        raise BadRequest("Only an admin's key can have the scope 'admin'.", param="scopes", code="scope_not_allowed")
    made = new_key(given.name, owner=access.owner, account=access.account, details=_details(parts, given, access))
    return await _added(parts, request, made)


async def revoke_own_key(parts: Parts, request: Request) -> ASGIApp:
    """Revoke a key of the caller: everywhere within a second, open streams included."""
    return await _revoked(parts, request, await _own_key(parts, request))


async def rotate_own_key(parts: Parts, request: Request) -> ASGIApp:
    """Create a key that replaces another. Both work until the older one expires."""
    given = decode(await read_body(parts, request), Rotation)
    keys = await _own_keys(parts, request)
    return await _rotated(parts, request, _one_of(keys, request), keys, given)


async def list_all_keys(parts: Parts, request: Request) -> ASGIApp:
    """List all active keys, of people and services."""
    return Json({"keys": [shown_key(key) for key in await _in_force(parts)]})


async def make_service_key(parts: Parts, request: Request) -> ASGIApp:
    """Create a key for a service: a new one, an owner with its own sessions and runs, or one that exists."""
    given, access = decode(await read_body(parts, request), NewServiceKey), access_of(request)
    try:
        check_key_name(given.name, parts.settings)
    except SettingsError as error:
        raise BadRequest(str(error), param="name", code="bad_name") from None
    if given.owner is not None and await parts.store.account_of(given.owner) != "":
        raise NotFound(f"There is no service {given.owner!r}.")
    details, is_admin = _details(parts, given, access), "admin" in given.scopes
    return await _added(parts, request, new_key(given.name, admin=is_admin, owner=given.owner or "", details=details))


async def revoke_any_key(parts: Parts, request: Request) -> ASGIApp:
    """Revoke a key of any owner."""
    return await _revoked(parts, request, _one_of(await _in_force(parts), request))


async def rotate_any_key(parts: Parts, request: Request) -> ASGIApp:
    """Create a key that replaces one of a service. That of a person is replaced by the person only."""
    given, keys = decode(await read_body(parts, request), Rotation), await _in_force(parts)
    return await _rotated(parts, request, _one_of(keys, request), keys, given)


async def change_any_key(parts: Parts, request: Request) -> ASGIApp:
    """Change the budget of a key, or end it earlier. Its open streams end: the next request has the new limits."""
    given = decode(await read_body(parts, request), KeyChange)
    key = _one_of(await _in_force(parts), request)
    changed = await parts.store.change_key(key.id, _changed(key.details, given, parts.engine.now()))
    await parts.keys.refresh()
    return Json(shown_key(changed or key))


def _changed(details: KeyDetails, given: KeyChange, now: float) -> KeyDetails:
    if given.budget is not UNSET:
        details = replace(details, budget=given.budget)
    if given.expires_in_days is UNSET:
        return details
    ends = now + given.expires_in_days * 86400
    if details.expires_at is not None and ends > details.expires_at:
        raise BadRequest("The key ends before that. Its end can only become earlier.", param="expires_in_days")
    return replace(details, expires_at=ends)


def _details(parts: Parts, given: NewApiKey, access: Access) -> KeyDetails:
    if not given.scopes:
        raise BadRequest("A key needs at least one scope.", param="scopes")
    lasts = given.expires_in_days
    return KeyDetails(
        scopes=given.scopes,
        models=given.models,
        agents=given.agents,
        expires_at=None if lasts is None else parts.engine.now() + lasts * 86400,
        made_by=access.name,
        budget=given.budget,
    )


async def _added(parts: Parts, request: Request, made: NewKey) -> ASGIApp:
    """Add a key, and return it: the key of a person only to the person's own sign-in."""
    access, record = access_of(request), made.record
    if record.account and (access.via, access.account) != ("sign_in", record.account):
        raise PersonsKey
    added = await parts.store.add_key(record, MOST_KEYS if record.account else None)
    scopes = " ".join(added.details.scopes or ())
    note_of(request).target = added.id
    note_of(request).details = {"key": added.id, "owner": added.owner, "scopes": scopes}
    await parts.keys.refresh()
    return Json({**shown_key(added), "key": made.key}, status_code=201)


async def _revoked(parts: Parts, request: Request, key: KeyRecord) -> ASGIApp:
    note_of(request).details = {"owner": key.owner}
    await parts.store.revoke_key(key.id, parts.engine.now())
    await parts.keys.refresh()
    return NoContent()


async def _rotated(parts: Parts, request: Request, key: KeyRecord, keys: list[KeyRecord], given: Rotation) -> ASGIApp:
    now = parts.engine.now()
    ends = now + given.overlap_hours * 3600
    until = min(ends, key.details.expires_at or ends)
    lasts = None if key.details.expires_at is None else key.details.expires_at - key.created_at
    made = new_key(
        _next_name(key, keys),
        admin=key.admin,
        owner=key.owner,
        account=key.account,
        details=replace(key.details, prefix="", expires_at=None if lasts is None else now + lasts),
    )
    response = await _added(parts, request, made)
    await parts.store.change_key(key.id, replace(key.details, expires_at=until))
    await parts.keys.refresh()
    return response


def _next_name(key: KeyRecord, keys: list[KeyRecord]) -> str:
    """Return the name of a key's successor: `ci`, `ci-2`, `ci-3`."""
    stem = re.sub(r"-\d{1,6}$", "", key.name)[:56]
    taken = {each.name for each in keys if each.account == key.account}
    return next(name for n in range(2, len(taken) + 3) if (name := f"{stem}-{n}") not in taken)


async def _own_keys(parts: Parts, request: Request) -> list[KeyRecord]:
    keys = await parts.store.list_keys(account=access_of(request).account)
    return [key for key in keys if _is_in_force(parts, key)]


async def _own_key(parts: Parts, request: Request) -> KeyRecord:
    return _one_of(await _own_keys(parts, request), request)


async def _in_force(parts: Parts) -> list[KeyRecord]:
    return [key for key in await parts.store.list_keys() if _is_in_force(parts, key)]


def _is_in_force(parts: Parts, key: KeyRecord) -> bool:
    expires_at = key.details.expires_at
    return key.revoked_at is None and (expires_at is None or expires_at > parts.engine.now())


def _one_of(keys: list[KeyRecord], request: Request) -> KeyRecord:
    id = request.path_params["key_id"]
    if (found := next((key for key in keys if key.id == id), None)) is None:
        raise NotFound(f"There is no key {id!r}.")
    return found


def shown_key(key: KeyRecord) -> dict[str, Any]:
    """Return a key as JSON: its limits, and its first characters."""
    details = key.details
    return {
        "id": key.id,
        "name": key.name,
        "owner": key.owner,
        "account": key.account or None,
        "prefix": details.prefix,
        "admin": key.admin,
        "scopes": details.scopes,
        "models": details.models,
        "agents": details.agents,
        "made_by": details.made_by,
        "budget": details.budget,
        "created_at": native.moment(key.created_at),
        "expires_at": None if details.expires_at is None else native.moment(details.expires_at),
        "last_used_at": None if key.last_used_at is None else native.moment(key.last_used_at),
    }


_BAD = {400: "a value is invalid", 413: "too large"}
_THERE = {404: "no such key"}
_MADE = {201: "the key, which is shown once", 409: "the name is taken", **_BAD}

ENDPOINTS = [
    Endpoint("GET", "/api/keys", list_own_keys, who=PERSON, answers={200: "the keys"}),
    Endpoint("POST", "/api/keys", make_own_key, who=PERSON_FRESH, audit="key.new", takes=NewApiKey, answers=_MADE),
    Endpoint(
        "DELETE",
        "/api/keys/{key_id}",
        revoke_own_key,
        who=PERSON,
        audit="key.revoke",
        answers={204: "revoked", **_THERE},
    ),
    Endpoint(
        "POST",
        "/api/keys/{key_id}/rotate",
        rotate_own_key,
        who=PERSON_FRESH,
        audit="key.rotate",
        takes=Rotation,
        answers={**_MADE, **_THERE},
    ),
    Endpoint("GET", "/api/admin/keys", list_all_keys, who=ADMIN, audit="key.list", answers={200: "the keys"}),
    Endpoint(
        "POST",
        "/api/admin/keys",
        make_service_key,
        who=ADMIN,
        audit="key.new",
        takes=NewServiceKey,
        answers={**_MADE, 404: "no such service"},
    ),
    Endpoint(
        "DELETE",
        "/api/admin/keys/{key_id}",
        revoke_any_key,
        who=ADMIN,
        audit="key.revoke",
        answers={204: "revoked", **_THERE},
    ),
    Endpoint(
        "PATCH",
        "/api/admin/keys/{key_id}",
        change_any_key,
        who=ADMIN,
        audit="key.change",
        takes=KeyChange,
        answers={200: "the key", **_BAD, **_THERE},
    ),
    Endpoint(
        "POST",
        "/api/admin/keys/{key_id}/rotate",
        rotate_any_key,
        who=ADMIN,
        audit="key.rotate",
        takes=Rotation,
        answers={**_MADE, **_THERE, 403: "the key of a person"},
    ),
]
