"""The estimate of output tokens that a provider has not counted, used by the log and by the spending meter."""

from __future__ import annotations

from ..events import Reasoning, StepStarted, Text, ToolCall, ToolDelta, Usage, Yielded
from ..pricing import tokens_in


class Said:
    """Characters since the provider's last count: text and reasoning of every choice, names and arguments of calls."""

    __slots__ = ("_calls", "_is_counted", "_pieces", "text")

    def __init__(self) -> None:
        self.text = 0
        self._pieces = self._calls = 0  # of tool calls: in deltas, and in whole calls, which repeat the deltas
        self._is_counted = False  # true once a step was counted: an agent repeats its calls after the count

    def hear(self, event: Yielded) -> None:
        """Add an event. A provider's count of output tokens resets the estimate."""
        if isinstance(event, str):
            self.text += len(event)
        elif isinstance(event, (Text, Reasoning)):
            self.text += len(event.text)
        elif isinstance(event, ToolDelta):
            self._pieces += len(event.name) + len(event.arguments)
        elif isinstance(event, ToolCall) and not (event.own and self._is_counted):
            self._calls += len(event.name) + len(event.arguments)
        elif isinstance(event, Usage) and event.output_tokens:
            self.text = self._pieces = self._calls = 0
            self._is_counted = True
        elif isinstance(event, StepStarted):
            self._is_counted = False

    @property
    def tokens(self) -> int:
        """The estimated number of tokens."""
        return tokens_in(self.text + max(self._pieces, self._calls))
