"""Known mistakes in what answers in legs, calls tools, starts by itself and is read, each of which must be caught."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace as replace_plan
from functools import partial
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from holdfast.engine.core import Core
from holdfast.errors import ProviderError, SourceStalled
from holdfast.events import Source, Yielded
from holdfast.log.log import Log
from holdfast.runs.run import Run
from holdfast.server.features.notifications.deliveries import Deliveries, Delivery
from holdfast.server.features.notifications.news import Target
from holdfast.server.features.notifications.push import PersonsBrowsers
from holdfast.server.features.schedules.model import Schedule
from holdfast.server.features.schedules.schedules import Schedules
from holdfast.server.features.schedules.times import EveryInterval
from holdfast.server.features.schedules.unattended import StartsRuns, UnattendedRun
from holdfast.server.sources.agents import AgentSources
from holdfast.server.sources.breaks.legs import LegOutlet, Legs
from holdfast.server.sources.breaks.seam import PrefillJoint, TurnJoint
from holdfast.server.sources.chat import ChatSources
from holdfast.store import RunRecord, Store
from holdfast.store.documents import Stored
from holdfast.store.rows import Querying
from holdfast.store.rows.transactions import Writing
from holdfast.upstreams import ChatRequest, FoundModel

from .bad_designs import BANK, bad
from .scenario import ReaderPlan, Scenario, SchedulePlan, SendPlan, StoryPlan, ToolPlan, Trouble, Weather

__all__ = ["BANK"]


# scenes


def alone(scenario: Scenario) -> SendPlan:
    """One run that is kept, on two servers, and nothing happens."""
    plain = replace_plan(
        scenario.sends[0],
        at=0.0,
        session=None,
        kept=True,
        lifetime="detached",
        given=False,
        hook="none",
        repeats=[],
        leaves=None,
        cut=None,
        stops=[],
    )
    scenario.sends, scenario.nodes = [plain], 2
    scenario.limits = replace(scenario.limits, idle=20.0, deadline=None)
    scenario.weather, scenario.session_stops, scenario.deletes, scenario.troubles = Weather(), [], [], []
    scenario.schedules, scenario.readers, scenario.devices = [], [], 0
    return plain


def _story(scenario: Scenario, **fields: Any) -> StoryPlan:
    text = " ".join(f"word{number}" for number in range(30))
    usual: dict[str, Any] = {"model": "turns/m", "piece": 5, "pace": 0.05, "breaks": [(60, "is cut")]}
    story = StoryPlan(text=text, on_break="continue", **{**usual, **fields})
    alone(scenario).story = story
    return story


def _breaks_off(scenario: Scenario) -> None:
    """An answer breaks off once."""
    _story(scenario)


def _breaks_off_behind_a_space(scenario: Scenario) -> None:
    """The words of an answer come one by one, and its model writes on behind its own message."""
    _story(scenario, model="fills/m", piece=1, breaks=[(place, "is cut") for place in (4, 50)])


def _breaks_off_for_good(scenario: Scenario) -> None:
    """Each call of an answer breaks off."""
    _story(scenario, breaks=[(place, "is cut") for place in (20, 90, 70, 60)])


def _breaks_off_behind_a_call(scenario: Scenario) -> None:
    """An answer ends within a tool call."""
    _story(scenario, breaks=[(60, "in a call")])


def _server_dies(scenario: Scenario) -> None:
    """The server of an answer dies in the middle of it."""
    _story(scenario, breaks=[])
    scenario.troubles = [Trouble(1.0, "crash", 0.1)]


def _server_dies_at_work(scenario: Scenario) -> None:
    """The servers die while an agent's tools are at work, behind their effects."""
    alone(scenario).tools = [ToolPlan(kind, 0.1, 3.0) for kind in ("never", "keyed")]
    scenario.nodes, scenario.troubles = 1, [Trouble(1.0, "crash", 0.1)]


