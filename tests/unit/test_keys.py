"""The keys of a server while its store cannot be read."""

from collections.abc import Sequence

import msgspec
import pytest

from holdfast.errors import StoreUnavailable
from holdfast.server.app import create_app
from holdfast.server.config.settings import Settings
from holdfast.server.features.accounts.keys import Keys, KeysUnavailable
from holdfast.server.features.accounts.made_keys import new_key
from holdfast.store import KeyRecord
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.served import NO_HOME, Served

ADMIN = "hf-" + "a" * 40


class Replaced(MemoryStore):
    """A store whose keys can be replaced by others."""

    records: Sequence[KeyRecord] = ()

    async def key_changes(self):
        return await super().key_changes() + len(self.records)

    async def list_keys(self, *, after=0, account=None):
        return [*self.records] or await super().list_keys(after=after, account=account)


class Away(MemoryStore):
    """A store that can be told not to answer."""

    is_away = False

    async def key_changes(self):
        if self.is_away:
            raise StoreUnavailable("the disk is gone")
        return await super().key_changes()


@requirement("safe.keys-unreadable")
async def test_a_run_that_starts_later_has_no_rights_by_keys_that_are_too_old():
    """Its owner's key may have been revoked meanwhile, and nobody can tell."""
    store = Away()
    _, record = new_key("ada", admin=True)
    await store.add_key(record)
    keys = Keys(Settings(), {}, store, patience=0.0)
    await keys.refresh()
    store.is_away = True
    await keys.catch_up()

    with pytest.raises(KeysUnavailable):
        keys.rights("ada")


@requirement("people.keys")
async def test_a_key_that_another_node_has_just_made_is_accepted():
    """Who makes a key and uses it at once may reach another node, which has not looked for new keys since."""
    medium = MemoryStore()
    apps = [create_app(Settings(api_key=ADMIN), medium, NO_HOME) for _ in range(2)]
    async with Served(apps[0]) as one, Served(apps[1]) as two, one.client() as here, two.client() as there:
        headers, statuses = {"authorization": f"Bearer {ADMIN}"}, []
        for n in range(20):
            made = await here.post("/api/admin/keys", {"name": f"key-{n}"}, headers=headers)
            key = (await made.json())["key"]
            statuses.append((await there.get("/api/me", headers={"authorization": f"Bearer {key}"})).status)
        wrong = await there.get("/api/me", headers={"authorization": "Bearer hf-wrong"})

    assert [200] * 20 == statuses
    assert 401 == wrong.status


@requirement("safe.keys-unreadable")
async def test_a_wrong_key_is_refused_while_the_store_is_away():
    """The keys that were read a moment ago still count, and an unknown one is none of them."""
    store = Away()
    key, record = new_key("ada")
    await store.add_key(record)
    keys = Keys(Settings(), {}, store)
    await keys.refresh()
    store.is_away = True

    assert not await keys.has_news()
    assert keys.find(b"hf-wrong") is None
    assert keys.find(key.encode()) is not None


@requirement("people.keys")
async def test_a_record_with_a_known_id_and_another_secret_opens_nothing_by_the_old_one():
    """A database that was edited or restored while the server ran: what it says now counts, and nothing from before."""
    store = Replaced()
    (old, record), (new, other) = new_key("ada"), new_key("ada")
    await store.add_key(record)
    keys = Keys(Settings(), {}, store)
    await keys.refresh()
    before = keys.find(old.encode())
    store.records = [msgspec.structs.replace(other, id=record.id, owner=record.owner, name="renamed")]
    await keys.refresh()

    assert keys.find(old.encode()) is None
    assert before is not None
    assert before.is_revoked
    found = keys.find(new.encode())
    assert found is not None
    assert (record.owner, "renamed") == (found.owner, found.name)


@requirement("people.keys")
async def test_a_key_with_another_name_stays_open_under_that_name():
    """What is logged and listed of a key names it as its record does."""
    store = Replaced()
    key, record = new_key("ada")
    await store.add_key(record)
    keys = Keys(Settings(), {}, store)
    await keys.refresh()
    store.records = [msgspec.structs.replace(record, name="renamed")]
    await keys.refresh()
    found = keys.find(key.encode())

    assert found is not None
    assert ("renamed", False) == (found.name, found.is_revoked)
