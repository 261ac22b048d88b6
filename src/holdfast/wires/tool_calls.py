"""Tool calls built from their pieces, for wires that need the name of a call at its beginning.

These wires have calls with JSON arguments. The text of a custom tool is shown as `{"input": text}` when it is complete.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ..events import OpenCall, ToolCall, ToolDelta


class CallPiece(NamedTuple):
    """A new piece of a call. `begins` is true for its first piece, `whole` if nothing more can follow."""

    id: str
    name: str
    arguments: str
    begins: bool
    whole: bool


class ToolCalls:
    """The calls of one run. A call begins with its first arguments, or complete: before that, its name may grow."""

    def __init__(self) -> None:
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}

    def piece(self, event: ToolDelta) -> CallPiece | None:
        """Add a piece; None if nothing can be shown yet."""
        if event.kind == "custom":
            return None
        call = self._at(event)
        call.read(event.arguments)
        if not call.has_begun:
            call.add("", event.name)
        if not event.arguments:
            return None
        begins, call.has_begun = not call.has_begun, True
        return CallPiece(call.id, call.name, event.arguments, begins, call.is_closed)

    def whole(self, event: ToolCall) -> CallPiece | None:
        """Add a complete call; None if it was complete before."""
        call = self._by_id.setdefault(event.id, _Call(event.id))
        if call.is_whole:
            return None
        begins, call.has_begun, call.is_whole = not call.has_begun, True, True
        return CallPiece(call.id, event.name, json_arguments(event) if begins else "", begins, True)

    def _at(self, event: ToolDelta) -> _Call:
        call = self._by_index.get(event.index)
        if call is None or (event.id and event.id != call.id):
            id = event.id or f"call_{len(self._by_id)}"
            call = self._by_index[event.index] = self._by_id.setdefault(id, _Call(id))
        return call


def json_arguments(call: ToolCall) -> str:
    """Return the arguments of a call as the JSON text of an object."""
    return msgspec.json.encode({"input": call.arguments}).decode() if call.kind == "custom" else call.arguments


class _Call(OpenCall):
    """One call. Its arguments are complete when its brackets are closed; each character is read once."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.has_begun = False
        self.is_whole = False
        self.is_closed = False
        """True if the outermost bracket was closed: what follows is not part of the arguments."""
        self._depth = 0
        self._in_string = False
        self._is_escaped = False

    def read(self, arguments: str) -> None:
        """Add a piece of the arguments."""
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
