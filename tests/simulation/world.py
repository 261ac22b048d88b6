"""Plays a scenario: servers that crash, sleep and come back, and clients that start, watch, stop, leave and repeat."""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, ClassVar

from holdfast.access import Access
from holdfast.asks import ChatAsk, SessionAsk
from holdfast.engine.core import Core, EngineClasses
from holdfast.errors import HoldfastError, OwnerSilent, ResumeGap, RunNotFound, ShuttingDown, StoreUnavailable
from holdfast.events import AnySettlement, Event, Replay, Settled, Source
from holdfast.history import Message, Session
from holdfast.log.log import Log
from holdfast.nodes.jobs import Jobs
from holdfast.runs.run import Run
from holdfast.server.features.notifications.deliveries import Deliveries
from holdfast.server.features.schedules.schedules import Schedules
from holdfast.server.sources.agent_users import AgentUsers
from holdfast.server.sources.agents import AgentSources
from holdfast.server.sources.breaks.legs import Legs
from holdfast.server.sources.chat import ChatSources
from holdfast.server.sources.patience import Patience
from holdfast.server.starting.room import Room
from holdfast.server.starting.starting import Starting
from holdfast.store import Idempotency, RunRecord
from holdfast.store.rows.transactions import Writing
from holdfast.upstreams import Providers
from tests.support.rows import lose_events

from . import checker, sources
from .agents import NAME, Witness, WorkCheck
from .history import Ask, FeedFacts, History, RunFacts, SendFacts, SourceFacts, Stopping, ViewFacts
from .loop import PROCESS, Livelock, Process, SeededLoop, context_of
from .occurrences import Planner, Starts, check_occurrences
from .readers import Reading
from .scenario import (
    AT_ONCE,
    LEASE,
    Cut,
    Scenario,
    SendPlan,
    StopPlan,
    Trouble,
    ViewPlan,
    Weather,
    draw,
    draw_nodes,
    draw_services,
)
from .store import Connection, Medium, peek
from .stories import Model, StoryCheck
from .telling import Browsers, Pager

CALM = 40.0
"""Virtual seconds after which all faults are over..."""
EPOCH = 1_700_000_000.0
"""The wall clock's time at the beginning."""
PATIENCE = 150.0
"""...and after which whoever still waits has been forgotten."""


def _as_drawn(scenario: Scenario) -> None:
    pass


@dataclass(frozen=True)
class Design:
    """What a simulation tries: the engine and the store as they are, or with a mistake in them."""

    name: str = "holdfast"
    engine: Callable[..., Core] = Core
    store: type[Medium] = Medium
    transactions: type[Writing] = Writing
    classes: EngineClasses = field(default_factory=EngineClasses)
    """The parts of the engine, one of them with a mistake in it."""
    chats: type[ChatSources] = ChatSources
    legs: type[Legs] = Legs
    agents: type[AgentSources] = AgentSources
    replay: dict[str, Replay] = field(default_factory=dict)
    """What the settings of the agent say of its tools, in place of what the tools say."""
    schedules: type[Schedules] = Schedules
    deliveries: type[Deliveries] = Deliveries
    reason: str = ""
    origin: str = ""
    expects: str = ""
    """The broken promise that a mistake must be caught for: a regular expression for the checker's words."""
    stage: Callable[[Scenario], None] = _as_drawn
    """Makes a drawn scenario likelier to show the mistake, which may need three misfortunes at once."""


HOLDFAST = Design()
FALLBACKS = {"turns/m": "keeps/m", "fills/m": "turns/m"}


async def _accept(*asked: Any) -> None:
    """Refuse nothing."""


async def _everyone(owner: str, key: str = "") -> Access | None:
    return Access(owner, role="admin")


