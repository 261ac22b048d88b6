"""Documents with bodies of one type, and the keys that make one only once."""

import asyncio

import msgspec
import pytest

from holdfast.concurrency.retry import Retry
from holdfast.errors import IdempotencyConflict, StaleDocument, StoreUnavailable
from holdfast.store import Idempotency
from holdfast.store.documents import Documents, IdempotencyKeys
from holdfast.store.memory import MemoryStore
from tests.support.waiting import LONG


class Tally(msgspec.Struct, frozen=True):
    """A body."""

    count: int = 0
    names: tuple[str, ...] = ()


@pytest.fixture
def tallies():
    """The documents of one kind in a new store."""
    return Documents(MemoryStore(), "tally", Tally, now=lambda: 7.0)


async def test_a_body_comes_back_as_the_type_it_went_in_with(tallies):
    """A feature reads fields, not keys of a dictionary."""
    await tallies.put("t", Tally(1, ("a", "b")), owner="ann")

    found = await tallies.get("t")

    assert (Tally(1, ("a", "b")), "ann", 1, 7.0) == (found.body, found.owner, found.version, found.created_at)


async def test_a_document_of_another_owner_does_not_exist(tallies):
    """Whoever names an owner can neither read nor change another's document."""
    await tallies.put("t", Tally(), owner="ann")

    def count(tally):
        return Tally(tally.count + 1)

    assert await tallies.get("t", owner="bob") is None
    assert await tallies.change("t", count, owner="bob") is None
    assert Tally() == (await tallies.get("t", owner="ann")).body


async def test_a_version_that_is_not_the_stored_one_is_refused(tallies):
    """Compare-and-set: neither a second creation nor an old version replaces what is stored."""
    first = await tallies.put("t", Tally(1))
    await tallies.put("t", Tally(2), version=first.version)

    with pytest.raises(StaleDocument):
        await tallies.put("t", Tally(3))
    with pytest.raises(StaleDocument):
        await tallies.put("t", Tally(3), version=first.version)
    assert Tally(2) == (await tallies.get("t")).body


async def test_changes_at_the_same_moment_all_count(tallies):
    """Each change is made to the newest body, though others are stored between its read and its write."""
    await tallies.put("t", Tally())
    all_have_read = asyncio.Barrier(5)
    first = set()

    async def add(name):
        async def change(tally):
            if name not in first:
                first.add(name)
                await all_have_read.wait()  # so that four of five are too late
            return Tally(tally.count + 1, (*tally.names, name))

        return await tallies.change_awaiting("t", change)

    await asyncio.wait_for(asyncio.gather(*map(add, "abcde")), LONG)

    kept = (await tallies.get("t")).body
    assert 5 == kept.count
    assert set("abcde") == set(kept.names)


async def test_a_change_that_leaves_the_body_writes_nothing(tallies):
    """A stop of what is stopped is no change."""
    await tallies.put("t", Tally(1))

    def leave(tally):
        return tally

    assert 1 == (await tallies.change("t", leave)).version
    assert await tallies.change("missing", leave) is None


async def test_a_change_that_raises_leaves_the_document_as_it_was(tallies):
    """A refusal is the change's own to raise."""
    await tallies.put("t", Tally(1))

    def refuse(tally):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await tallies.change("t", refuse)
    assert (1, Tally(1)) == ((found := await tallies.get("t")).version, found.body)


async def test_of_several_that_create_the_same_document_one_does(tallies):
    """The others get what it has stored."""
    made = await asyncio.gather(*(tallies.get_or_create("t", Tally(number)) for number in range(5)))

    assert 1 == len({stored.body.count for stored in made})
    assert {1} == {stored.version for stored in made}


async def test_an_exchange_returns_what_was_stored_before(tallies):
    """Of many at once each replaces another one, so that nothing is replaced twice."""
    replaced = await asyncio.gather(*(tallies.exchange("t", Tally(number)) for number in range(5)))
    last = (await tallies.get("t")).body.count

    assert 1 == replaced.count(None)
    assert set(range(5)) == {stored.body.count for stored in replaced if stored} | {last}


class Suspends(MemoryStore):
    """A store that lets others go on before it writes."""

    async def put_document(self, document, expected_version=None):
        await asyncio.sleep(0)
        return await super().put_document(document, expected_version)


async def test_an_exchange_gives_a_document_to_another_owner():
    """No put does that, so that one which was repeated until it succeeds would never end."""
    tallies = Documents(Suspends(), "tally", Tally)
    await tallies.put("t", Tally(1), owner="ann")

    replaced = await asyncio.wait_for(tallies.exchange("t", Tally(2), owner="bob"), LONG)

    assert ("ann", Tally(1)) == (replaced.owner, replaced.body)
    assert ("bob", Tally(2)) == ((kept := await tallies.get("t")).owner, kept.body)


async def test_all_documents_are_read_page_by_page_and_waited_for():
    """A store that is away between two pages delays the reading, and nothing is left out."""

    class Away(MemoryStore):
        calls = 0

        async def list_documents(self, *args, **options):
            self.calls += 1
            if self.calls == 2:
                raise StoreUnavailable("away")
            return await super().list_documents(*args, **options)

    tallies = Documents(Away(), "tally", Tally)
    for number in range(201):
        await tallies.put(f"t{number:03}", Tally(number))

    read = [stored.body.count async for stored in tallies.all(retry=Retry())]

    assert list(reversed(range(201))) == read


async def test_a_key_stands_for_the_first_thing_that_was_made_with_it():
    """A repeated request finds it, another request with the same key is refused."""
    keys = IdempotencyKeys(MemoryStore(), "tally_key")
    key, other = Idempotency("ann", "k", "digest"), Idempotency("ann", "k", "another digest")

    assert await keys.find(key) is None
    assert ["t1", "t1", "t1"] == [await keys.claim(key, "t1"), await keys.claim(key, "t2"), await keys.find(key)]
    for ask in (keys.find(other), keys.claim(other, "t3")):
        with pytest.raises(IdempotencyConflict):
            await ask
    assert await keys.find(Idempotency("bob", "k", "digest")) is None


async def test_a_key_is_forgotten_with_what_it_stands_for_only():
    """A deletion that comes late does not take a key that was used again."""
    keys, key = IdempotencyKeys(MemoryStore(), "tally_key"), Idempotency("ann", "k", "digest")
    await keys.claim(key, "t1")

    await keys.forget(keys.id_of(key), "t2")
    assert "t1" == await keys.find(key)

    await keys.forget(keys.id_of(key), "t1")
    assert await keys.find(key) is None
