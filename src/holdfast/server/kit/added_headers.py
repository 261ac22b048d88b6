"""Headers that a handler adds to its response, whatever kind of response it is: also to an error."""

from __future__ import annotations

from starlette.types import Message, Scope, Send

EXTRA_HEADERS = "holdfast.response_headers"
"""The key of the added headers in the scope of a request."""


def sending(scope: Scope, send: Send) -> Send:
    """Return the function that sends a response, with the added headers if there are any."""
    extra: dict[str, str] | None = scope.get(EXTRA_HEADERS)
    if not extra:
        return send
    added = [(name.encode(), value.encode()) for name, value in extra.items()]

    async def send_with(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        await send(message)

    return send_with
