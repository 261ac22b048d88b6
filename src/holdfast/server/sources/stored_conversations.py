"""Conversations as they are stored: a document each, with the items and the response that is being added."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...errors import BadRequest, Conflict, NotFound
from ...store import Store
from ...store.documents import Documents
from ...wires.openai.response_items import Item

CONVERSATION_ID = "conv"
"""The prefix of a conversation's id."""
LARGEST = 8 * 1024 * 1024
"""Maximum size of a conversation's items as JSON, in bytes: a request reads and writes all of them."""


class StoredConversation(msgspec.Struct, frozen=True):
    """A conversation. `items` are in chronological order."""

    metadata: dict[str, str] = {}
    items: list[Item] = []
    run_id: str | None = None
    """The run of the response that is being added. Its items are added when it has ended."""
    begun_at: float = 0.0
    """The time (Unix seconds) at which `run_id` was set."""


class ConversationNotFound(NotFound):
    """No such conversation, or it is not yours."""

    code = "conversation_not_found"

    def __init__(self, conversation_id: str, param: str | None = None) -> None:
        super().__init__(f"Conversation with id {conversation_id!r} not found.")
        self.param = param


class ConversationLocked(Conflict):
    """A response is being added to the conversation."""

    code = "conversation_locked"
    message = "A response is being added to this conversation. Wait for it or cancel it, then try again."


class ConversationFull(BadRequest):
    """A conversation would become too large."""

    code = "conversation_full"
    status = 413
    message = f"A conversation has at most {LARGEST} bytes of items. Begin another one."


def check_fits(items: Sequence[Item]) -> None:
    """Refuse items that are larger than a conversation may be."""
    if len(msgspec.json.encode(items)) > LARGEST:
        raise ConversationFull


def stored_conversations(store: Store) -> Documents[StoredConversation]:
    """Return the stored conversations of all owners."""
    return Documents(store, "openai_conversation", StoredConversation)


async def conversation_items(store: Store, owner: str, conversation_id: str) -> list[Item]:
    """Return the items of a conversation."""
    found = await stored_conversations(store).get(conversation_id, owner=owner)
    if found is None:
        raise ConversationNotFound(conversation_id, "conversation")
    return found.body.items
