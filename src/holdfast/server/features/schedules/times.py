"""When a schedule is due: by a cron expression, at an interval, or once. Pure: the same plan gives the same times.

Cron expressions are read as Debian's cron reads them. Its rule for daylight saving is: a fixed time that the clock
skips comes right after the gap, and one that the clock shows twice comes at the first. What has a star for the minute
or the hour goes by real time, in both cases.
"""

from __future__ import annotations

import datetime
import importlib
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec

from ....errors import BadRequest

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

SHORTEST = 60
"""The shortest interval, in seconds, for everyone but admins."""
LONGEST = 366 * 86400
MOST_LATE = 1000
"""Maximum number of due times that are counted one by one."""
_DAY = 86400.0
_TOO_LATE = datetime.datetime(9999, 1, 1, tzinfo=datetime.UTC).timestamp()
"""No date can be written down by every clock after that."""
_FIELDS = {
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31, or L for the last day, and must occur in one of the months",
    "month": "1 to 12, or JAN to DEC",
    "day-of-week": "0 to 7, 0 and 7 are Sunday, or SUN to SAT",
}

Zone = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class BadTime(BadRequest):
    """The time of a schedule is wrong: its expression, its zone, its interval or its date."""

    code = "bad_schedule"


class CronTimes(msgspec.Struct, frozen=True, tag_field="kind", tag="cron", forbid_unknown_fields=True):
    """A cron expression of five fields, by the clock of a time zone."""

    expression: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    time_zone: Zone = "UTC"


class EveryInterval(msgspec.Struct, frozen=True, tag_field="kind", tag="every", forbid_unknown_fields=True):
    """Every so many seconds, counted from when the schedule was made or changed."""

    seconds: Annotated[int, msgspec.Meta(ge=1, le=LONGEST)]


class OneTime(msgspec.Struct, frozen=True, tag_field="kind", tag="once", forbid_unknown_fields=True):
    """One time: a date and time of the zone, or with an offset of its own."""

    at: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    time_zone: Zone = "UTC"


When: TypeAlias = CronTimes | EveryInterval | OneTime


def check_when(when: When, *, is_admin: bool) -> None:
    """Refuse times that cannot be read, or that come too often."""
    if isinstance(when, EveryInterval):
        if when.seconds < SHORTEST and not is_admin:
            raise BadTime(f"A schedule runs every {SHORTEST} seconds at most.", param="when.seconds")
        return
    zone_of(when.time_zone)
    if isinstance(when, OneTime):
        _instant(when)
        return
    next(_cron_times(when, 0.0), None)


def load_times(when: When) -> None:
    """Load what the times of a plan need: its zone, and the library of expressions. Blocks on the disk."""
    if not isinstance(when, EveryInterval):
        importlib.import_module("cronsim")
        zone_of(when.time_zone)


@lru_cache(1000)
def zone_of(name: str) -> ZoneInfo:
    """Return a time zone by its IANA name. Blocks on the disk the first time."""
    zoneinfo = importlib.import_module("zoneinfo")  # loaded by the first schedule
    try:
        zone: ZoneInfo = zoneinfo.ZoneInfo(name)
        return zone
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        message = f"There is no time zone {name[:64]!r}. Use a name such as Europe/Berlin, or UTC."
        raise BadTime(message, param="when.time_zone") from None


def _instant(when: OneTime) -> float:
    """Return the time of a plan for once. A local time that the clock skips is moved on by the gap."""
    try:
        at = datetime.datetime.fromisoformat(when.at)
        if at.tzinfo is None:
            at = at.replace(tzinfo=zone_of(when.time_zone))
        if (seconds := at.timestamp()) > _TOO_LATE:
            raise OverflowError
        return seconds
    except (ValueError, OverflowError):
        message = f"{when.at!r} is no date and time. Write it as 2026-12-24T18:00."
        raise BadTime(message, param="when.at") from None


def times_after(when: When, since: float, after: float) -> Iterator[float]:
    """Yield the times of a plan after a time, in order. An interval is counted from `since`."""
    if isinstance(when, CronTimes):
        yield from _cron_times(when, after)
    elif isinstance(when, OneTime):
        if (at := _instant(when)) > after:
            yield at
    else:
        number = max(0, int((after - since) // when.seconds)) + 1
        while True:
            if (at := since + number * when.seconds) > after:
                yield at
            number += 1


def time_after(when: When, since: float, after: float) -> float | None:
    """Return the first time of a plan after a time; None if there is none."""
    return next(times_after(when, since, after), None)


def due_times(when: When, since: float, after: float, now: float) -> list[float]:
    """Return the times after one time up to another. If they are very many, the first and those of the last day."""
    first = list(islice(_until(when, since, after, now), MOST_LATE))
    if len(first) < MOST_LATE:
        return first
    last = _until(when, since, max(first[-1], now - _DAY), now)
    return [*first, *islice(last, 2 * MOST_LATE)]


def _until(when: When, since: float, after: float, now: float) -> Iterator[float]:
    for at in times_after(when, since, after):
        if at > now:
            return
        yield at


def _cron_times(when: CronTimes, after: float) -> Iterator[float]:
    """Yield the times of an expression. Each is later than the one before: two that a gap moves together are one."""
    cronsim = importlib.import_module("cronsim")  # loaded by the first schedule
    if len(when.expression.split()) != 5:
        message = "A cron expression has five fields: minute, hour, day of month, month, day of week."
        raise BadTime(message, param="when.expression")
    local = datetime.datetime.fromtimestamp(after, zone_of(when.time_zone))
    try:
        times = cronsim.CronSim(when.expression, local)
    except cronsim.CronSimError as error:
        raise BadTime(_explained(when.expression, str(error)), param="when.expression") from None
    for at in times:
        if (seconds := at.timestamp()) > after:
            yield seconds
            after = seconds


def _explained(expression: str, error: str) -> str:
    field = error.removeprefix("Bad ")
    if field not in _FIELDS:
        return f"{expression!r} is no cron expression: {error}."
    place = list(_FIELDS).index(field)
    name = field.replace("-", " ")
    wrong = expression.split()[place]
    return f"{wrong!r} is wrong for the {name}, field {place + 1} of {expression!r}. It has {_FIELDS[field]}."
