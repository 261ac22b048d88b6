"""What a seed draws: sessions, sources, clients and faults. Only data; world.py plays it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import islice
from random import Random
from typing import Any

from holdfast.events import Finish, Notice, Reasoning, Text, ToolCall, Usage
from holdfast.runs.run import Limits
from holdfast.server.features.schedules.model import Missed
from holdfast.server.features.schedules.times import EveryInterval, When

LEASE = 6.0
GRACE = 1.0

AT_ONCE = -1.0
"""A pause that is none: not even a turn of the loop."""

# Few different times, so that many things happen at the same instant, where races are.
_MOMENTS = (0.0, 0.0, 0.0, 0.01, 0.05, 0.1, 0.1, 0.2, 0.5, 1.0, 2.0)
_RHYTHMS = ((AT_ONCE,), (0.0,), (0.0, 0.01), (0.05,), (0.1,), (AT_ONCE, 0.1), (AT_ONCE, 0.0, 0.05, 0.5), (0.0, 1.0))


@dataclass(slots=True)
class SourcePlan:
    """What a source yields, how it ends, and how it takes being cancelled."""

    items: list[tuple[float, Any]]
    """A pause, and what is yielded after it."""
    end: str = "finish"
    on_cancel: str = "polite"
    cleanup: str = "none"
    shape: str = "generator"
    close: str = "plain"
    """How `aclose()` of an iterator behaves that is no generator."""


@dataclass(slots=True)
class StoryPlan:
    """What a model would write, and how its calls end: the first, the second, and so on. The rest write to the end."""

    text: str
    model: str
    on_break: str
    piece: int
    """Characters that come together."""
    pace: float
    breaks: list[tuple[int, str]]
    """After how many characters of its own a call ends, and how."""
    goes_on: str = "well"
    """What a model does that is told to go on: goes on, begins anew, writes something else."""
    is_kept: bool = True
    """An upstream that keeps answers still has this one after a crash."""


@dataclass(slots=True)
class ToolPlan:
    """A call of an agent: whether it may be made again, and how long it takes before and after its effect."""

    kind: str
    before: float
    after: float


@dataclass(slots=True)
class SchedulePlan:
    """A person sets up a schedule."""

    at: float
    when: When
    missed: Missed


@dataclass(slots=True)
class ReaderPlan:
    """A person reads a session on some devices: when each of them notes what it has seen, and how far it lags."""

    session: int
    devices: list[list[tuple[float, int]]]


@dataclass(slots=True)
class Cut:
    """The task of a request is cancelled: some turns of the loop, or some time, after it was started."""

    turns: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class ViewPlan:
    """A subscriber: when it joins, how fast it reads, and how often it leaves and comes back."""

    joins: float
    pace: float
    visits: list[int]
    """How many events it reads before it leaves; after the last visit it stays to the end."""
    away: float
    gives_up: bool = False
    """It does not come back after its last visit."""


@dataclass(slots=True)
class StopPlan:
    """Someone presses Stop, once or several times."""

    at: float
    how: str = "run"
    times: int = 1
    cut: Cut | None = None


@dataclass(slots=True)
class SendPlan:
    """A client starts a run."""

    at: float
    session: int | None
    kept: bool
    lifetime: str
    if_busy: str
    source: SourcePlan
    given: bool
    """The caller passes the source itself, instead of letting the engine make it."""
    hook: str = "none"
    again: str = "no"
    """Whether another process can go on with it."""
    repeats: list[float] = field(default_factory=list)
    """The same request again, with the same idempotency key, so many seconds later."""
    waits: bool = False
    leaves: float | None = None
    cut: Cut | None = None
    views: list[ViewPlan] = field(default_factory=list)
    stops: list[StopPlan] = field(default_factory=list)
    story: StoryPlan | None = None
    """A model answers, in legs."""
    tools: list[ToolPlan] = field(default_factory=list)
    """An agent calls these, and answers."""


@dataclass(slots=True)
class Weather:
    """How the store behaves while the faults last."""

    delays: tuple[float, ...] = (AT_ONCE,)
    fails_before: float = 0.0
    fails_after: float = 0.0
    outages: list[tuple[float, float]] = field(default_factory=list)
    loses_hints: float = 0.0
    partitions: list[tuple[int, float, float]] = field(default_factory=list)
    """The number of a server that the store cannot be reached from, and from when to when."""


@dataclass(slots=True)
class Trouble:
    """Something that happens to the server itself."""

    at: float
    kind: str
    lasts: float = 0.0
    drain: float = 0.0
    by_steps: int = 0
    """A crash after so many more steps of the loop, rather than at a time."""
    at_renewal: bool = False
    """The clock jumps right after the next renewal of a lease."""


@dataclass(slots=True)
class Scenario:
    """One schedule's cast and its misfortunes."""

    sessions: int
    sends: list[SendPlan]
    limits: Limits
    weather: Weather
    troubles: list[Trouble]
    session_stops: list[tuple[float, int, Cut | None]]
    deletes: list[tuple[float, int]]
    feeds: list[tuple[float, int]]
    """Someone watches a session, from when on."""
    disorder: float
    nodes: int = 1
    """Servers on the store from the beginning."""
    schedules: list[SchedulePlan] = field(default_factory=list)
    readers: list[ReaderPlan] = field(default_factory=list)
    devices: int = 0
    """Browsers of a person who is told how runs end."""
    begins: float = 1_600_000_000.0
    """The time of the store's clock at the beginning."""
    lasts: float = 0.0
    """How many seconds more than usual its troubles may take."""

    @property
    def has_services(self) -> bool:
        """Tell whether a server needs more than its engine."""
        return bool(self.schedules) or any(send.story or send.tools for send in self.sends)


