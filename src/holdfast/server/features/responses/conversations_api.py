"""`/v1/conversations`: OpenAI's conversations, and their items."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT, READ
from ....errors import BadRequest, NotFound
from ....fields import check_fields
from ....ids import new_id
from ....store import Store
from ....store.documents import Stored
from ....wires.openai.fields import CONVERSATIONS, NOT_OF_A_CONVERSATION
from ....wires.openai.response_items import Item, items_of, listed
from ...kit.caller import owner_of
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json, json_of
from ...kit.request import Bodies, convert, decode_object, whole_number
from ...sources.response_chains import resolved
from ...sources.stored_conversations import (
    CONVERSATION_ID,
    ConversationLocked,
    ConversationNotFound,
    StoredConversation,
    check_fits,
    stored_conversations,
)
from .conversation_turns import ConversationTurns
from .openai_responses import check_metadata, page_of, page_of_items

ConversationEdit = Callable[[StoredConversation], StoredConversation]

MOST_AT_ONCE = 20
"""Maximum number of items that one request adds."""


class ConversationItems(msgspec.Struct, frozen=True):
    """Items for a conversation."""

    items: list[dict[str, Any]]


class NewConversation(msgspec.Struct, frozen=True):
    """A new conversation, with the first of its items."""

    items: list[dict[str, Any]] | None = None
    metadata: dict[str, str] | None = None


class ConversationChange(msgspec.Struct, frozen=True):
    """A change of a conversation."""

    metadata: dict[str, str] | None


class ItemNotFound(NotFound):
    """The conversation has no such item."""

    code = "item_not_found"

    def __init__(self, item_id: str) -> None:
        super().__init__(f"Item with id {item_id!r} not found in this conversation.")


_WITHOUT_STATUS = ("compaction", "reasoning")
_DEFAULTS: dict[str, dict[str, Any]] = {
    "output_text": {"annotations": [], "logprobs": []},
    "input_image": {"detail": "auto", "file_id": None},
}


class ConversationsApi(Feature):
    """Conversations of the Responses API."""

    def __init__(self, bodies: Bodies, turns: ConversationTurns, store: Store) -> None:
        self._bodies, self._turns, self._store = bodies, turns, store

    @Endpoint("POST", "/v1/conversations", who=CHAT, takes=NewConversation, answers={404: "no such item to refer to"})
    async def create_conversation(self, request: Request) -> ASGIApp:
        """Create a conversation."""
        decoded = await self._decoded(request)
        body = convert(decoded, NewConversation)
        check_metadata(body.metadata)
        items = await self._new_items(request, body.items) if body.items else []
        new = StoredConversation(metadata=body.metadata or {}, items=items)
        id = new_id(CONVERSATION_ID)
        return _answer(await stored_conversations(self._store).put(id, new, owner=owner_of(request)))

    @Endpoint(
        "GET",
        "/v1/conversations",
        who=READ,
        query={"limit": "1 to 100", "after": "the conversation to go on from"},
    )
    async def list_conversations(self, request: Request) -> ASGIApp:
        """List the caller's conversations, the newest first."""
        limit = whole_number(request, "limit", 20, 100)
        documents, after = stored_conversations(self._store), request.query_params.get("after")
        found: list[dict[str, Any]] = []
        while len(found) <= limit and (
            page := await documents.page(owner=owner_of(request), before=after, limit=limit + 1)
        ):
            found += map(_conversation_json, page)
            after = page[-1].id
        return Json(page_of(found[:limit], has_more=len(found) > limit))

    @Endpoint("GET", "/v1/conversations/{conversation_id}", who=READ)
    async def get_conversation(self, request: Request) -> ASGIApp:
        """Return a conversation."""
        return _answer(await self._own(request))

    @Endpoint("POST", "/v1/conversations/{conversation_id}", who=CHAT, takes=ConversationChange)
    async def update_conversation(self, request: Request) -> ASGIApp:
        """Replace the metadata of a conversation."""
        metadata = convert(await self._decoded(request), ConversationChange).metadata
        check_metadata(metadata)
        return _answer(await self._changed(request, lambda known: replace(known, metadata=metadata or {})))

    @Endpoint(
        "DELETE",
        "/v1/conversations/{conversation_id}",
        who=CHAT,
        audit="conversation.delete",
        answers={200: "it is gone"},
    )
    async def delete_conversation(self, request: Request) -> ASGIApp:
        """Delete a conversation and its items. Stored responses stay."""
        found = await self._own(request)
        await stored_conversations(self._store).delete(found.id)
        return Json({"id": found.id, "object": "conversation.deleted", "deleted": True})

    # Items.

    @Endpoint(
        "POST",
        "/v1/conversations/{conversation_id}/items",
        who=CHAT,
        takes=ConversationItems,
        answers={409: "a response is being added"},
    )
    async def create_items(self, request: Request) -> ASGIApp:
        """Add items at the end of a conversation, and return them."""
        await self._turns.up_to_date(owner_of(request), request.path_params["conversation_id"])
        items = await self._new_items(request, convert(await self._decoded(request), ConversationItems).items)

        def added(known: StoredConversation) -> StoredConversation:
            if known.run_id is not None:  # it has begun meanwhile
                raise ConversationLocked
            return _checked(replace(known, items=[*known.items, *items]))

        await self._changed(request, added)
        return json_of(page_of([_item_json(item) for item in items], has_more=False))

    @Endpoint(
        "GET",
        "/v1/conversations/{conversation_id}/items",
        who=READ,
        query={"limit": "1 to 100", "order": "asc or desc", "after": "the item to go on from"},
    )
    async def list_items(self, request: Request) -> ASGIApp:
        """List the items of a conversation, the last first."""
        return json_of(page_of_items(request, [_item_json(item) for item in await self._items(request)]))

    @Endpoint(
        "GET",
        "/v1/conversations/{conversation_id}/items/{item_id}",
        who=READ,
        answers={404: "no such conversation, or no such item"},
    )
    async def get_item(self, request: Request) -> ASGIApp:
        """Return one item."""
        item_id = request.path_params["item_id"]
        for item in await self._items(request):
            if item["id"] == item_id:
                return json_of(_item_json(item))
        raise ItemNotFound(item_id)

    @Endpoint(
        "DELETE",
        "/v1/conversations/{conversation_id}/items/{item_id}",
        who=CHAT,
        audit="conversation.item_delete",
        answers={200: "the conversation without it", 404: "no such conversation, or no such item"},
    )
    async def delete_item(self, request: Request) -> ASGIApp:
        """Delete one item, and return the conversation."""
        item_id = request.path_params["item_id"]

        def change(known: StoredConversation) -> StoredConversation:
            left = [item for item in known.items if item["id"] != item_id]
            if len(left) == len(known.items):
                raise ItemNotFound(item_id)
            return replace(known, items=left)

        return _answer(await self._changed(request, change))

    async def _decoded(self, request: Request) -> dict[str, Any]:
        decoded = decode_object(await self._bodies.read(request))
        check_fields(decoded, CONVERSATIONS, NOT_OF_A_CONVERSATION)
        return decoded

    async def _own(self, request: Request) -> Stored[StoredConversation]:
        id = request.path_params["conversation_id"]
        found = await stored_conversations(self._store).get(id, owner=owner_of(request))
        if found is None:
            raise ConversationNotFound(id)
        return found

    async def _changed(self, request: Request, change: ConversationEdit) -> Stored[StoredConversation]:
        id = request.path_params["conversation_id"]
        changed = await stored_conversations(self._store).change(id, change, owner=owner_of(request))
        if changed is None:
            raise ConversationNotFound(id)
        return changed

    async def _items(self, request: Request) -> list[Item]:
        """Return the items so far, without those of a running response."""
        try:
            return (await self._turns.up_to_date(owner_of(request), request.path_params["conversation_id"])).body.items
        except ConversationLocked:
            return (await self._own(request)).body.items

    async def _new_items(self, request: Request, given: list[dict[str, Any]]) -> list[Item]:
        """Return items of a request in the stored form, each with a new id."""
        if not 0 < len(given) <= MOST_AT_ONCE:
            raise BadRequest(f"items has 1 to {MOST_AT_ONCE} items.", param="items")
        checked = await resolved(self._store, owner_of(request), items_of(given, param="items"))
        bare = [{name: value for name, value in item.items() if name != "id"} for item in checked]
        return _checked(StoredConversation(items=listed(bare, new_id(CONVERSATION_ID).partition("_")[2]))).items


def _checked(conversation: StoredConversation) -> StoredConversation:
    check_fits(conversation.items)
    return conversation


def _answer(stored: Stored[StoredConversation]) -> ASGIApp:
    return Json(_conversation_json(stored))


def _conversation_json(stored: Stored[StoredConversation]) -> dict[str, Any]:
    """Return a conversation without its items."""
    described = {"id": stored.id, "object": "conversation", "created_at": int(stored.created_at)}
    return {**described, "metadata": stored.body.metadata}


def _item_json(item: Item) -> Item:
    """Return an item with the fields that OpenAI's always has."""
    filled = {**item, "status": item.get("status") or "completed"} if item["type"] not in _WITHOUT_STATUS else item
    if item["type"] == "message":
        filled["content"] = [{**_DEFAULTS.get(part.get("type", ""), {}), **part} for part in item["content"]]
    return filled
