"""Leases, and what a dead process left behind.

A process renews one lease, and every run that it owns lives by it. Whoever finds a run whose owner's lease has ended
takes it over under the next epoch, so that the old owner, should it only have slept, can no longer write to it.
"""

from __future__ import annotations

from collections.abc import Callable

from .events import Settlement
from .history import Figures, Message, answer
from .log import Log
from .store import RunRecord, Store

Clock = Callable[[], float]

NOBODY = ""
"""A keeper without a lease: what was claimed for it, and then left because the store failed, can be claimed again."""


async def read_back(store: Store, run_id: str) -> Log:
    """Return a run's log as the store has it: every event that anybody can have seen."""
    log = Log(run_id)
    while events := await store.read_log(run_id, log.seq):
        log.append(events)
        log.publish(log.appended)
    return log


def message_of(
    run: RunRecord, log: Log, settlement: Settlement, now: float, figures: Figures | None = None
) -> Message | None:
    """Return the message that a run leaves in its session, if it has one and anything was visible."""
    if run.session_id is None or run.message_id is None:
        return None
    model = log.answered_by or run.model
    return answer(
        log,
        settlement,
        id=run.message_id,
        parent_id=run.parent_id,
        run_id=run.id,
        model=model,
        at=now,
        figures=figures,
    )