def draw(rng: Random) -> Scenario:
    """Draw a scenario of one server."""
    return _Draw(rng).scenario()


def draw_nodes(rng: Random, scenario: Scenario, nodes: int | None = None) -> None:
    """Draw how many servers share the store, and what happens between them and it."""
    drawn = _Draw(rng)
    scenario.nodes = nodes or drawn.of((1, 1, 2, 2, 3, 3, 4, 5))
    weather = scenario.weather
    weather.loses_hints = drawn.of((0.0, 0.2, 0.5, 1.0))
    if scenario.nodes > 1 and drawn.chance(0.2):
        begin = drawn.moment()
        number = int(drawn.random() * scenario.nodes)
        weather.partitions.append((number, begin, begin + drawn.of((0.5, 3.0, 7.0, 9.0, 15.0))))
    if not scenario.troubles and not weather.partitions and drawn.chance(0.15):
        scenario.troubles = [Trouble(drawn.moment() + drawn.of((0.05, 0.3)), "roll back")]


def draw_services(rng: Random, scenario: Scenario) -> None:
    """Draw, for some of the schedules, models that answer in legs, agents, what starts by itself, and readers."""
    drawn = _Draw(rng)
    if not drawn.chance(0.4):
        return
    story, work, schedule, reader = drawn.add_story, drawn.add_work, drawn.add_schedule, drawn.add_reader
    for add in drawn.of(((story,), (story,), (story, reader), (work,), (work,), (schedule,))):
        add(scenario)
    if not scenario.troubles and drawn.chance(0.6):
        by_steps = drawn.of((0, 5, 20, 60))
        at = drawn.of((0.05, 0.1, 0.3, 0.6, 1.0, 2.0))
        scenario.troubles = [Trouble(at, drawn.of(("crash", "crash", "pause", "close")), 8.0, by_steps=by_steps)]