class Server(Process):
    """A process with an engine in it."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__()
        self.number = number
        self.context = context_of(self)
        self.pending: dict[asyncio.Future[str], asyncio.Task[Any]] = {}
        self.ready = False
        self.crashed = False
        self.slept = False
        self.closed = 0
        """It has ended in good order: of the tasks up to this number nothing may be left."""
        self.disturbed = False
        """It was killed, paused or closed: what it owned may be settled by another."""
        self.last_failed_renewal = float("-inf")
        self.starved: set[str] = set()
        """Its ids that were fenced soon after a renewal of their lease had failed on a slow store."""
        self.chats: ChatSources | None = None
        self.agents: AgentSources | None = None
        self.schedules: Schedules | None = None
        self.deliveries: Deliveries | None = None
        self.starting: Starting | None = None
        connection: Any = Connection(world, world.medium, self)
        if world.scenario.has_services:
            self._add_sources(world, connection)
        self.engine = world.design.engine(
            connection,
            sources=world.make_source,
            again=world.go_on,
            elsewhere=world.can_leave,
            limits=world.scenario.limits,
            lease=LEASE,
            serve=None if self.agents is None else self.agents.serve,
            clock=world.clock,
            new_id=world.new_id,
            classes=world.design.classes,
        )
        if self.agents is not None:
            self.agents.engine = self.engine
            self.schedules = world.design.schedules(
                connection, self.engine, Starts(world, self.engine), new_id=world.new_id
            )
            nobody: Any = None
            pushing = world.browsers.of_server(connection)
            self.deliveries = world.design.deliveries(
                connection,
                self.engine,
                [world.pager],  # type: ignore[list-item]
                pushing.persons,
                pushing,  # type: ignore[arg-type]
                nobody,
                new_id=world.new_id,
            )
            self.starting = Starting(
                connection,
                self.engine,
                Room(self.engine, [], nobody),
                find_model=nobody,
                check_agent=_accept,
                kind_of=nobody,
                payer_of=nobody,
                check_files=_accept,
                uploads=nobody,
            )
            self.starting.told = self.deliveries

    def _add_sources(self, world: World, store: Any) -> None:
        """Add what makes the sources of chats and of agents, as a server has it."""
        design, providers = world.design, Providers([Model(world, name) for name in ("turns", "fills", "keeps")])
        patience = Patience({}, world.scenario.limits.idle)
        self.chats = design.chats(store, providers, 0.0, lambda: FALLBACKS, patience_with=patience, legs=design.legs)
        users = AgentUsers({NAME: ("*",)}, _everyone)
        agents = {NAME: world.agents.agent()}
        self.agents = design.agents(agents, self.chats, store, providers, users=users)

    def cut_off(self) -> None:
        """Every connection to it is gone."""
        for reply, task in list(self.pending.items()):
            if not reply.done():
                reply.set_result("lost")
                task.cancel()


@dataclass(slots=True)
class Reply:
    """What became of a request."""

    kind: str
    value: Any = None
    error: BaseException | None = None


@dataclass(slots=True)
class Outcome:
    """One schedule, played and judged."""

    seed: int
    violations: list[str]
    digest: int
    steps: int
    lines: list[str] = field(default_factory=list)


class World:
    """One schedule."""

    def __init__(
        self, seed: int, design: Design = HOLDFAST, *, nodes: int | None = None, verbose: bool = False
    ) -> None:
        rng = Random(seed)
        self.seed = seed
        self.design = design
        self.random = rng.random
        self.scenario: Scenario = draw(rng)
        draw_nodes(Random(~seed), self.scenario, nodes)
        draw_services(Random(f"services {seed}"), self.scenario)
        self.scenario.devices = Random(f"devices {seed}").choice((0, 0, 1, 2))
        design.stage(self.scenario)
        self.weather: Weather = self.scenario.weather
        self.loop = SeededLoop(rng, self.scenario.disorder)
        self.history = History(lines=[] if verbose else None)
        self.medium = design.store(self.store_clock, design.transactions)
        self.servers: list[Server] = []
        self.agents = Witness(self)
        self.planner = Planner(self)
        self.pager = Pager(self)
        self.browsers = Browsers(self)
        self.readings = [Reading(self, plan) for plan in self.scenario.readers]
        self.over = False
        self.rolled_back = False
        self.jumps: list[float] = []
        self._offset = EPOCH
        self._jump_at_renewal = 0.0
        self._ids = 0
        self._waiting_for_server: list[asyncio.Future[None]] = []

    # what the engine is given

    def clock(self) -> float:
        """Return the wall clock's time, which may jump."""
        return self.loop.time() + self._offset

    def store_clock(self) -> float:
        """Return the time of the store's own clock, which never jumps."""
        return self.loop.time() + self.scenario.begins

    def new_id(self, prefix: str) -> str:
        """Return ids in an order that the seed decides."""
        self._ids += 1
        return f"{prefix}_{self._ids:04}"

    def make_source(self, run: Run) -> Source:
        """Make the source of a run: what the engine calls when it starts one that came without."""
        facts = self.history.runs[run.id]
        plan = facts.send.plan
        if plan.story or plan.tools:
            server = self.here()
            make = server.chats if plan.story else server.agents
            assert make is not None
            return make(run)
        return self.source_for(facts)

    def here(self) -> Server:
        """Return the server that a task belongs to."""
        server = PROCESS.get()
        assert isinstance(server, Server)
        return server

    def source_for(self, run: RunFacts) -> AsyncIterator[Any]:
        """Make a source, and begin to note what it does."""
        plan = run.send.plan.source
        if plan.shape == "cannot be made" and not run.send.plan.given:
            self.say(f"no source can be made for {run.id}")
            raise sources.Boom("no source can be made")
        facts = SourceFacts(run.id, plan, PROCESS.get())
        run.sources.append(facts)
        return sources.make(self, facts)

    async def go_on(self, record: RunRecord, log: Log) -> Source | None:
        """Make a source that goes on with a run: what the engine asks for when it finds one that was left."""
        run = self.history.runs[record.id]
        if run.send.plan.story or run.send.plan.tools:
            server = self.here()
            assert server.chats is not None
            assert server.agents is not None
            return await server.agents.again_or(server.chats.again)(record, log)
        how, logged = (
            run.send.plan.again,
            len([event for event in checker.all_of(log, 0) if not checker.is_ours(event)]),
        )
        self.say(f"can {run.id} go on? {how}")
        if how in ("slowly", "never"):
            await asyncio.sleep(0.3 if how == "slowly" else 1e6)
        if how == "raises":
            raise sources.Boom("nobody knows how to go on")
        if how == "no":
            return None
        plan = run.send.plan.source
        plan = sources.rest(plan, logged, "is lost" if how == "is lost" else plan.end)
        facts = SourceFacts(run.id, plan, PROCESS.get(), after=logged)
        run.sources.append(facts)
        return sources.make(self, facts)

    async def can_leave(self, record: RunRecord, log: Log) -> bool:
        """Tell whether another server can go on with a run: what the engine asks when it closes."""
        chats, plan = self.here().chats, self.history.runs[record.id].send.plan
        if chats is not None and (plan.story or plan.tools):
            return await chats.elsewhere(record, log)
        return self.history.runs[record.id].send.plan.again in ("yes", "slowly")

    def store_is_away(self, server: Server) -> bool:
        """Tell whether the store is in one of its long absences, or cannot be reached from a server."""
        now = self.loop.time()
        away = any(begin <= now < end for begin, end in self.weather.outages)
        cut = [(begin, end) for number, begin, end in self.weather.partitions if number == server.number]
        return away or any(begin <= now < end for begin, end in cut)

    def is_cut(self, server: Any) -> bool:
        """Tell whether a server loses sight of the store in this schedule, while others may not."""
        return any(number == server.number for number, _, _ in self.scenario.weather.partitions)

    # what is noted as it happens

    def say(self, text: str) -> None:
        """Add a line to the story of a replay."""
        if self.history.lines is not None:
            process = PROCESS.get()
            who = f"server {process.number}" if isinstance(process, Server) else "world"
            self.history.lines.append(f"{self.loop.time():9.3f} {self.loop.steps:6} {who:9} {text}")

    def note_call(self, name: str, args: Any, kwargs: Any, result: Any) -> None:
        """Look at the medium right after a call took effect."""
        if self.history.lines is not None:
            self.say(f"store: {name} {_brief(args)} -> {_brief(result)}")
        if name == "claim":
            self._note_fenced()
        if name == "renew" and self._jump_at_renewal:
            self._jump(self._jump_at_renewal)
            self._jump_at_renewal = 0.0
        if name in ("create_run", "start_queued") and result is not None:
            self._note_owner(result.id)
        if name in ("create_run", "start_queued") and result is not None and result.session_id is not None:
            running = peek(self.medium.list_runs(session_id=result.session_id, status="running"))
            if len(running) > 1:
                self.history.violate(f"two runs are running in one session: {[run.id for run in running]}")

    def note_failure(self, name: str, server: Server) -> None:
        """A call to the store fails for its caller."""
        if name == "renew":
            server.last_failed_renewal = self.loop.time()

    def _note_fenced(self) -> None:
        """Find the servers that were just taken for dead, and whether a renewal of theirs had failed a moment ago."""
        is_slow, now = max(self.scenario.weather.delays) > 1.0, self.loop.time()
        for server in self.servers:
            node_id = server.engine.node_id
            fenced = self.medium.sql("SELECT 1 FROM keepers WHERE id = :id AND fenced", id=node_id)
            if fenced and is_slow and now - server.last_failed_renewal < LEASE:
                server.starved.add(node_id)

    def losses(self, server: Any) -> int:
        """Return how often a server may lose its runs: it died, slept or closed, or could not renew its lease.

        An outage of the store is no such reason. A renewal that failed on a slow store is: a lease has two tries.
        """
        return (server.disturbed or self.is_cut(server)) + len(server.starved)

    def _note_owner(self, run_id: str) -> None:
        """A server has taken on a run: it may die before a source begins."""
        server, run = PROCESS.get(), self.history.runs[run_id]
        if isinstance(server, Server) and server not in run.processes:
            run.processes.append(server)

    def note_source(self, facts: SourceFacts) -> None:
        """A source takes its first step: the one before it in the session must be over by then."""
        run = self.history.runs[facts.run_id]
        self.say(f"source of {run.id} begins")
        if isinstance(facts.process, Server) and facts.process not in run.processes:
            run.processes.append(facts.process)
        record = peek(self.medium.get_run(run.id))
        is_further = facts.after is not None and run.send.plan.story is not None and self.was_lost(facts)
        is_ours = record is None or facts.process is None or record.node_id == self.here().engine.node_id
        if not is_ours and not is_further:  # a further call of a server that has lost the run is shown to nobody
            self.history.violate(f"the source of {run.id} began in a server that does not own it")
        if run.session_id is None:
            return
        for other in self.history.runs.values():
            if other.session_id == run.session_id and other is not run:
                self._check_is_over(other, run)

    def _check_is_over(self, other: RunFacts, run: RunFacts) -> None:
        record = peek(self.medium.get_run(other.id))
        if record is not None and record.status == "running":
            self.history.violate(f"{run.id} began although {other.id} is not settled")
        for source in other.sources:
            if source.entered is not None and source.ended is None and not self.may_linger(source):
                self.history.violate(f"{run.id} began although the source of {other.id} still goes on")

    def lingers(self, source: SourceFacts) -> bool:
        """Tell whether a source takes longer to end than a stopped one may, so that it is rightly abandoned."""
        plan = source.plan
        slow = plan.cleanup == "takes 3 s" or (plan.shape == "iterator" and plan.close == "hangs")
        cannot = plan.shape == "iterator without aclose"
        return slow or cannot or (bool(source.cancels) and plan.on_cancel in ("goes on", "never ends"))

    def was_lost(self, source: SourceFacts) -> bool:
        """Tell whether a source's process may have ended, or slept, before all of its words were saved."""
        server = source.process
        assert isinstance(server, Server)
        if self.is_cut(server):
            return True
        return server.crashed or server.slept or (server.disturbed and self.store_was_away_since(0.0))

    def may_linger(self, source: SourceFacts) -> bool:
        """A source that was abandoned, or whose process died or slept, may go on without its run."""
        server = source.process
        return self.lingers(source) or (isinstance(server, Server) and (server.disturbed or self.is_cut(server)))

    def note_shown(self, view: ViewFacts, seq: int, event: Event) -> None:
        """A subscriber is shown an event: by now the store must have it."""
        view.shown.append((seq, event))
        run = self.history.runs[view.run_id]
        if self.history.lines is not None:
            self.say(f"a subscriber of {view.run_id} sees {seq} {_brief(event)}")
        if not run.kept or run.session_id in self.history.deleted:
            return
        saved = peek(self.medium.read_log(view.run_id, seq - 1, 1))
        if (not saved and not self.rolled_back) or (saved and saved[0] != event):
            what = "the settlement" if isinstance(event, Settled) else "an event"
            self.history.violate(f"{what} of {view.run_id} was shown before it was saved")

    def note_told(self, run: RunFacts, settlement: AnySettlement) -> None:
        """A caller is told how a run ended: by now the store must have it."""
        self.say(f"a caller is told how {run.id} ended: {_brief(settlement)}")
        run.told.append((self.loop.steps, settlement))
        if run.kept and run.session_id not in self.history.deleted:
            record = peek(self.medium.get_run(run.id))
            if record is None or record.settlement != settlement:
                self.history.violate(f"a caller was told a settlement of {run.id} that the store does not have")

    def ask(self, run: RunFacts, by: str) -> None:
        """Note that a run is about to be stopped."""
        self.say(f"stop of {run.id} asked by {by}")
        run.asks.append(Ask(self.loop.steps, by))

    def ask_session(self, session_id: str, by: str, asker: str = "") -> None:
        """Note that whatever runs in a session is about to be stopped."""
        self.say(f"stop of all in {session_id} asked by {by} {asker}")
        self.history.session_asks.setdefault(session_id, []).append(Ask(self.loop.steps, by, asker))

    # servers

    def start_server(self) -> Server:
        """Start a process; it serves as soon as its engine is up."""
        server = Server(self, len(self.servers))
        self.servers.append(server)
        self.loop.spawn(None, self._boot(server))
        return server

    async def _boot(self, server: Server) -> None:
        self.say(f"server {server.number} starts")
        booted = self.loop.spawn(server, server.engine.__aenter__())
        await asyncio.wait({booted})
        if booted.exception() is not None:
            self._check_is_expected("the start of a server", booted.exception())
            server.disturbed = True
            server.kill()
            await asyncio.sleep(1.0)  # whoever supervises it starts it again
            self.start_server()
            return
        server.ready = True
        for work in (server.schedules, server.deliveries):
            if work is not None:
                self.loop.spawn(server, self._take_up(work.jobs))
        for waiting in self._waiting_for_server:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting_for_server.clear()

    async def _take_up(self, jobs: Jobs[Any, Any]) -> None:
        """Take up the work that no server has, as one does after its start and from time to time."""
        with suppress(ShuttingDown, StoreUnavailable):
            await jobs.take_up_all()

    async def server(self) -> Server:
        """Return a server that accepts connections; a paused one does, too: its kernel is awake."""
        while True:
            able = [server for server in self.servers if server.ready and server.alive]
            if able:
                return able[int(self.random() * len(able))]
            waiting = self.loop.create_future()
            self._waiting_for_server.append(waiting)
            await waiting

    def crash(self, server: Server) -> None:
        """Kill a server: the store has what was committed, and nothing else is left."""
        if not server.alive:
            return
        self.say(f"server {server.number} is killed")
        server.disturbed = server.crashed = True
        server.kill()
        server.cut_off()

    async def request(
        self, work: Callable[[Core], Coroutine[Any, Any, Any]], cut: Cut | None = None, server: Server | None = None
    ) -> Reply:
        """Do work in a server, as the task of a request does, and wait for its end or that of the connection."""
        server = server or await self.server()
        reply: asyncio.Future[str] = self.loop.create_future()
        task = self.loop.spawn(server, work(server.engine))
        task.add_done_callback(lambda _: reply.done() or reply.set_result("done"))
        server.pending[reply] = task
        if cut is not None:
            self.loop.spawn(None, self._cut(task, cut))
        lost = await reply == "lost"
        del server.pending[reply]
        if lost:
            return Reply("lost")
        if task.cancelled():
            return Reply("cancelled")
        error = task.exception()
        if error is not None:
            self._check_is_expected("a request", error)
            return Reply("error", error=error)
        return Reply("ok", task.result())

    async def _cut(self, task: asyncio.Task[Any], cut: Cut) -> None:
        if cut.seconds:
            await asyncio.sleep(cut.seconds)
        for _ in range(cut.turns):
            await asyncio.sleep(0)
        if not task.done():
            self.say("a request's task is cancelled")
            task.cancel()

    def _check_is_expected(self, what: str, error: BaseException | None) -> None:
        if not isinstance(error, HoldfastError):
            self.history.violate(f"{what} got {error!r}")

    # clients

    async def send(self, send: SendFacts) -> None:
        """Start a run, and try again where that makes sense."""
        await asyncio.sleep(send.plan.at)
        attempts = [self.loop.spawn(None, self._attempt(send, after)) for after in (0.0, *send.plan.repeats)]
        for attempt in attempts:
            await attempt
        send.heard.set()

    async def _attempt(self, send: SendFacts, after: float) -> None:
        await asyncio.sleep(after)
        for _ in range(6):
            server = await self.server()
            run = self._prepare(send, server)
            reply = await self.request(partial(self._submit, run), send.plan.cut, server)
            if reply.kind == "ok":
                return
            run.unsure = True
            again = isinstance(reply.error, ShuttingDown) or (send.key is not None and reply.kind != "cancelled")
            if not again or (reply.error is not None and not isinstance(reply.error, (ShuttingDown, StoreUnavailable))):
                return
            await asyncio.sleep(0.5)

    def _prepare(self, send: SendFacts, server: Server) -> RunFacts:
        plan = send.plan
        session_id = None if plan.session is None else f"ses_{plan.session}"
        run_id = self.new_id("run")
        run = RunFacts(
            run_id,
            send,
            plan.kept,
            session_id,
            plan.lifetime,
            run_id.replace("run", "msg") if session_id else None,
            hooked=plan.hook != "none",
        )
        run.processes.append(server)
        send.runs.append(run)
        self.history.runs[run.id] = run
        return run

    async def _submit(self, facts: RunFacts, engine: Core) -> None:
        plan = facts.send.plan
        if plan.if_busy == "interrupt" and facts.session_id:
            self.ask_session(facts.session_id, "replaced", facts.id)
        self.say(f"submit {facts.id} in {facts.session_id}, if busy {plan.if_busy}, key {facts.send.key}")
        try:
            record = RunRecord(
                id=facts.id,
                owner="me",
                session_id=facts.session_id,
                message_id=facts.message_id,
                lifetime=plan.lifetime,  # type: ignore[arg-type]
                **_asked(facts),
            )
            how: dict[str, Any] = {
                "source": self.source_for(facts) if plan.given else None,
                "keep": plan.kept,
                "if_busy": plan.if_busy,
                "idempotency": Idempotency("me", facts.send.key, "digest") if facts.send.key else None,
                "interrupt": self._hook(facts),
            }
            starting = self.here().starting if plan.story else None
            facts.is_told_of = starting is not None
            start = engine.submit if starting is None else starting.start
            run = await start(record, _input(facts) if facts.session_id else (), **how)
        except asyncio.CancelledError:
            if plan.lifetime == "attached":
                self.ask(facts, "disconnect")  # its client has gone before it knew of the run
                self.history.left[facts.id] = Stopping(f"the end of {facts.id}, whose client left", self.loop.time())
            raise
        self._accepted(facts, run)
        await self._stay(self.history.runs[run.id], run, plan)

    def _accepted(self, facts: RunFacts, run: Run) -> None:
        self.say(f"{run.id} is accepted as {run.status}")
        facts.send.told.append(run.id)
        facts.send.heard.set()
        told = self.history.runs[run.id]
        told.accepted = self.loop.steps if told.accepted is None else told.accepted
        told.run = run if told.run is None or not told.kept else told.run
        gone = told.session_id in self.history.deleted
        if told.kept and not gone and peek(self.medium.get_run(run.id)) is None:
            self.history.violate(f"{run.id} was accepted, and the store does not have it")

    async def _stay(self, facts: RunFacts, run: Run, plan: SendPlan) -> None:
        """The client who started the run waits for its end, or leaves."""
        try:
            if plan.leaves is not None:
                await asyncio.sleep(plan.leaves)
            elif plan.waits:
                self.note_told(facts, await run.settled())
        finally:
            if plan.lifetime == "attached" and plan.leaves is not None:
                self.ask(facts, "disconnect")
                await self._timed(f"leave of {facts.id}", run.leave())

    def _hook(self, facts: RunFacts) -> Callable[[str], Any] | None:
        kind = facts.send.plan.hook
        if kind == "none":
            return None

        async def awaits() -> None:
            await asyncio.sleep(0.1)

        def hook(reason: str) -> Any:
            self.say(f"interrupt hook of {facts.id}: {reason}")
            facts.hooks.append(reason)
            if kind == "raises":
                raise sources.Boom("the hook is broken")
            return awaits() if kind == "awaits" else None

        return hook

    async def _found(self, send: SendFacts) -> RunFacts | None:
        """Wait for a run to be there. Its sender may have lost sight of one that others can still find."""
        await send.heard.wait()
        if send.told:
            return self.history.runs[send.told[0]]
        return next((run for run in send.runs if peek(self.medium.get_run(run.id)) is not None), None)

    async def view(self, send: SendFacts, plan: ViewPlan) -> None:
        """Subscribe to a run, leave, and come back with the cursor, until its end."""
        await asyncio.sleep(send.plan.at + plan.joins)
        run = await self._found(send)
        if run is None:
            return
        view = ViewFacts(run.id)
        run.views.append(view)
        visits = [*plan.visits] if plan.gives_up else [*plan.visits, 10_000]
        for most in visits:
            while (reply := await self.request(partial(self._watch, view, most, plan.pace))).kind != "ok":
                if view.has_seen_the_end:
                    return
                if self._is_refused(run, reply.error):
                    view.refused = str(reply.error)
                    return
                await asyncio.sleep(0.5)
            if view.has_seen_the_end:
                return
            if reply.value == "sent off":
                visits.append(10_000)
            await asyncio.sleep(plan.away if reply.value == "left" else 0.5)
        view.gave_up = True

    def _is_refused(self, run: RunFacts, error: BaseException | None) -> bool:
        """A run that nobody kept, or that was deleted with its session, may be gone, or the beginning of its log."""
        gone = not run.kept or run.session_id in self.history.deleted
        return gone and isinstance(error, (RunNotFound, ResumeGap))

    async def _watch(self, view: ViewFacts, most: int, pace: float, engine: Core) -> str:
        run = await engine.open(view.run_id)
        reader = run.read(after=view.cursor)
        try:
            async for seq, event in reader:
                self.note_shown(view, seq, event)
                most -= 1
                if most == 0 and not view.has_seen_the_end:
                    return "left"
                if pace != AT_ONCE:
                    await asyncio.sleep(pace)
        finally:
            await reader.aclose()
        return "sent off"

    async def stop(self, send: SendFacts, plan: StopPlan) -> None:
        """Press Stop, some times over."""
        await asyncio.sleep(send.plan.at + plan.at)
        run = await self._found(send)
        if run is None:
            return
        presses = [
            self.loop.spawn(None, self.request(partial(self._stop, run, plan), plan.cut if time == 0 else None))
            for time in range(plan.times)
        ]
        for press in presses:
            await press

    async def _stop(self, facts: RunFacts, plan: StopPlan, engine: Core) -> None:
        here = facts.run is not None and facts.run.engine is engine
        run = facts.run if plan.how == "run" and here else await engine.open(facts.id)
        assert run is not None
        self.ask(facts, "user")
        result = await self._timed(f"stop of {facts.id}", run.stop(by="user"))
        self.note_told(facts, result.settlement)

    async def _timed(self, what: str, work: Awaitable[Any]) -> Any:
        stopping = Stopping(what, self.loop.time())
        self.history.stoppings.append(stopping)
        try:
            result = await work
        except (asyncio.CancelledError, HoldfastError) as error:
            self.history.stoppings.remove(stopping)
            is_quick = max(self.scenario.weather.delays) < 0.5  # else 8 s are too short for some calls
            if isinstance(error, OwnerSilent) and is_quick and self._is_calm_since(stopping.began):
                self.history.violate(f"{what}: the owner of the run was not reached, and nothing was in the way")
            raise
        stopping.ended = self.loop.time()
        stopping.calm = self._is_calm_since(stopping.began)
        return result

    def _is_calm_since(self, began: float) -> bool:
        return not self.store_was_away_since(began) and not self.disturbed

    @property
    def disturbed(self) -> bool:
        """Tell whether a server was killed, paused or closed so far."""
        return any(server.disturbed for server in self.servers) or bool(self.scenario.weather.partitions)

    def store_was_away_since(self, began: float) -> bool:
        """Tell whether the store failed at all since a time."""
        return bool(self.scenario.weather.fails_before or self.scenario.weather.fails_after) or any(
            end > began for _, end in self.scenario.weather.outages
        )

    async def stop_session(self, at: float, session: int, cut: Cut | None) -> None:
        """Stop everything in a session."""
        await asyncio.sleep(at)
        session_id = f"ses_{session}"

        async def work(engine: Core) -> None:
            self.ask_session(session_id, "user")
            meant = [run.id for run in peek(self.medium.list_runs(session_id=session_id))]
            await self._timed(f"stop of {session_id}", engine.stop_session(session_id, by="user"))
            self._check_all_stopped(meant)

        await self.request(work, cut)

    async def feed(self, at: float, session: int) -> None:
        """Watch a session, for as long as there is one."""
        feed = FeedFacts(f"ses_{session}")
        self.history.feeds.append(feed)
        await asyncio.sleep(at)
        while feed.session_id not in self.history.deleted:
            await self.request(partial(self._watch_feed, feed))
            await asyncio.sleep(0.5)

    async def _watch_feed(self, feed: FeedFacts, engine: Core) -> None:
        changed = asyncio.Event()
        unwatch = engine.watch_session(feed.session_id, changed.set)
        assert engine.store is not None
        try:
            while feed.session_id not in self.history.deleted:
                changed.clear()
                entries = await engine.store.read_feed(feed.session_id, len(feed.told))
                feed.told += entries
                if not entries:
                    await changed.wait()
        finally:
            unwatch()

    def _behind(self) -> list[str]:
        """Return the sessions whose watchers have missed something, whichever server did it."""
        feeds = [feed for feed in self.history.feeds if feed.session_id not in self.history.deleted]
        return [
            feed.session_id for feed in feeds if feed.told != peek(self.medium.read_feed(feed.session_id, 0, 1_000_000))
        ]

    def _alive(self) -> list[Server]:
        return [server for server in self.servers if server.alive]

    def _check_all_stopped(self, meant: list[str]) -> None:
        """Whoever stops a session stops what waits in it, too, unless another server has it."""
        records = [peek(self.medium.get_run(run_id)) for run_id in meant]
        for record in records:
            if record is None or record.status == "settled" or self.disturbed:
                continue
            if not self.history.runs[record.id].unsure:  # one that its caller was told has not begun is settled later
                self.history.violate(f"{record.id} is {record.status} although its session was stopped")

    async def delete_session(self, at: float, session: int) -> None:
        """Delete a session, whatever goes on in it, as the server does."""
        await asyncio.sleep(at)
        session_id = f"ses_{session}"

        async def work(engine: Core) -> None:
            self.ask_session(session_id, "user")
            self.history.deleted[session_id] = self.loop.steps
            await engine.delete_session(session_id)

        for _ in range(100):
            if (await self.request(work)).kind == "ok":
                break
            await asyncio.sleep(0.5)

    # misfortunes

    async def trouble(self, trouble: Trouble) -> None:
        """Something happens to one of the servers."""
        await asyncio.sleep(trouble.at)
        server = (
            self.servers[-1 - int(self.random() * self.scenario.nodes)] if len(self.servers) > 1 else self.servers[0]
        )
        if trouble.kind == "roll back":
            self._roll_back()
        elif trouble.kind == "jump" and trouble.at_renewal:
            self._jump_at_renewal = trouble.lasts
        elif trouble.kind == "jump":
            self._jump(trouble.lasts)
        elif server.alive:
            await self._TROUBLES[trouble.kind](self, server, trouble)

    def _roll_back(self) -> None:
        """The store loses the newest events of the runs that go on, as a standby may that takes over."""
        self.rolled_back = True
        for (run_id,) in self.medium.sql("SELECT id FROM runs WHERE status = 'running' ORDER BY n"):
            if events := peek(self.medium.read_log(run_id, 0, 1_000_000)):
                left = int(self.random() * len(events))
                self.say(f"the log of {run_id} is rolled back to {left}")
                lose_events(self.medium, run_id, left)

    def _jump(self, seconds: float) -> None:
        self._offset += seconds
        self.jumps.append(seconds)
        self.say(f"the clock jumps by {seconds} s")

    async def _crash(self, server: Server, trouble: Trouble) -> None:
        if trouble.by_steps:
            self.loop.alarm = self.loop.steps + trouble.by_steps, partial(self.crash, server)
            await asyncio.sleep(3.0)
        self.crash(server)
        await asyncio.sleep(trouble.lasts)
        self.start_server()

    async def _pause(self, server: Server, trouble: Trouble) -> None:
        self.say(f"server {server.number} sleeps")
        server.disturbed = server.slept = True
        server.pause()
        await asyncio.sleep(min(trouble.lasts, 0.5))
        if self.random() < 0.8:
            self.start_server()
        if self.random() < 0.5:
            server.cut_off()
        await asyncio.sleep(trouble.lasts - min(trouble.lasts, 0.5))
        self.say(f"server {server.number} wakes")
        server.resume(self.loop)

    async def _shut_down(self, server: Server, trouble: Trouble) -> None:
        server.disturbed = True
        await self._close(server, trouble.drain)
        await asyncio.sleep(trouble.lasts)
        self.start_server()

    _TROUBLES: ClassVar = {"crash": _crash, "pause": _pause, "close": _shut_down}

    async def _close(self, server: Server, drain: float = 0.0) -> None:
        if not server.ready:
            self.crash(server)
            return
        self.say(f"server {server.number} closes")
        tasks = len(self.loop.tasks)  # requests may still come in while it closes
        for run in self.history.runs.values():
            self.ask(run, "shutdown")
        reply = await self.request(lambda engine: engine.close(drain=drain, within=5.0), None, server)
        if reply.kind == "error":
            self.history.violate(f"closing an engine raised {reply.error!r}")
        self.say(f"server {server.number} has closed")
        server.ready = False
        for _ in range(8):  # requests that wait for a settlement may hear of it before the process ends
            await asyncio.sleep(0)
        server.cut_off()
        for _ in range(8):
            await asyncio.sleep(0)
        server.closed = tasks if reply.kind == "ok" else 0
        server.kill()

    # the whole of it

    async def play(self) -> None:
        """Play the scenario to its end."""
        scenario = self.scenario
        for number in range(scenario.sessions):
            peek(self.medium.create_session(Session(id=f"ses_{number}", owner="me")))
        self.browsers.subscribe()
        for _ in range(scenario.nodes):
            self.start_server()
        work: list[Coroutine[Any, Any, Any]] = []
        for number, plan in enumerate(scenario.sends):
            send = SendFacts(number, plan, f"key_{number}" if plan.repeats else None)
            self.history.sends.append(send)
            work.append(self.send(send))
            work += [self.view(send, view) for view in plan.views]
            work += [self.stop(send, stop) for stop in plan.stops]
        work += [self.stop_session(*stop) for stop in scenario.session_stops]
        work += [self.delete_session(*delete) for delete in scenario.deletes]
        work += [self.planner.add(plan) for plan in scenario.schedules]
        work += [reading.read() for reading in self.readings]
        self.loop.call_later(CALM, self._clear_up)
        troubles = [self.loop.spawn(None, self.trouble(trouble)) for trouble in scenario.troubles]
        clients = [self.loop.spawn(None, each) for each in work]
        for feed in scenario.feeds:
            self.loop.spawn(None, self.feed(*feed))
        if any(send.tools for send in scenario.sends):
            self.loop.spawn(None, self.agents.answer_questions())
        await self._wait(troubles, "a trouble")
        await self._wait(clients, "a client")
        await self._settle_down()

    async def _wait(self, tasks: list[asyncio.Task[Any]], what: str) -> None:
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=PATIENCE + self.scenario.lasts)
            for task in late:
                self.history.violate(f"{what} waits for ever: {task.get_coro().__qualname__}")  # type: ignore[union-attr]

    async def _settle_down(self) -> None:
        """The faults are over: everything must come to its end now, and nothing may be left behind."""
        self._clear_up()
        if not any(server.alive for server in self.servers):
            self.start_server()
        await self.planner.pause_all()
        for _ in range(40):
            await asyncio.sleep(1.0)
            if self._is_quiet():
                break
        for _ in range(5):
            if not self._behind():
                break
            await asyncio.sleep(1.0)
        for session_id in self._behind():
            self.history.violate(f"who watches {session_id} is not told of everything")
        for server in self._alive():
            await self._end(server)

    def _clear_up(self) -> None:
        self.weather = Weather()

    def _is_quiet(self) -> bool:
        """Tell whether every run has ended, kept or not, and every server is up."""
        alive = self._alive()
        return (
            not self.medium.sql("SELECT 1 FROM runs WHERE status <> 'settled'")
            and self.pager.has_waited_for_all()
            and all(server.ready for server in alive)
            and not any(server.engine.held for server in alive)
        )

    async def _end(self, server: Server) -> None:
        self.check_idle(server)
        closing = self.loop.spawn(None, self._close(server))
        await asyncio.wait({closing}, timeout=PATIENCE)
        if not closing.done():
            self.history.violate("closing an engine takes for ever")

    def digest(self) -> int:
        """Return a number that two runs of the same seed share only if they were the same to the last step."""
        told = [
            (run.id, run.told, [view.shown for view in run.views])
            for run in self.history.runs.values()
            if not run.send.plan.tools  # the moments of an agent's calls are those of the real clock
        ]
        if any(send.plan.tools for send in self.history.sends):
            return zlib.crc32(repr((self.loop.trace, told)).encode())
        logs = [tuple(row) for name in ("runs", "events") for row in self.medium.sql(f"SELECT * FROM {name}")]
        return zlib.crc32(repr((self.loop.trace, told, logs)).encode())

    def check_of(self, run: RunFacts) -> type[checker.RunCheck]:
        """Return what judges a run."""
        plan = run.send.plan
        return StoryCheck if plan.story else WorkCheck if plan.tools else checker.RunCheck

    def check_idle(self, server: Server) -> None:
        """An engine with nothing to do holds on to nothing."""
        for kind, count in server.engine.held.items():
            self.history.violate(f"an idle engine holds on to something: {count} {kind}")


