"""`/v1/stream`: runs with an `X-Conversation-Id`, in the dialect of llama.cpp's server."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT, READ
from ....asgi.cursor import RunFrames
from ....errors import BadRequest, NotFound
from ....runs.run import Run
from ....wires import llama_cpp
from ...kit.caller import owner_of
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json, NoContent
from ...kit.request import Bodies, check_name, decode
from ...kit.run_responses import so_far
from ...kit.streams import Streams
from ..sessions.run_json import run_headers
from ..sessions.runs import stop_within
from .conversations import RunNames
from .openai_chat import chunks_of

MOST = 1000
"""Maximum number of conversations in one request."""


class StreamNotFound(NotFound):
    """No run has this name, or its log was trimmed."""

    code = "stream_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no conversation {name!r}, or its stream is no longer kept.")


class Lookup(msgspec.Struct, frozen=True):
    """The request for the state of conversations."""

    conversation_ids: list[str] = []


_QUERY = {"conv_id": "what X-Conversation-Id said"}


class NamedStreams(Feature):
    """Streams of named runs."""

    def __init__(self, bodies: Bodies, streams: Streams, names: RunNames) -> None:
        self._bodies, self._streams, self._names = bodies, streams, names

    @Endpoint(
        "GET",
        "/v1/stream",
        who=READ,
        query={**_QUERY, "from": "the bytes seen"},
        answers={404: "no such conversation"},
        streams=True,
    )
    async def read_stream(self, request: Request) -> ASGIApp:
        """Send a conversation's bytes from an offset on, then live ones, to the end."""
        name, skip = _name(request), _offset(request)
        run = await self._names.find(owner_of(request), name)
        if run is None:
            raise StreamNotFound(name)
        return self._streams.stream(
            RunFrames(run, llama_cpp.FromByte(chunks_of(run).render, skip).render),
            headers=[(name.encode(), value.encode()) for name, value in run_headers(run).items()],
            sign_of_life=b"",  # heartbeat bytes would count as content
        )

    @Endpoint("DELETE", "/v1/stream", who=CHAT, query=_QUERY)
    async def stop_stream(self, request: Request) -> ASGIApp:
        """Stop a conversation's run. Succeeds if there is none, or it has ended."""
        run = await self._names.find(owner_of(request), _name(request))
        if run is None:
            return NoContent()
        await stop_within(run)
        return NoContent(run_headers(run))

    @Endpoint("POST", "/v1/streams/lookup", who=CHAT, stores=False, takes=Lookup, lists=True)
    async def look_up(self, request: Request) -> ASGIApp:
        """Return the state of conversations: whether they exist, their size, and whether they have ended."""
        names = decode(await self._bodies.read(request), Lookup).conversation_ids
        if len(names) > MOST:
            raise BadRequest(f"At most {MOST} conversations can be looked up at once.", param="conversation_ids")
        once = dict.fromkeys(name for name in names if name)
        found = [(name, await self._names.find(owner_of(request), name)) for name in once]
        return Json([await _described(name, run) for name, run in found if run is not None])


async def _described(name: str, run: Run) -> dict[str, Any]:
    is_done = run.settlement is not None
    size = await _size(run)
    record = run.record
    return llama_cpp.llama_cpp_stream(
        name, is_done=is_done, size=size, started_at=record.created_at, settled_at=record.settled_at
    )


async def _size(run: Run) -> int:
    """Return the number of bytes of a run so far: they are rendered, not stored."""
    chunks, size = chunks_of(run), 0
    async for events in so_far(run):
        size += sum(map(len, chunks.frames(events)))
    return size


def _name(request: Request) -> str:
    name = request.query_params.get("conv_id", "")
    if not name:
        raise BadRequest("conv_id is missing. It is the value of X-Conversation-Id.", param="conv_id")
    return check_name(name, "conv_id")


def _offset(request: Request) -> int:
    text = request.query_params.get("from") or "0"
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise BadRequest("from is the number of bytes seen.", param="from")
    return int(text)