class _Draw:
    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.random = rng.random

    def of(self, choices: Any) -> Any:
        return choices[int(self.random() * len(choices))]

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def upto(self, most: int) -> int:
        return int(self.random() * (most + 1))

    def weighted(self, table: tuple[tuple[float, str], ...]) -> str:
        at = self.random()
        for weight, choice in table:
            at -= weight
            if at < 0:
                return choice
        return table[0][1]

    def scenario(self) -> Scenario:
        sessions = self.of((0, 1, 1, 1, 1, 2))
        troubles = self.troubles()
        sends = [self.send(sessions) for _ in range(self.of((1, 1, 1, 2, 2, 3, 4)))]
        if sessions and self.chance(0.12):  # three at once
            sends[0].session, sends[0].kept, at = 0, True, sends[0].at
            sends[1:] = [self.send(1, at=at) for _ in range(2)]
        return Scenario(
            sessions=sessions,
            sends=sends,
            limits=Limits(
                idle=4.0,
                deadline=self.of((None, 30.0, 30.0, 2.0)),
                grace=GRACE,
                unsaved=self.of((2, 5, 20_000, 20_000)),
                queue=self.of((1, 32, 32)),
                runs=self.of((2, 2000, 2000, 2000)),
                log=self.of((4, 200_000, 200_000, 200_000)),
                recent=self.of((5, 500_000, 500_000)),
            ),
            weather=self.weather(),
            troubles=troubles,
            session_stops=[(self.moment(), 0, self.cut(0.3)) for _ in range(sessions and self.chance(0.25))],
            deletes=[(self.moment() + 0.1, 0) for _ in range(sessions and self.chance(0.05))],
            feeds=[(self.moment(), 0) for _ in range(sessions and self.chance(0.3))],
            disorder=self.of((0.0, 0.2, 0.7)),
        )

    def moment(self) -> float:
        return self.of(_MOMENTS)

    # what servers have besides their engines

    def add_story(self, scenario: Scenario) -> None:
        """Add a model that answers."""
        scenario.sends.append(replace(self._send_of_a_model(scenario), story=self.story()))

    def add_work(self, scenario: Scenario) -> None:
        """Add an agent that calls its tools."""
        kinds = ("safe", "keyed", "never", "reconciled")
        pauses = (0.0, 0.05, 0.3, 1.0)
        tools = [ToolPlan(self.of(kinds), self.of(pauses), self.of(pauses)) for _ in range(1 + self.upto(3))]
        scenario.sends.append(replace(self._send_of_a_model(scenario), tools=tools))

    def _send_of_a_model(self, scenario: Scenario) -> SendPlan:
        """Most of them are left to come to their end."""
        send = self.send(scenario.sessions)
        send.kept, send.given, send.lifetime, send.leaves, send.hook = True, False, "detached", None, "none"
        send.stops = [stop for stop in send.stops if self.chance(0.4)]
        send.if_busy = "queue" if send.if_busy == "reject" else send.if_busy
        return send

    def add_schedule(self, scenario: Scenario) -> None:
        """Add a schedule."""
        scenario.schedules.append(
            SchedulePlan(self.moment(), EveryInterval(self.of((1, 2, 3, 7))), self.of(("all", "all", "one", "skip")))
        )

    def add_reader(self, scenario: Scenario) -> None:
        """Add a person with one or more devices."""
        if scenario.sessions:
            devices = [[(self.moment(), self.upto(3)) for _ in range(6)] for _ in range(1 + self.upto(2))]
            scenario.readers.append(ReaderPlan(0, devices))

    def story(self) -> StoryPlan:
        """Draw what a model says, in words of which each is there once."""
        words = (f"{self.of(_WORDS)}{number}{self.of((' ', ' ', ' ', ', ', chr(10) * 2))}" for number in range(1000))
        text = "".join(islice(words, self.of((3, 10, 30)))).strip()
        breaks = [(self.upto(len(text)), self.of(_BREAKS)) for _ in range(self.of((0, 1, 1, 2, 2, 3, 4)))]
        model = self.of(("turns/m", "turns/m", "fills/m", "keeps/m"))
        return StoryPlan(
            text=text,
            model=model,
            on_break=self.of(("continue", "continue", "continue", "continue", "settle")),
            piece=self.of((1, 3, 7, 40)),
            pace=self.of((AT_ONCE, 0.0, 0.05, 0.1)),
            breaks=breaks,
            goes_on="well" if model == "fills/m" else self.of(("well", "well", "well", "well", "anew", "otherwise")),
            is_kept=self.chance(0.7),
        )

    # clients

    def send(self, sessions: int, at: float | None = None) -> SendPlan:
        session = int(self.random() * sessions) if sessions and self.chance(0.8) else None
        kept = session is not None or self.chance(0.6)
        attached = self.chance(0.35)
        return SendPlan(
            at=self.moment() if at is None else at,
            session=session,
            kept=kept,
            lifetime="attached" if attached else "detached",
            if_busy=self.of(("reject", "queue", "queue", "interrupt")),
            source=self.source(),
            given=not kept or self.chance(0.4),
            hook=self.of(("none", "plain", "plain", "awaits", "raises")),
            again=self.of(("no", "no", "yes", "yes", "slowly", "never", "is lost", "raises"))
            if kept and not attached
            else "no",
            repeats=[self.moment() for _ in range(self.of((1, 2)))] if kept and self.chance(0.15) else [],
            waits=self.chance(0.3),
            leaves=self.moment() if attached and self.chance(0.6) else None,
            cut=self.cut(0.1),
            views=[self.view() for _ in range(self.of((0, 1, 1, 2, 4)))],
            stops=[self.stop() for _ in range(self.of((0, 0, 0, 1, 1, 2)))],
        )

    def cut(self, probability: float) -> Cut | None:
        if not self.chance(probability):
            return None
        return Cut(turns=self.upto(12)) if self.chance(0.6) else Cut(seconds=self.moment())

    def view(self) -> ViewPlan:
        return ViewPlan(
            joins=self.moment(),
            pace=self.of((AT_ONCE, AT_ONCE, 0.0, 0.05, 0.3)),
            visits=[1 + self.upto(4) for _ in range(self.of((0, 0, 1, 1, 2, 3)))],
            away=self.of((0.0, 0.05, 0.5)),
            gives_up=self.chance(0.05),
        )

    def stop(self) -> StopPlan:
        return StopPlan(
            at=self.moment(),
            how=self.of(("run", "run", "open")),
            times=self.of((1, 1, 2, 3)),
            cut=self.cut(0.25),
        )

    # sources

    def source(self) -> SourcePlan:
        rhythm = self.of(_RHYTHMS)
        items = [(self.of(rhythm), self.item(number)) for number in range(self.of((0, 1, 2, 3, 4, 5, 8, 12)))]
        return SourcePlan(
            items=items,
            end=self.weighted(_ENDS),
            on_cancel=self.weighted(_ON_CANCEL),
            cleanup=self.weighted(_CLEANUPS),
            shape=self.weighted(_SHAPES),
            close=self.weighted(_CLOSES),
        )

    def item(self, number: int) -> Any:
        kind = self.random()
        if kind < 0.62:
            return f"{number} "
        if kind < 0.70:
            return Text(f"{number}. ")
        if kind < 0.80:
            return [f"{number}a ", Reasoning("hm "), f"{number}b "][: 1 + self.upto(2)]
        if kind < 0.88:
            return Reasoning(f"thought {number} ")
        return self.of((
            "", [], Usage(3, number), Usage(7, 0, "estimated"), Text("other choice", choice=1),
            Notice("retry", "again"), ToolCall(f"call_{number}", "look", "{}"), Finish("stop", choice=1),
            Finish("stop"), Finish("stop"), Finish("length"),
        ))  # fmt: skip

    # misfortunes

    def weather(self) -> Weather:
        kind = self.random()
        if kind < 0.35:
            return Weather(self.of(((AT_ONCE,), (AT_ONCE, 0.0), (0.0, 0.01))))
        weather = Weather(self.of(((0.0, 0.01), (AT_ONCE, 0.0, 0.01, 0.1), (0.0, 0.05, 0.5), (0.1, 1.5))))
        if kind < 0.75:
            weather.fails_before = self.of((0.0, 0.05, 0.2))
            weather.fails_after = self.of((0.03, 0.1, 0.3))
        if kind > 0.65:
            begin = self.moment()
            weather.outages.append((begin, begin + self.of((0.1, 1.0, 4.0, 15.0))))
        return weather

    def troubles(self) -> list[Trouble]:
        kind = self.random()
        at = self.moment() + self.of((0.0, 0.05, 0.3))
        if kind < 0.45:
            return []
        if kind < 0.65:
            by_steps = self.upto(150) if self.chance(0.5) else 0
            crashes = [Trouble(at, "crash", self.of((0.0, 0.1, 2.0, 8.0)), by_steps=by_steps)]
            if self.chance(0.25):
                crashes.append(Trouble(self.moment(), "crash", 0.1, by_steps=self.upto(60)))
            return crashes
        if kind < 0.80:
            return [Trouble(at, "pause", self.of((0.5, 3.0, 6.5, 7.0, 7.5, 10.0, 20.0)))]
        if kind < 0.92:
            return [Trouble(at, "close", self.of((0.0, 1.0)), drain=self.of((0.0, 0.0, 0.5, 3.0)))]
        seconds = self.of((-3600.0, -5.0, 5.0, 10.0, 3600.0))
        return [Trouble(at, "jump", seconds, at_renewal=self.chance(0.5))]


