"""`/api/thumbs` and the thumb of a message: votes on answers of chats."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT, READ
from ....errors import BadRequest, MessageNotFound
from ....store import Store
from ....store.documents import Stored
from ....wires import native
from ...kit.caller import owner_of
from ...kit.csv_responses import csv_answer, wants_csv
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json, NoContent
from ...kit.request import Bodies, decode
from ...sources.thumbs import MOST_WORDS, Thumb, ThumbVote, thumb_id, thumbs_in
from ..sharing.reach import Reach


class NewThumb(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A vote on an answer, and the reason in a word."""

    vote: ThumbVote
    why: str = ""


class ThumbsApi(Feature):
    """Votes on the answers of chats."""

    def __init__(self, bodies: Bodies, reach: Reach, store: Store) -> None:
        self._bodies, self._reach, self._store = bodies, reach, store
        self._thumbs = thumbs_in(store)

    @Endpoint("PUT", "/api/sessions/{session_id}/messages/{message_id}/thumb", who=CHAT, takes=NewThumb)
    async def put_thumb(self, request: Request) -> ASGIApp:
        """Vote on an answer of a chat of one's own. A later vote replaces the one before."""
        session = await self._reach.session(request)
        body = decode(await self._bodies.read(request), NewThumb)
        if len(body.why) > MOST_WORDS:
            raise BadRequest(f"The reason has at most {MOST_WORDS} characters.", param="why")
        message_id = request.path_params["message_id"]
        message = await self._store.get_message(session.id, message_id)
        if message is None:
            raise MessageNotFound(message_id)
        if message.role != "assistant" or message.model is None:
            raise BadRequest("Only a response of a model can have a vote.", param="message_id")
        thumb = Thumb(
            session_id=session.id,
            message_id=message.id,
            run_id=message.run_id,
            model=message.model,
            vote=body.vote,
            why=body.why.strip(),
        )
        id = thumb_id(session.id, message.id)
        await self._thumbs.exchange(id, thumb, owner=session.owner)
        stored = await self._thumbs.get(id)
        if stored is None or await self._store.get_session(session.id) is None:
            await self._thumbs.delete(id)  # the chat was deleted meanwhile, and its votes with it
            raise MessageNotFound(message_id)
        return Json(_shown(stored))

    @Endpoint("DELETE", "/api/sessions/{session_id}/messages/{message_id}/thumb", who=CHAT)
    async def delete_thumb(self, request: Request) -> ASGIApp:
        """Take a vote on an answer back."""
        session = await self._reach.session(request)
        await self._thumbs.delete(thumb_id(session.id, request.path_params["message_id"]))
        return NoContent()

    @Endpoint("GET", "/api/thumbs", who=READ, query={"session_id": "only those of a chat", "format": "json or csv"})
    async def list_thumbs(self, request: Request) -> ASGIApp:
        """List the votes on answers of the caller's chats, the newest first."""
        session_id = request.query_params.get("session_id")
        found = [
            _shown(each)
            async for each in self._thumbs.all(owner=owner_of(request))
            if session_id in (None, each.body.session_id)
        ]
        return csv_answer(found, "thumbs.csv") if wants_csv(request) else Json({"thumbs": found})


def _shown(thumb: Stored[Thumb]) -> dict[str, Any]:
    return {**msgspec.structs.asdict(thumb.body), "at": native.moment(thumb.updated_at)}
