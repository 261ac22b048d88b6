"""A schedule as it is stored: what is asked, where, when, and what became of its occurrences. Pure.

An occurrence is decided first: it is stored as `begun` with the id of its chat, and the schedule never comes back to
its time. Then its run is started under a key that is made of the schedule and the time. Then the result is stored. So
after a crash at any step the same run is found, or started, once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from ....errors import AccessEnded, BadRequest
from ....events import ErrorInfo
from ....store import Idempotency
from ....wires import native
from ...kit.request import check_name
from .times import MOST_LATE, OneTime, When, due_times, time_after

NOT_LATE = 300.0
"""Seconds after its time for which an occurrence counts as in time. After that it was missed."""
AHEAD = 60.0
"""Seconds by which the clock may be behind the last decision before it counts as having been set back."""
MOST_MADE_UP = 24
"""Maximum number of occurrences that start at once, in time or made up. Earlier ones are left out."""
MOST_HISTORY = 100
"""Number of occurrences that a schedule remembers."""

Missed: TypeAlias = Literal["skip", "one", "all"]
"""What is done with occurrences that were missed while the server was down: none, one for all, or each of them."""
PromptOfSchedule: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=100_000)]


class ScheduledAsk(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a schedule or a trigger asks, and where."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    prompt: PromptOfSchedule
    model: str | None = None
    """A model or an agent. None for the default one, or that of the chat."""
    kind: Literal["chat", "agent"] = "chat"
    preset: str | None = None
    """The id or name of a preset, which sets up each new chat."""
    session: str | None = None
    """The id of the chat that all runs are in. None for a new chat each time."""

    def check(self) -> None:
        """Refuse what no type can describe."""
        if check_name(self.name, "name") != self.name.strip():
            raise BadRequest("A name has no space at its ends.", param="name")
        if not self.prompt.strip():
            raise BadRequest("The prompt is empty.", param="prompt")
        if self.preset and self.session:
            message = "A preset sets up a new chat. Leave out `session`, or name a model instead of the preset."
            raise BadRequest(message, param="preset")


class Plan(ScheduledAsk, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule as a client writes it."""

    when: When
    missed: Missed = "one"


class Occurrence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One occurrence of a schedule: its time, its run, and why there is none."""

    at: float
    """Its time by the plan; of one that was asked for, the time of the request."""
    how: Literal["planned", "missed", "asked"] = "planned"
    state: Literal["begun", "started", "refused", "skipped"] = "begun"
    decided_at: float
    key: str
    """What its run is found by, together with the id of the schedule."""
    session_id: str = ""
    """The new chat of the run. It is chosen before the run starts, so that a second try finds it."""
    run_id: str = ""
    error: ErrorInfo | None = None
    """Why it was refused."""
    why: str = ""
    """Why it was skipped."""
    others: int = 0
    """How many earlier occurrences were missed and are left out."""
    first_missed: float | None = None
    by_key: str = ""
    """The API key that has asked for it; empty for that of the schedule."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule with its state."""

    plan: Plan
    key: str = ""
    """The id of the API key that has made or changed it last: it ends with the key. Empty for a person."""
    since: float
    """What an interval is counted from: when the times were set."""
    cursor: float
    """The time up to which all occurrences are decided."""
    is_paused: bool = False
    turn: int = 0
    """How often a node has taken it up. What an earlier one could not start says nothing any more."""
    history: list[Occurrence] = []
    """The last occurrences, the oldest first."""

    def next_at(self) -> float | None:
        """Return the time of the next occurrence; None if there is none, or if it is paused."""
        return None if self.is_paused else time_after(self.plan.when, self.since, self.cursor)

    def begun(self) -> list[Occurrence]:
        """Return the occurrences that are decided and have no result yet."""
        return [each for each in self.history if each.state == "begun"]

    def with_one(self, one: Occurrence) -> Schedule:
        """Return it with one more occurrence. Those without a result are never forgotten."""
        kept = [*self.history, one]
        too_many = len(kept) - MOST_HISTORY
        old = [each for each in kept[: max(0, too_many)] if each.state == "begun"]
        return replace(self, history=[*old, *kept[max(0, too_many) :]])

    def with_result(self, result: Occurrence, turn: int) -> Schedule:
        """Return it with the result of an occurrence. A run always counts; that there is none only in the same turn.

        It is paused if whoever it belongs to has lost all access: each later time would be refused too.
        """
        is_run = result.state == "started"
        is_ended = result.how != "asked" and result.error is not None and result.error.code == AccessEnded.code
        return replace(
            self,
            is_paused=self.is_paused or (is_ended and turn == self.turn),
            history=[
                result if each.key == result.key and (is_run or (each.state == "begun" and turn == self.turn)) else each
                for each in self.history
            ],
        )


