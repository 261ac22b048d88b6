"""`response.steer` over a WebSocket: input for the successor of a response that is being answered."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from ....errors import BadRequest
from ....events import Completed
from ....ids import new_id
from ....runs.run import Run
from ....wires.openai.response_items import items_of
from ....wires.openai.responses import response_id
from ...kit.request import convert

STEER = "response.steer"
MOST_PENDING = 16
"""Maximum number of inputs that wait for the end of one response."""

SteerCode: TypeAlias = Literal[
    "invalid_input",
    "response_not_active",
    "response_not_found",
    "steering_not_supported",
    "successor_creation_failed",
    "too_many_pending_steers",
]
"""The dialect's codes for input that was not used."""


class SteerEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message of a client that steers a response."""

    type: Literal["response.steer"]
    previous_response_id: str
    input: str | list[dict[str, Any]]


class Steer(msgspec.Struct, frozen=True):
    """Accepted input. `size` is the size of its message in bytes."""

    id: str
    previous_response_id: str
    input: str | list[dict[str, Any]]
    size: int

    def items(self) -> list[dict[str, Any]]:
        """Return the input as messages of the user."""
        return _messages(self.input)


class SteerRefused(Exception):
    """Input cannot be accepted, with the code and the message of the refusal."""

    def __init__(self, code: SteerCode, message: str) -> None:
        super().__init__(message)
        self.code: SteerCode = code


class ActiveResponse:
    """A response that is being answered, and the input for its successor."""

    def __init__(self, run: Run, request: dict[str, Any]) -> None:
        self.run = run
        self.id = response_id(run.id)
        self.accepted: list[Steer] = []
        self._request = request

    def accept(self, event: SteerEvent, size: int, limit: int) -> Steer:
        """Accept input, which then waits for the end of the response. `limit` is the size of all input in bytes."""
        if self._request.get("conversation") is not None:
            raise SteerRefused("steering_not_supported", "A response of a conversation cannot be steered.")
        if len(self.accepted) >= MOST_PENDING or sum(each.size for each in self.accepted) + size > limit:
            raise SteerRefused("too_many_pending_steers", "Too much input waits for the end of this response.")
        steer = Steer(new_id("steer"), self.id, event.input, size)
        self.accepted.append(steer)
        return steer

    def can_go_on(self) -> bool:
        """Return whether the response can have a successor: it completed, and no tool result is missing."""
        settled = self.run.settlement
        return isinstance(settled, Completed) and settled.finish_reason not in ("tool_calls", "function_call")

    def successor(self) -> dict[str, Any]:
        """Return the request for the successor: that of the response, with the accepted input."""
        same = {name: value for name, value in self._request.items() if name != "generate"}
        items = [item for steer in self.accepted for item in steer.items()]
        return {**same, "previous_response_id": self.id, "input": items}


def steer_of(decoded: dict[str, Any]) -> SteerEvent:
    """Return the decoded message. `SteerRefused` unless its input is text of a user."""
    try:
        event = convert(decoded, SteerEvent)
        items_of(_messages(event.input))
    except BadRequest as error:
        raise SteerRefused("invalid_input", error.info().message) from None
    if not event.input or not all(map(_is_of_user, _messages(event.input))):
        raise SteerRefused(
            "invalid_input", "input is a text, or messages of the role user with type, role and content."
        )
    return event


def _messages(given: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given


def _is_of_user(item: dict[str, Any]) -> bool:
    is_message = item.get("type", "message") == "message" and item.get("role") == "user"
    return is_message and item.keys() <= {"type", "role", "content"}
