"""The data of people: export, import, deletion and retention."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator

import msgspec

from ....compare.runs import Rounds
from ....engine.core import Core
from ....evals.runner import BatchRunner
from ....store import Store
from ...config.current import CurrentSettings
from ...kit.chores import Chores
from ...kit.feature import Feature
from ...kit.request import Bodies
from ...running.running import Running
from ...secrets.sealer import Sealer
from ..accounts.api.sign_in import SigningIn
from ..accounts.keys import Keys
from ..accounts.people.accounts import AccountGroup
from ..accounts.people.people import People
from ..audit.audit import Audit
from ..importing.api import ImportsApi
from ..responses.conversation_turns import delete_unused
from ..sessions.sessions import SessionsApi
from ..sharing.shares import Shares
from .api import AccountDataApi
from .erasing import Erasing
from .resealing import reseal_store

DAY = 86400
OWNERS_AT_ONCE = 500


class Kept(msgspec.Struct, frozen=True):
    """The days of retention of one kind of data: those of the settings, and of owners whose groups set others."""

    days: float
    of: dict[str, float]

    def before(self, owner: str, now: float) -> float:
        """Return the time before which an owner's data is too old."""
        return now - self.of.get(owner, self.days) * DAY

    def longer(self) -> list[str]:
        """Return the owners with a longer retention than that of the settings."""
        return [owner for owner, days in self.of.items() if days > self.days]

    def shorter(self) -> Iterator[tuple[float, list[str]]]:
        """Yield the retentions that groups set, in days, each with some of its owners."""
        for days in sorted(set(self.of.values())):
            owners = [owner for owner, kept in self.of.items() if kept == days]
            for first in range(0, len(owners), OWNERS_AT_ONCE):
                yield days, owners[first : first + OWNERS_AT_ONCE]


class Retention:
    """Deletes what is older than the days of the settings, or of a group for its people, each hour."""

    def __init__(
        self,
        current: CurrentSettings,
        people: People,
        sessions: SessionsApi,
        engine: Core,
        store: Store,
        batches: BatchRunner,
        rounds: Rounds,
    ) -> None:
        self._current, self._people, self._sessions = current, people, sessions
        self._engine, self._store, self._batches, self._rounds = engine, store, batches, rounds

    async def delete_old(self) -> None:
        """Delete events, runs, conversations, idempotency keys and chats that are too old."""
        settings, store, now = self._current.now, self._store, self._engine.now()
        await store.trim_logs(now - settings.event_days * DAY)
        groups = {stored.id: stored.body async for stored in self._people.callers.groups.all()}
        runs = Kept(settings.retention_days, await self._days_by_owner(_set(groups, "retention_days")))
        sessions = Kept(settings.session_days, await self._days_by_owner(_set(groups, "session_days")))
        await self._delete_runs(runs, now)
        await self._delete_sessions(sessions, now)
        await self._forget_keys(now - settings.idempotency_days * DAY)

    async def _days_by_owner(self, by_group: dict[str, float]) -> dict[str, float]:
        """Return the days of people with groups that set them: the fewest of each person's groups."""
        found: dict[str, float] = {}
        before: str | None = None
        while by_group and (page := await self._people.accounts.page(before=before, limit=200)):
            for account in page:
                if days := [by_group[id] for id in account.body.groups if id in by_group]:
                    found[account.body.owner] = min(days)
            before = page[-1].id
        return found

    async def _delete_runs(self, kept: Kept, now: float) -> None:
        """Delete runs outside of sessions, and unused conversations of the Responses API."""
        await self._store.delete_runs(now - kept.days * DAY, besides=kept.longer())
        for days, owners in kept.shorter():
            await self._store.delete_runs(now - days * DAY, of=owners)
        if math.isfinite(kept.days) or kept.of:
            await delete_unused(self._store, lambda owner: kept.before(owner, now))

    async def _delete_sessions(self, kept: Kept, now: float) -> None:
        """Delete chats that have not changed for too long, with all that belongs to them."""
        before = now - kept.days * DAY
        while old := await self._store.old_sessions(before, besides=kept.longer()):
            await self._delete_all(old, before)
        for days, owners in kept.shorter():
            before = now - days * DAY
            while old := await self._store.old_sessions(before, of=owners):
                await self._delete_all(old, before)

    async def _delete_all(self, sessions: Iterable[tuple[str, str]], before: float) -> None:
        for id, owner in sessions:
            session = await self._store.get_session(id)
            if session is not None and session.updated_at < before:  # or somebody has used it since the list was read
                await self._sessions.delete_with_grants(id, owner)

    async def _forget_keys(self, before: float) -> None:
        """Delete old idempotency keys. After that a repeated request starts its work again."""
        if math.isfinite(before):
            await self._store.forget_idempotency(before)
            await self._batches.forget_old_keys(before)
            await self._rounds.forget_old_keys(before)


def _set(groups: dict[str, AccountGroup], field: str) -> dict[str, float]:
    days = {id: getattr(group, field) for id, group in groups.items()}
    return {id: value for id, value in days.items() if value is not None}


class DataFeature(Feature):
    """The data of people, until it is deleted."""

    def __init__(
        self,
        bodies: Bodies,
        running: Running,
        current: CurrentSettings,
        people: People,
        keys: Keys,
        shares: Shares,
        audit: Audit,
        sessions: SessionsApi,
        rounds: Rounds,
        batches: BatchRunner,
        sealer: Sealer,
    ) -> None:
        engine, store, signing_in = running.engine, running.store, SigningIn(current.now, people)
        self._store, self._sealer, self._is_shared = store, sealer, bool(current.now.store)
        self.erasing = erasing = Erasing(store, engine, people, keys, rounds, batches, audit, shares)
        self.retention = Retention(current, people, sessions, engine, store, batches, rounds)
        self.inner = (
            AccountDataApi(bodies, signing_in, people, running.budgets, erasing, engine, store),
            ImportsApi(running.budgets, engine, store),
        )

    async def start(self) -> None:
        """Seal the stored secrets with a key that is given now. Other servers of a shared store may not have it yet."""
        if not self._is_shared and await asyncio.to_thread(self._sealer.has_older):
            await reseal_store(self._store, self._sealer)

    def begin(self, chores: Chores) -> None:
        """Delete what is too old, and what people have asked to delete."""
        chores.by_one_node("log trimming", 3600.0, self.retention.delete_old)
        chores.every("erasures", 60.0, self.erasing.look)
