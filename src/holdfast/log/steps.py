"""The steps of an agent in one answer, built from the events of its log."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from ..events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    Steered,
    StepFinished,
    StepStarted,
    Text,
    ToolCall,
    ToolProgress,
    ToolResult,
    Usage,
)

MOST_OUTPUT = 16_000
"""Maximum length of a tool's output for a model, in characters. A longer output keeps its head and its tail."""


class CallResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a tool call, as the model gets it."""

    id: str
    output: str
    is_error: bool = False
    seconds: float | None = None
    """Duration of the call; None if unknown."""
    decision: str | None = None
    """The decision of the user, if the call needed an approval: `allow` or `deny`."""
    is_unfinished: bool = False
    """True if the run ended before the call returned. The output is then what the tool had printed so far."""


class AgentStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request to the model: its text, its tool calls, their results, and the user's input after them."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[CallResult, ...] = ()
    inputs: tuple[str, ...] = ()

    @property
    def unanswered(self) -> tuple[ToolCall, ...]:
        """The calls without a result."""
        answered = {result.id for result in self.results}
        return tuple(call for call in self.calls if call.id not in answered)

    def settled(
        self, why: str, unapproved: frozenset[str] = frozenset(), outputs: Mapping[str, str] = MappingProxyType({})
    ) -> AgentStep:
        """Return the step with a result for every call, which providers require.

        A call without one gets an error with the reason `why`. Calls in `unapproved` waited for an approval, so they
        certainly did not run. `outputs` has what other calls had printed so far.
        """
        missing = [
            CallResult(call.id, f"{why} It was waiting for an approval and did not run.", True, is_unfinished=True)
            if call.id in unapproved
            else CallResult(call.id, _unfinished(outputs.get(call.id, ""), why), True, is_unfinished=True)
            for call in self.unanswered
        ]
        return msgspec.structs.replace(self, results=(*self.results, *missing))


class Steps:
    """The steps of an agent so far, updated with each event."""

    def __init__(self) -> None:
        self.done: list[AgentStep] = []
        self.number = 0
        """Number of the last step that has begun; 0 before the first."""
        self.is_open = False
        """True while that step has not finished."""
        self.waiting: dict[str, ApprovalRequested] = {}
        """The approvals that are not decided, by their ids."""
        self.is_counted = True
        """True if a usage event has come since the last request to the model. It counts the whole run up to there."""
        self._decisions: dict[str, str] = {}
        self._outputs: dict[str, str] = {}
        self._current = AgentStep()
        self._parts: list[str] = []

    def take_in(self, event: Event) -> None:
        """Update the steps with an event."""
        if isinstance(event, Text):
            self._parts.append(event.text)
        elif isinstance(event, Usage):
            self.is_counted = True
        elif isinstance(event, StepStarted):
            self._begin(event.step)
        elif isinstance(event, StepFinished):
            self.is_open = False
        elif isinstance(event, ToolCall):
            self._change(calls=(*self._current.calls, event))
        elif isinstance(event, ToolProgress):
            self._outputs[event.id] = self._outputs.get(event.id, "") + event.output
        elif isinstance(event, ToolResult):
            self._outputs.pop(event.id, None)
            self.waiting = {id: request for id, request in self.waiting.items() if request.call != event.id}
            decision = self._decisions.pop(event.id, None)
            result = CallResult(event.id, cut(event.output), event.is_error, event.seconds, decision)
            self._change(results=(*self._current.results, result))
        elif isinstance(event, Steered):
            self._change(inputs=(*self._current.inputs, event.text))
        elif isinstance(event, ApprovalRequested):
            self.waiting[event.id] = event
        elif isinstance(event, ApprovalDecided):
            self._decide(event)

    def _decide(self, event: ApprovalDecided) -> None:
        request = self.waiting.pop(event.id, None)
        if request is not None:
            self._decisions[request.call] = event.decision

    def _begin(self, number: int) -> None:
        self.done = self.all()
        self._current, self._parts = AgentStep(), []
        self.number, self.is_open, self.is_counted = number, True, False

    def _change(self, **fields: object) -> None:
        self._current = msgspec.structs.replace(self._current, **fields)

    @property
    def current(self) -> AgentStep:
        """The last step that has begun, as far as it has come."""
        return msgspec.structs.replace(self._current, text="".join(self._parts))

    @property
    def is_answered(self) -> bool:
        """True if the agent is done: the last step has finished, without tool calls or new input of the user."""
        last = self._current
        return bool(self.number) and not self.is_open and not last.calls and not last.inputs

    @property
    def undecided(self) -> frozenset[str]:
        """The ids of the calls that wait for an approval: they have not run."""
        return frozenset(request.call for request in self.waiting.values())

    def all(self) -> list[AgentStep]:
        """Return every step, including an unfinished one, and input that came before the first step."""
        return [*self.done, self.current] if self.number or self._current.inputs else self.done

    def settled(self, why: str) -> tuple[AgentStep, ...]:
        """Return every step with a result for each of its calls; `why` explains those that have none."""
        return tuple(step.settled(why, self.undecided, self._outputs) for step in self.all())


def _unfinished(output: str, why: str) -> str:
    note = f"{why} It may have run."
    return f"{cut(output.rstrip())}\n[{note}]" if output.strip() else note


def cut(output: str, most: int = MOST_OUTPUT) -> str:
    """Return an output for a model: a note replaces the middle of a long one."""
    if len(output) <= most:
        return output
    half = most // 2
    left_out = len(output) - 2 * half
    return f"{output[:half]}\n[... {left_out} characters are left out here ...]\n{output[-half:]}"
