"""API keys."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from ...errors import (
    KeyExists,
)
from .. import KeyDetails
from .case import Case, Checks

CHECKS = Checks()


@CHECKS.add
async def a_key_is_kept_as_it_was_given(case: Case) -> None:
    """In the order of adding, and with its rights."""
    one, two = case.api_key("one"), case.api_key("two", admin=True)
    assert one == await case.store.add_key(one)
    assert two == await case.store.add_key(two)

    assert [one, two] == await case.api_keys()


@CHECKS.add
async def two_keys_in_force_never_have_one_name(case: Case) -> None:
    """Of many that are added at once, one is kept."""
    tries = [case.store.add_key(case.api_key("same", tag=str(n))) for n in range(5)]
    results = await asyncio.gather(*tries, return_exceptions=True)

    assert 4 == sum(isinstance(result, KeyExists) for result in results)
    assert [case.id("same")] == [key.name for key in await case.api_keys()]


@CHECKS.add
async def a_key_that_is_added_again_changes_nothing(case: Case) -> None:
    """A repeated write does no harm, and a revoked key cannot come back."""
    key = case.api_key("one")
    await case.store.add_key(key)
    before = await case.store.key_changes()
    assert key == await case.store.add_key(key)
    assert before == await case.store.key_changes()
    revoked = await case.store.revoke_key(key.id, 9.0)

    assert replace(key, revoked_at=9.0) == revoked == await case.store.add_key(key)
    assert [revoked] == await case.api_keys()


@CHECKS.add
async def a_revoked_key_leaves_its_name_to_another(case: Case) -> None:
    """A name is revoked once, and an unknown one never."""
    old, new = case.api_key("one", tag="old"), case.api_key("one", tag="new")
    await case.store.add_key(old)

    assert await case.store.revoke_key(case.id("unknown"), 5.0) is None
    assert replace(old, revoked_at=5.0) == await case.store.revoke_key(old.id, 5.0)
    assert await case.store.revoke_key(old.id, 6.0) is None
    assert new == await case.store.add_key(new)
    assert [replace(old, revoked_at=5.0), new] == await case.api_keys()


@CHECKS.add
async def each_change_of_the_keys_is_counted(case: Case) -> None:
    """A server reads the number often, and the keys only when it has grown."""
    counts = [await case.store.key_changes()]
    for change in (
        case.store.add_key(case.api_key("one")),
        case.store.add_key(case.api_key("two")),
        case.store.revoke_key(case.api_key("one").id, 1.0),
        case.store.add_key(case.api_key("one", tag="again")),
    ):
        await change
        counts.append(await case.store.key_changes())

    assert sorted(set(counts)) == counts


@CHECKS.add
async def keys_are_there_after_a_restart(case: Case) -> None:
    """Revoked ones too."""
    await case.store.add_key(case.api_key("one"))
    await case.store.add_key(case.api_key("two", admin=True))
    await case.store.revoke_key(case.api_key("one").id, 3.0)
    before, changes = await case.api_keys(), await case.store.key_changes()
    await case.reopen()

    assert before == await case.api_keys()
    assert changes == await case.store.key_changes()


@CHECKS.add
async def two_people_may_give_their_keys_one_name(case: Case) -> None:
    """A name is unique for its owner; a list of one person's keys has no others."""
    ann = replace(case.api_key("laptop", tag="a"), owner=case.id("ann"), account=case.id("ann"))
    bob = replace(case.api_key("laptop", tag="b"), owner=case.id("bob"), account=case.id("bob"))
    assert ann == await case.store.add_key(ann)
    assert bob == await case.store.add_key(bob)

    assert [ann] == await case.store.list_keys(account=case.id("ann"))


@CHECKS.add
async def a_change_of_a_key_is_read_alone(case: Case) -> None:
    """A server with many keys reads only those that have changed since its last read."""
    one, two = case.api_key("one"), case.api_key("two")
    await case.store.add_key(one)
    await case.store.add_key(two)
    before = await case.store.key_changes()
    details = KeyDetails(scopes=("read",), models=("a/*",), expires_at=7.5, prefix="hf-abc", made_by="ann")
    changed = await case.store.change_key(one.id, details)
    after = await case.store.key_changes()

    assert replace(one, details=details) == changed
    assert after > before
    assert [changed] == [key for key in await case.store.list_keys(after=before) if key.id in (one.id, two.id)]
    assert [] == [key for key in await case.store.list_keys(after=after) if key.id in (one.id, two.id)]
    assert await case.store.change_key(case.id("unknown"), details) is None
    await case.store.revoke_key(one.id, 8.0)
    assert await case.store.change_key(one.id, KeyDetails()) is None


@CHECKS.add
async def the_use_of_a_key_is_noted_and_is_no_change(case: Case) -> None:
    """Otherwise each request would let every server read the keys again."""
    one = case.api_key("one")
    await case.store.add_key(one)
    before = await case.store.key_changes()
    await case.store.keys_used([one.id, case.id("unknown")], 12.0)

    assert before == await case.store.key_changes()
    assert [replace(one, last_used_at=12.0)] == await case.api_keys()
