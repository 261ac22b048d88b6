"""The audit log, and all data of an owner."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from holdfast.history import Session
from holdfast.store import Document
from holdfast.store.people.audit import AuditEntry, AuditFilter, ChainCheck

from .case import Case, Checks

CHECKS = Checks()


def _entry(case: Case, name: str, **fields: object) -> AuditEntry:
    return AuditEntry(**{"id": case.id(name), "at": 5.0, "action": "key.new", "result": "done", **fields})  # type: ignore[arg-type]


@CHECKS.add
async def entries_of_the_audit_log_are_numbered_and_chained(case: Case) -> None:
    """Entries that are added at once have numbers without gaps, and each digest covers the entry before."""
    before, _ = await case.store.audit_end()
    entries = [_entry(case, f"e{n}", actor=case.id("ada"), details={"n": str(n)}) for n in range(12)]
    added = await asyncio.gather(*(case.store.add_audit(entry) for entry in entries))
    again = await case.store.add_audit(entries[3])
    check = ChainCheck()
    check.add(await case.store.read_audit(AuditFilter(), after=before, limit=1000))

    assert list(range(before + 1, before + 13)) == sorted(entry.n for entry in added)
    assert again == next(entry for entry in added if entry.id == entries[3].id)
    assert ("", 12) == (check.problem, check.checked)
    assert check.last == await case.store.audit_end()


@CHECKS.add
async def a_changed_or_missing_entry_of_the_audit_log_shows(case: Case) -> None:
    """A changed or removed entry breaks the chain."""
    start, _ = await case.store.audit_end()
    for name in ("one", "two", "three"):
        await case.store.add_audit(_entry(case, name))
    one, two, three = await case.store.read_audit(AuditFilter(), after=start, limit=1000)
    changed, missing = ChainCheck(), ChainCheck()
    changed.add([one, replace(two, actor="eve"), three])
    missing.add([one, three])

    assert f"Entry {two.n} was changed, or the one before it." == changed.problem
    assert f"Entries {two.n} to {two.n} are missing." == missing.problem


@CHECKS.add
async def the_audit_log_is_read_by_actor_action_person_and_time(case: Case) -> None:
    """In pages, from either end."""
    ada, bob = case.id("ada"), case.id("bob")
    await case.store.add_audit(_entry(case, "a", actor=ada, at=1.0))
    await case.store.add_audit(_entry(case, "b", actor=bob, at=2.0, target=ada))
    await case.store.add_audit(_entry(case, "c", actor=ada, at=3.0, action=case.id("other")))

    async def ids(wanted: AuditFilter, before: int | None = None, limit: int = 10) -> list[str]:
        found = await case.store.read_audit(wanted, before=before, limit=limit)
        return [entry.id.partition(".")[0] for entry in found]

    end = (await case.store.audit_end())[0] + 1
    assert ["a", "c"] == await ids(AuditFilter(actors=(ada,)))
    assert ["a", "b", "c"] == await ids(AuditFilter(actors=(bob, ada)))
    assert [] == await ids(AuditFilter(actors=()))
    assert ["c"] == await ids(AuditFilter(action=case.id("other")))
    assert ["a", "b", "c"] == await ids(AuditFilter(person=ada))
    assert ["b"] == await ids(AuditFilter(person=ada, since=2.0, until=3.0))
    assert ["c", "b"] == await ids(AuditFilter(person=ada), before=end, limit=2)


@CHECKS.add
async def the_audit_log_is_read_by_kinds_of_actions_and_without_reads(case: Case) -> None:
    """Admins look at lists far more often than they change something."""
    ada, kind = case.id("ada"), case.id("kind")
    actions = {"a": f"{kind}.new", "b": f"{kind}.list", "c": f"{kind}.read", "d": "GET /api", "e": f"{kind}s.new"}
    for name, action in actions.items():
        await case.store.add_audit(_entry(case, name, actor=ada, action=action))

    async def ids(**wanted: Any) -> list[str]:
        found = await case.store.read_audit(AuditFilter(actors=(ada,), **wanted))
        return [entry.id.partition(".")[0] for entry in found]

    assert ["a", "b", "c"] == await ids(action=kind)
    assert ["a", "e"] == await ids(changes=True)
    assert ["a", "b", "c", "d", "e"] == await ids(changes=False)


@CHECKS.add
async def old_entries_of_the_audit_log_can_be_deleted_and_their_numbers_stay_used(case: Case) -> None:
    """Retention removes the oldest entries; the chain continues after them."""
    added = await case.store.add_audit(_entry(case, "old"))

    assert await case.store.delete_audit(added.n) > 0
    assert [] == await case.store.read_audit(AuditFilter(), before=added.n + 1)
    assert (added.n, added.hash) == await case.store.audit_end()
    assert added.n + 1 == (await case.store.add_audit(_entry(case, "new"))).n


@CHECKS.add
async def all_sessions_and_documents_of_an_owner_are_found(case: Case) -> None:
    """Including those that no list shows: panes of comparisons, and documents of every kind."""
    ids = [case.id(name) for name in ("s1", "s2", "s3")]
    for id, kind in zip(ids, ("chat", "pane", "chat"), strict=True):
        await case.store.create_session(Session(id=id, owner=case.owner, kind=kind))
    for kind in ("one", "two", "three"):
        await case.store.put_document(Document(kind=kind, id=case.id("d"), owner=case.owner))
    await case.store.put_document(Document(kind="one", id=case.id("other"), owner=case.id("other")))

    assert ids == await case.store.sessions_of(case.owner)
    assert ids[2:] == await case.store.sessions_of(case.owner, after=ids[1], limit=1)
    found = await case.store.documents_of(case.owner)
    assert ["one", "three", "two"] == [document.kind for document in found]
    assert found[1:2] == await case.store.documents_of(case.owner, after=("one", case.id("d")), limit=1)
    assert [2, 1, 0] == [await case.store.delete_documents_of(case.owner, 2) for _ in range(3)]
    assert await case.store.get_document("one", case.id("other")) is not None


@CHECKS.add
async def old_chats_are_found_by_their_last_change(case: Case) -> None:
    """A pinned chat, a pane, and a chat that was imported since are not old."""
    old = {"created_at": -9.0, "updated_at": -9.0}
    await case.session("old", **old)
    await case.session("pinned", **old, pinned=True)
    await case.session("pane", **old, kind="pane")
    await case.session("new", created_at=-9.0, updated_at=9.0)
    await case.session("imported", created_at=9.0, updated_at=-9.0)
    await case.session("other", **old, owner=case.id("another"))

    async def found(**selected: list[str]) -> list[str]:
        return [id for id, owner in await case.store.old_sessions(-5.0, 10_000, **selected) if case.is_own(id)]

    assert {case.id("old"), case.id("other")} == {*(await found())}
    assert [case.id("old")] == await found(of=[case.owner, case.id("no one")])
    assert [case.id("old")] == await found(besides=[case.id("another")])


@CHECKS.add
async def a_revoked_key_says_nothing_about_a_person_who_was_deleted(case: Case) -> None:
    """Its digest stays, so that it cannot be added again. An active key is not changed."""
    ada = await case.person("ada", case.owner)
    one, two = (case.api_key(name, owner=case.owner, account=ada, last_used_at=3.0) for name in ("one", "two"))
    await case.store.add_key(one)
    await case.store.add_key(two)
    await case.store.revoke_key(one.id, 9.0)

    assert 1 == await case.store.forget_keys(case.id("ada"))
    left = {key.id: key for key in await case.api_keys()}
    assert two == left[two.id]
    assert ("", "", "", one.sha256, 9.0) == (
        left[one.id].name,
        left[one.id].owner,
        left[one.id].account,
        left[one.id].sha256,
        left[one.id].revoked_at,
    )
