"""The times of schedules, and what is made of those that are due: without a clock, a store or a server."""

import datetime
from itertools import count, islice

import pytest
from msgspec.structs import replace

from holdfast.errors import AccessEnded, SessionNotFound
from holdfast.server.features.schedules.model import (
    MOST_HISTORY,
    MOST_MADE_UP,
    Missed,
    Plan,
    Schedule,
    decided,
    notice_of_occurrence,
)
from holdfast.server.features.schedules.times import CronTimes, EveryInterval, OneTime, When, times_after, zone_of
from tests.requirements import requirement

BERLIN = "Europe/Berlin"


def at(text: str, zone: str = BERLIN) -> float:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=zone_of(zone)).timestamp()


def local_times(when: When, after: float, number: int) -> list[str]:
    zone = zone_of(BERLIN)
    times = islice(times_after(when, 0.0, after), number)
    return [datetime.datetime.fromtimestamp(time, zone).strftime("%d %H:%M%z")[:-2] for time in times]


@requirement("schedules.once")
@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("30 2 * * *", "2026-03-28T12:00", ["29 03:00+02", "30 02:30+02", "31 02:30+02"]),
        ("15,45 2 * * *", "2026-03-28T12:00", ["29 03:00+02", "30 02:15+02", "30 02:45+02"]),
        ("0,30 2,3 * * *", "2026-03-28T12:00", ["29 03:00+02", "29 03:30+02", "30 02:00+02"]),
        ("*/30 * * * *", "2026-03-29T01:00", ["29 01:30+01", "29 03:00+02", "29 03:30+02"]),
        ("30 2 * * *", "2026-10-24T12:00", ["25 02:30+02", "26 02:30+01", "27 02:30+01"]),
        ("30 * * * *", "2026-10-25T01:00", ["25 01:30+02", "25 02:30+02", "25 02:30+01", "25 03:30+01"]),
        ("0 0 29 2 *", "2026-03-01T00:00", ["29 00:00+01"]),
    ],
)
def test_daylight_saving_moves_a_fixed_time_out_of_the_gap_and_repeats_none(expression, after, expected):
    """The rule of Debian's cron: no day is left out, and no day has a fixed time twice."""
    assert expected == local_times(CronTimes(expression, BERLIN), at(after), len(expected))


@requirement("schedules.once")
@pytest.mark.parametrize("expression", ["30 2 * * *", "*/7 * * * *", "59 23 L * *", "15,45 2 * * 0"])
@pytest.mark.parametrize("day", ["2026-03-28", "2026-10-24"])
def test_a_walk_through_a_change_of_the_clock_is_the_same_from_wherever_it_begins(expression, day):
    """A server that starts in the repeated hour, or in the gap, must not find other times than one that runs."""
    when, begin = CronTimes(expression, BERLIN), at(f"{day}T12:00")
    walked = list(islice(times_after(when, 0.0, begin), 200))
    assert sorted(set(walked)) == walked
    for after in range(int(begin), int(begin) + 86400, 997):
        expected = [time for time in walked if time > after][:3]
        assert expected == list(islice(times_after(when, 0.0, after), len(expected)))


@requirement("schedules.once")
def test_an_interval_and_one_time_go_by_real_time():
    """An interval is counted from its beginning: a late run does not move the next one."""
    assert [110.0, 120.0] == list(islice(times_after(EveryInterval(10), 100.0, 105.0), 2))
    assert [110.0] == list(islice(times_after(EveryInterval(10), 100.0, 100.0), 1))
    assert ["29 03:30+02"] == local_times(OneTime("2026-03-29T02:30", BERLIN), 0.0, 2)
    assert ["25 02:30+02"] == local_times(OneTime("2026-10-25T02:30", BERLIN), 0.0, 2)
    assert [] == local_times(OneTime("2026-10-25T02:30Z", BERLIN), at("2026-10-25T03:30"), 2)


def schedule(when: When, missed: Missed = "one", since: float = 0.0) -> Schedule:
    plan = Plan(name="Report", prompt="Write.", when=when, missed=missed)
    return Schedule(plan=plan, since=since, cursor=since)


def decide(before: Schedule, now: float) -> Schedule:
    ids = count(1)
    return decided(before, now, lambda: f"ses_{next(ids)}")


def runs(after: Schedule) -> list[float]:
    return [one.at for one in after.history if one.state == "begun"]


