"""A run as JSON, with data of the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from ....pricing import Prices
from ....runs.pump import Pump
from ....runs.run import Run
from ....runs.stored_log import StoredLog
from ....silence import WaitsFor
from ....store import RunRecord
from ....store.semantics import is_blind
from ....wires import native
from ....wires.shapes import RunJson
from ...kit.http.errors import Json


class PaneInfo(Protocol):
    """What is shown of the model of a run, which may be a pane of a blind comparison."""

    @property
    def model(self) -> str: ...
    @property
    def is_blind(self) -> bool: ...
    @property
    def cost(self) -> float | None: ...


class RunViews:
    """Shows runs as JSON."""

    def __init__(self, prices: Prices, pane_of: Callable[[RunRecord], Awaitable[PaneInfo]]) -> None:
        self._prices, self._pane_of = prices, pane_of

    def json(self, run: Run) -> RunJson:
        """Return a run as JSON."""
        return native.run_object(
            run.record,
            status=run.status,
            seq=run.seq,
            text=run.text,
            settled=run.settlement,
            prices=self._prices,
            needs_approval=run.waits and run.settlement is None,
            waits_for=waits_for(run),
        )

    def started(self, run: Run) -> Json:
        """Return the answer to a request that has started a run."""
        return answer_of_start(self.json(run))

    async def revealed(self, run: Run) -> RunJson:
        """Return a run as JSON; a pane of a blind comparison has its model after the reveal."""
        await look(run)
        about = await self._pane_of(run.record)
        seen = self.json(run)
        return {**seen, "model": about.model, "cost": about.cost if about.is_blind else seen["cost"]}


def answer_of_start(shown: RunJson) -> Json:
    """Return the answer to a request that has started a run, or given it something."""
    return Json(shown, status_code=202, headers={"x-run-id": shown["id"], "location": f"/api/runs/{shown['id']}"})


def waits_for(run: Run) -> WaitsFor | None:
    """Return what a run waits for; None if it waits for no model, or is not worked on here.

    Of a blind pane it is never told: an agent waits for no model while its tools run, and would be known by that.
    """
    pump = run.live
    if is_blind(run.record):
        return None
    if not isinstance(pump, Pump) or pump.was_ended or not pump.intake.is_open or pump.is_far_behind:
        return None
    if pump.intake.wait is None or (run.quiet is not None and run.quiet()):
        return None
    return pump.intake.wait.seen(pump.touched)


async def look(run: Run) -> None:
    """Read the text so far of a run that is active in another process."""
    if isinstance(run.log, StoredLog):
        await run.log.look()


def run_headers(run: Run) -> dict[str, str]:
    """Return the headers of a response about a run."""
    return {"x-run-id": run.id}
