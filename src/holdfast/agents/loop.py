"""The loop of an agent: model, tool calls, results, model, until it is done. It is the source of a run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from ..environment import child_environment
from ..errors import BudgetSpent, SourceFailed
from ..events import (
    FAILED,
    TRUNCATED,
    AnswerBegins,
    Finish,
    InputRequested,
    LegStarted,
    Notice,
    Outlet,
    Reasoning,
    Replay,
    StepFinished,
    StepStarted,
    Text,
    Thought,
    ToolCall,
    ToolDelta,
    ToolResult,
    Usage,
    Yielded,
    put,
)
from ..history import estimate_tokens, step_messages
from ..log.reasoning import AnswerSplitter
from ..log.steps import AgentStep, CallProgress, CallResult, Steps
from ..log.storable import storable
from ..log.usage_meter import UsageMeter, summed
from ..pricing import Price, cost
from ..prompt import calls_in
from ..prompt.openai_shape import openai_thoughts, turns_of
from ..silence import ModelAsked
from .approvals import Desk, Grants, NoGrants, Nowhere, Place
from .calls import Calls, as_object, is_internal
from .files import Files
from .mcp.pool import ToolServers
from .processes import ProcessTable
from .time_limit import TimeLimit
from .tools import Approval, Tool, described

GO_ON = "Your last answer was cut off. Continue exactly where it ended, without repeating any of it."
LOST = "The server ended before this call finished. It may have run."

Messages = list[dict[str, Any]]
AskModel = Callable[[Messages, dict[str, Any], Outlet], Awaitable[None]]
"""Asks the model: the messages, the parameters, and the outlet for its answer."""


class AgentLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one run of an agent. None means no limit."""

    steps: int = 25
    """Maximum number of model calls. The run is truncated after them, and can be continued."""
    seconds: float | None = 3600.0
    """Maximum seconds of a run, without the time that it only waits for a person. Then the budget stops it."""
    tokens: int | None = None
    """Maximum tokens in and out, of all steps together. The budget stops the run at once, even within a word."""
    cost: float | None = None
    """Maximum cost, in the currency of the prices."""
    approval: float | None = 86_400.0
    """Timeout of an approval, in seconds; then the run fails."""


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """A model with tools, approvals and limits."""

    name: str
    model: str = ""
    system: str = ""
    tools: tuple[Tool, ...] = ()
    owned: Callable[[str], tuple[Tool, ...]] | None = None
    """Makes the tools of one owner, in place of `tools`, if each owner has a folder."""
    files: Callable[[str], Files] | None = None
    """Returns the folder of an owner, if its tools have one."""
    servers: tuple[ToolServers, ...] = ()
    """MCP servers whose tools it also has. They are connected when a run needs them."""
    env: dict[str, str] = {}
    """Environment variables of its tools' processes, besides those that every tool has."""
    approvals: dict[str, Approval] = {}
    """Approvals by tool, in place of the tool's own `approval`."""
    replay: dict[str, Replay] = {}
    """Whether a call may be made again after a crash, by tool, in place of the tool's own `replay`."""
    limits: AgentLimits = AgentLimits()
    price: Price = Price()
    params: dict[str, Any] = {}
    on_restart: Literal["settle", "continue"] = "settle"
    """After a kill of the server: settle the run as interrupted, or continue with its calls and its model."""

    def servers_to_start(self, owner: str) -> list[str]:
        """Return the names of its MCP servers that are not connected for an owner."""
        return [server.described.name for server in self.servers if not server.of(owner).is_connected]

    async def for_owner(self, owner: str) -> Agent:
        """Return the agent with its tools for one owner. This connects its MCP servers."""
        local = self.tools if self.owned is None else self.owned(owner)
        listed = await asyncio.gather(*(server.of(owner).tools() for server in self.servers))
        remote = [tool for tools in listed for tool in tools]
        return msgspec.structs.replace(self, tools=(*local, *remote))


