"""Deletes all data of a person: in the background, with its progress, and continued after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from ....compare.runs import Rounds
from ....concurrency.retry import Backoff
from ....engine.core import Core
from ....errors import NotFound, RunNotFound
from ....evals.runner import BatchRunner
from ....ids import new_id
from ....nodes.jobs import Jobs, JobWork
from ....store import RunRecord, Store
from ....store.documents import Documents, Stored
from ....wires import native
from ..accounts.keys import Keys
from ..accounts.people.accounts import Account
from ..accounts.people.people import People
from ..audit.audit import Audit
from ..sharing.shares import Shares

KIND = "erasure"
KEPT = 30 * 86400.0
"""Seconds for which the record of a finished erasure is kept."""
LATEST_USAGE = 600.0
"""Seconds after its end for which an erasure still removes its owner from usage that was counted late."""
_PAGE = 50
IN_BACKUPS = (
    "Backups that were made before still have this data, until they are deleted. The audit log keeps the id of the "
    "account until its entries are too old."
)


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """One erasure: the owner whose data is deleted, and its progress. It has ids only."""

    account: str
    owner: str
    state: Literal["running", "done"] = "running"
    deleted: dict[str, int] = {}
    """Number of deleted objects of each kind."""
    done_at: float | None = None


class ErasureJob(JobWork):
    """The work on one erasure."""

    def __init__(self, erasing: Erasing, stored: Stored[Erasure]) -> None:
        super().__init__(stored.id)
        self._erasing, self._erasure = erasing, stored.body

    async def work(self) -> None:
        """Delete everything."""
        await self._erasing.erase(self.id, self._erasure)


class Erasing:
    """The erasures of a server. One node runs each; after a crash another one continues it."""

    def __init__(
        self,
        store: Store,
        engine: Core,
        people: People,
        keys: Keys,
        rounds: Rounds,
        batches: BatchRunner,
        audit: Audit,
        shares: Shares,
    ) -> None:
        self._store = store
        self._engine = engine
        self._people = people
        self._keys = keys
        self._rounds = rounds
        self._batch_runner = batches
        self._audit = audit
        self._shares = shares
        self._all = Documents(store, KIND, Erasure, now=engine.now)
        self.jobs: Jobs[Erasure, ErasureJob] = Jobs(
            KIND, self._all, engine.holds, is_open=lambda erasure: erasure.state == "running", resume=self._resume
        )

    async def begin(self, account: Stored[Account]) -> Stored[Erasure]:
        """Delete an account at once, and begin to delete all data of its owner."""
        await self._people.retire(account.id)
        stored = await self._all.put(new_id("era"), Erasure(account=account.id, owner=account.body.owner))
        await self._shares.forget_owner(account.body.owner)
        await self.remove_account(account.id)
        if await self.jobs.take(stored.id):
            await self._resume(stored)
        return stored

    async def begin_shown(self, account: Stored[Account]) -> dict[str, Any]:
        """Do the same, and return the erasure as JSON."""
        return shown_erasure(await self.begin(account))

    async def remove_account(self, account: str) -> None:
        """Delete an account, its sign-ins and its keys. Repeating it changes nothing."""
        await self._keys.revoke_all(account, self._engine.now())
        try:
            await self._people.delete(account)
        except NotFound:
            pass  # it was deleted before
        await self._keys.refresh()

    async def get(self, id: str) -> Stored[Erasure] | None:
        """Return an erasure, while it runs and for a month after."""
        return await self._all.get(id)

    async def look(self) -> None:
        """Continue erasures that no node runs, and delete the records of old ones."""
        await self.jobs.take_up_all()
        before = self._engine.now() - KEPT
        async for stored in self._all.all():
            if stored.body.state == "running":
                continue
            if stored.body.owner:
                await self._disown_late_usage(stored)
            elif (stored.body.done_at or 0.0) < before:
                await self._all.delete(stored.id)

    async def _resume(self, stored: Stored[Erasure]) -> None:
        self.jobs.begin(ErasureJob(self, stored))

    async def erase(self, id: str, erasure: Erasure) -> None:
        """Delete everything of an owner, step by step."""
        owner, account, store = erasure.owner, erasure.account, self._store
        await self.jobs.retry(lambda: self.remove_account(account))
        steps: dict[str, Callable[[], Awaitable[int]]] = {
            "comparisons": lambda: self._comparisons(owner),
            "batches": lambda: self._batches(owner),
            "sessions": lambda: self._sessions(owner),
            "runs": lambda: self._runs(owner),
            "usage": lambda: store.disown_usage(owner),
            "read marks": lambda: store.forget_reader(owner),
            "documents": lambda: store.delete_documents_of(owner),
            "sign-ins": lambda: store.delete_documents_of(account),
            "keys": lambda: store.forget_keys(account),
        }
        for name, step in steps.items():
            while count := await self.jobs.retry(step):
                await self._progress(id, name, count)
        await self._forget_words()
        await self.jobs.retry(lambda: self._end(id, account))
        await self.jobs.let_go(id)

    async def _forget_words(self) -> None:
        more = await self.jobs.retry(lambda: self._store.forget_words(begin=True))
        while more:
            more = await self.jobs.retry(lambda: self._store.forget_words(begin=False))

    async def _comparisons(self, owner: str) -> int:
        page = await self._rounds.documents.page(owner=owner, limit=_PAGE)
        for stored in page:
            await self._rounds.delete(stored.body)
        return len(page)

    async def _batches(self, owner: str) -> int:
        """Delete batches, and wait until their cells are deleted: the node that runs a batch deletes it."""
        page = await self._batch_runner.documents.page(owner=owner, limit=_PAGE)
        for stored in page:
            await self._batch_runner.delete(stored)
            await self._until_gone(stored.id)
        return len(page)

    async def _until_gone(self, batch_id: str) -> None:
        pauses = Backoff(0.02, 1.0)
        left = await self._batch_runner.documents.get(batch_id)
        while left is not None:
            await asyncio.sleep(pauses.next())
            left = await self._batch_runner.documents.get(batch_id)

    async def _sessions(self, owner: str) -> int:
        ids = await self._store.sessions_of(owner, limit=_PAGE)
        for id in ids:
            await self._engine.delete_session(id)  # its runs are stopped first
        return len(ids)

    async def _runs(self, owner: str) -> int:
        """Delete the runs outside of sessions. A run in another owner's session belongs to that session, and stays."""
        deleted, before = 0, None
        while page := await self._store.list_runs(owner=owner, before=before, limit=_PAGE):
            before = page[-1].id
            deleted += sum([await self._run(record) for record in page])
        return deleted

    async def _run(self, record: RunRecord) -> bool:
        if record.status != "settled":
            try:
                await (await self._engine.open_anywhere(record.id)).stop(by="revoked")
            except RunNotFound:
                return False  # deleted meanwhile
        return await self._store.delete_run(record.id)

    async def _disown_late_usage(self, stored: Stored[Erasure]) -> None:
        """Remove the owner from usage that was counted after the end: servers count the usage of runs with a delay."""
        await self._store.disown_usage(stored.body.owner)
        if (stored.body.done_at or 0.0) < self._engine.now() - LATEST_USAGE:
            await self._all.change(stored.id, lambda erasure: replace(erasure, owner=""))

    async def _progress(self, id: str, name: str, count: int) -> None:
        def counted(erasure: Erasure) -> Erasure:
            return replace(erasure, deleted=erasure.deleted | {name: erasure.deleted.get(name, 0) + count})

        await self.jobs.retry(lambda: self._all.change(id, counted))

    async def _end(self, id: str, account: str) -> None:
        def done(erasure: Erasure) -> Erasure:
            return replace(erasure, state="done", done_at=self._engine.now())

        await self._audit.by_server("person.erased", account)
        await self._all.change(id, done)


def shown_erasure(erasure: Stored[Erasure]) -> dict[str, Any]:
    """Return an erasure as JSON."""
    body = erasure.body
    return {
        "id": erasure.id,
        "account": body.account,
        "state": body.state,
        "deleted": body.deleted,
        "began_at": native.moment(erasure.created_at),
        "done_at": native.moment(body.done_at),
        "note": IN_BACKUPS,
    }
