"""The tool calls of one choice, built from the pieces of an upstream."""

from __future__ import annotations

import msgspec

from ...events import OpenCall, ToolCall
from ...ids import new_id
from ..decoding import loosely
from .chunks import CalledFunction, ChunkCall


class WrittenCalls:
    """The tool calls of one choice, as they are built: at least one."""

    __slots__ = ("_by_index", "_calls")

    def __init__(self) -> None:
        self._calls: list[WrittenCall] = []
        self._by_index: dict[int, int] = {}

    def finish_reason(self) -> str:
        """Return OpenAI's finish reason of an answer with these calls."""
        return "function_call" if self._calls[-1].kind == "function_call" else "tool_calls"

    def find(self, piece: ChunkCall) -> WrittenCall:
        """Return the call that a piece belongs to.

        By the index, but some upstreams send none, and some send 0 for each of several calls.
        """
        last = len(self._calls) - 1
        place = last if piece.index is None else self._by_index.get(piece.index, -1)
        if place < 0 or self._calls[place].is_another(piece):
            place = last + 1
            self._calls.append(WrittenCall(piece, place))
        if piece.index is not None:
            self._by_index[piece.index] = place
        return self._calls[place]

    def whole(self, choice: int) -> list[ToolCall]:
        return [call.whole(choice) for call in self._calls]


class WrittenCall(OpenCall):
    """One tool call. A missing id is replaced by a new one, so that the result can name it."""

    def __init__(self, first: ChunkCall, place: int) -> None:
        super().__init__(first.id or new_id("call"), kind=first.kind, place=place)
        self._upstream_id = first.id

    def is_another(self, piece: ChunkCall) -> bool:
        """Return whether a piece begins a new call: by its id, or without ids by its name if this one is complete."""
        if piece.id and self._upstream_id:
            return piece.id != self._upstream_id
        if self.kind == "function_call":
            return False
        has_name = piece.function is not None and bool(piece.function.name)
        return has_name and loosely(self.arguments.encode("utf-8", "replace")) is not None

    def read(self, piece: ChunkCall) -> tuple[str, str]:
        """Return the piece's part of the name and of the arguments. Some upstreams repeat the name in each piece."""
        function = piece.function or CalledFunction()
        if piece.custom is not None:
            function = CalledFunction(piece.custom.name, piece.custom.input)
        name = "" if function.name == self.name else function.name or ""
        if isinstance(function.arguments, dict):
            return name, msgspec.json.encode(function.arguments).decode()
        return name, function.arguments or ""