class Meter:
    """The usage of a run: the provider's count, or an estimate until the provider reports it."""

    def __init__(self, agent: Agent, used: Usage | None = None) -> None:
        self._agent = agent
        self.before = used or Usage()
        """The usage of all steps before this one."""
        self._step = UsageMeter(Usage())

    def begin(self, messages: Messages) -> None:
        """Begin a step, with an estimate of its input."""
        self.before, self._step = self.total(), UsageMeter(asked=estimate_tokens(messages))

    def hear(self, event: Yielded) -> None:
        """Count an event of this step."""
        self._step.hear(event)

    @property
    def is_counted(self) -> bool:
        """Whether the provider has counted this step."""
        return self._step.counted is not None

    def total(self) -> Usage:
        """Return the usage of all steps; its source is "estimated" if that of any step is."""
        return summed(self.before, self._step.used)

    def check(self) -> None:
        """Raise `BudgetSpent` if a limit is reached."""
        if message := self.spent():
            raise BudgetSpent(message)

    def spent(self) -> str:
        """Return a message that names the limit that is reached; empty if none is."""
        limits, price, used = self._agent.limits, self._agent.price, self.total()
        if limits.tokens is not None and used.total_tokens > limits.tokens:
            return f"The run has used about {used.total_tokens} tokens; it may use {limits.tokens}."
        spent = cost(price, used) or 0.0
        if limits.cost is not None and spent > limits.cost:
            return f"The run has cost about {spent:.4f}; it may cost {limits.cost:g}."
        return ""


class _Answer(msgspec.Struct):
    """The answer of the model in one step."""

    text: list[str]
    calls: list[ToolCall]
    thoughts: list[Thought]
    reasoning: list[str]
    finish: Finish = Finish("stop")
    is_over: bool = False
    """True if the answer has a finish reason: then a limit no longer cuts it off."""


