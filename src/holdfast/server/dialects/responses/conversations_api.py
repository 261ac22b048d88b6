"""`/v1/conversations`: OpenAI's conversations, and their items."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT, READ
from ....errors import BadRequest, NotFound
from ....fields import check_fields
from ....ids import new_id
from ....store.documents import Stored
from ....wires.openai.fields import CONVERSATIONS, NOT_OF_A_CONVERSATION
from ....wires.openai.response_items import Item, items_of, listed
from ...caller import owner_of
from ...errors import Json, json_of
from ...request import convert, decode_object, read_body, whole_number
from ...routing import Endpoint
from ...services import Parts
from .conversation_turns import up_to_date
from .openai_responses import check_metadata, page_of, page_of_items
from .response_chains import resolved
from .stored_conversations import (
    CONVERSATION_ID,
    ConversationLocked,
    ConversationNotFound,
    StoredConversation,
    check_fits,
    stored_conversations,
)

ConversationEdit = Callable[[StoredConversation], Awaitable[StoredConversation]]

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


async def create_conversation(parts: Parts, request: Request) -> ASGIApp:
    """Create a conversation."""
    decoded = await _decoded(parts, request)
    body = convert(decoded, NewConversation)
    check_metadata(body.metadata)
    items = await _new_items(parts, request, body.items) if body.items else []
    new = StoredConversation(metadata=body.metadata or {}, items=items)
    id = new_id(CONVERSATION_ID)
    return _answer(await stored_conversations(parts.store).put(id, new, owner=owner_of(request)))


async def list_conversations(parts: Parts, request: Request) -> ASGIApp:
    """List the caller's conversations, the newest first."""
    limit = whole_number(request, "limit", 20, 100)
    documents, after = stored_conversations(parts.store), request.query_params.get("after")
    found: list[dict[str, Any]] = []
    while len(found) <= limit and (
        page := await documents.page(owner=owner_of(request), before=after, limit=limit + 1)
    ):
        found += map(_conversation_json, page)
        after = page[-1].id
    return Json(page_of(found[:limit], has_more=len(found) > limit))


async def get_conversation(parts: Parts, request: Request) -> ASGIApp:
    """Return a conversation."""
    return _answer(await _own(parts, request))


async def update_conversation(parts: Parts, request: Request) -> ASGIApp:
    """Replace the metadata of a conversation."""
    metadata = convert(await _decoded(parts, request), ConversationChange).metadata
    check_metadata(metadata)

    async def change(known: StoredConversation) -> StoredConversation:
        return replace(known, metadata=metadata or {})

    return _answer(await _changed(parts, request, change))


async def delete_conversation(parts: Parts, request: Request) -> ASGIApp:
    """Delete a conversation and its items. Stored responses stay."""
    found = await _own(parts, request)
    await stored_conversations(parts.store).delete(found.id)
    return Json({"id": found.id, "object": "conversation.deleted", "deleted": True})


# Items.


async def create_items(parts: Parts, request: Request) -> ASGIApp:
    """Add items at the end of a conversation, and return them."""
    await up_to_date(parts, owner_of(request), request.path_params["conversation_id"])
    items = await _new_items(parts, request, convert(await _decoded(parts, request), ConversationItems).items)

    async def change(known: StoredConversation) -> StoredConversation:
        return _checked(replace(known, items=[*known.items, *items]))

    await _changed(parts, request, change)
    return json_of(page_of([_item_json(item) for item in items], has_more=False))


async def list_items(parts: Parts, request: Request) -> ASGIApp:
    """List the items of a conversation, the last first."""
    return json_of(page_of_items(request, [_item_json(item) for item in await _items(parts, request)]))


async def get_item(parts: Parts, request: Request) -> ASGIApp:
    """Return one item."""
    item_id = request.path_params["item_id"]
    for item in await _items(parts, request):
        if item["id"] == item_id:
            return json_of(_item_json(item))
    raise ItemNotFound(item_id)


async def delete_item(parts: Parts, request: Request) -> ASGIApp:
    """Delete one item, and return the conversation."""
    item_id = request.path_params["item_id"]

    async def change(known: StoredConversation) -> StoredConversation:
        left = [item for item in known.items if item["id"] != item_id]
        if len(left) == len(known.items):
            raise ItemNotFound(item_id)
        return replace(known, items=left)

    return _answer(await _changed(parts, request, change))