_WORDS = ("tide", "keeper", "lamp", "é", "hour", "\U0001f30a", "a", "harbour")
_BREAKS = ("is cut", "is cut", "is cut", "says failed", "falls silent", "is refused", "in a call", "length")

_ENDS = (
    (0.30, "finish"),  # says that it is done, and ends
    (0.18, "returns"),
    (0.06, "length"),
    (0.05, "says failed"),
    (0.11, "raises"),
    (0.04, "raises known"),
    (0.01, "cancels itself"),
    (0.12, "hangs"),
    (0.03, "finish, then hangs"),
    (0.03, "finish, then raises"),
    (0.02, "finish, then says failed"),
    (0.02, "says failed, then finish"),
    (0.02, "yields nonsense"),
    (0.01, "yields nonsense after finish"),
)
_AGAIN = ("no", "no", "yes", "yes", "slowly", "never", "is lost", "raises")
_ON_CANCEL = (
    (0.66, "polite"),
    (0.08, "goes on"),  # swallows the cancel and keeps yielding
    (0.08, "last words"),  # swallows it, yields text together with a Finish, and ends
    (0.04, "says finish"),
    (0.06, "returns"),
    (0.08, "never ends"),
)
_CLEANUPS = (
    (0.60, "none"),
    (0.12, "yields a turn"),
    (0.08, "takes 0.3 s"),
    (0.06, "takes 3 s"),
    (0.09, "raises"),
    (0.05, "waits, then raises"),
)
_SHAPES = ((0.74, "generator"), (0.20, "iterator"), (0.04, "iterator without aclose"), (0.02, "cannot be made"))
_CLOSES = ((0.70, "plain"), (0.12, "takes 0.3 s"), (0.12, "raises"), (0.06, "hangs"))
