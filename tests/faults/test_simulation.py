"""The engine under seeded schedules of faults; `make simulate N=1000000` tries more of them.

What it cannot see: threads, sockets and disks (a store's own transactions are atomic here), what the garbage collector
takes, real time, and more than a few runs at once.
"""

import logging
from collections.abc import Iterator

import pytest

from tests.simulation.__main__ import first_caught, schedules
from tests.simulation.bad_designs import BANK
from tests.simulation.world import Design

SCHEDULES = 20_000
SLICE = 2_000
ENOUGH = 10_000


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The simulation provokes thousands of warnings on purpose."""
    logger = logging.getLogger("holdfast")
    logger.disabled = True
    yield
    logger.disabled = False


@pytest.mark.parametrize("first", range(0, SCHEDULES, SLICE))
def test_no_schedule_of_faults_breaks_a_promise(first: int) -> None:
    """Crashes, pauses, lost answers, cancelled callers and stubborn sources meet in orders that nobody thinks of."""
    broken = {
        outcome.seed: outcome.violations for outcome in schedules(range(first, first + SLICE)) if outcome.violations
    }

    assert {} == broken, "replay one with: python -m tests.simulation --seed N"


def test_every_seed_replays_exactly() -> None:
    """A schedule that cannot be replayed finds bugs that cannot be understood."""
    once = [outcome.digest for outcome in schedules(range(300), digest=True)]
    again = [outcome.digest for outcome in schedules(range(300), digest=True)]

    assert once == again
    assert len(set(once)) > 290


@pytest.mark.parametrize("design", BANK, ids=lambda design: design.name)
def test_a_known_bad_design_is_caught(design: Design) -> None:
    """A simulation that finds nothing proves nothing until it has been seen to find what is there."""
    caught = first_caught(design, ENOUGH)

    assert caught is not None, f"not caught: {design.reason}"
