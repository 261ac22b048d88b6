"""Limits for the messages of an MCP server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2

MOST_BYTES = 8 * 1024 * 1024
"""Maximum size of a message in bytes."""
MOST_VALUES = 200_000
"""Maximum number of objects and lists in a message: to decode so many takes about a second."""
TOO_LARGE = f"it sent a message of more than {MOST_BYTES >> 20} MB, or of more than {MOST_VALUES:,} values"


def is_too_large(message: bytes) -> bool:
    """Return whether a message would take too long to decode, by its bytes alone."""
    return len(message) > MOST_BYTES or _values(message) > MOST_VALUES


def _values(message: bytes) -> int:
    return message.count(b"{") + message.count(b"[")


def _newest_event(piece: bytes) -> bytes:
    """Return the part of a stream that belongs to its last event; all of it if no event begins in it."""
    place = max(piece.rfind(b"\n\n"), piece.rfind(b"\n\r\n"))
    return piece if place < 0 else piece[place:]


async def limit_response(response: httpx2.Response) -> None:
    """Limit the size of a response's body. The SDK limits the size of an event.

    A compressed body, which could grow a thousandfold, is refused.
    """
    is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    encoding = response.headers.get("content-encoding", "identity").lower()
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    limit = 0 if encoding != "identity" else None if is_stream else MOST_BYTES
    response.stream = _Limited(response.stream, limit)


class _Limited(httpx2.AsyncByteStream):
    """A body that fails at its limit. The SDK passes a `StreamError` to the waiting call."""

    def __init__(self, body: httpx2.AsyncByteStream, limit: int | None) -> None:
        self._body = body
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the body, and fail if it is too long."""
        size = values = 0
        async for piece in self._body:
            size += len(piece)
            newest = _newest_event(piece) if self._limit is None else piece
            values = _values(newest) + (values if newest is piece else 0)
            if values > MOST_VALUES or (self._limit is not None and size > self._limit):
                raise httpx2.StreamError(TOO_LARGE)
            yield piece

    async def aclose(self) -> None:
        """Close the body."""
        await self._body.aclose()
