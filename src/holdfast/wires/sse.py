"""Server-sent events, as bytes."""

from __future__ import annotations

HEARTBEAT = b": still here\n\n"
HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
DONE = b"data: [DONE]\n\n"
"""The last frame of OpenAI's streams, and of others that follow them."""


def data(payload: bytes) -> bytes:
    """Return an event that is only data. `payload` is JSON, so it has no line breaks."""
    return b"data: %b\n\n" % payload


def frame(id: bytes, event: bytes, payload: bytes) -> bytes:
    """Return an event with its number and its type."""
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (id, event, payload)


def farewell(milliseconds: int) -> bytes:
    """Return the last frame before the server ends: it tells the client when to reconnect."""
    return b"retry: %d\n: the server is restarting\n\n" % milliseconds