def _clockwork(scenario: Scenario) -> None:
    """A schedule of every second, whose server dies while it starts a run."""
    alone(scenario)
    scenario.schedules = [SchedulePlan(0.0, EveryInterval(1), "all")]
    scenario.weather = Weather(delays=(0.05,))
    scenario.troubles = [Trouble(2.0 + number, "crash", 0.1, by_steps=10 + 7 * number) for number in range(3)]


def _two_devices(scenario: Scenario) -> None:
    """Two devices show a session, one of them behind the other."""
    plain = alone(scenario)
    scenario.sessions, plain.session = 1, 0
    scenario.readers = [ReaderPlan(0, [[(0.2, 0), (0.5, 0), (0.5, 0)], [(0.4, 3), (0.5, 3), (0.5, 3)]])]


def two_browsers(scenario: Scenario) -> None:
    """A person is told in two browsers how an answer ends."""
    _story(scenario, breaks=[])
    scenario.sessions, scenario.sends[0].session, scenario.devices = 1, 0, 2


# legs


class _TrimmedJoint(PrefillJoint):
    def feed(self, piece: str) -> str:
        return super().feed(piece).lstrip()


class _TrimmedOutlet(LegOutlet):
    joints: ClassVar[Any] = {"prefill": _TrimmedJoint, "turn": TurnJoint}


@bad(
    "leg-trims-its-beginning",
    "a continuation is stripped, and the words before and behind the seam become one",
    "`text.strip()` on every answer",
    expects="it lacks words",
    stage=_breaks_off_behind_a_space,
)
class _TrimsItsBeginning(Legs):
    outlet = _TrimmedOutlet


class _OpenJoint(TurnJoint):
    def feed(self, piece: str) -> str:
        return piece

    def end(self) -> str:
        return ""


class _OpenOutlet(LegOutlet):
    joints: ClassVar[Any] = {"prefill": _OpenJoint, "turn": _OpenJoint}


@bad(
    "leg-repeats-the-anchor",
    "what a model repeats of the text before it is shown again",
    "a gateway that appends the answer to 'continue'",
    expects="it says words twice",
    stage=_breaks_off,
)
class _RepeatsTheAnchor(Legs):
    outlet = _OpenOutlet


@bad(
    "leg-begins-anew-after-a-crash",
    "whoever takes a run over asks its model from the beginning, behind the text that was shown",
    "a job queue that runs an interrupted job again",
    expects="it says words twice",
    stage=_server_dies,
)
class _BeginsAnew(ChatSources):
    async def again(self, record: RunRecord, log: Log) -> Source | None:
        return partial(self.answer, record, record.model)


@bad(
    "broken-leg-completes",
    "an answer whose last leg broke off is called completed: there is text, after all",
    "LiteLLM: a cut stream ends as `stop`",
    expects="it is called completed",
    stage=_breaks_off_for_good,
)
class _CompletesBrokenLegs(Legs):
    async def begin(self, found: FoundModel, request: ChatRequest) -> None:
        with suppress(ProviderError, SourceStalled):
            await super().begin(found, request)


class _DeafOutlet(LegOutlet):
    def emit(self, events: Sequence[Yielded]) -> bool:
        has_room = super().emit(events)
        self.has_called = False
        return has_room


@bad(
    "leg-behind-a-call",
    "an answer that broke off within a tool call is gone on with, and the half call stays in it",
    "a retry that looks at the text only",
    expects="a leg goes on behind a tool call",
    stage=_breaks_off_behind_a_call,
)
class _GoesOnBehindACall(Legs):
    outlet = _DeafOutlet


@bad(
    "leg-is-not-counted",
    "an answer that always breaks off is asked for again and again",
    "retries without a limit",
    expects="its legs are",
    stage=_breaks_off_for_good,
)
class _CountsNoLegs(Legs):
    def __init__(self, *args: Any, most: int, **others: Any) -> None:
        super().__init__(*args, most=1_000, **others)


# effects


