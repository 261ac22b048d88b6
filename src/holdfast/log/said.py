"""How much a model has written that no provider has counted: the one estimate of tokens, of a meter and of a log."""

from __future__ import annotations

from ..events import Reasoning, StepStarted, Text, ToolCall, ToolDelta, Usage, Yielded
from ..pricing import tokens_in


class Said:
    """The characters since the last count: text and reasoning of every choice, and the names and arguments of calls."""

    __slots__ = ("_calls", "_is_counted", "_pieces", "text")

    def __init__(self) -> None:
        self.text = 0
        self._pieces = self._calls = 0  # of tool calls: in pieces, and whole, which repeats the pieces
        self._is_counted = False  # the last step of an agent, which repeats its calls after the count

    def hear(self, event: Yielded) -> None:
        """Add an event. A count of output that a provider sends begins anew."""
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
        """About how many tokens that is."""
        return tokens_in(self.text + max(self._pieces, self._calls))
