"""The run that a task works on, for the entries that it logs."""

from __future__ import annotations

from contextvars import ContextVar

LOGGED_RUN: ContextVar[tuple[str, str | None]] = ContextVar("holdfast.logged_run", default=("", None))
"""The ids of the run and of its session. A source sets them for its task; tasks that it starts inherit them."""
