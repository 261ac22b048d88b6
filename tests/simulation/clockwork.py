"""Schedules by the clock of a city, around both changes of daylight saving, on three servers that are killed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random

from msgspec.structs import replace

from holdfast.server.features.schedules.times import CronTimes

from .bad_services import alone
from .checker import check, is_accepted
from .occurrences import check_occurrences, kept_schedules
from .scenario import GRACE, LEASE, Scenario, SchedulePlan, Trouble, Weather
from .store import peek
from .world import Design, World

BERLIN = "Europe/Berlin"
BEFORE, LASTS = 45, 90
"""Minutes from the beginning to the change of the clock, and to the end: a schedule remembers a hundred times."""
CHANGES = {"spring": datetime(2026, 3, 29, 1, tzinfo=UTC), "autumn": datetime(2026, 10, 25, 1, tzinfo=UTC)}
FIXED = "30 2 * * *"
"""A time that the one change skips, and that the other one shows twice."""
EXPRESSIONS = ["* * * * *"] * 17 + ["*/2 * * * *", "0,10,20,30,40,50 1-3 * * *", FIXED]


@dataclass
class Played:
    """What became of the schedules."""

    violations: list[str]
    runs: int
    states: Counter[str]
    fixed: list[str]
    """The times of the fixed time, in UTC."""
    crashes: int


def play(change: str, seed: int) -> Played:
    """Play an hour and a half around a change of the clock. Which steps the servers die at is drawn."""

    def stage(scenario: Scenario) -> None:
        alone(scenario)
        scenario.nodes, scenario.weather = 3, Weather(delays=(0.0, 0.01, 0.05))
        scenario.limits = replace(scenario.limits, runs=100)
        scenario.begins, scenario.lasts = CHANGES[change].timestamp() - BEFORE * 60, LASTS * 60.0
        scenario.schedules = [SchedulePlan(0.0, CronTimes(each, BERLIN), "all") for each in EXPRESSIONS]
        chance = Random(f"{change} {seed}")
        back = LEASE + GRACE + 1.0  # whoever starts then takes up what the dead server had
        dies = [Trouble(60.0 * at, "crash", back, by_steps=chance.randint(1, 400)) for at in range(2, LASTS - 1)]
        calm = Trouble(LASTS * 60.0 - 20.0, "pause", 0.1)  # nothing is due when all are paused, and counted
        scenario.troubles = [*dies, calm]

    world = World(seed, Design(stage=stage))
    world.loop.most_steps = 10**8
    try:
        world.loop.run(world.play())
    finally:
        world.over = True
        world.loop.discard()
    kept = [stored.body for stored in peek(kept_schedules(world))]
    occurrences = [one for schedule in kept for one in schedule.history]
    fixed = [one for schedule in kept if schedule.plan.when == CronTimes(FIXED, BERLIN) for one in schedule.history]
    return Played(
        violations=[*world.history.violations, *check(world), *check_occurrences(world)],
        runs=sum(
            run.occurrence != "" and is_accepted(peek(world.medium.get_run(run.id)))
            for run in world.history.runs.values()
        ),
        states=Counter(one.state for one in occurrences),
        fixed=[datetime.fromtimestamp(one.at, UTC).strftime("%H:%M") for one in fixed],
        crashes=sum(server.crashed for server in world.servers),
    )
