"""`/api/admin/people` and `/api/admin/groups`: accounts and groups, for admins."""

from __future__ import annotations

from typing import Annotated, Any, Protocol

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace
from starlette.requests import Request
from starlette.types import ASGIApp

from .....access import ADMIN, NO_BUDGET, AccountRole, Budget
from .....errors import BadRequest, NotFound
from .....ids import new_id
from .....store import Store
from .....store.documents import DocumentGuard, Stored
from ....config.settings import Settings
from ....kit.feature import Endpoint, Feature
from ....kit.http.errors import Json, NoContent
from ....kit.request import Bodies, check_name, decode, whole_number
from ...audit.audit import note_of
from ...sharing.shares import Shares
from ..people.accounts import Account, AccountGroup
from ..people.people import People
from .sign_in import Short, shown_account

_Patterns = tuple[Short, ...]
Days = Annotated[float, msgspec.Meta(gt=0, le=36_500)]
MOST_GROUPS = 500


class NewPerson(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new account. Without a password, the response has a link to set one."""

    name: Short
    email: Short = ""
    role: AccountRole = "member"
    groups: tuple[Short, ...] = ()
    password: Short = ""
    budget: Budget = NO_BUDGET


class PersonChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The changed fields of an account. Fields that are left out stay."""

    name: Short | UnsetType = UNSET
    email: Short | UnsetType = UNSET
    role: AccountRole | UnsetType = UNSET
    groups: tuple[Short, ...] | UnsetType = UNSET
    subject: Annotated[str, msgspec.Meta(max_length=600)] | UnsetType = UNSET
    """The person's identity elsewhere: `issuer subject` of the identity provider, or `proxy name`."""
    disabled: bool | UnsetType = UNSET
    budget: Budget | UnsetType = UNSET


class NewGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A group: its name, what its people have (models, agents), their budgets (together, and of each), and for how many
    days their runs outside of chats (`retention_days`) and their chats (`session_days`) are kept."""

    name: Short
    models: _Patterns | None = None
    agents: _Patterns = ()
    budget: Budget = NO_BUDGET
    each: Budget = NO_BUDGET
    retention_days: Days | None = None
    session_days: Days | None = None


class GroupChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The changed fields of a group. Fields that are left out stay."""

    name: Short | UnsetType = UNSET
    models: _Patterns | UnsetType | None = UNSET
    agents: _Patterns | UnsetType = UNSET
    budget: Budget | UnsetType = UNSET
    each: Budget | UnsetType = UNSET
    retention_days: Days | UnsetType | None = UNSET
    session_days: Days | UnsetType | None = UNSET


_PEOPLE, _PERSON = "/api/admin/people", "/api/admin/people/{account_id}"
_GROUPS, _GROUP = "/api/admin/groups", "/api/admin/groups/{group_id}"
_PAGES = {
    "before": "the id to go on from",
    "limit": "1 to 200",
    "name": "a whole name or e-mail address to find",
    "query": "a part of names or e-mail addresses to find",
}


class Erases(Protocol):
    """Deletes accounts, with all data or without."""

    async def begin_shown(self, account: Stored[Account]) -> dict[str, Any]:
        """Delete an account at once, begin to delete all data of its owner, and return the erasure as JSON."""
        ...

    async def remove_account(self, account: str) -> None:
        """Delete an account, its sign-ins and its keys."""
        ...


class PeopleApi(Feature):
    """Accounts and groups, for admins."""

    def __init__(
        self, bodies: Bodies, people: People, shares: Shares, erasing: Erases, store: Store, settings: Settings
    ) -> None:
        self._bodies, self._people, self._shares, self._erasing = bodies, people, shares, erasing
        self._store, self._settings = store, settings

    @Endpoint("GET", _PEOPLE, who=ADMIN, audit="person.list", query=_PAGES)
    async def list_people(self, request: Request) -> ASGIApp:
        """List accounts, the newest first, a page at a time; or find them by a part of the name or e-mail address."""
        accounts = self._people.accounts
        if (login := request.query_params.get("name")) is not None:
            found = await accounts.find(login)
            return Json({"people": [] if found is None else [shown_account(found)], "before": None})
        limit = whole_number(request, "limit", 50, 200)
        if query := request.query_params.get("query"):
            return Json(
                {"people": [shown_account(each) for each in await accounts.search(query, limit)], "before": None}
            )
        page = await accounts.page(before=request.query_params.get("before"), limit=limit)
        return Json({"people": [shown_account(account) for account in page], "before": page[-1].id if page else None})

    @Endpoint(
        "POST",
        _PEOPLE,
        who=ADMIN,
        audit="person.new",
        takes=NewPerson,
        answers={201: "the account", 409: "the name is taken"},
    )
    async def add_person(self, request: Request) -> ASGIApp:
        """Add an account."""
        given = decode(await self._bodies.read(request), NewPerson)
        await self._check_groups(given.groups)
        account = Account(
            name=given.name, email=given.email, role=given.role, groups=given.groups, owner="", budget=given.budget
        )
        added = await self._people.add(account, given.password)
        note_of(request).target, note_of(request).details = added.id, {"role": given.role}
        link = None if given.password else await self._link(added.id)
        return Json({**shown_account(added), "reset": link}, status_code=201)

    @Endpoint("GET", _PERSON, who=ADMIN, audit="person.read")
    async def get_person(self, request: Request) -> ASGIApp:
        """Return an account."""
        return Json(shown_account(await self._person(request)))

    @Endpoint(
        "PATCH",
        _PERSON,
        who=ADMIN,
        audit="person.change",
        takes=PersonChange,
        answers={409: "the name is taken, or no admin would be left"},
    )
    async def change_person(self, request: Request) -> ASGIApp:
        """Change an account. Its rights change everywhere within a second."""
        given = decode(await self._bodies.read(request), PersonChange)
        if given.groups is not UNSET:
            await self._check_groups(given.groups)
        changes = {name: value for name, value in asdict(given).items() if value is not UNSET}
        note_of(request).details = _noted(changes)
        if "disabled" in changes:
            changes["is_disabled"] = changes.pop("disabled")
        id = (await self._person(request)).id
        return Json(shown_account(await self._people.change(id, lambda account: replace(account, **changes))))

    @Endpoint(
        "DELETE",
        _PERSON,
        who=ADMIN,
        audit="person.delete",
        query={"data": "keep or delete"},
        answers={
            202: "deleted; the data is being deleted",
            204: "deleted",
            400: "no choice",
            409: "no admin would be left",
        },
    )
    async def delete_person(self, request: Request) -> ASGIApp:
        """Delete an account, its sign-ins and its keys; with `data=delete` also all data of the person."""
        choice = request.query_params.get("data")
        if choice not in ("keep", "delete"):
            raise BadRequest(
                "Choose what happens to the person's chats and runs: data=keep or data=delete.", param="data"
            )
        account = await self._person(request)
        note_of(request).details = {"data": choice}
        if choice == "delete":
            return Json(await self._erasing.begin_shown(account), status_code=202)
        await self._people.retire(account.id)
        await self._shares.forget_owner(account.body.owner)
        await self._erasing.remove_account(account.id)
        return NoContent()

    @Endpoint("POST", f"{_PERSON}/reset-link", who=ADMIN, audit="person.reset_link", answers={201: "the link"})
    async def make_reset_link(self, request: Request) -> ASGIApp:
        """Create a one-time link to set a new password. Earlier links are withdrawn."""
        account = await self._person(request)
        await self._people.secrets.forget(account.id)
        return Json({"reset": await self._link(account.id)}, status_code=201)

    @Endpoint("GET", _GROUPS, who=ADMIN, audit="group.list")
    async def list_groups(self, request: Request) -> ASGIApp:
        """List the groups."""
        return Json({"groups": [_group_json(group) async for group in self._people.callers.groups.all()]})

    @Endpoint("POST", _GROUPS, who=ADMIN, audit="group.new", takes=NewGroup, answers={201: "the group"})
    async def add_group(self, request: Request) -> ASGIApp:
        """Add a group."""
        given = decode(await self._bodies.read(request), NewGroup)
        check_name(given.name, "name")
        groups = self._people.callers.groups

        async def check() -> None:
            if len([group async for group in groups.all()]) >= MOST_GROUPS:
                raise BadRequest(f"There can be {MOST_GROUPS} groups at most.", code="too_many_groups")

        one_at_a_time = DocumentGuard(self._store, "groups")
        stored = await groups.add_alone(new_id("grp"), AccountGroup(**asdict(given)), check, among=one_at_a_time)
        note_of(request).target = stored.id
        await self._group_changed(stored.id)
        return Json(_group_json(stored), status_code=201)

    @Endpoint("PATCH", _GROUP, who=ADMIN, audit="group.change", takes=GroupChange)
    async def change_group(self, request: Request) -> ASGIApp:
        """Change a group. The rights of its people change everywhere within a second."""
        given = decode(await self._bodies.read(request), GroupChange)
        changes = {name: value for name, value in asdict(given).items() if value is not UNSET}
        note_of(request).details = _noted(changes)
        if "name" in changes:
            check_name(changes["name"], "name")
        id = request.path_params["group_id"]
        if (stored := await self._people.callers.groups.change(id, lambda group: replace(group, **changes))) is None:
            raise _no_group(id)
        await self._group_changed(id)
        return Json(_group_json(stored))

    @Endpoint("DELETE", _GROUP, who=ADMIN, audit="group.delete")
    async def delete_group(self, request: Request) -> ASGIApp:
        """Delete a group. Its people stay."""
        id = request.path_params["group_id"]
        if not await self._people.callers.groups.delete(id):
            raise _no_group(id)
        await self._shares.forget_group(id)
        await self._group_changed(id)
        return NoContent()

    async def _group_changed(self, id: str) -> None:
        await self._people.callers.changes.note("group", id)
        await self._people.callers.refresh()

    async def _person(self, request: Request) -> Stored[Account]:
        id = request.path_params["account_id"]
        if (account := await self._people.accounts.get(id)) is None:
            raise NotFound(f"There is no account {id!r}.")
        return account

    async def _check_groups(self, ids: tuple[str, ...]) -> None:
        for id in ids:
            if await self._people.callers.groups.get(id) is None:
                raise BadRequest(f"There is no group {id!r}.", param="groups")

    async def _link(self, account: str) -> dict[str, Any]:
        """Return a one-time token, and the URL of the page for it, if that is known."""
        token = await self._people.secrets.make("password", account)
        base = self._settings.public_url.rstrip("/")
        return {"token": token, "path": f"/reset#{token}", "url": f"{base}/reset#{token}" if base else None}


def _noted(changes: dict[str, Any]) -> dict[str, str]:
    """Return the details of a change for the audit log: the names of fields, and the new role or state."""
    details = {name: str(value) for name, value in changes.items() if name in ("role", "disabled")}
    return {"changed": " ".join(changes), **details}


def _group_json(group: Stored[AccountGroup]) -> dict[str, Any]:
    return {"id": group.id, **asdict(group.body)}


def _no_group(id: str) -> NotFound:
    return NotFound(f"There is no group {id!r}.")
