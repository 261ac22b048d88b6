"""What an agent did in one answer, step by step, as its log tells it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from ..events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    Reasoning,
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
"""Characters of a tool's output that a model is shown: the head and the tail of what is longer."""


class Answered(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a model is told of a tool call."""

    id: str
    output: str
    is_error: bool = False
    seconds: float | None = None
    """How long the call took; None where nobody knows."""
    decision: str | None = None
    """What a person said who was asked for it: `allow` or `deny`."""
    is_unfinished: bool = False
    """Whether the run ended before the call returned: the output is what it had printed by then."""


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One question to the model: what it said, what it called, what came of that, and what was put in afterwards."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[Answered, ...] = ()
    inputs: tuple[str, ...] = ()

    @property
    def unanswered(self) -> tuple[ToolCall, ...]:
        """The calls of which nobody knows what came of them."""
        answered = {result.id for result in self.results}
        return tuple(call for call in self.calls if call.id not in answered)

    def settled(
        self, why: str, unasked: frozenset[str] = frozenset(), outputs: Mapping[str, str] = MappingProxyType({})
    ) -> Step:
        """Return the step with an answer to every call, so that every provider accepts it: `why` there is no other.

        The calls in `unasked` waited for an approval, so that it is certain that they did not run. `outputs` is what
        calls had printed so far.
        """
        told = [
            Answered(call.id, f"{why} It was waiting for an approval and did not run.", True, is_unfinished=True)
            if call.id in unasked
            else Answered(call.id, _unfinished(outputs.get(call.id, ""), why), True, is_unfinished=True)
            for call in self.unanswered
        ]
        return msgspec.structs.replace(self, results=(*self.results, *told))


class Steps:
    """Takes in an agent's events, and knows at any time what it has done so far."""

    def __init__(self) -> None:
        self.done: list[Step] = []
        self.number = 0
        """The last step that has begun."""
        self.is_open = False
        """Whether that step has not finished."""
        self.waiting: dict[str, ApprovalRequested] = {}
        """The approvals that nobody has decided, by their ids."""
        self.uncounted = 0
        """Characters that were said since usage was told last."""
        self.is_counted = True
        """Whether usage was told since the model was asked last: usage is that of the whole run up to there."""
        self._decisions: dict[str, str] = {}
        self._outputs: dict[str, str] = {}
        self._current = Step()
        self._parts: list[str] = []

    def take_in(self, event: Event) -> None:
        """Note what an event tells of the steps."""
        if isinstance(event, (Text, Reasoning)):
            self.uncounted += len(event.text)
            if isinstance(event, Text):
                self._parts.append(event.text)
        elif isinstance(event, Usage):
            self.uncounted, self.is_counted = 0, True
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
            self.waiting = {id: asked for id, asked in self.waiting.items() if asked.call != event.id}
            decision = self._decisions.pop(event.id, None)
            answer = Answered(event.id, cut(event.output), event.is_error, event.seconds, decision)
            self._change(results=(*self._current.results, answer))
        elif isinstance(event, Steered):
            self._change(inputs=(*self._current.inputs, event.text))
        elif isinstance(event, ApprovalRequested):
            self.waiting[event.id] = event
        elif isinstance(event, ApprovalDecided):
            self._decide(event)

    def _decide(self, event: ApprovalDecided) -> None:
        asked = self.waiting.pop(event.id, None)
        if asked is not None:
            self._decisions[asked.call] = event.decision

    def _begin(self, number: int) -> None:
        self.done = self.all()
        self._current, self._parts = Step(), []
        self.number, self.is_open, self.is_counted = number, True, False

    def _change(self, **fields: object) -> None:
        self._current = msgspec.structs.replace(self._current, **fields)

    @property
    def current(self) -> Step:
        """The step that has begun last, as far as it has come."""
        return msgspec.structs.replace(self._current, text="".join(self._parts))

    @property
    def is_answered(self) -> bool:
        """Whether nothing was left to do: the model has ended well and called nothing, and nobody put anything in."""
        last = self._current
        return bool(self.number) and not self.is_open and not last.calls and not last.inputs

    @property
    def undecided(self) -> frozenset[str]:
        """The calls that wait for an approval: they have not run."""
        return frozenset(asked.call for asked in self.waiting.values())

    def all(self) -> list[Step]:
        """Return every step, the one that has not finished too, and what was put in before the first."""
        return [*self.done, self.current] if self.number or self._current.inputs else self.done

    def settled(self, why: str) -> tuple[Step, ...]:
        """Return every step with an answer to each of its calls."""
        return tuple(step.settled(why, self.undecided, self._outputs) for step in self.all())


def _unfinished(output: str, why: str) -> str:
    told = f"{why} It may have run."
    return f"{cut(output.rstrip())}\n[{told}]" if output.strip() else told


def cut(output: str, most: int = MOST_OUTPUT) -> str:
    """Return an output that a model can be shown: the middle of a long one is left out, and it says so."""
    if len(output) <= most:
        return output
    half = most // 2
    left_out = len(output) - 2 * half
    return f"{output[:half]}\n[... {left_out} characters are left out here ...]\n{output[-half:]}"
