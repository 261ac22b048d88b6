"""Tool calls put together from their pieces, for wires that must name a call when they begin it."""

from __future__ import annotations

from typing import NamedTuple

from ..events import ToolCall, ToolDelta


class CallPiece(NamedTuple):
    """What is new of a call. `begins` is true once for each, `whole` where nothing more can follow."""

    id: str
    name: str
    arguments: str
    begins: bool
    whole: bool


class Calls:
    """Follows the calls of one run. A call begins with its first argument, or whole: only then is its name complete."""

    def __init__(self) -> None:
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}

    def piece(self, event: ToolDelta) -> CallPiece | None:
        """Take in a piece while the model writes; None where it says nothing yet."""
        call = self._at(event)
        call.read(event.arguments)
        if not call.has_begun:
            call.name += event.name
        if not event.arguments:
            return None
        begins, call.has_begun = not call.has_begun, True
        return CallPiece(call.id, call.name, event.arguments, begins, call.is_closed)

    def whole(self, event: ToolCall) -> CallPiece | None:
        """Take in a whole call; None where it was said to be whole before."""
        call = self._by_id.setdefault(event.id, _Call(event.id))
        if call.is_whole:
            return None
        begins, call.has_begun, call.is_whole = not call.has_begun, True, True
        return CallPiece(call.id, event.name, event.arguments if begins else "", begins, True)

    def _at(self, event: ToolDelta) -> _Call:
        call = self._by_index.get(event.index)
        if call is None or (event.id and event.id != call.id):
            id = event.id or f"call_{len(self._by_id)}"
            call = self._by_index[event.index] = self._by_id.setdefault(id, _Call(id))
        return call


class _Call:
    """One call. Whether its arguments are a whole object is known by counting brackets: once over each character."""

    __slots__ = ("_depth", "_in_string", "_is_escaped", "has_begun", "id", "is_closed", "is_whole", "name")

    def __init__(self, id: str) -> None:
        self.id = id
        self.name = ""
        self.has_begun = False
        self.is_whole = False
        self.is_closed = False
        """The outermost bracket was closed: what follows is no part of the arguments."""
        self._depth = 0
        self._in_string = False
        self._is_escaped = False

    def read(self, arguments: str) -> None:
        """Take in a piece of the arguments."""
        for character in arguments:
            if self._in_string:
                self._read_in_string(character)
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                self.is_closed = self.is_closed or self._depth <= 0

    def _read_in_string(self, character: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif character == "\\":
            self._is_escaped = True
        elif character == '"':
            self._in_string = False
