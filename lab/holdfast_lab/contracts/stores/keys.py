"""API keys."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from holdfast.access import LOCAL, Budget, settings_owner
from holdfast.errors import KeyExists, KeyLimitReached, OwnerTaken
from holdfast.store import KeyDetails

from .case import Case, Checks, raised

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
    of_ann, of_bob = await case.person("ann"), await case.person("bob")
    ann = case.api_key("laptop", tag="a", owner=of_ann, account=of_ann)
    bob = case.api_key("laptop", tag="b", owner=of_bob, account=of_bob)
    assert ann == await case.store.add_key(ann)
    assert bob == await case.store.add_key(bob)

    assert [ann] == await case.store.list_keys(account=of_ann)


@CHECKS.add
async def a_change_of_a_key_is_read_alone(case: Case) -> None:
    """A server with many keys reads only those that have changed since its last read."""
    one, two = case.api_key("one"), case.api_key("two")
    await case.store.add_key(one)
    await case.store.add_key(two)
    before = await case.store.key_changes()
    details = KeyDetails(scopes=("read",), models=("a/*",), expires_at=7.5, prefix="hf-abc", made_by="ann")
    changed = await case.store.change_key(one.id, lambda _: details)
    after = await case.store.key_changes()

    assert replace(one, details=details) == changed
    assert after > before
    assert [changed] == [key for key in await case.store.list_keys(after=before) if key.id in (one.id, two.id)]
    assert [] == [key for key in await case.store.list_keys(after=after) if key.id in (one.id, two.id)]
    assert await case.store.change_key(case.id("unknown"), lambda _: details) is None
    await case.store.revoke_key(one.id, 8.0)
    assert await case.store.change_key(one.id, lambda _: KeyDetails()) is None


@CHECKS.add
async def changes_of_a_key_at_the_same_moment_all_count(case: Case) -> None:
    """An admin sets its budget while its person lets it end: neither takes back what the other one has done."""
    one, budget = case.api_key("one"), Budget(runs_at_once=1)
    await case.store.add_key(one)
    await asyncio.gather(
        case.store.change_key(one.id, lambda details: replace(details, budget=budget)),
        case.store.change_key(one.id, lambda details: replace(details, expires_at=7.5)),
        case.store.change_key(one.id, lambda details: replace(details, made_by="ann")),
    )

    assert [replace(one.details, budget=budget, expires_at=7.5, made_by="ann")] == [
        key.details for key in await case.api_keys()
    ]


@CHECKS.add
async def the_use_of_a_key_is_noted_and_is_no_change(case: Case) -> None:
    """Otherwise each request would let every server read the keys again."""
    one = case.api_key("one")
    await case.store.add_key(one)
    before = await case.store.key_changes()
    await case.store.keys_used([one.id, case.id("unknown")], 12.0)

    assert before == await case.store.key_changes()
    assert [replace(one, last_used_at=12.0)] == await case.api_keys()


@CHECKS.add
async def a_key_of_a_service_never_has_the_owner_of_a_person(case: Case) -> None:
    """Nor that of the local user or of the settings file: it would be a second key to what belongs to them."""
    ann = await case.person("ann")
    for owner in (ann, LOCAL, settings_owner("boss"), ""):
        await raised(OwnerTaken, case.store.add_key(case.api_key("twin", owner=owner)))

    assert [] == await case.api_keys()
    assert (ann, None) == (await case.store.account_of(ann), await case.store.account_of(settings_owner("boss")))


@CHECKS.add
async def a_key_of_a_person_has_the_owner_of_that_person(case: Case) -> None:
    """Not that of another person, of a service, or of nobody."""
    ann, bob = await case.person("ann"), await case.person("bob")
    service = await case.store.add_key(case.api_key("ci"))
    for owner in (bob, service.owner, case.id("nobody"), LOCAL):
        await raised(OwnerTaken, case.store.add_key(case.api_key("twin", owner=owner, account=ann)))

    assert [service] == await case.api_keys()


@CHECKS.add
async def a_service_may_have_several_keys(case: Case) -> None:
    """They open the same things. Its owner stays when all of them are revoked, so that it can get another."""
    one = await case.store.add_key(case.api_key("ci"))
    two = await case.store.add_key(case.api_key("ci-2", owner=one.owner))
    for key in (one, two):
        await case.store.revoke_key(key.id, 3.0)

    assert "" == await case.store.account_of(one.owner)
    assert one.owner == (await case.store.add_key(case.api_key("ci-3", owner=one.owner))).owner


@CHECKS.add
async def of_accounts_that_claim_one_owner_at_once_one_gets_it(case: Case) -> None:
    """The others leave nothing behind."""
    owner = case.id("shared")
    tries = [case.person(f"person{n}", owner) for n in range(5)]
    results = await asyncio.gather(*tries, return_exceptions=True)
    (winner,) = [result for result in results if isinstance(result, str)]
    stored = [await case.store.get_document("account", case.id(f"person{n}")) for n in range(5)]

    assert 4 == sum(isinstance(result, OwnerTaken) for result in results)
    assert winner == await case.store.account_of(owner)
    assert [winner] == [document.id for document in stored if document is not None]


@CHECKS.add
async def an_account_that_takes_over_a_service_gets_its_keys(case: Case) -> None:
    """From then on they are keys of a person, with the limits of that person. An owner of the settings stays there."""
    key = await case.store.add_key(case.api_key("ci"))
    before = await case.store.key_changes()
    ann = await case.person("ann", key.owner)

    assert [replace(key, account=ann)] == await case.store.list_keys(account=ann)
    assert [key.id] == [each.id for each in await case.store.list_keys(after=before) if each.id == key.id]
    assert key.id not in await case.store.misplaced_keys()
    await raised(OwnerTaken, case.store.add_key(case.api_key("ci-2", owner=key.owner)))
    await raised(OwnerTaken, case.person("bob", settings_owner("boss")))


@CHECKS.add
async def an_owner_that_was_released_can_be_claimed(case: Case) -> None:
    """Its data stays where it is, for the next account. A key that is left over without an owner is named."""
    ann = await case.person("ann")
    key = await case.store.add_key(case.api_key("laptop", owner=ann, account=ann))
    is_known = await case.store.release_owner(ann)

    assert (True, False) == (is_known, await case.store.release_owner(ann))
    assert [key.id] == [id for id in await case.store.misplaced_keys() if id == key.id]
    bob = await case.person("bob", ann)
    assert bob == await case.store.account_of(ann)
    assert [key.id] == [id for id in await case.store.misplaced_keys() if id == key.id]
    await case.store.revoke_key(key.id, 4.0)
    assert key.id not in await case.store.misplaced_keys()


@CHECKS.add
async def a_limit_of_keys_holds_for_keys_that_are_added_at_once(case: Case) -> None:
    """It counts the active keys of one person: none that is revoked or has expired."""
    ann = await case.person("ann")
    ended = KeyDetails(expires_at=1.0)
    await case.store.add_key(case.api_key("expired", owner=ann, account=ann, details=ended), 3)
    keys = [case.api_key(f"key{n}", owner=ann, account=ann) for n in range(6)]
    results = await asyncio.gather(*(case.store.add_key(key, 3) for key in keys), return_exceptions=True)
    added = [key for key, result in zip(keys, results, strict=True) if result == key]

    assert 3 == sum(isinstance(result, KeyLimitReached) for result in results) == len(added)
    await case.store.revoke_key(added[0].id, 5.0)
    again = case.api_key("again", owner=ann, account=ann)
    assert again == await case.store.add_key(again, 3)
