"""Documents."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from msgspec.structs import replace

from holdfast.errors import (
    StaleDocument,
)
from holdfast.store import Document
from holdfast.store.documents import DocumentGuard, Documents

from .case import Case, Checks, raised

CHECKS = Checks()


@CHECKS.add
async def a_document_is_kept_as_it_was_given(case: Case) -> None:
    """With its version, which begins at 1; two kinds may use the same id."""
    one = Document(kind="a", id=case.id("d"), owner=case.owner, created_at=1.5, updated_at=2.5, body={"x": [1, "ü"]})
    kept = await case.store.put_document(one)
    other = await case.store.put_document(replace(one, kind="b", body={}), 0)

    assert replace(one, version=1) == kept == await case.store.get_document("a", one.id)
    assert other == await case.store.get_document("b", one.id)
    assert await case.store.get_document("a", case.id("unknown")) is None
    kept.body["x"].append("changed by its reader")
    assert replace(one, version=1) == await case.store.get_document("a", one.id)


@CHECKS.add
async def a_document_is_changed_by_who_has_seen_it_as_it_is(case: Case) -> None:
    """Each change is the next version. The time of creation and the owner stay."""
    one = Document(kind="a", id=case.id("d"), owner=case.owner, created_at=1.0, updated_at=1.0, body={"n": 1})
    first = await case.store.put_document(one)
    second = await case.store.put_document(replace(first, created_at=9.0, updated_at=9.0, body={"n": 2}), 1)

    assert (2, 1.0, 9.0, {"n": 2}) == (second.version, second.created_at, second.updated_at, second.body)
    for stale in (None, 0, 1, 3):
        await raised(StaleDocument, case.store.put_document(replace(one, body={"n": 3}), stale))
    await raised(StaleDocument, case.store.put_document(replace(second, owner=case.id("stranger")), 2))
    await raised(StaleDocument, case.store.put_document(replace(one, id=case.id("unknown")), 1))
    assert second == await case.store.get_document("a", one.id)
    assert await case.store.get_document("a", case.id("unknown")) is None


@CHECKS.add
async def a_put_that_is_repeated_changes_nothing(case: Case) -> None:
    """A caller whose reply was lost may repeat the call."""
    one = Document(kind="a", id=case.id("d"), owner=case.owner, created_at=1.0, body={"n": 1})
    first = await case.store.put_document(one)
    assert first == await case.store.put_document(one)
    second = await case.store.put_document(replace(one, body={"n": 2}), 1)

    assert second == await case.store.put_document(replace(one, body={"n": 2}), 1)
    await raised(StaleDocument, case.store.put_document(one))
    assert second == await case.store.get_document("a", one.id)


@CHECKS.add
async def of_many_puts_at_once_one_stands(case: Case) -> None:
    """Of two changes at the same moment one is refused."""
    one = await case.store.put_document(Document(kind="a", id=case.id("d"), owner=case.owner))
    puts = [case.store.put_document(replace(one, body={"by": n}), one.version) for n in range(10)]
    results = await asyncio.gather(*puts, return_exceptions=True)

    assert 9 == sum(isinstance(result, StaleDocument) for result in results)
    (stands,) = [result for result in results if isinstance(result, Document)]
    assert stands == await case.store.get_document("a", one.id)


@CHECKS.add
async def several_documents_are_put_together_or_not_at_all(case: Case) -> None:
    """A change may depend on documents that it does not change: a second document, put with each, serializes them."""
    one, two = [await case.store.put_document(Document(kind="a", id=case.id(name))) for name in ("one", "two")]
    new, changed = Document(kind="b", id=case.id("new")), replace(two, body={"n": 1})
    refused = [(new, None), (changed, two.version), (one, 7)]
    await raised(StaleDocument, case.store.put_documents(refused))
    assert await case.store.get_document("b", new.id) is None
    assert two == await case.store.get_document("a", two.id)
    kept = await case.store.put_documents(refused[:2])

    assert [(new.id, 1), (two.id, 2)] == [(each.id, each.version) for each in kept]
    assert kept == await case.store.put_documents(refused[:2])
    assert kept[1] == await case.store.get_document("a", two.id)


@CHECKS.add
async def of_two_admins_who_end_each_other_at_once_one_stays(case: Case) -> None:
    """Each sees that there is another one, and ends it: only one of them succeeds, on any node."""
    people = Documents(case.store, case.id("person"), dict)
    guard = DocumentGuard(case.store, case.id("admins"))
    for round in range(5):
        names = [f"{round}-{n}" for n in range(4)]
        for name in names:
            await people.put(name, {"admin": True})

        async def ended(body: dict[str, bool], *, others: list[str]) -> dict[str, bool]:
            found = [await people.get(other) for other in others]
            if not any(other is not None and other.body["admin"] for other in found):
                raise LookupError
            return {"admin": False}

        ends = [
            people.change_alone(name, partial(ended, others=[other for other in names if other != name]), among=guard)
            for name in names
        ]
        results = await asyncio.gather(*ends, return_exceptions=True)
        left = [name for name in names if (found := await people.get(name)) is not None and found.body["admin"]]

        assert 1 == len(left) == sum(isinstance(result, LookupError) for result in results)


@CHECKS.add
async def documents_are_listed_with_those_added_last_first(case: Case) -> None:
    """Of one owner or of all, page after page. A change moves none."""
    for n in range(5):
        owner = case.owner if n != 2 else case.id("stranger")
        await case.store.put_document(Document(kind=case.id("kind"), id=f"d{n}", owner=owner))
    await case.store.put_document(Document(kind=case.id("other"), id="d9", owner=case.owner))
    await case.store.put_document(Document(kind=case.id("kind"), id="d0", owner=case.owner, body={"n": 1}), 1)

    async def names(owner: str | None, **options: Any) -> list[str]:
        return [found.id for found in await case.store.list_documents(case.id("kind"), owner, **options)]

    assert ["d4", "d3", "d1", "d0"] == await names(case.owner)
    assert ["d4", "d3", "d2", "d1", "d0"] == await names(None)
    assert ["d4", "d3"] == await names(case.owner, limit=2)
    assert ["d1", "d0"] == await names(case.owner, before="d3")
    assert ["d1"] == await names(case.owner, before="d2", limit=1)
    assert [] == await names(case.owner, before="d0")
    assert [] == await names(case.owner, before="unknown")
    assert [] == await names(case.owner, limit=0)


@CHECKS.add
async def a_deleted_document_is_gone_and_can_come_again(case: Case) -> None:
    """As the newest one, with the first version."""
    kind = case.id("kind")
    for name in ("d1", "d2"):
        await case.store.put_document(Document(kind=kind, id=name, owner=case.owner))

    assert not await case.store.delete_document(kind, "d1", 2)
    assert await case.store.delete_document(kind, "d1", 1)
    assert not await case.store.delete_document(kind, "d1")
    assert await case.store.get_document(kind, "d1") is None
    await raised(StaleDocument, case.store.put_document(Document(kind=kind, id="d1", owner=case.owner), 1))
    again = await case.store.put_document(Document(kind=kind, id="d1", owner=case.owner))
    assert 1 == again.version
    assert ["d1", "d2"] == [found.id for found in await case.store.list_documents(kind)]


@CHECKS.add
async def documents_are_there_after_a_restart(case: Case) -> None:
    """With their versions and their order."""
    for n in range(3):
        await case.store.put_document(Document(kind=case.id("kind"), id=f"d{n}", body={"n": n}))
    await case.store.put_document(Document(kind=case.id("kind"), id="d1", body={"n": 9}), 1)
    before = await case.store.list_documents(case.id("kind"))
    await case.reopen()

    assert before == await case.store.list_documents(case.id("kind"))
    assert [2, 9, 0] == [found.body["n"] for found in before]