async def _decoded(parts: Parts, request: Request) -> dict[str, Any]:
    decoded = decode_object(await read_body(parts, request))
    check_fields(decoded, CONVERSATIONS, NOT_OF_A_CONVERSATION)
    return decoded


async def _own(parts: Parts, request: Request) -> Stored[StoredConversation]:
    id = request.path_params["conversation_id"]
    found = await stored_conversations(parts.store).get(id, owner=owner_of(request))
    if found is None:
        raise ConversationNotFound(id)
    return found


async def _changed(parts: Parts, request: Request, change: ConversationEdit) -> Stored[StoredConversation]:
    id = request.path_params["conversation_id"]
    changed = await stored_conversations(parts.store).change(id, change, owner=owner_of(request))
    if changed is None:
        raise ConversationNotFound(id)
    return changed


async def _items(parts: Parts, request: Request) -> list[Item]:
    """Return the items so far, without those of a running response."""
    try:
        return (await up_to_date(parts, owner_of(request), request.path_params["conversation_id"])).body.items
    except ConversationLocked:
        return (await _own(parts, request)).body.items


async def _new_items(parts: Parts, request: Request, given: list[dict[str, Any]]) -> list[Item]:
    """Return items of a request in the stored form, each with a new id."""
    if not 0 < len(given) <= MOST_AT_ONCE:
        raise BadRequest(f"items has 1 to {MOST_AT_ONCE} items.", param="items")
    checked = await resolved(parts.store, owner_of(request), items_of(given, param="items"))
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


_WITHOUT_STATUS = ("compaction", "reasoning")
_DEFAULTS: dict[str, dict[str, Any]] = {
    "output_text": {"annotations": [], "logprobs": []},
    "input_image": {"detail": "auto", "file_id": None},
}

_NOT_THERE = {404: "no such conversation"}
_WITH_BODY = {400: "bad input", **_NOT_THERE, 413: "too large"}
ENDPOINTS = [
    Endpoint(
        "POST",
        "/v1/conversations",
        create_conversation,
        who=CHAT,
        takes=NewConversation,
        answers={200: "the conversation", 400: "bad input", 404: "no such item to refer to", 413: "too large"},
    ),
    Endpoint(
        "GET",
        "/v1/conversations",
        list_conversations,
        who=READ,
        query={"limit": "1 to 100", "after": "the conversation to go on from"},
        answers={200: "conversations, the newest first", 400: "a bad query"},
    ),
    Endpoint(
        "GET",
        "/v1/conversations/{conversation_id}",
        get_conversation,
        who=READ,
        answers={200: "the conversation", **_NOT_THERE},
    ),
    Endpoint(
        "POST",
        "/v1/conversations/{conversation_id}",
        update_conversation,
        who=CHAT,
        takes=ConversationChange,
        answers={200: "the conversation", **_WITH_BODY},
    ),
    Endpoint(
        "DELETE",
        "/v1/conversations/{conversation_id}",
        delete_conversation,
        who=CHAT,
        audit="conversation.delete",
        answers={200: "it is gone", **_NOT_THERE},
    ),
    Endpoint(
        "POST",
        "/v1/conversations/{conversation_id}/items",
        create_items,
        who=CHAT,
        takes=ConversationItems,
        answers={200: "the new items", **_WITH_BODY, 409: "a response is being added"},
    ),
    Endpoint(
        "GET",
        "/v1/conversations/{conversation_id}/items",
        list_items,
        who=READ,
        query={"limit": "1 to 100", "order": "asc or desc", "after": "the item to go on from"},
        answers={200: "the items", 400: "a bad query", **_NOT_THERE},
    ),
    Endpoint(
        "GET",
        "/v1/conversations/{conversation_id}/items/{item_id}",
        get_item,
        who=READ,
        answers={200: "the item", 404: "no such conversation, or no such item"},
    ),
    Endpoint(
        "DELETE",
        "/v1/conversations/{conversation_id}/items/{item_id}",
        delete_item,
        who=CHAT,
        audit="conversation.item_delete",
        answers={200: "the conversation without it", 404: "no such conversation, or no such item"},
    ),
]
