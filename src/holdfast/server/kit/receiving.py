"""Receives the body of a request into a file: archives are larger than what is kept in memory."""

from __future__ import annotations

import asyncio
from typing import IO

from starlette.requests import Request

from ...errors import BadRequest
from .caller import access_of
from .request import BodyTooLarge


async def receive(request: Request, file: IO[bytes], most: int) -> None:
    """Write a body of at most `most` bytes to a file."""
    size, more = 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise BadRequest("The client disconnected before it had sent its whole request.")
        size += len(message.get("body", b""))
        if size > most:
            raise BodyTooLarge(most)
        await asyncio.to_thread(file.write, message.get("body", b""))
        more = message.get("more_body", False)
    if (access := access_of(request)).is_revoked:
        raise access.end_error()
