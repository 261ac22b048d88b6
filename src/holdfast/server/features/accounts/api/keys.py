"""`/api/keys`: a person's own keys; `/api/admin/keys`: all keys, and those of services."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace
from starlette.requests import Request
from starlette.types import ASGIApp

from .....access import ADMIN, NO_BUDGET, PERSON, PERSON_FRESH, Access, Budget, KeyScope
from .....engine.core import Core
from .....errors import BadRequest, HoldfastError, NotFound
from .....store import KeyDetails, KeyRecord, Store
from .....wires import native
from ....config.settings import Settings, SettingsError
from ....kit.caller import access_of
from ....kit.feature import Endpoint, Feature
from ....kit.http.errors import Json, NoContent
from ....kit.request import Bodies, check_name, decode
from ...audit.audit import note_of
from ..keys import Keys, scopes_of
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
    message = "This key acts for a person, who alone can rotate it. You can revoke it, or let it end earlier."


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


_MADE = {201: "the key, which is shown once", 409: "the name is taken"}


class KeysApi(Feature):
    """API keys: the caller's own, and all for admins."""

    def __init__(self, bodies: Bodies, keys: Keys, engine: Core, store: Store, settings: Settings) -> None:
        self._bodies, self._keys, self._engine, self._store = bodies, keys, engine, store
        self._settings = settings

    @Endpoint("GET", "/api/keys", who=PERSON)
    async def list_own_keys(self, request: Request) -> ASGIApp:
        """List the caller's active keys."""
        return Json({"keys": [shown_key(key) for key in await self._own_keys(request)]})

    @Endpoint("POST", "/api/keys", who=PERSON_FRESH, audit="key.new", takes=NewApiKey, answers=_MADE)
    async def make_own_key(self, request: Request) -> ASGIApp:
        """Create a key for the caller. Only this response contains the key."""
        given, access = decode(await self._bodies.read(request), NewApiKey), access_of(request)
        check_name(given.name, "name")
        if "admin" in given.scopes and access.role != "admin":
            raise BadRequest(
                "Only an admin's key can have the scope 'admin'.", param="scopes", code="scope_not_allowed"
            )
        made = new_key(given.name, owner=access.owner, account=access.account, details=self._details(given, access))
        return await self._added(request, made)

    @Endpoint("DELETE", "/api/keys/{key_id}", who=PERSON, audit="key.revoke")
    async def revoke_own_key(self, request: Request) -> ASGIApp:
        """Revoke a key of the caller: everywhere within a second, open streams included."""
        return await self._revoked(request, await self._own_key(request))

    @Endpoint("POST", "/api/keys/{key_id}/rotate", who=PERSON_FRESH, audit="key.rotate", takes=Rotation, answers=_MADE)
    async def rotate_own_key(self, request: Request) -> ASGIApp:
        """Create a key that replaces another. Both work until the older one expires."""
        given = decode(await self._bodies.read(request), Rotation)
        keys = await self._own_keys(request)
        return await self._rotated(request, _one_of(keys, request), keys, given)

    @Endpoint("GET", "/api/admin/keys", who=ADMIN, audit="key.list")
    async def list_all_keys(self, request: Request) -> ASGIApp:
        """List all active keys, of people and services."""
        return Json({"keys": [shown_key(key) for key in await self._in_force()]})

    @Endpoint(
        "POST",
        "/api/admin/keys",
        who=ADMIN,
        audit="key.new",
        takes=NewServiceKey,
        answers={**_MADE, 404: "no such service"},
    )
    async def make_service_key(self, request: Request) -> ASGIApp:
        """Create a key for a service: a new one, an owner with its own sessions and runs, or one that exists."""
        given, access = decode(await self._bodies.read(request), NewServiceKey), access_of(request)
        try:
            check_key_name(given.name, self._settings)
        except SettingsError as error:
            raise BadRequest(str(error), param="name", code="bad_name") from None
        if given.owner is not None and await self._store.account_of(given.owner) != "":
            raise NotFound(f"There is no service {given.owner!r}.")
        details, is_admin = self._details(given, access), "admin" in given.scopes
        return await self._added(request, new_key(given.name, admin=is_admin, owner=given.owner or "", details=details))

    @Endpoint("DELETE", "/api/admin/keys/{key_id}", who=ADMIN, audit="key.revoke")
    async def revoke_any_key(self, request: Request) -> ASGIApp:
        """Revoke a key of any owner."""
        return await self._revoked(request, _one_of(await self._in_force(), request))

    @Endpoint(
        "POST",
        "/api/admin/keys/{key_id}/rotate",
        who=ADMIN,
        audit="key.rotate",
        takes=Rotation,
        answers={**_MADE, 403: "the key of a person"},
    )
    async def rotate_any_key(self, request: Request) -> ASGIApp:
        """Create a key that replaces one of a service. That of a person is replaced by the person only."""
        given, keys = decode(await self._bodies.read(request), Rotation), await self._in_force()
        return await self._rotated(request, _one_of(keys, request), keys, given)

    @Endpoint("PATCH", "/api/admin/keys/{key_id}", who=ADMIN, audit="key.change", takes=KeyChange)
    async def change_any_key(self, request: Request) -> ASGIApp:
        """Change the budget of a key, for what starts from then on, or end it earlier. What runs goes on until then."""
        given = decode(await self._bodies.read(request), KeyChange)
        key = _one_of(await self._in_force(), request)
        changes = [name for name, value in asdict(given).items() if value is not UNSET]
        note_of(request).details = {"changed": " ".join(changes)}
        now = self._engine.now()
        changed = await self._store.change_key(key.id, lambda details: _changed(details, given, now))
        await self._keys.refresh()
        return Json(shown_key(changed or key))

    def _details(self, given: NewApiKey, access: Access) -> KeyDetails:
        if not given.scopes:
            raise BadRequest("A key needs at least one scope.", param="scopes")
        lasts = given.expires_in_days
        return KeyDetails(
            scopes=given.scopes,
            models=given.models,
            agents=given.agents,
            expires_at=None if lasts is None else self._engine.now() + lasts * 86400,
            made_by=access.name,
            budget=given.budget,
        )

    async def _added(self, request: Request, made: NewKey) -> ASGIApp:
        """Add a key, and return it: the key of a person only to the person's own sign-in."""
        access, record = access_of(request), made.record
        if record.account and (access.via, access.account) != ("sign_in", record.account):
            raise PersonsKey
        added = await self._store.add_key(record, MOST_KEYS if record.account else None)
        scopes = " ".join(added.details.scopes or ())
        note_of(request).target = added.id
        note_of(request).details = {"key": added.id, "owner": added.owner, "scopes": scopes}
        await self._keys.refresh()
        return Json({**shown_key(added), "key": made.key}, status_code=201)

    async def _revoked(self, request: Request, key: KeyRecord) -> ASGIApp:
        note_of(request).details = {"owner": key.owner}
        await self._store.revoke_key(key.id, self._engine.now())
        await self._keys.refresh()
        return NoContent()

    async def _rotated(self, request: Request, key: KeyRecord, keys: list[KeyRecord], given: Rotation) -> ASGIApp:
        now = self._engine.now()
        ends = now + given.overlap_hours * 3600
        lasts = None if key.details.expires_at is None else key.details.expires_at - key.created_at
        made = new_key(
            _next_name(key, keys),
            admin=key.admin,
            owner=key.owner,
            account=key.account,
            details=replace(key.details, prefix="", expires_at=None if lasts is None else now + lasts),
        )
        response = await self._added(request, made)
        await self._store.change_key(
            key.id, lambda details: replace(details, expires_at=min(ends, details.expires_at or ends))
        )
        await self._keys.refresh()
        return response

    async def _own_keys(self, request: Request) -> list[KeyRecord]:
        keys = await self._store.list_keys(account=access_of(request).account)
        return [key for key in keys if self._is_in_force(key)]

    async def _own_key(self, request: Request) -> KeyRecord:
        return _one_of(await self._own_keys(request), request)

    async def _in_force(self) -> list[KeyRecord]:
        return [key for key in await self._store.list_keys() if self._is_in_force(key)]

    def _is_in_force(self, key: KeyRecord) -> bool:
        expires_at = key.details.expires_at
        return key.revoked_at is None and (expires_at is None or expires_at > self._engine.now())