@bad(
    "call-made-again-blindly",
    "after a crash every call without a result is made again, whatever its tool says",
    "activities that run at least once",
    expects="the effect of a call that is never happened",
    stage=_server_dies_at_work,
    replay={"never": "safe"},
)
class _CallsAgain(AgentSources):
    pass


@bad(
    "effect-id-of-the-try",
    "a call that is made again has another effect id, by which no service can tell that it is the same one",
    "an idempotency key that is made for each request",
    expects="the effect of a keyed call happened twice, under 2 ids",
    stage=_server_dies_at_work,
)
class _IdOfTheTry(AgentSources):
    async def again(self, record: RunRecord, log: Log) -> Source | None:
        if log.steps is not None:
            for call in log.steps.current.unanswered:
                log.steps.progress(call.id).started = None
        return await super().again(record, log)


# schedules


class _EachTryAnew:
    """Starts a run under a key that is made for the try."""

    def __init__(self, starts: StartsRuns, node: str) -> None:
        self.starts, self.node, self.tries = starts, node, 0

    async def start(self, order: UnattendedRun) -> Run:
        self.tries += 1
        key = msgspec.structs.replace(order.key, key=f"{order.key.key} {self.node} {self.tries}")
        return await self.starts.start(replace(order, key=key))


@bad(
    "occurrence-keyed-by-the-try",
    "an occurrence whose first try was not heard of runs again, since each try has a key of its own",
    "a cron job in every replica",
    expects="the occurrence .* ran 2 times",
    stage=_clockwork,
)
class _KeyedByTheTry(Schedules):
    def __init__(self, store: Store, engine: Core, starts: StartsRuns, **others: Any) -> None:
        super().__init__(store, engine, _EachTryAnew(starts, engine.node_id), **others)


@bad(
    "occurrence-forgotten-with-its-server",
    "the schedule has moved on, and the run that was about to start dies with its server",
    "a timer that is set for the next time before this one has run",
    expects="an occurrence was lost",
    stage=_clockwork,
)
class _ForgetsWhatHadBegun(Schedules):
    async def decided(self, schedule: Schedule) -> Schedule:
        known = [each for each in schedule.history if each.state != "begun"]
        return await super().decided(msgspec.structs.replace(schedule, history=known))


# readers


@bad(
    "cursor-of-the-last-device",
    "what was written last counts: an old tab that is closed makes a session unread again",
    "`seen = :seen`",
    expects="what a reader of .* has seen",
    stage=_two_devices,
)
class _LastDeviceCounts(Writing):
    def note_reader(self, session_id: str, reader: str, seen: int, told: int) -> Querying[bool]:
        yield from self.forget_reader(reader, 500)
        return (yield from super().note_reader(session_id, reader, seen, told))


# what is told


@bad(
    "told-twice",
    "the end of a run is told by whoever sees it: the one who runs it, and the one who watches it",
    "a webhook sent from two places",
    expects="its end was told 2 times",
    stage=_breaks_off,
)
class _TellsTwice(Deliveries):
    async def deliver(self, stored: Stored[Delivery]) -> None:
        await super().deliver(stored)
        await super().deliver(stored)


@bad(
    "told-from-memory",
    "a delivery is forgotten as soon as it begins, and dies with its server",
    "a notification that is sent by a background task",
    expects="nobody was told of its end",
    stage=_server_dies,
)
class _TellsFromMemory(Deliveries):
    async def deliver(self, stored: Stored[Delivery]) -> None:
        await self.forget(stored.id)
        await super().deliver(stored)


class _Forgetful(set[tuple[str, str]]):
    def add(self, told: tuple[str, str]) -> None:
        pass


@bad(
    "pushed-twice",
    "one browser could not be reached, and the others are told again with it",
    "a retry of the whole list",
    expects="a browser was told",
    stage=two_browsers,
)
class _PushesTwice(Deliveries):
    async def target_of(self, stored: Stored[Delivery]) -> Target | None:
        target = await super().target_of(stored)
        if isinstance(target, PersonsBrowsers):
            target.told = _Forgetful()
        return target
