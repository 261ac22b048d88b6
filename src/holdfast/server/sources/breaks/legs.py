"""The legs of an answer: after a break another call of a model goes on with it, and every reader sees where.

A leg is one call of an upstream. The first output of a further leg stands behind the event `leg.started`. A break is an
end that the model did not choose: a cut connection, an error of the upstream, silence. After a tool call nothing is
continued: a half-written call cannot be joined, and a whole one may have been used. The calls of an agent's model wait
for the end of its answer. If it breaks off before, they are dropped, and the next leg makes its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import ClassVar

import msgspec

from ....asks.own import OwnMessages, OwnPrompt
from ....errors import HoldfastError, ProviderBroke, ProviderError, SourceStalled
from ....events import (
    SPOKEN,
    AnswerBegins,
    Finish,
    LegHow,
    LegStarted,
    Notice,
    Outlet,
    Picture,
    Text,
    Thought,
    ToolCall,
    ToolDelta,
    Usage,
    Yielded,
)
from ....ids import ModelName
from ....log.intake import are_texts, is_failure
from ....log.reasoning import AnswerSplitter
from ....log.usage_meter import UsageMeter, summed
from ....silence import ModelAsked
from ....upstreams import ChatRequest, FoundModel
from .seam import TURN, Joint, NotJoined, PrefillJoint, TurnJoint, anchor_of

FORKED = "forked"
"""The reason of a leg with which an answer goes on from a place in an earlier one."""
MOST_LEGS = 3
"""Calls of upstreams for one answer, the first one included."""

Answer = Callable[[FoundModel, ChatRequest, Outlet], Awaitable[None]]
"""Lets a model answer."""
StandIn = Callable[[Sequence[ModelName]], Awaitable[FoundModel | None]]
"""Returns the fallback of the last of the models that were asked; None if it has none that may be used."""


class Written(msgspec.Struct, kw_only=True):
    """What the legs of an answer have left so far."""

    model: ModelName
    """The model of the last leg that has written part of the answer."""
    text: str = ""
    legs: int = 1
    used: Usage = Usage()


class LegOutlet:
    """The outlet of one leg. It separates reasoning from text: only visible text is joined."""

    joints: ClassVar[Mapping[LegHow, type[Joint]]] = MappingProxyType({"prefill": PrefillJoint, "turn": TurnJoint})

    def __init__(
        self,
        out: Outlet,
        written: Written,
        model: ModelName,
        *,
        think: bool,
        how: LegHow | None,
        reason: str,
        holds_calls: bool = False,
    ) -> None:
        """`how` and `reason` are those of a further leg. With `holds_calls` tool calls wait for the end of the leg."""
        self._out, self._written, self._model = out, written, model
        self.room = out.room
        self._how: LegHow | None = how
        self._reason = reason
        self._splitter = AnswerSplitter(think)
        self._joint = None if how is None or how == "anew" else self.joints[how](written.text)
        self._is_open = how is None
        self._waiting: list[Yielded] = []  # reasoning before the joint
        self._holds_calls = holds_calls
        self._calls: list[Yielded] = []  # and the thoughts that led to them
        self._texts = [written.text]
        self._before, self._meter = written.used, UsageMeter()
        self.has_spoken = False
        self.has_called = False
        """True once there was part of a tool call, or a picture: neither is made twice."""
        self.has_ended = False
        """True once the model has ended its answer: what fails after that is no reason to go on."""
        self.failure: Finish | None = None
        """The `Finish` by which the upstream reports its own failure. It is not emitted."""

    def emit(self, events: Sequence[Yielded]) -> bool:
        """Emit what is new. Raise `NotJoined` if it does not fit behind what was written before."""
        if self._is_open and self._splitter.is_plain and are_texts(events):
            self.has_spoken = True
            self._texts += events
            self._meter.text += sum(map(len, events))
            return self._out.emit(events)
        items = self._splitter.feed(events)
        ready = [event for item in items for event in self._taken(item)]
        return self._out.emit(ready)

    def end(self) -> None:
        """Emit what was held back, at the end of the answer."""
        self._out.emit([event for item in self._splitter.end() for event in self._taken(item)])
        self._out.emit([*self._joined_at_the_end(), *self._take_calls()])
        self._keep()

    def break_off(self) -> None:
        """Emit what was held back before a break, if its place is known."""
        with suppress(NotJoined):
            self._out.emit([event for item in self._splitter.end(complete=False) for event in self._taken(item)])
        self._keep()
        if not self._is_open and self._written.used is not self._before:
            self._out.emit([self._written.used])  # what was not joined is paid for too

    def _keep(self) -> None:
        written, meter = self._written, self._meter
        written.text = "".join(self._texts)
        if meter.counted is not None or meter.uncounted:  # a call that was refused costs nothing
            written.used = summed(self._before, meter.used)
        if self.has_spoken:
            written.model = self._model

    def _taken(self, item: Yielded) -> list[Yielded]:
        """Return what is emitted for an item of the model."""
        if isinstance(item, Finish):
            if is_failure(item):
                self.failure = item
                return []
            ready = [*self._joined_at_the_end(), *self._take_calls(), item]
            self.has_ended = True
            return ready
        before = self._meter.used
        self._meter.hear(item)
        if isinstance(item, Usage):
            return [summed(self._before, item) if self._before.total_tokens else item]
        if self._holds_calls and isinstance(item, (ToolDelta, ToolCall, Thought)):
            self._calls.append(item)
            return []
        return self._spoken(item, before) if type(item) in SPOKEN else [item]

    def _take_calls(self) -> list[Yielded]:
        """Return the calls that were held back: the leg has ended, so they are whole."""
        calls, self._calls = self._calls, []
        return calls

    def _spoken(self, item: Yielded, used: Usage) -> list[Yielded]:
        """Return what is emitted for part of an answer."""
        if isinstance(item, Text) and not item.choice:
            if self._joint is not None and (new := self._joint.feed(item.text)) != item.text:
                item = Text(new)
            self._texts.append(item.text)
            return [*self._begun(used), item] if item.text else []
        is_call = isinstance(item, (ToolDelta, ToolCall, Picture))
        self.has_called = self.has_called or is_call
        if self._joint is None or self._is_open:
            return [*self._begun(used), item]
        if is_call:
            raise NotJoined("it did not go on with the text")
        self._waiting.append(item)
        return []

    def _joined_at_the_end(self) -> list[Yielded]:
        """Return the rest of a continuation that ends before it was known how it fits."""
        if self._is_open:
            return []
        only_calls = self._calls and self._joint is not None and self._joint.is_empty
        rest = self._joint.end() if self._joint is not None and not only_calls else ""
        self._texts.append(rest)
        begun = self._begun(self._meter.used)
        return [*begun, Text(rest)] if rest else begun

    def _begun(self, used: Usage) -> list[Yielded]:
        """Return the events before the first output of a leg."""
        self.has_spoken = True
        if self._is_open:
            return []
        self._is_open = True
        written, total = self._written, summed(self._before, used)
        assert self._how is not None
        started = LegStarted(
            leg=written.legs,
            before=written.model,
            model=self._model,
            how=self._how,
            reason=self._reason,
            at=len(written.text),
            usage=self._before,
        )
        return [started, total, *self._waiting]


class Legs:
    """Lets models answer one after the other, until one has ended the answer itself."""

    outlet: ClassVar[type[LegOutlet]] = LegOutlet

    def __init__(
        self,
        answer: Answer,
        stand_in: StandIn,
        out: Outlet,
        written: Written,
        *,
        patience: Callable[[FoundModel, ChatRequest], ModelAsked],
        is_owed: bool,
        most: int,
        holds_calls: bool,
        has_stand_in: Callable[[ModelName], bool],
    ) -> None:
        self._answer, self._stand_in, self._out = answer, stand_in, out
        self._written = written
        self._patience = patience
        self._is_owed = is_owed
        self._most, self._holds_calls = most, holds_calls
        self._has_stand_in = has_stand_in
        self._asked = [written.model]

    async def begin(self, found: FoundModel, request: ChatRequest) -> None:
        """Answer a request."""
        await self._go_on(found, request, request, None, "")

    async def resume(self, found: FoundModel, request: ChatRequest, reason: str) -> None:
        """Go on with an answer that has broken off in another process, or that a person has forked."""
        if (how := how_to_continue(found, request, self._written.text)) is None:
            raise ProviderBroke("The response cannot be continued.")
        self._written.legs += 1
        self._asked = [found.name]
        await self._go_on(found, request, further_request(request, how, self._written), how, reason)

    async def _go_on(
        self, found: FoundModel, first: ChatRequest, request: ChatRequest, how: LegHow | None, reason: str
    ) -> None:
        """Let a model answer, and after a break the next. `first` is the request that all legs answer."""
        while True:
            outlet = self.outlet(
                self._out,
                self._written,
                found.name,
                think=found.provider.think,
                how=how,
                reason=reason,
                holds_calls=self._holds_calls,
            )
            error = await self._leg(found, request, outlet)
            if error is None and outlet.failure is None:
                return
            following = await self._next(found, first, outlet, error)
            if following is None:
                if error is not None:
                    raise error
                assert outlet.failure is not None
                self._out.emit([outlet.failure])
                return
            found, how = following
            reason = _code_of(error)
            request = further_request(msgspec.structs.replace(first, model=found.model), how, self._written)

    async def _leg(self, found: FoundModel, request: ChatRequest, outlet: LegOutlet) -> HoldfastError | None:
        """Let a model answer. Return the error with which its answer has broken off."""
        try:
            await self._watched(self._answer(found, request, outlet), outlet, self._patience(found, request))
            if outlet.failure is None:
                outlet.end()
                return None
        except NotJoined as error:
            outlet.break_off()
            return ProviderError(f"{found.name} could not go on with the answer: {error}.")
        except (ProviderError, SourceStalled) as error:
            outlet.break_off()
            return error
        outlet.break_off()
        return None

    async def _watched(self, answering: Awaitable[None], outlet: LegOutlet, limits: ModelAsked) -> None:
        """Await an answer. Raise `SourceStalled` if it is silent for too long."""
        limit = asyncio.timeout(None)

        def give_up() -> bool:
            # a model that reads a long prompt is not asked to read it again
            has_next = outlet.has_spoken or self._written.text or self._has_stand_in(self._asked[-1])
            if not has_next or is_over or limit.when() is not None:
                return False
            limit.reschedule(asyncio.get_running_loop().time())
            return True

        is_over = False
        self._out.emit(
            [AnswerBegins(think=False, is_owed=self._is_owed), msgspec.structs.replace(limits, give_up=give_up)]
        )
        try:
            async with limit:
                await answering
        except TimeoutError:
            if not limit.expired():
                raise
            idle = limits.silence if outlet.has_spoken else limits.first
            raise SourceStalled(idle or 0.0, who=limits.model) from None
        finally:
            is_over = True

    async def _next(
        self, found: FoundModel, first: ChatRequest, outlet: LegOutlet, error: HoldfastError | None
    ) -> tuple[FoundModel, LegHow | None] | None:
        """Return the model that goes on, and how; None if none can."""
        is_first = self._written.legs == 1 and not outlet.has_spoken and not self._written.text
        if outlet.has_called or outlet.has_ended or _blames_the_request(error) or self._written.legs >= self._most:
            return None
        following = found if outlet.has_spoken else await self._stand_in(self._asked)
        if following is None and _broke_off(error):
            following = found
        if following is None:
            return None
        if following.name != found.name:
            self._asked.append(following.name)
        if is_first and following.name != found.name:
            why = str(error).rstrip(".") if error is not None else "it failed"
            instead = f"{found.name} could not answer ({why}): {following.name} answers instead."
            self._out.emit([Notice("fallback", instead, following.name)])
            self._written.model = following.name
            return following, None
        if (how := how_to_continue(following, first, self._written.text)) is None:
            return None
        self._written.legs += 1
        message = f"The answer of {found.name} broke off. {following.name} goes on with it."
        self._out.emit([Notice("continuing", message)])
        return following, how


def how_to_continue(found: FoundModel, request: ChatRequest, text: str) -> LegHow | None:
    """Return how a model can go on with a text; None if it cannot."""
    if not text.strip():
        return "anew"
    if isinstance(request.own, OwnPrompt):
        return None
    if found.provider.prefills:
        return "prefill"
    return None if _wants_json(request) else "turn"


def further_request(request: ChatRequest, how: LegHow | None, written: Written) -> ChatRequest:
    """Return the request for a further leg."""
    if how in (None, "anew"):
        return request
    messages = [*(request.messages[:-1] if request.goes_on else request.messages)]
    messages.append({"role": "assistant", "content": written.text.rstrip()})
    if how == "turn":
        messages.append({"role": "user", "content": TURN.format(anchor=anchor_of(written.text))})
    params = {
        name: max(1, value - written.used.output_tokens) if name in _LIMITS and isinstance(value, int) else value
        for name, value in request.params.items()
    }
    own = None if isinstance(request.own, OwnMessages) else request.own  # it has the messages without the answer
    return msgspec.structs.replace(
        request, messages=messages, params=params, own=own, name="", goes_on=how == "prefill"
    )


_LIMITS = ("max_tokens", "max_completion_tokens")


def _wants_json(request: ChatRequest) -> bool:
    """Return whether the answer is JSON, which cannot begin with words that are repeated."""
    match request.params:
        case {"response_format": {"type": str(kind)}}:
            return kind != "text"
    return False


def _blames_the_request(error: HoldfastError | None) -> bool:
    """Return whether the request is at fault: then another model would refuse it too."""
    return error is not None and error.type == "invalid_request_error"


def _broke_off(error: HoldfastError | None) -> bool:
    """Return whether an answer had begun: a model that refuses, or cannot be reached, is not asked again."""
    return error is None or isinstance(error, (ProviderBroke, SourceStalled))


def _code_of(error: HoldfastError | None) -> str:
    return error.code if error is not None else "upstream_error"
