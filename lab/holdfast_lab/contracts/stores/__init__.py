"""The promises of every store as checks, by subject.

Each check is named by a sentence that must be true. `holdfast_lab.contracts` exports these checks.
"""

from __future__ import annotations

from . import audit, closing, documents, files, filing, intents, keys, logs, nodes, queue, runs, sessions, spending
from .case import Case, CaseCheck, OpenStore

_SUBJECTS = (runs, queue, logs, sessions, filing, files, documents, keys, nodes, intents, spending, audit, closing)

STORE_CHECKS: tuple[CaseCheck, ...] = tuple(check for subject in _SUBJECTS for check in subject.CHECKS)
"""Every check, for `pytest.mark.parametrize`: run each with `run_check(check, open)`."""


async def check_store(open: OpenStore) -> None:
    """Check every promise of the Store protocol; an AssertionError names the first that is broken."""
    for check in STORE_CHECKS:
        await run_check(check, open)


async def run_check(check: CaseCheck, open: OpenStore) -> None:
    """Check one promise."""
    case = Case(open, await open())
    try:
        await check(case)
    finally:
        await case.store.close()
