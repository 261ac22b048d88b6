"""An agent at work: model, tool calls, results, model, until it is done. Its work is the source of a run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Literal, cast

import msgspec

from ..comparisons import Price
from ..errors import BudgetSpent, SourceFailed
from ..events import (
    Finish,
    Notice,
    Reasoning,
    Source,
    StepFinished,
    StepStarted,
    Text,
    Thought,
    ToolCall,
    ToolDelta,
    ToolResult,
    Usage,
    Yielded,
)
from ..history import told
from ..judgement import FAILED, TRUNCATED, storable
from ..steps import Answered, Step, Steps
from .calls import Calls, Grants, NoGrants, as_object, is_internal
from .desk import Desk, Nowhere, Place
from .mcp import ToolServer
from .outbox import Outbox
from .processes import ProcessTable
from .request import text_of
from .tools import Approval, Tool, described

GO_ON = "Your last answer was cut off. Go on exactly where it ended, without repeating any of it."
LOST = "The server ended before this call finished. It may have run."

BEAT = 5.0
"""Seconds after which work that is quiet for a good reason says that it goes on."""

Messages = list[dict[str, Any]]
Ask = Callable[[Messages, dict[str, Any]], Source]
"""Asks the model: the messages, and the parameters."""


class AgentLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How far one run of an agent may go. None means no limit."""

    steps: int = 25
    """Questions to the model. The run is truncated after them, and can be continued."""
    seconds: float | None = 3600.0
    """Seconds that it may take, without those in which it waits for a person. Beyond, the budget stops it."""
    tokens: int | None = None
    """Tokens in and out, of all steps together. Beyond, the budget stops it, in the middle of a word."""
    cost: float | None = None
    """What it may cost, in the currency of the prices."""
    approval: float | None = 86_400.0
    """Seconds that a person has to allow or deny a call; then the run fails."""


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """A model with tools, and what it may do with them."""

    name: str
    model: str = ""
    system: str = ""
    tools: tuple[Tool, ...] = ()
    servers: tuple[ToolServer, ...] = ()
    """MCP servers whose tools it has too, from the moment that a run needs them."""
    approvals: dict[str, Approval] = {}
    """What counts instead of a tool's own `approval`."""
    limits: AgentLimits = AgentLimits()
    price: Price = Price()
    params: dict[str, Any] = {}
    on_restart: Literal["settle", "continue"] = "settle"
    """What becomes of a run whose server was killed: interrupted, or gone on with after its last finished step."""