def simulate(
    seed: int,
    design: Design = HOLDFAST,
    *,
    nodes: int | None = None,
    verbose: bool = False,
    digest: bool = False,
) -> Outcome:
    """Play and judge one schedule, with as many servers as it draws, or with so many."""
    random.seed(seed)  # what the code that ships draws itself, such as the pauses between two tries
    world = World(seed, design, nodes=nodes, verbose=verbose)
    try:
        world.loop.run(world.play())
    except Livelock as livelock:
        world.history.violate(str(livelock))
    finally:
        world.over = True
        violations = world.history.violations + checker.check(world) + [*check_occurrences(world), *world.pager.check()]
        violations += world.browsers.check()
        violations += [wrong for reading in world.readings for wrong in reading.check()]
        world.loop.discard()  # also when a time limit ends the test: what is left open would fail another one
    return Outcome(
        seed, violations, world.digest() if digest or verbose else 0, world.loop.steps, world.history.lines or []
    )


def _input(run: RunFacts) -> list[Message]:
    return [Message(id=run.id.replace("run", "usr"), role="user", content=f"ask {run.id}")]


def _asked(run: RunFacts) -> dict[str, Any]:
    """Return what a record says of the model that is asked."""
    story, tools = run.send.plan.story, run.send.plan.tools
    if not (story or tools):
        return {}
    calls = story is not None and any(how == "in a call" for _, how in story.breaks)
    params = {"tools": [{"type": "function", "function": {"name": "look"}}]} if calls else {}
    common: dict[str, Any] = {"params": params, "on_break": story.on_break if story else None}
    messages = [{"role": "user", "content": f"ask {run.id}"}]
    ask = SessionAsk(**common) if run.session_id else ChatAsk(messages=messages, **common)
    return {"model": story.model, "ask": ask} if story else {"model": f"agent/{NAME}", "kind": "agent", "ask": ask}


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 160 else text[:157] + "..."
