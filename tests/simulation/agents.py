"""Agents whose tools have effects that an outside witness counts, and a person who is asked about them."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.access import Access
from holdfast.agents.approvals import CallEnding
from holdfast.agents.loop import Agent
from holdfast.agents.tools import Approval, ToolContext, ToolOutput
from holdfast.agents.tools.effects import Effect, NotRun
from holdfast.engine.core import Core
from holdfast.errors import HoldfastError
from holdfast.events import (
    Completed,
    Finish,
    OutcomeDecided,
    OutcomeRequested,
    Outlet,
    Replay,
    Settlement,
    Text,
    ToolCall,
    ToolResult,
    put,
)
from holdfast.upstreams import ChatRequest

from .checker import RunCheck
from .history import RunFacts
from .store import peek

if TYPE_CHECKING:
    from .world import World

ACCESS = Access("me", role="admin")
NAME = "worker"


class Happened(msgspec.Struct, frozen=True):
    """Something that a tool has done to the world."""

    run_id: str
    call: str
    effect_id: str


class Witness:
    """Sees what tools do, and is asked about it: it stands for the services behind them, which no crash stops."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.happened: list[Happened] = []
        self.decided: set[str] = set()

    def agent(self) -> Agent:
        """Return the agent of a server."""
        return Agent(
            name=NAME,
            model="turns/m",
            tools=tuple(_TOOLS[kind](self, kind) for kind in _TOOLS),
            replay=self.world.design.replay,
            on_restart="continue",
        )

    async def step(self, run: RunFacts, request: ChatRequest, out: Outlet) -> None:
        """Be the model of an agent: it calls every tool, and ends when it has their results."""
        await asyncio.sleep(0.01)
        if any(each["role"] == "tool" for each in request.messages):
            await put(out, [Text("Done."), Finish("stop")])
            return
        calls = [ToolCall(f"call_{number}", plan.kind, _arguments(run, number)) for number, plan in _calls(run)]
        await put(out, [*calls, Finish("tool_calls")])

    def has_seen(self, run_id: str, call: str, effect_id: str = "") -> bool:
        """Tell whether a call has had its effect, under an id if one is given."""
        return any(
            each.run_id == run_id and each.call == call and effect_id in ("", each.effect_id) for each in self.happened
        )

    # the person

    async def answer_questions(self) -> None:
        """Answer what agents ask, truthfully: a call that has had no effect is made again."""
        while True:
            await asyncio.sleep(0.5)
            for run in list(self.world.history.runs.values()):
                if run.send.plan.tools:
                    for question in self._questions(run):
                        await self._answer(run, question)

    def _questions(self, run: RunFacts) -> list[OutcomeRequested]:
        record = peek(self.world.medium.get_run(run.id))
        if record is None or record.status == "settled":
            return []
        log = peek(self.world.medium.read_log(run.id, 0, 1_000_000))
        told = {event.id for event in log if isinstance(event, OutcomeDecided)}
        return [event for event in log if isinstance(event, OutcomeRequested) and event.id not in told]

    async def _answer(self, run: RunFacts, question: OutcomeRequested) -> None:
        server = await self.world.server()
        decision = CallEnding("ran" if self.has_seen(run.id, question.call) else "again")
        self.world.say(f"a person says of {question.call} of {run.id}: {decision.decision}")
        assert server.agents is not None
        decide = partial(self._decide, server.agents, run.id, question.id, decision)
        await self.world.request(decide, None, server)

    async def _decide(self, agents: Any, run_id: str, request_id: str, reply: CallEnding, engine: Core) -> None:
        await agents.decide(await engine.open(run_id), ACCESS, request_id, reply)


class _Tool:
    """Has one effect, some time after the call has begun and some time before it returns."""

    description = "Does something."
    parameters: dict[str, Any] = {  # noqa: RUF012
        "type": "object",
        "properties": {"run": {"type": "string"}, "call": {"type": "integer"}},
    }
    approval: Approval = "allow"
    timeout: float | None = None
    replay: Replay = "never"

    def __init__(self, witness: Witness, name: str) -> None:
        self.witness, self.name = witness, name

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Have the effect."""
        run, number = self.witness.world.history.runs[arguments["run"]], arguments["call"]
        plan = run.send.plan.tools[number]
        await asyncio.sleep(plan.before)
        self.witness.world.say(f"call_{number} of {run.id} has its effect: {plan.kind}")
        self.witness.happened.append(Happened(run.id, f"call_{number}", context.effect_id))
        await asyncio.sleep(plan.after)
        return ToolOutput("done")


class _Safe(_Tool):
    replay = "safe"


class _Keyed(_Tool):
    replay = "keyed"


class _Reconciled(_Tool):
    async def reconcile(self, effect: Effect) -> ToolOutput | NotRun | None:
        """Ask the witness."""
        run_id, call = effect.arguments["run"], f"call_{effect.arguments['call']}"
        return ToolOutput("done before") if self.witness.has_seen(run_id, call, effect.id) else NotRun()


_TOOLS: dict[str, type[_Tool]] = {"safe": _Safe, "keyed": _Keyed, "never": _Tool, "reconciled": _Reconciled}


def _calls(run: RunFacts) -> list[tuple[int, Any]]:
    return list(enumerate(run.send.plan.tools))


def _arguments(run: RunFacts, number: int) -> str:
    return msgspec.json.encode({"run": run.id, "call": number}).decode()


class WorkCheck(RunCheck):
    """What must be true of an agent's run: its calls have their effects once, and only a whole one is completed."""

    def _check_words(self) -> None:
        text = "".join(event.text for event in self.log if isinstance(event, Text))
        if self.settlement is not None and text != self.settlement.text:
            self.violate(f"its log says {text!r}, its settlement {self.settlement.text!r}")

    def _check_truth(self, settlement: Settlement) -> None:
        results = [event.id for event in self.log if isinstance(event, ToolResult)]
        if len(results) != len(set(results)):
            self.violate(f"calls have returned twice: {results}")
        if isinstance(settlement, Completed) and len(results) != len(self.run.send.plan.tools):
            self.violate(f"it is called completed, and only {results} have returned")
        self._check_effects(settlement)

    def _check_effects(self, settlement: Settlement) -> None:
        seen = [each for each in self.world.agents.happened if each.run_id == self.run.id]
        ids = Counter(call for call, _ in {(each.call, each.effect_id) for each in seen})
        times = Counter(each.call for each in seen)
        for number, plan in _calls(self.run):
            call = f"call_{number}"
            if plan.kind == "keyed" and ids[call] > 1:
                self.violate(f"the effect of a keyed call happened twice, under {ids[call]} ids")
            if plan.kind in ("never", "reconciled") and times[call] > 1 and not self._woke_up():
                self.violate(f"the effect of a call that is {plan.kind} happened {times[call]} times")
            if isinstance(settlement, Completed) and not times[call]:
                self.violate(f"it is called completed, and the effect of {call} never happened")

    def _woke_up(self) -> bool:
        """A process that slept, or lost sight of the store, has its effect late: nobody could have known."""
        return any(server.slept or self.world.is_cut(server) for server in self.run.processes)  # type: ignore[attr-defined]

    def _check_hook(self, settlement: Settlement) -> None:
        pass

    def _check_sources(self) -> None:
        pass


def is_refused(error: BaseException | None) -> bool:
    """Tell whether an answer came too late, or too early: the run has ended, or is about to be taken up."""
    return isinstance(error, HoldfastError)