@requirement("schedules.once")
def test_what_was_missed_is_skipped_made_up_once_or_made_up_each():
    """A time within five minutes is no missed one. Whatever is chosen, no time has two runs."""
    hourly = EveryInterval(3600)
    late = 5 * 3600.0 + 1800.0
    assert [] == runs(decide(schedule(hourly, "skip"), late))
    assert [5 * 3600.0] == runs(decide(schedule(hourly, "one"), late))
    assert [hour * 3600.0 for hour in range(1, 6)] == runs(decide(schedule(hourly, "all"), late))
    for missed in ("skip", "one"):
        assert [5 * 3600.0] == runs(decide(schedule(hourly, missed), 5 * 3600.0 + 60))
    many = decide(schedule(hourly, "all"), 100 * 3600.0)
    assert [hour * 3600.0 for hour in range(101 - MOST_MADE_UP, 101)] == runs(many)
    skipped = decide(schedule(hourly, "skip"), late).history
    assert [("skipped", 4, 3600.0)] == [(one.state, one.others, one.first_missed) for one in skipped]


@requirement("schedules.once")
@pytest.mark.parametrize("missed", ["skip", "one", "all"])
def test_a_node_that_is_gone_for_some_minutes_leaves_none_of_them_out(missed):
    """What is less than five minutes late was not missed: its run is late, and stands for itself alone."""
    after = decide(schedule(EveryInterval(60), missed), 200.0)
    assert [60.0, 120.0, 180.0] == runs(after)
    assert {("planned", 0)} == {(one.how, one.others) for one in after.history}
    often = decide(schedule(EveryInterval(1), missed), 250.0)
    assert MOST_MADE_UP == len(runs(often))
    assert 250 == sum(1 + one.others for one in often.history)


@requirement("schedules.once")
def test_a_late_run_says_what_it_stands_for():
    """Whoever reads the answer on Monday must not take it for Friday's."""
    [one] = decide(schedule(EveryInterval(3600)), 5 * 3600.0 + 1800.0).history
    assert "'Report' missed 1970-01-01T05:00:00.000Z" in notice_of_occurrence("Report", one)
    assert "4 earlier times were missed, since 1970-01-01T01:00:00.000Z" in notice_of_occurrence("Report", one)
    [in_time] = decide(schedule(EveryInterval(3600)), 3600.0).history
    assert "" == notice_of_occurrence("Report", in_time)


@requirement("schedules.once")
def test_a_clock_that_is_set_back_repeats_nothing_and_stops_nothing():
    """What has had its run is known by its time. What comes after the correction is run as usual."""
    after = decide(schedule(EveryInterval(600)), 600.0)
    after = decide(decide(after, 3600.0), 3600.0)
    after = decide(after, 900.0)
    seen = list(runs(after))
    for now in range(900, 7200, 60):
        after = decide(after, float(now))
    assert len(set(runs(after))) == len(runs(after))
    assert {600.0, 3600.0, 4200.0, 7200.0 - 600.0} <= set(runs(after))
    assert set(seen) <= set(runs(after))


@requirement("schedules.once")
def test_an_absence_of_a_year_is_decided_at_once():
    """A schedule for each minute has half a million times in it. They are not walked through one by one."""
    after = decide(schedule(CronTimes("* * * * *")), 365 * 86400.0 + 30)
    assert [365 * 86400.0 - late for late in (240, 180, 120, 60, 0)] == runs(after)
    assert after.cursor == 365 * 86400.0


def test_the_history_is_bounded_and_keeps_what_has_no_result():
    """An occurrence that is forgotten before its run has started would never have one."""
    after = decide(schedule(EveryInterval(60)), 60.0)
    for minute in range(2, 3 * MOST_HISTORY):
        after = decide(after, minute * 60.0)
        newest = after.history[-1]
        after = after.with_result(replace(newest, state="started", run_id=f"run_{minute}"), after.turn)
    assert 60.0 == after.history[0].at
    assert MOST_HISTORY + 1 == len(after.history)


@requirement("schedules.rights")
def test_a_schedule_whose_owner_has_lost_all_access_pauses_at_the_first_refusal():
    """One of a deleted person would be refused at each time, for ever. What lacks something else goes on."""
    plan = Plan(name="Report", prompt="Go", when=EveryInterval(seconds=60))
    due = decided(Schedule(plan=plan, since=0.0, cursor=0.0), 60.0, iter(("ses_1", "ses_2")).__next__)
    [one] = due.begun()
    for error, is_paused in ((AccessEnded(), True), (SessionNotFound("ses_9"), False)):
        after = due.with_result(replace(one, state="refused", error=error.info()), due.turn)
        assert is_paused == after.is_paused
        assert (None if is_paused else 120.0) == after.next_at()
        assert [error.code] == [each.error.code for each in after.history if each.error]
