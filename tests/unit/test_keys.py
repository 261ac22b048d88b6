"""The keys of a server while its store cannot be read."""

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.server.accounts.keys import Keys, KeysUnavailable
from holdfast.server.accounts.made_keys import new_key
from holdfast.server.config.settings import Settings
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement


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
    await keys.load()
    store.is_away = True
    await keys.catch_up()

    with pytest.raises(KeysUnavailable):
        keys.rights("ada")
