"""The effects of tool calls: each has an id that is saved before the call, and after a crash nothing happens twice."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from ..events import InputDecided, OutcomeDecided, OutcomeRequested, Outlet, Replay, ToolCall, ToolStarted
from ..ids import new_id
from ..log.steps import CallProgress, cut
from .approvals import Desk, Place
from .tools import Reconciling, SaysReplay, Tool, ToolOutput
from .tools.effects import Effect, NotRun

logger = logging.getLogger(__name__)

MOST_PRINTED = 4000
"""Maximum length, in characters, of the output before a crash that a person is shown."""
PATIENCE = 60.0
"""Seconds that a tool without a timeout may take to find out what became of a call."""


class Effects:
    """Gives calls their effect ids, and settles those that a crash has interrupted. Costs one write for a call."""

    def __init__(
        self, out: Outlet, place: Place, desk: Desk, replays: Mapping[str, Replay], patience: float | None
    ) -> None:
        self._out = out
        self._place = place
        self._desk = desk
        self._replays = replays
        self._patience = patience

    async def begin(self, tool: Tool, call: ToolCall, before: ToolStarted | None) -> str:
        """Save that a call begins, and return its effect id: that of an earlier start, if there was one."""
        effect_id = before.effect_id if before is not None else new_id("eff")
        self._out.emit([ToolStarted(call.id, effect_id, time.time(), self._replay(tool))])
        await self._place.saved()
        return effect_id

    def _replay(self, tool: Tool) -> Replay:
        declared: Replay = tool.replay if isinstance(tool, SaysReplay) else "never"
        return self._replays.get(tool.name, declared)

    async def settle(
        self, tool: Tool, arguments: dict[str, Any], call: ToolCall, left: CallProgress, began: ToolStarted
    ) -> ToolOutput | None:
        """Return the result of a call that began before a crash; None if it is to be made again."""
        if left.outcome is not None:
            return _told(left.outcome, left.printed)
        if isinstance(left.requested, OutcomeRequested):
            return _told(await self._desk.ask_outcome(left.requested, self._patience), left.printed)
        replay = self._replay(tool)
        found, problem = (None, "") if replay == "safe" else await _reconciled(tool, arguments, began)
        if isinstance(found, ToolOutput):
            return found
        if isinstance(found, NotRun) or replay != "never":
            return None
        return _told(await self._ask(call, left, began, problem), left.printed)

    async def _ask(self, call: ToolCall, left: CallProgress, began: ToolStarted, problem: str) -> OutcomeDecided:
        """Ask a person what became of a call. What it has asked itself has nobody left to tell."""
        lost = "The server ended before there was an answer."
        self._out.emit([InputDecided(asked.id, "cancel", note=lost) for asked, told in left.inputs if told is None])
        request = OutcomeRequested(
            new_id("out"),
            call.name,
            call.arguments,
            call.id,
            began.effect_id,
            began.at,
            printed=cut(left.printed, MOST_PRINTED),
            problem=problem,
            expires_at=None if self._patience is None else time.time() + self._patience,
        )
        self._out.emit([request])
        return await self._desk.ask_outcome(request, self._patience)


async def _reconciled(
    tool: Tool, arguments: dict[str, Any], began: ToolStarted
) -> tuple[ToolOutput | NotRun | None, str]:
    """Return what the tool finds out about a call; and why it cannot, if it fails."""
    if not isinstance(tool, Reconciling):
        return None, ""
    try:
        async with asyncio.timeout(tool.timeout or PATIENCE):
            return await tool.reconcile(Effect(began.effect_id, arguments, began.at)), ""
    except Exception as error:
        logger.warning("%s could not find out what became of a call", tool.name, exc_info=True)
        return None, f"{tool.name} could not find out: {str(error) or type(error).__name__}"


def _told(decided: OutcomeDecided, printed: str) -> ToolOutput | None:
    """Return the result for the model, by what a person has said; None if the call is to be made again."""
    if decided.decision == "again":
        return None
    note = f" They say: {decided.note}" if decided.note else ""
    before = f"{printed.rstrip()}\n" if printed.strip() else ""
    if decided.decision == "ran":
        return ToolOutput(f"{before}[The server ended before this call returned. A person says that it has run.{note}]")
    return ToolOutput(
        f"{before}[The server ended before this call returned: it may have run. A person decided that it is not run "
        f"again.{note}]",
        is_error=True,
    )
