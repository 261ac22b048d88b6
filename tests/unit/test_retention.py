"""Data that is used while the list of what is too old is worked through."""

import math

from holdfast.history import Session
from holdfast.server.app import create_app
from holdfast.server.config.settings import Settings
from holdfast.server.features.responses.conversation_turns import delete_unused
from holdfast.server.sources.stored_conversations import StoredConversation, stored_conversations
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.served import NO_HOME


class UsedMeanwhile(MemoryStore):
    """A store in which what was listed as old is used before the list is worked through."""

    async def old_sessions(self, before, limit=100, **owners):
        listed = await super().old_sessions(before, limit, **owners)
        if ("ses_used", "local") in listed:
            await self.update_session("ses_used", {"title": "Used again"}, before + 1.0)
        return listed

    async def list_documents(self, kind, owner=None, *, before=None, limit=50):
        listed = await super().list_documents(kind, owner, before=before, limit=limit)
        if kind == "openai_conversation" and before is None:
            used = StoredConversation(items=[{"type": "message", "content": "More"}])
            await stored_conversations(self).put("conv_used", used, version=1)
        return listed


@requirement("people.retention")
async def test_an_old_chat_that_is_used_while_others_are_deleted_stays():
    """A list of old chats takes a while. What somebody writes in one of them meanwhile is not thrown away."""
    store = UsedMeanwhile()
    for id in ("ses_old", "ses_used"):
        await store.create_session(Session(id=id, owner="local", created_at=0.0, updated_at=0.0))
    app = create_app(Settings(session_days=10), store, NO_HOME)
    await app.state.server.data.retention.delete_old()

    assert await store.get_session("ses_old") is None
    assert "Used again" == (await store.get_session("ses_used")).title


@requirement("people.retention")
async def test_an_unused_conversation_that_is_used_while_others_are_deleted_stays():
    """So it is with the conversations of the Responses API."""
    conversations = stored_conversations(store := UsedMeanwhile())
    for id in ("conv_old", "conv_used"):
        await conversations.put(id, StoredConversation())
    await delete_unused(store, lambda owner: math.inf)

    assert await conversations.get("conv_old") is None
    assert 1 == len((await conversations.get("conv_used")).body.items)