def _changed(details: KeyDetails, given: KeyChange, now: float) -> KeyDetails:
    if given.budget is not UNSET:
        details = replace(details, budget=given.budget)
    if given.expires_in_days is UNSET:
        return details
    ends = now + given.expires_in_days * 86400
    if details.expires_at is not None and ends > details.expires_at:
        raise BadRequest("The key ends before that. Its end can only become earlier.", param="expires_in_days")
    return replace(details, expires_at=ends)


def _next_name(key: KeyRecord, keys: list[KeyRecord]) -> str:
    """Return the name of a key's successor: `ci`, `ci-2`, `ci-3`."""
    stem = re.sub(r"-\d{1,6}$", "", key.name)[:56]
    taken = {each.name for each in keys if each.account == key.account}
    return next(name for n in range(2, len(taken) + 3) if (name := f"{stem}-{n}") not in taken)


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
        "scopes": sorted(scopes_of(key)) if details.scopes is None else details.scopes,
        "models": details.models,
        "agents": details.agents,
        "made_by": details.made_by,
        "budget": details.budget,
        "created_at": native.moment(key.created_at),
        "expires_at": None if details.expires_at is None else native.moment(details.expires_at),
        "last_used_at": None if key.last_used_at is None else native.moment(key.last_used_at),
    }