def is_open(schedule: Schedule) -> bool:
    """Return whether a node has to work on a schedule. It does not read its times, which may not be loaded yet."""
    if schedule.begun() or schedule.is_paused:
        return bool(schedule.begun())
    is_decided = any(each.how != "asked" and each.decided_at >= schedule.since for each in schedule.history)
    return not (isinstance(schedule.plan.when, OneTime) and is_decided)


def run_key(owner: str, id: str, key: str) -> Idempotency:
    """Return the idempotency key of a run. Its line break keeps it apart from the keys of clients."""
    return Idempotency(owner, f"schedule\n{id}:{key}", "")


def decided(schedule: Schedule, now: float, new_session: Callable[[], str]) -> Schedule:
    """Return a schedule in which all that is due by now is decided. The same object if nothing is."""
    if schedule.is_paused:
        return schedule
    if (
        schedule.cursor > now + AHEAD
    ):  # the clock was set back: what has a run already is known by its time, and its key
        return replace(schedule, cursor=now)
    known = {each.at for each in schedule.history if each.how != "asked"}
    times = due_times(schedule.plan.when, schedule.since, schedule.cursor, now)
    if not times:
        return schedule
    left = [at for at in times if at not in known]
    after = replace(schedule, cursor=times[-1])
    for one in _occurrences(schedule.plan, left, now, new_session):
        after = after.with_one(one)
    return after


def _occurrences(plan: Plan, times: Sequence[float], now: float, new_session: Callable[[], str]) -> list[Occurrence]:
    """Return what is made of the times that are due: a run each, one for all, or none."""
    in_time = [at for at in times if now - at <= NOT_LATE][-MOST_MADE_UP:]
    missed = list(times[: len(times) - len(in_time)])
    if plan.missed == "all":
        made_up = missed[max(0, len(missed) + len(in_time) - MOST_MADE_UP) :]
    else:
        made_up = missed[-1:] if plan.missed == "one" and not in_time else []
    left_out = missed[: len(missed) - len(made_up)]
    runs = [*made_up, *in_time]
    if not runs:
        return [_skipped(left_out, now)] if left_out else []
    made = [
        Occurrence(
            at=at,
            how="missed" if at in made_up else "planned",
            decided_at=now,
            key=key_of_time(at),
            session_id="" if plan.session else new_session(),
        )
        for at in runs
    ]
    if left_out:
        made[0] = replace(made[0], others=len(left_out), first_missed=left_out[0])
    return made


def _skipped(left_out: Sequence[float], now: float) -> Occurrence:
    return Occurrence(
        at=left_out[-1],
        how="missed",
        state="skipped",
        decided_at=now,
        key=key_of_time(left_out[-1]),
        why="The server was down, and the schedule skips what it has missed.",
        others=len(left_out) - 1,
        first_missed=left_out[0] if len(left_out) > 1 else None,
    )


def key_of_time(at: float) -> str:
    """Return the key of an occurrence of the plan: its time."""
    return native.moment(at)


def notice_of_occurrence(name: str, one: Occurrence) -> str:
    """Return what the answer of a late run says; empty for one in time."""
    told = []
    if one.how == "missed":
        told.append(f"The schedule {name!r} missed {native.moment(one.at)}: this run is late.")
    if one.others:
        more = " or more" if one.others >= MOST_LATE else ""
        times = "1 earlier time was" if one.others == 1 else f"{one.others}{more} earlier times were"
        since = "" if one.first_missed is None else f", since {native.moment(one.first_missed)},"
        told.append(f"{times} missed{since} and left out.")
    return " ".join(told)
