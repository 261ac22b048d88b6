"""What has been used so far: a provider's count, and an estimate of what it has not counted.

The log, the budgets and the limits of agents all count with it.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from ..events import Reasoning, StepStarted, Text, ToolCall, ToolDelta, Usage, Yielded
from ..pricing import tokens_in


class UsageMeter(msgspec.Struct):
    """The usage of a run, or of one step of an agent.

    The estimate is of the characters since the provider's last count: text and reasoning of every choice, names and
    arguments of calls. `asked` is the estimated input of a request that is not counted yet.
    """

    counted: Usage | None = None
    """The provider's last count; None before the first."""
    asked: int = 0
    text: int = 0
    _pieces: int = 0  # of tool calls: in deltas, and in whole calls, which repeat the deltas
    _calls: int = 0
    _is_counted: bool = False  # true once a step was counted: an agent repeats its calls after the count

    def hear(self, event: Yielded) -> None:
        """Add an event. A provider's count of output tokens resets the estimate."""
        if isinstance(event, str):
            self.text += len(event)
        elif isinstance(event, (Text, Reasoning)):
            self.text += 0 if event.earlier else len(event.text)
        elif isinstance(event, ToolDelta):
            self._pieces += len(event.name) + len(event.arguments)
        elif isinstance(event, ToolCall) and not (event.own and self._is_counted):
            self._calls += len(event.name) + len(event.arguments)
        elif isinstance(event, Usage):
            self._count(event)
        elif isinstance(event, StepStarted):
            self._is_counted = False

    def _count(self, usage: Usage) -> None:
        if usage.source == "estimated" and not usage.output_tokens:
            self.asked = usage.input_tokens
            return
        self.counted, self.asked = usage, 0
        if usage.output_tokens:
            self.text = self._pieces = self._calls = 0
            self._is_counted = True

    @property
    def uncounted(self) -> int:
        """The estimated number of output tokens since the last count."""
        return tokens_in(self.text + max(self._pieces, self._calls))

    @property
    def used(self) -> Usage:
        """The usage so far; its source is "estimated" if any part of it is."""
        return with_estimate(self.counted, self.asked, self.uncounted)


def summed(one: Usage, two: Usage) -> Usage:
    """Return the usage of two calls together."""
    return Usage(
        one.input_tokens + two.input_tokens,
        one.output_tokens + two.output_tokens,
        "estimated" if "estimated" in (one.source, two.source) else "provider",
        cached_tokens=one.cached_tokens + two.cached_tokens,
        cache_write_tokens=one.cache_write_tokens + two.cache_write_tokens,
        reasoning_tokens=one.reasoning_tokens + two.reasoning_tokens,
    )


def remaining(all: Usage, part: Usage) -> Usage:
    """Return what is left of a usage without a part of it."""
    return replace(
        all,
        input_tokens=max(0, all.input_tokens - part.input_tokens),
        output_tokens=max(0, all.output_tokens - part.output_tokens),
        cached_tokens=max(0, all.cached_tokens - part.cached_tokens),
        cache_write_tokens=max(0, all.cache_write_tokens - part.cache_write_tokens),
        reasoning_tokens=max(0, all.reasoning_tokens - part.reasoning_tokens),
    )


def with_estimate(counted: Usage | None, asked: int, uncounted: int) -> Usage:
    """Return a count with an estimate of further input and output."""
    if counted is None:
        return Usage(asked, uncounted, "estimated")
    if not asked and not uncounted:
        return counted
    inputs, outputs = counted.input_tokens + asked, counted.output_tokens + uncounted
    return replace(counted, input_tokens=inputs, output_tokens=outputs, source="estimated")
