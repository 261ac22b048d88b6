"""Presets that are shared with groups, below the server."""

import pytest

from holdfast.access import Access
from holdfast.errors import StoreUnavailable
from holdfast.server.features.accounts.people.accounts import Account
from holdfast.server.features.accounts.people.people import People
from holdfast.server.features.presets.kinds import Preset
from holdfast.server.features.presets.library import Library
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement


class Meanwhile(MemoryStore):
    """A store in which something may happen before a group is told of a preset."""

    then = None

    async def put_document(self, document, expected_version=None):
        if document.kind == "group_preset" and self.then is not None:
            then, self.then = self.then, None
            await then()
        return await super().put_document(document, expected_version)


class World:
    """Ada, who shares a preset with one of two groups, and what people in a group find."""

    async def begin(self):
        self.store, groups = Meanwhile(), ("grp_1", "grp_2")
        people = People(self.store)
        ada = await people.add(Account(name="ada", owner="", groups=groups))
        self.library = Library(self.store, Preset, people)
        self.ada = people.callers.access_of(ada)
        self.id = (await self.library.add(self.ada, Preset(name="p"))).id
        return self

    async def share(self, group):
        await self.library.replace(self.ada, self.id, Preset(name="p", group=group))

    async def found(self, group):
        reader = Access("bob")
        reader.groups = (group,)
        return [each.stored.id for each in await self.library.of(reader)]


@pytest.fixture
async def world():
    return await World().begin()


@requirement("presets.group")
async def test_a_preset_that_is_given_to_two_groups_at_once_is_found_by_the_last(world):
    """From two tabs. Nobody would see why the group that it names does not have it."""
    world.store.then = lambda: world.share("grp_2")
    await world.share("grp_1")

    assert ([], [world.id]) == (await world.found("grp_1"), await world.found("grp_2"))


@requirement("presets.group")
async def test_a_preset_whose_group_could_not_be_told_is_saved_again(world):
    """The store was away in between. The second try succeeds, and ends."""

    async def fail():
        raise StoreUnavailable("the network is gone")

    await world.share("grp_1")
    world.store.then = fail
    with pytest.raises(StoreUnavailable):
        await world.share("grp_2")
    await world.share("grp_2")

    assert ([], [world.id]) == (await world.found("grp_1"), await world.found("grp_2"))