class Meter:
    """Counts what a run has used: what the provider says, and an estimate until it has said it, or if it never does."""

    def __init__(self, agent: Agent, used: Usage | None = None) -> None:
        self._agent = agent
        self._before = used or Usage()
        self._counted: Usage | None = Usage()
        self._asked = self._said = 0

    def begin(self, messages: Messages) -> None:
        """Estimate a question: four characters to a token, of the words alone."""
        self._before, self._counted = self.total(), None
        self._asked, self._said = sum(len(text_of(message.get("content"))) for message in messages) // 4, 0

    def asked(self, tokens: int) -> None:
        """Take in what the provider itself thinks of the question."""
        self._asked = tokens

    def said(self, text: str) -> None:
        """Count a piece of the answer."""
        self._said += len(text)

    def counted(self, usage: Usage) -> Usage:
        """Take in what the provider has counted for this step, where it may correct itself; return it for all steps."""
        self._counted = usage
        return self.total()

    @property
    def is_counted(self) -> bool:
        """Whether the provider has counted this step."""
        return self._counted is not None

    def total(self) -> Usage:
        """Return what all steps have used. It is estimated as soon as a part of it is."""
        guess = Usage(self._asked, -(-self._said // 4), "estimated")
        return _together(self._before, guess if self._counted is None else self._counted)

    def check(self) -> None:
        """Raise where the budget is spent."""
        if words := self.spent():
            raise BudgetSpent(words)

    def spent(self) -> str:
        """Return how the budget is spent, in words; nothing where it is not."""
        limits, price, used = self._agent.limits, self._agent.price, self.total()
        if limits.tokens is not None and used.total_tokens > limits.tokens:
            return f"The run has used about {used.total_tokens} tokens; it may use {limits.tokens}."
        cost = (used.input_tokens * price.input + used.output_tokens * price.output) / 1_000_000
        if limits.cost is not None and cost > limits.cost:
            return f"The run has cost about {cost:.4f}; it may cost {limits.cost:g}."
        return ""


class _Heard(msgspec.Struct):
    """What the model has said in one step."""

    text: list[str]
    calls: list[ToolCall]
    thoughts: list[Thought]
    reasoning: list[str]
    finish: Finish = Finish("stop")
    is_over: bool = False
    """It has said why it ended: nothing can be cut off any more."""


class Work:
    """One run of an agent. Costs a task for the loop, and what the calls cost while there are any."""

    def __init__(
        self,
        agent: Agent,
        messages: Messages,
        ask: Ask,
        *,
        place: Place | None = None,
        grants: Grants | None = None,
        run_id: str = "",
        session_id: str | None = None,
        done: Steps | None = None,
        used: Usage | None = None,
        table: ProcessTable | None = None,
        beat: float = BEAT,
    ) -> None:
        self._agent = agent
        self._messages = list(messages)
        self._ask = ask
        self.place = place or Nowhere()
        self._done = done
        self._beat = beat
        self._outbox = Outbox(run_id)
        self.desk = Desk(self._outbox, self.place, run_id, on_waiting=self._pause)
        self._calls = Calls(
            agent.tools,
            agent.approvals,
            desk=self.desk,
            outbox=self._outbox,
            place=self.place,
            grants=grants or NoGrants(),
            patience=agent.limits.approval,
            table=table,
            run_id=run_id,
            session_id=session_id,
        )
        self._meter = Meter(agent, used)
        self._ids = {call["id"] for message in messages for call in message.get("tool_calls") or ()}
        self._is_calling = False
        self._time: asyncio.Timeout | None = None
        self._time_left = 0.0

    async def events(self) -> AsyncGenerator[Yielded | Sequence[Yielded]]:
        """Do the work. Whoever stops reading stops it, and all that it has started.

        While tools run or a person is waited for, silence is no sign of trouble: then an empty saying tells the run
        that it goes on.
        """
        worker = asyncio.create_task(self._work())
        worker.add_done_callback(lambda _: self._outbox.end())
        try:
            while (said := await self._outbox.next(self._beat)) is not None:
                if said or self._is_calling:
                    yield said
            worker.result()
        finally:
            self.desk.close()
            if worker.cancel():
                await asyncio.wait({worker})
            self._outbox.close()
            _ = worker.cancelled() or worker.exception()

    async def _work(self) -> None:
        try:
            async with asyncio.timeout(self._agent.limits.seconds) as self._time:
                await self._step_by_step(await self._picked_up())
        except (SystemExit, KeyboardInterrupt) as error:  # asyncio would end the server, with every other run
            raise SourceFailed(f"The source ended with {error!r}.") from error
        except TimeoutError:
            if not self._time or not self._time.expired():
                raise
            await self._spend(BudgetSpent(f"The run may take {self._agent.limits.seconds:g} s."))
        except BudgetSpent as spent:
            await self._spend(spent)

    async def _spend(self, spent: BudgetSpent) -> None:
        await self._outbox.say([Notice("budget", str(spent))])
        raise spent

    def _pause(self, is_waiting: bool) -> None:
        """Stop the clock while only a person is waited for."""
        if self._time is None or self._agent.limits.seconds is None or self._time.expired():
            return
        now = asyncio.get_running_loop().time()
        if is_waiting:
            self._time_left = (self._time.when() or now) - now
            self._time.reschedule(None)
        else:
            self._time.reschedule(now + self._time_left)

    # steps

    async def _step_by_step(self, number: int) -> None:
        if self._was_answered():
            await self._outbox.say([Finish("stop")])
            return
        while number < self._agent.limits.steps:
            number += 1
            finish = await self._step(number)
            if finish is not None:
                await self._outbox.say([finish])
                return
        words = f"The agent has used its {self._agent.limits.steps} steps and is not done. It can be continued."
        await self._outbox.say([Notice("max_steps", words), Finish("max_steps")])

    async def _step(self, number: int) -> Finish | None:
        """Ask the model once and call what it wants called. Return how the work ends, if it does."""
        began = time.monotonic()
        self._steer()
        self._outbox.put(StepStarted(number))
        heard = await self._heard()
        text = "".join(heard.text)
        if _ends(heard.finish):
            return heard.finish
        calls = [self._named(call) for call in heard.calls]
        if calls:
            self._meter.check()
            await self._call(Step(text, tuple(calls)), heard)
        elif text:
            self._messages.append({"role": "assistant", "content": text})
        await self._outbox.say([StepFinished(number, round(time.monotonic() - began, 3))])
        if calls or not self.desk.finish():
            return None
        if spent := self._meter.spent():
            self._outbox.put(Notice("budget", f"{spent} The answer is complete."))
        return msgspec.structs.replace(heard.finish, reason=_reason(heard.finish))

    def _steer(self) -> None:
        """Show the model what people have put in since the last boundary."""
        self._messages += [{"role": "user", "content": text} for text in self.desk.take()]

    async def _heard(self) -> _Heard:
        """Ask the model, pass on what it says as it says it, and keep its calls until it has ended well."""
        heard = _Heard([], [], [], [])
        self._meter.begin(self._messages)
        self._meter.check()
        answer = cast(AsyncGenerator[Yielded | Sequence[Yielded]], self._ask(self._messages, self._params()))
        async with aclosing(answer):
            async for said in answer:
                items = said if isinstance(said, (list, tuple)) else (said,)
                if shown := [event for item in items if (event := self._take_in(item, heard)) is not None]:
                    await self._outbox.say(shown)
                if not heard.is_over:
                    self._meter.check()
        if not self._meter.is_counted:
            await self._outbox.say([self._meter.total()])
        return heard

    def _params(self) -> dict[str, Any]:
        tools = {"tools": described(list(self._agent.tools))} if self._agent.tools else {}
        return {**self._agent.params, **tools}

    def _take_in(self, item: Yielded, heard: _Heard) -> Yielded | None:
        """Note what the model says, and return what of it is shown."""
        if isinstance(item, str):
            item = Text(item)
        item = storable(item)
        if isinstance(item, (Text, Reasoning)):
            self._meter.said(item.text)
            (heard.text if isinstance(item, Text) else heard.reasoning).append(item.text)
        elif isinstance(item, ToolCall):
            heard.calls.append(item)
            self._meter.said(item.name + item.arguments)
        elif isinstance(item, Thought):
            heard.thoughts.append(item)
        elif isinstance(item, Finish):
            heard.finish, heard.is_over = item, True
        elif isinstance(item, Usage) and item.source == "provider":
            return self._meter.counted(item)
        elif isinstance(item, Usage):
            self._meter.asked(item.input_tokens)
        return None if isinstance(item, (ToolCall, ToolDelta, Finish, Thought)) else item

    def _named(self, call: ToolCall) -> ToolCall:
        """Return a call under an id that no other has, and with arguments that every provider takes back."""
        id, n = call.id or "call", 1
        while id in self._ids:
            n += 1
            id = f"{call.id or 'call'}_{n}"
        self._ids.add(id)
        return ToolCall(id, call.name, as_object(call.arguments), own=True)

    async def _call(self, step: Step, heard: _Heard) -> None:
        """Call the tools. It is saved that they are about to be called before any of them is.

        The model is shown again what led to the calls, where its provider has sealed that, or asks for it.
        """
        await self._outbox.tell(*[call for call in step.calls if not is_internal(call.name)])
        await self.place.saved()
        results = await self._all(step.calls)
        place = len(self._messages)
        self._remember(msgspec.structs.replace(step, results=tuple(results)))
        if heard.thoughts:
            self._messages[place]["thoughts"] = [thought.block for thought in heard.thoughts]
        elif heard.reasoning:
            self._messages[place]["reasoned"] = "".join(heard.reasoning)

    async def _all(self, calls: Sequence[ToolCall], **asked: Any) -> list[Answered]:
        """Call side by side; meanwhile silence is no sign of trouble."""
        self._is_calling = True
        try:
            return await self._calls.all(calls, **asked)
        finally:
            self._is_calling = False

    def _remember(self, step: Step) -> None:
        """Add a step, as it will stand in history, to what the model is shown."""
        self._messages += told([step])

    # after a restart

    async def _picked_up(self) -> int:
        """Take up what was done before a restart, without doing any of it again. Return the step that it came to."""
        done = self._done
        if done is None:
            return 0
        self._messages += told(done.done)
        self._ids |= {call.id for step in done.all() for call in step.calls}
        if not done.is_open:
            self._remember(done.current)
        elif done.current.calls or done.waiting:
            await self._finish_step(done)
        else:
            self._go_on_in(done.current)
        return done.number

    def _was_answered(self) -> bool:
        """Tell whether only the settlement was missing. Calls of internal tools leave no events, and could hide."""
        hides = any(is_internal(tool.name) for tool in self._agent.tools)
        return self._done is not None and self._done.is_answered and not hides

    async def _finish_step(self, done: Steps) -> None:
        """Answer the calls that were going on with the truth, and wait on for those that waited for a person.

        Of an internal tool's call, which has left no event of its own, the approval tells what was called.
        """
        asked = {each.call: each for each in done.waiting.values()}
        known = {call.id for call in done.current.calls}
        hidden = [ToolCall(id, each.tool, each.arguments, own=True) for id, each in asked.items() if id not in known]
        step = msgspec.structs.replace(done.current, calls=(*done.current.calls, *hidden))
        self._ids |= {call.id for call in hidden}
        lost = [call for call in step.unanswered if call.id not in asked]
        await self._outbox.say([ToolResult(call.id, LOST, True) for call in lost])
        results = [*step.results, *(Answered(call.id, LOST, True) for call in lost)]
        if waiting := [call for call in step.unanswered if call.id in asked]:
            results += await self._all(waiting, asked=asked)
        self._remember(msgspec.structs.replace(step, results=tuple(results)))
        await self._outbox.say([StepFinished(done.number, 0.0)])

    def _go_on_in(self, step: Step) -> None:
        """Let the model go on with an answer that was cut off: what was shown of it stays."""
        self._remember(step)
        if step.text and not step.inputs:
            self._messages.append({"role": "user", "content": GO_ON})


def _together(one: Usage, two: Usage) -> Usage:
    return Usage(
        one.input_tokens + two.input_tokens,
        one.output_tokens + two.output_tokens,
        "estimated" if "estimated" in (one.source, two.source) else "provider",
        cached_tokens=one.cached_tokens + two.cached_tokens,
        reasoning_tokens=one.reasoning_tokens + two.reasoning_tokens,
    )


def _ends(finish: Finish) -> bool:
    """Tell whether the model did not end as it should: then nothing that it called is called."""
    return finish.error is not None or finish.reason in TRUNCATED or finish.reason in FAILED


def _reason(finish: Finish) -> str:
    """Return why the work ended: a model that says it called a tool, and did not, has just ended."""
    return "stop" if finish.reason in ("tool_calls", "function_call") else finish.reason
