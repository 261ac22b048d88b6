"""Starts a run for an owner who is not there: a schedule is due, or a trigger was called.

What counts is what the owner may do and spend now. It goes through the same door as every other start.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from ....access import CHAT, Access
from ....engine.core import Core
from ....errors import AccessEnded, SessionNotFound
from ....history import Session
from ....runs.run import Run
from ....store import Idempotency, Payer, Store
from ...sources.agents import AgentSources
from ...starting.starting import Starting
from ..accounts.owners import Owners
from ..budgets.budgets import Budgets
from ..presets.kinds import Preset
from ..presets.library import Library
from ..sessions.session_input import one_line, session_ask, user_message
from .model import ScheduledAsk


class UnattendedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run that is asked for."""

    owner: str
    credential: str
    """The API key that it is asked for with; empty for the owner."""
    asked: ScheduledAsk
    text: str
    """The message: the prompt, or what a template makes of it."""
    new_session: str
    """The id of the chat that is made for it; empty if it goes into the one that `asked` names."""
    title: str
    key: Idempotency
    notice: str = ""


class StartsRuns(Protocol):
    """What starts the runs of schedules and triggers."""

    async def start(self, order: UnattendedRun) -> Run:
        """Start a run, or return the one that its key has started before."""
        ...


class Unattended:
    """Starts runs with the rights and the budget that their owner has at that moment."""

    def __init__(
        self,
        store: Store,
        engine: Core,
        starting: Starting,
        agents: AgentSources,
        owners: Owners,
        budgets: Budgets,
        presets: Library[Preset],
    ) -> None:
        self._store, self._engine, self._starting, self._agents = store, engine, starting, agents
        self._owners, self._budgets, self._presets = owners, budgets, presets

    async def start(self, order: UnattendedRun) -> Run:
        """Start a run, or return the one that its key has started before. In a busy chat it waits its turn."""
        if (known := await self._engine.repeated(order.key)) is not None:
            return known
        access = await self._access(order)
        preset = await self._presets.named(access, order.asked.preset) if order.asked.preset else Preset(name="")
        session, is_new = await self._session(order, preset)
        payer: Payer = self._budgets.payer_for(access)
        allowed = await self._starting.allow_for(access, payer, order.asked.model or session.model, order.key)
        agent = self._agents.has_default(access, order.asked.kind, allowed.model.name)
        ask = session_ask(session, notice=order.notice, default_agent=agent)
        record = allowed.record(ask, session_id=session.id, kind=order.asked.kind)
        message = msgspec.structs.replace(user_message(order.text), author=access.name if access.account else "")
        run = await allowed.start(record, [message], session=session if is_new else None, if_busy="queue")
        self._engine.touch(session.id, order.owner)
        return run

    async def _access(self, order: UnattendedRun) -> Access:
        access = await self._owners.access(order.owner, order.credential)
        if access is None or not CHAT.admits(access):
            raise AccessEnded
        return access

    async def _session(self, order: UnattendedRun, preset: Preset) -> tuple[Session, bool]:
        """Return the chat, and whether it is new. A second try finds the one that the first try has made."""
        id = order.new_session or order.asked.session or ""
        session = await self._store.get_session(id) if id else None
        if session is not None and session.owner == order.owner and session.kind == "chat":
            return session, False
        if session is not None or not order.new_session:
            raise SessionNotFound(id)
        return self._made(order, preset), True

    def _made(self, order: UnattendedRun, preset: Preset) -> Session:
        now, title = self._engine.now(), one_line(order.title)
        return Session(
            id=order.new_session,
            owner=order.owner,
            title=title,
            titled="person",
            model=order.asked.model or preset.model,
            system=preset.system,
            params=preset.params,
            preset=preset.name,
            on_break=preset.on_break,
            created_at=now,
            updated_at=now,
        )
