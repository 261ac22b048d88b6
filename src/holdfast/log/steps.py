"""The steps of an agent in one answer, built from the events of its log."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from ..events import (
    Answered,
    ApprovalDecided,
    ApprovalRequested,
    Event,
    InputDecided,
    InputRequested,
    OutcomeDecided,
    OutcomeRequested,
    Question,
    Steered,
    StepFinished,
    StepStarted,
    Text,
    ToolCall,
    ToolProgress,
    ToolResult,
    ToolStarted,
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
    edited: str = ""
    """The arguments with which it ran, if a person has changed them."""
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


class CallProgress(msgspec.Struct):
    """What has happened to a call that has no result."""

    requested: ApprovalRequested | OutcomeRequested | None = None
    """What a person was asked about it, if that is still open."""
    approved: ApprovalDecided | None = None
    started: ToolStarted | None = None
    """Set once the tool was about to run: from then on it may have run."""
    outcome: OutcomeDecided | None = None
    """What a person has said that became of it. Unset by a new start."""
    printed: str = ""
    inputs: tuple[tuple[InputRequested, InputDecided | None], ...] = ()
    """What it has asked the person while it ran, with the answers."""

    def take_in(self, event: Question | Answered | ToolStarted | ToolProgress) -> None:
        """Note an event of the call, or of what a person was asked about it."""
        if isinstance(event, InputRequested):
            self.inputs = (*self.inputs, (event, None))
        elif isinstance(event, InputDecided):
            self.inputs = tuple((asked, event if asked.id == event.id else told) for asked, told in self.inputs)
        elif isinstance(event, ApprovalRequested | OutcomeRequested):
            self.requested = event
        elif isinstance(event, ToolStarted):
            self.started, self.outcome = event, None
        elif isinstance(event, ToolProgress):
            self.printed += event.output
        else:
            self.requested = None
            if isinstance(event, ApprovalDecided):
                self.approved = event
            elif isinstance(event, OutcomeDecided):
                self.outcome = event


class Steps:
    """The steps of an agent so far, updated with each event."""

    def __init__(self) -> None:
        self.done: list[AgentStep] = []
        self.number = 0
        """Number of the last step that has begun; 0 before the first."""
        self.is_open = False
        """True while that step has not finished."""
        self.waiting: dict[str, Question] = {}
        """What a person was asked and has not answered, by its id."""
        self.is_counted = True
        """True if a usage event has come since the last request to the model. It counts the whole run up to there."""
        self._progress: dict[str, CallProgress] = {}
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
        elif isinstance(event, (ToolStarted, ToolProgress)):
            self._of(event.id).take_in(event)
        elif isinstance(event, ToolResult):
            self._return(event)
        elif isinstance(event, Steered):
            self._change(inputs=(*self._current.inputs, event.text))
        elif isinstance(event, Question):
            self.waiting[event.id] = event
            self._of(event.call).take_in(event)
        elif isinstance(event, Answered) and (request := self.waiting.pop(event.id, None)) is not None:
            self._of(request.call).take_in(event)

    def _return(self, event: ToolResult) -> None:
        """Add the result of a call. It may have a question open that nobody has to answer any more."""
        self.waiting = {id: request for id, request in self.waiting.items() if request.call != event.id}
        progress = self._progress.pop(event.id, None)
        approved = progress.approved if progress else None
        decision, edited = (approved.decision, approved.arguments) if approved else (None, "")
        result = CallResult(event.id, cut(event.output), event.is_error, event.seconds, decision, edited)
        self._change(results=(*self._current.results, result))

    def _of(self, call: str) -> CallProgress:
        return self._progress.setdefault(call, CallProgress())

    def progress(self, call: str) -> CallProgress:
        """Return what has happened to a call that has no result."""
        return self._progress.get(call, CallProgress())

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
        """The ids of the calls that wait for a person."""
        return frozenset(request.call for request in self.waiting.values())

    def all(self) -> list[AgentStep]:
        """Return every step, including an unfinished one, and input that came before the first step."""
        return [*self.done, self.current] if self.number or self._current.inputs else self.done

    def settled(self, why: str) -> tuple[AgentStep, ...]:
        """Return every step with a result for each of its calls; `why` explains those that have none."""
        printed = {id: progress.printed for id, progress in self._progress.items()}
        unapproved = frozenset(each.call for each in self.waiting.values() if isinstance(each, ApprovalRequested))
        return tuple(step.settled(why, unapproved, printed) for step in self.all())


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
