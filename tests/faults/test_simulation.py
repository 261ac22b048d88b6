"""The engine under seeded schedules of faults; `make test-all` tries more of them, and `make simulate` a million.

The store has the transactions that ship, on SQLite in memory. What it cannot see: threads, sockets and disks (the
transactions are one after another here), what the garbage collector takes, real time, and more than a few runs at once.
"""

import logging
from collections.abc import Iterator
from operator import attrgetter

import pytest
from blockbuster import BlockBuster

from holdfast.engine.core import EngineClasses
from holdfast.runs.watchdog import Watchdog
from tests.requirements import requirement
from tests.simulation.__main__ import BrokenDesign, first_caught, keep_the_heap, schedules
from tests.simulation.bad_services import BANK, two_browsers
from tests.simulation.clockwork import play
from tests.simulation.scenario import Scenario, Weather
from tests.simulation.world import HOLDFAST, Design, simulate
from tests.support.long import count

SCHEDULES = count(400, 20_000)
SLICE = 200
ENOUGH = 3_000

pytestmark = pytest.mark.timeout(900)  # they compute all the time: on a busy machine that takes long


@pytest.fixture(autouse=True, scope="module")
def _fast(blocking_is_an_error: BlockBuster) -> Iterator[None]:
    """The loop is not a real one, so that nothing can block it."""
    keep_the_heap()
    blocking_is_an_error.deactivate()
    yield
    blocking_is_an_error.activate()


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


def browsers_and_a_poor_store(scenario: Scenario) -> None:
    """A person is told in two browsers, by a server whose store fails now and then."""
    two_browsers(scenario)
    scenario.nodes, scenario.weather = 1, Weather(fails_before=0.15, fails_after=0.15)


@requirement("push.once")
def test_a_store_that_fails_while_browsers_are_told_costs_no_message_and_repeats_none() -> None:
    """The try goes on where it was: whoever was told is not told again, and the others are told soon."""
    design = Design(stage=browsers_and_a_poor_store)
    broken = {seed: found for seed in range(60) if (found := simulate(seed, design).violations)}

    assert {} == broken


OCCURRENCES = 10_000
ROUNDS = 7
"""A round has more than a seventh of the occurrences. All rounds are among the long tests."""


@requirement("schedules.once")
@pytest.mark.parametrize("number", range(count(2, ROUNDS)))
def test_runs_equal_occurrences_over_both_changes_of_daylight_saving(number: int) -> None:
    """Three servers run twenty schedules by the clock of Berlin, and are killed at steps that are drawn."""
    change = ("spring", "autumn")[number % 2]
    played = play(change, number)
    print(f"\n{change}: {played.runs} runs, {dict(played.states)}, {played.crashes} crashes")

    assert [] == played.violations
    assert {"started": played.runs} == played.states
    assert {"spring": ["01:00"], "autumn": ["00:30"]}[change] == played.fixed
    assert played.runs > OCCURRENCES / ROUNDS
    assert played.crashes > 5


def test_every_seed_replays_exactly() -> None:
    """A schedule that cannot be replayed finds bugs that cannot be understood."""
    seeds = range(count(60, 300))
    once = [outcome.digest for outcome in schedules(seeds, digest=True)]
    again = [outcome.digest for outcome in schedules(seeds, digest=True)]

    assert once == again
    assert len(set(once)) > 0.96 * len(seeds)


SEEDS = {
    "blind-re-save": 69,
    "caller-starts": 200,
    "end-noted-after-the-close": 161,
    "finish-ends-what-goes-on": 140,
    "forgets-what-it-claimed": 44,
    "no-fencing": 42,
    "stop-by-session": 119,
    "stop-session-forgets-the-queue": 775,
    "trims-silently": 475,
    "unread-source-left-open": 119,
    "watches-after-reading": 53,
}
"""Where the search for a design that rarely breaks its promise begins: there it was caught last."""


@pytest.mark.parametrize("design", BANK, ids=attrgetter("name"))
def test_a_known_bad_design_is_caught(design: Design) -> None:
    """A simulation that finds nothing proves nothing until it has been seen to find what is there.

    What counts is the promise that the design is known to break, not an error in the design's own code.
    """
    caught = first_caught(design, ENOUGH, SEEDS.get(design.name, 0))

    assert caught is not None, f"not caught for {design.expects!r}: {design.reason}"


@pytest.mark.parametrize(
    "design", [design for design in BANK if design.stage is not HOLDFAST.stage], ids=attrgetter("name")
)
def test_a_scene_for_a_bad_design_breaks_no_promise_by_itself(design: Design) -> None:
    """Otherwise the design would be caught for the scene, not for its mistake."""
    broken = {
        outcome.seed: outcome.violations
        for outcome in schedules(range(count(30, 200)), Design(stage=design.stage))
        if outcome.violations
    }

    assert {} == broken


def test_a_design_that_does_not_fit_the_engine_is_not_taken_for_caught() -> None:
    """A mistake in the design's own code is found in every schedule, whatever the checker can see."""

    class DoesNotFit(Watchdog):
        def check(self) -> None:  # type: ignore[override]
            pass

    design = Design(name="does-not-fit", classes=EngineClasses(watchdog=DoesNotFit), expects="a client waits for ever")

    with pytest.raises(BrokenDesign, match="TypeError"):
        first_caught(design, ENOUGH)