class Work:
    """One run of an agent. Costs a task for the loop, and a task or two for each call."""

    def __init__(
        self,
        agent: Agent,
        messages: Messages,
        ask: AskModel,
        *,
        out: Outlet,
        place: Place | None = None,
        grants: Grants | None = None,
        run_id: str = "",
        session_id: str | None = None,
        done: Steps | None = None,
        used: Usage | None = None,
        table: ProcessTable | None = None,
        unattended: str = "",
    ) -> None:
        """`unattended` says where the agent is at work if nobody can be asked there."""
        self._agent = agent
        self._messages = list(messages)
        self._ask = ask
        self.place = place or Nowhere()
        self._done = done
        self.out = out
        grants = grants or NoGrants()
        self.desk = Desk(out, self.place, run_id, grants=grants, on_waiting=self._pause, unattended=unattended)
        self._calls = Calls(
            agent.tools,
            agent.approvals,
            desk=self.desk,
            out=out,
            place=self.place,
            grants=grants,
            patience=agent.limits.approval,
            replays=agent.replay,
            table=table,
            environ=child_environment(agent.env),
            run_id=run_id,
            session_id=session_id,
        )
        self.meter = Meter(agent, used)
        self._shown = 0 if done is None else sum(len(step.text) for step in done.all())
        self._asked_at, self._legs = self._shown, 1
        self._ids = {call.id for turn in turns_of(messages) for call in calls_in(turn)}
        self._is_calling = False
        self._time: TimeLimit | None = None

    async def do(self) -> None:
        """Run the loop, and emit its events. A cancel ends it, with all that it has started."""
        self.out.emit([AnswerBegins(think=False, is_owed=True)])  # reasoning is split for each answer below
        try:
            self.place.quiet = lambda: self._is_calling
            await self._work()
        finally:
            self.place.quiet = None
            self.desk.close()

    async def _work(self) -> None:
        try:
            async with TimeLimit(self._agent.limits.seconds) as self._time:
                await self._step_by_step(await self._picked_up())
        except (SystemExit, KeyboardInterrupt) as error:  # asyncio would end the server
            raise SourceFailed(f"The source ended with {error!r}.") from error
        except TimeoutError:
            if not self._time or not self._time.is_over:
                raise
            await self._spend(BudgetSpent(f"The run may take {self._agent.limits.seconds:g} s."))
        except BudgetSpent as spent:
            await self._spend(spent)

    async def _spend(self, spent: BudgetSpent) -> None:
        await put(self.out, [Notice("budget", str(spent))])
        raise spent

    def _pause(self, is_waiting: bool) -> None:
        """Suspend the time limit while the run only waits for a person."""
        if self._time is not None:
            self._time.pause() if is_waiting else self._time.go_on()

    # steps

    async def _step_by_step(self, number: int) -> None:
        if self._was_answered():
            await put(self.out, [Finish("stop")])
            return
        while number < self._agent.limits.steps:
            number += 1
            finish = await self._step(number)
            if finish is not None:
                await put(self.out, [finish])
                return
        message = f"The agent has used its {self._agent.limits.steps} steps and is not done. It can be continued."
        await put(self.out, [Notice("max_steps", message), Finish("max_steps")])

    async def _step(self, number: int) -> Finish | None:
        """Do one step: ask the model, and make its calls. Return the end of the work, if this was the last step."""
        began = time.monotonic()
        self._steer()
        self.out.emit([StepStarted(number)])
        answer = await self._ask_model()
        text = "".join(answer.text)
        if _ends(answer.finish):
            return answer.finish
        calls = [self._named(call) for call in answer.calls]
        if calls:
            self.meter.check()
            await self._call(AgentStep(text, tuple(calls)), answer)
        elif text:
            self._messages.append({"role": "assistant", "content": text})
        await put(self.out, [StepFinished(number, round(time.monotonic() - began, 3))])
        if calls or not self.desk.finish():
            return None
        if spent := self.meter.spent():
            self.out.emit([Notice("budget", f"{spent} The answer is complete.")])
        return msgspec.structs.replace(answer.finish, reason=_reason(answer.finish))

    def _steer(self) -> None:
        """Add the steering messages since the last step to the model's messages."""
        self._messages += [{"role": "user", "content": text} for text in self.desk.take()]

    async def _ask_model(self) -> _Answer:
        """Ask the model, emit its answer as it comes, and hold its calls until the answer is complete."""
        answer, self._asked_at = _Answer([], [], [], []), self._shown
        self.meter.begin(self._messages)
        self.meter.check()
        listener = _Listener(self, answer)
        try:
            await self._ask(self._messages, self._params(), listener)
        except Exception:
            listener.end(complete=False)
            raise
        listener.end()
        if not self.meter.is_counted:
            await put(self.out, [self.meter.total()])
        return answer

    def _params(self) -> dict[str, Any]:
        tools = {"tools": described(list(self._agent.tools))} if self._agent.tools else {}
        return {**self._agent.params, **tools}

    def handle(self, items: Sequence[Yielded], answer: _Answer) -> bool:
        """Record events of the model, and emit the visible ones. Return whether there is room for more."""
        visible = [event for item in items if (event := self._noted(item, answer)) is not None]
        return self.out.emit(visible)

    def _noted(self, item: Yielded, answer: _Answer) -> Yielded | None:
        """Record an event of the model. Return the event to emit, or None if it is not visible."""
        if isinstance(item, ModelAsked):
            return item  # for the engine alone: it is not stored
        item = storable(item)
        if isinstance(item, (Text, Reasoning)):
            self.meter.hear(item)
            (answer.text if isinstance(item, Text) else answer.reasoning).append(item.text)
            self._shown += len(item.text) if isinstance(item, Text) else 0
        elif isinstance(item, LegStarted):
            return self._further(item)
        elif isinstance(item, ToolCall):
            answer.calls.append(item)
            self.meter.hear(item)
        elif isinstance(item, Thought):
            answer.thoughts.append(item)
        elif isinstance(item, Finish):
            answer.finish, answer.is_over = item, True
        elif isinstance(item, Usage) and item.is_whole:
            self.meter.hear(item)
            return self.meter.total()
        elif isinstance(item, Usage):  # of this step only: a logged count is that of all steps
            item = Usage(item.input_tokens, 0, "estimated")
            self.meter.hear(item)
        return None if isinstance(item, (ToolCall, ToolDelta, Finish, Thought)) else item

    def _further(self, leg: LegStarted) -> LegStarted:
        """Return a further leg of the model's answer with its place in the whole run."""
        self._legs += 1
        at, used = self._asked_at + leg.at, summed(self.meter.before, leg.usage)
        return msgspec.structs.replace(leg, leg=self._legs, at=at, usage=used)

    def _named(self, call: ToolCall) -> ToolCall:
        """Return a call with a unique id, and with arguments that every provider accepts."""
        id, n = call.id or "call", 1
        while id in self._ids:
            n += 1
            id = f"{call.id or 'call'}_{n}"
        self._ids.add(id)
        return ToolCall(id, call.name, as_object(call.arguments), own=True)

    async def _call(self, step: AgentStep, answer: _Answer) -> None:
        """Make the calls. The calls are saved before the first is made.

        The reasoning that led to them is sent back to providers that require it.
        """
        self.out.emit([call for call in step.calls if not is_internal(call.name)])
        await self.place.saved()
        results = await self._all(step.calls)
        place = len(self._messages)
        self._remember(msgspec.structs.replace(step, results=tuple(results)))
        thoughts = [thought.block for thought in answer.thoughts]
        self._messages[place] |= openai_thoughts(thoughts, "" if thoughts else "".join(answer.reasoning))

    async def _all(
        self, calls: Sequence[ToolCall], before: Mapping[str, CallProgress] = MappingProxyType({})
    ) -> list[CallResult]:
        """Make the calls concurrently, with the idle limit suspended."""
        self._is_calling = True
        try:
            return await self._calls.all(calls, before)
        finally:
            self._is_calling = False

    def _remember(self, step: AgentStep) -> None:
        """Add a step to the model's messages, in the format of a history."""
        self._messages += step_messages([step])

    # after a restart

    async def _picked_up(self) -> int:
        """Resume after a restart, without repeating finished calls. Return the number of the step."""
        done = self._done
        if done is None:
            return 0
        self._messages += step_messages(done.done)
        self._ids |= {call.id for step in done.all() for call in step.calls}
        if not done.is_open:
            self._remember(done.current)
        elif done.current.calls or done.waiting:
            await self._finish_step(done)
        else:
            self._go_on_in(done.current)
        return done.number

    def _was_answered(self) -> bool:
        """Return whether the answer was complete, and only the settlement was missing.

        False for an agent with internal tools: their calls have no events, so one may be missing.
        """
        hides = any(is_internal(tool.name) for tool in self._agent.tools)
        return self._done is not None and self._done.is_answered and not hides

    async def _finish_step(self, done: Steps) -> None:
        """Finish the calls of a step that a restart has interrupted.

        The call of an internal tool has no event: it is restored from its approval.
        """
        open_requests = {each.call: each for each in done.waiting.values()}
        ids = {call.id for call in done.current.calls}
        hidden = [
            ToolCall(id, each.tool, each.arguments, own=True)
            for id, each in open_requests.items()
            if id not in ids and not isinstance(each, InputRequested)
        ]
        step = msgspec.structs.replace(done.current, calls=(*done.current.calls, *hidden))
        self._ids |= {call.id for call in hidden}
        left = [call for call in step.unanswered if self._continues or call.id in open_requests]
        lost = [call for call in step.unanswered if call not in left]
        await put(self.out, [ToolResult(call.id, LOST, True) for call in lost])
        results = [*step.results, *(CallResult(call.id, LOST, True) for call in lost)]
        if left:
            results += await self._all(left, {call.id: done.progress(call.id) for call in left})
        self._remember(msgspec.structs.replace(step, results=tuple(results)))
        await put(self.out, [StepFinished(done.number, 0.0)])

    @property
    def _continues(self) -> bool:
        return self._agent.on_restart == "continue"

    def _go_on_in(self, step: AgentStep) -> None:
        """Let the model continue an answer that was cut off: the text so far was already shown."""
        self._remember(step)
        if step.text and not step.inputs:
            self._messages.append({"role": "user", "content": GO_ON})


class _Listener:
    """The outlet for the answer of an agent's model. A spent budget ends the answer at once, even within a word."""

    def __init__(self, work: Work, answer: _Answer) -> None:
        self._work = work
        self._answer = answer
        self._splitter = AnswerSplitter()
        self.room = work.out.room

    def emit(self, events: Sequence[Yielded]) -> bool:
        has_room = self._work.handle(self._splitter.feed(events), self._answer)
        if not self._answer.is_over:
            self._work.meter.check()
        return has_room

    def end(self, *, complete: bool = True) -> None:
        """Handle the text that the splitter still holds."""
        self._work.handle(self._splitter.end(complete=complete), self._answer)


def _ends(finish: Finish) -> bool:
    """Return whether the answer did not complete: then none of its calls is made."""
    return finish.error is not None or finish.reason in TRUNCATED or finish.reason in FAILED


def _reason(finish: Finish) -> str:
    """Return the finish reason: "tool_calls" without a call is "stop"."""
    return "stop" if finish.reason in ("tool_calls", "function_call") else finish.reason
