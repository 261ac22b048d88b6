"""`/v1/stream`: what `X-Conversation-Id` has named on chat completions, in the words of llama.cpp's own server."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..asgi import EventStream, RunFrames
from ..errors import BadRequest, NotFound
from ..run import Run
from ..wire import llama_cpp
from . import conversations
from .answering import so_far
from .completions import chunks_of
from .context import Endpoint, Parts, check_name, decode, owner_of, read_body, run_headers
from .errors import Json
from .runs import stop_within

MOST = 1000
"""Conversations that may be looked up at once."""


class StreamNotFound(NotFound):
    """No run has this name, or its log was trimmed."""

    code = "stream_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no conversation {name!r}, or its stream is no longer kept.")


class Lookup(msgspec.Struct, frozen=True):
    """The conversations that a client wants to know of."""

    conversation_ids: list[str] = []


async def read_stream(parts: Parts, request: Request) -> Response:
    """Send a conversation's bytes from an offset on, then live ones, to the end."""
    name, skip = _name(request), _offset(request)
    run = await conversations.find(parts, owner_of(request), name)
    if run is None:
        raise StreamNotFound(name)
    return EventStream(
        RunFrames(run.log, llama_cpp.FromByte(chunks_of(run).render, skip).render),
        parts.closing,
        headers=[(name.encode(), value.encode()) for name, value in run_headers(run).items()],
        heartbeat=parts.settings.heartbeat,
        sign_of_life=b"",  # it would be counted
        send_timeout=parts.settings.send_timeout,
    )


async def stop_stream(parts: Parts, request: Request) -> Response:
    """Stop a conversation's run. Where there is none, or it has ended, that is what was wanted."""
    run = await conversations.find(parts, owner_of(request), _name(request))
    if run is None:
        return Response(status_code=204)
    await stop_within(run)
    return Response(status_code=204, headers=run_headers(run))


async def look_up(parts: Parts, request: Request) -> Response:
    """Tell which of these conversations there are, how far they have come, and whether they have ended."""
    names = decode(await read_body(parts, request), Lookup).conversation_ids
    if len(names) > MOST:
        raise BadRequest(f"At most {MOST} conversations can be looked up at once.", param="conversation_ids")
    once = dict.fromkeys(name for name in names if name)
    found = [(name, await conversations.find(parts, owner_of(request), name)) for name in once]
    return Json([await _described(name, run) for name, run in found if run is not None])


async def _described(name: str, run: Run) -> dict[str, Any]:
    is_done = run.settlement is not None
    size = await _size(run)
    record = run.record
    return llama_cpp.stream(
        name, is_done=is_done, size=size, started_at=record.created_at, settled_at=record.settled_at
    )


async def _size(run: Run) -> int:
    """Return the bytes of a run so far: they are rendered, not kept."""
    chunks, size = chunks_of(run), 0
    async for events in so_far(run):
        size += sum(map(len, chunks.frames(events)))
    return size


def _name(request: Request) -> str:
    name = request.query_params.get("conv_id", "")
    if not name:
        raise BadRequest("conv_id is missing: it is what X-Conversation-Id said.", param="conv_id")
    return check_name(name, "conv_id")


def _offset(request: Request) -> int:
    text = request.query_params.get("from") or "0"
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise BadRequest("from is the number of bytes seen.", param="from")
    return int(text)


_QUERY = {"conv_id": "what X-Conversation-Id said"}

ENDPOINTS = [
    Endpoint(
        "GET",
        "/v1/stream",
        read_stream,
        query={**_QUERY, "from": "the bytes seen"},
        answers={200: "the bytes from there on, live to the end", 400: "a bad query", 404: "no such conversation"},
        streams=True,
    ),
    Endpoint("DELETE", "/v1/stream", stop_stream, query=_QUERY, answers={204: "stopped", 400: "a bad query"}),
    Endpoint(
        "POST",
        "/v1/streams/lookup",
        look_up,
        takes=Lookup,
        answers={200: "those that there are", 400: "bad input", 413: "too large"},
        lists=True,
    ),
]
