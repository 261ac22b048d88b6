"""A library: the named things of one kind that a caller may use, its own and those shared with its groups."""

from __future__ import annotations

import time
import unicodedata
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from ....access import Access
from ....errors import BadRequest, Conflict, NotFound, TooManyKept
from ....ids import new_id
from ....store import Store
from ....store.documents import DocumentGuard, Documents, Stored
from ...kit.request import check_name
from ..accounts.people.people import People
from .kinds import KeptUnderName

MOST_KEPT = 500
"""Maximum number of things of one kind that an owner has."""

K = TypeVar("K", bound=KeptUnderName)


class _InGroup(msgspec.Struct, frozen=True):
    """An entry of the index by groups. Its id is that of the thing, its owner is the group."""


class NameInUse(Conflict):
    """The owner has another one with this name."""

    code = "name_in_use"

    def __init__(self, noun: str, name: str) -> None:
        super().__init__(f"You have a {noun} named {name!r} already. Choose another name.")


@dataclass(frozen=True)
class Found(Generic[K]):
    """A thing that a caller may use, with the person whose it is: empty for the caller's own."""

    stored: Stored[K]
    by: str = ""

    @property
    def is_own(self) -> bool:
        """Whether the caller may change it."""
        return not self.by


class Library(Generic[K]):
    """The things of one kind. Names are unique for each owner, whatever their case."""

    def __init__(self, store: Store, kind: type[K], people: People, *, now: Callable[[], float] = time.time):
        self._kind, self._people = kind, people
        self._all = Documents(store, kind.noun, kind, now=now)
        self._by_group = Documents(store, f"group_{kind.noun}", _InGroup, now=now)
        self._one_at_a_time = DocumentGuard(store, f"{kind.noun}s")

    # reading

    async def of(self, access: Access) -> list[Found[K]]:
        """Return the caller's own by name, and then those of others that the caller's groups may use."""
        own = [Found(stored) async for stored in self._all.all(owner=access.owner)]
        shared = [found async for found in self._shared(access)]
        return [*sorted(own, key=_by_name), *sorted(shared, key=_by_name)]

    async def _shared(self, access: Access) -> AsyncIterator[Found[K]]:
        for group in access.groups:
            for id in [entry.id async for entry in self._by_group.all(owner=group)]:
                stored = await self._all.get(id)
                if stored is None:
                    await self._by_group.delete(id)  # deleted with all data of its owner
                elif stored.body.group != group or stored.owner == access.owner:
                    continue  # it changes its group now, or is listed above
                elif name := await self._member(stored.owner, group):
                    yield Found(stored, name)

    async def _member(self, owner: str, group: str) -> str:
        """Return the name of an owner who is in a group; empty if the person has left it, or is disabled."""
        account = await self._people.accounts.of_owner(owner)
        if account is None or account.body.is_disabled or group not in account.body.groups:
            return ""
        return account.body.name

    async def named(self, access: Access, name: str) -> K:
        """Return what has this id or this name; the caller's own comes before those of others."""
        found = await self.of(access)
        for each in found:
            if each.stored.id == name:
                return each.stored.body
        for each in found:
            if folded_name(each.stored.body.name) == folded_name(name):
                return each.stored.body
        raise NotFound(f"There is no {self._kind.noun} {name[:64]!r}.")

    async def own(self, owner: str, id: str) -> Stored[K]:
        """Return one of the owner's."""
        if (stored := await self._all.get(id, owner=owner)) is None:
            raise self._missing(id)
        return stored

    def _missing(self, id: str) -> NotFound:
        return NotFound(f"You have no {self._kind.noun} {id[:64]!r}.")

    async def group_name(self, id: str) -> str | None:
        """Return the name of a group; None if it was deleted."""
        group = await self._people.callers.groups.get(id) if id else None
        return None if group is None else group.body.name

    async def groups(self, access: Access) -> list[dict[str, str]]:
        """Return the groups that the caller can share with."""
        found = [await self._people.callers.groups.get(id) for id in access.groups]
        return [{"id": group.id, "name": group.body.name} for group in found if group is not None]

    # writing

    def check(self, access: Access, body: K) -> None:
        """Refuse a bad name, what else is wrong, and a group that the caller is not in."""
        check_name(body.name, "name")
        if body.name != body.name.strip():
            raise BadRequest("A name has no space at its ends.", param="name")
        body.check()
        if body.group and body.group not in access.groups:
            raise NotFound(f"You are in no group {body.group[:64]!r}.")

    async def add(self, access: Access, body: K) -> Stored[K]:
        """Add one. `NameInUse` if the owner has another with this name."""
        self.check(access, body)
        id, owner = new_id(self._kind.prefix), access.owner

        async def check() -> None:
            await self._check_room(owner, body.name)

        stored = await self._all.add_alone(id, body, check, among=self._one_at_a_time, owner=owner)
        await self._index(id)
        return stored

    async def replace(self, access: Access, id: str, body: K) -> Stored[K]:
        """Replace one of the owner's."""
        self.check(access, body)
        await self.own(access.owner, id)

        async def replaced(_: K) -> K:
            await self._check_room(access.owner, body.name, besides=id)
            return body

        after = await self._all.change_alone(id, replaced, among=self._one_at_a_time)
        if after is None:
            raise self._missing(id)  # deleted meanwhile
        await self._index(id)
        return after

    async def _check_room(self, owner: str, name: str, besides: str = "") -> None:
        others = [stored async for stored in self._all.all(owner=owner) if stored.id != besides]
        if any(folded_name(other.body.name) == folded_name(name) for other in others):
            raise NameInUse(self._kind.noun, name)
        if len(others) >= MOST_KEPT:
            raise TooManyKept(self._kind.noun, MOST_KEPT)

    async def _index(self, id: str) -> None:
        """Let the group of a thing find it: the one that it has in the end, if it is changed twice at once."""
        group: str | None = None
        while (stored := await self._all.get(id)) is not None and stored.body.group != group:
            if group := stored.body.group:
                await self._by_group.exchange(id, _InGroup(), owner=group)
            else:
                await self._by_group.delete(id)

    async def delete(self, owner: str, id: str) -> None:
        """Delete one of the owner's."""
        stored = await self.own(owner, id)
        await self._by_group.delete(stored.id)
        await self._all.delete(stored.id)


def _by_name(found: Found[K]) -> str:
    return folded_name(found.stored.body.name)


def folded_name(name: str) -> str:
    """Return a name for comparison: without case, and in one form of Unicode."""
    return unicodedata.normalize("NFKC", name).casefold()
