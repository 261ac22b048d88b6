"""What all wires tell of how a run ended: its finish reason, its verdict and its cost."""

from __future__ import annotations

from typing import Any

from ..events import Completed, Failed, Interrupted, Settlement, Stopped, Usage, openai_reason
from . import native


def finish_reason(settled: Settlement, said: str | None = None) -> str:
    """Return the finish reason of a settlement: the one table.

    `said` is the reason of one choice of several: each may have another one.
    """
    if isinstance(settled, Stopped):
        return "cancelled"
    if isinstance(settled, (Failed, Interrupted)):
        return "error"
    return openai_reason(said or settled.finish_reason or "stop")


def verdict(settled: Settlement, run: str) -> dict[str, Any]:
    """Return additional fields of an answer whose run did not complete, or that another model gave; else none."""
    answered_by: dict[str, Any] = {"answered_by": settled.answered_by} if settled.answered_by else {}
    if settled.legs:
        answered_by["legs"] = native.legs(settled.legs)
    if isinstance(settled, Completed):
        return {"holdfast": {"outcome": "completed", "run_id": run, **answered_by}} if answered_by else {}
    told: dict[str, Any] = {}
    more: dict[str, Any] = answered_by
    code: str = settled.outcome
    if isinstance(settled, (Failed, Interrupted)):
        told["error"] = native.error(settled.error)
        code = settled.error.code
        more = {"help": told["error"]["help"], **answered_by}
    elif isinstance(settled, Stopped):
        code = f"stopped_by_{settled.by}"
    elif settled.finish_reason:
        code = settled.finish_reason
    return {**told, "holdfast": {"outcome": settled.outcome, "code": code, "run_id": run, **more}}


def cost_of(used: Usage) -> dict[str, float]:
    """Return the cost as a field of a usage, if it is known."""
    return {} if used.cost is None else {"cost": used.cost}
