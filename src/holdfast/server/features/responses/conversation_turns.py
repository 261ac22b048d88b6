"""Responses that are added to a conversation, one at a time.

The conversation records the run before it starts, and adds its items when it has ended. If the server ends in between,
the next request for the conversation does that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

from msgspec.structs import replace

from ....asks import response_ask
from ....concurrency.tasks import OwnedTasks
from ....engine.core import Core
from ....errors import HoldfastError
from ....events import Failed, Interrupted
from ....runs.run import Run
from ....store import RunRecord, Store
from ....store.documents import Stored
from ....wires.openai.response_items import Item, listed
from ...sources.response_chains import output_of
from ...sources.stored_conversations import (
    ConversationLocked,
    ConversationNotFound,
    StoredConversation,
    stored_conversations,
)

STARTING = 60.0
"""Seconds for which a run that a conversation names, and that does not exist, may still be about to start."""


class ConversationTurns:
    """Adds responses to conversations."""

    def __init__(self, store: Store, engine: Core, tasks: OwnedTasks) -> None:
        self._store, self._engine, self._tasks = store, engine, tasks

    async def up_to_date(
        self, owner: str, conversation_id: str, param: str | None = None
    ) -> Stored[StoredConversation]:
        """Return a conversation with the items of its last response. `ConversationLocked` while that is running."""
        stored, taken = stored_conversations(self._store), self._with_last_response
        found = await stored.change_awaiting(conversation_id, taken, owner=owner)
        if found is None:
            raise ConversationNotFound(conversation_id, param)
        return found

    async def _with_last_response(self, known: StoredConversation) -> StoredConversation:
        if known.run_id is None:
            return known
        record = await self._store.get_run(known.run_id)
        if record is None and self._engine.now() - known.begun_at > STARTING:
            return replace(known, run_id=None)
        if record is None or record.settlement is None:
            raise ConversationLocked
        return replace(known, items=[*known.items, *await _items_of(self._store, record)], run_id=None)

    async def start(self, conversation_id: str, record: RunRecord, start: Callable[[], Awaitable[Run]]) -> Run:
        """Start the run of a response that is added to a conversation."""
        await self._name_run(conversation_id, record)
        try:
            run = await start()
        except HoldfastError:
            await self._release(conversation_id, record)
            raise
        if run.id == record.id:
            self._tasks.start(self.add_items(run))
        else:
            await self._release(conversation_id, record)  # a repeated request has started nothing
        return run

    async def _name_run(self, conversation_id: str, record: RunRecord) -> None:
        async def name(known: StoredConversation) -> StoredConversation:
            current = await self._with_last_response(known)
            return replace(current, run_id=record.id, begun_at=self._engine.now())

        if await stored_conversations(self._store).change_awaiting(conversation_id, name, owner=record.owner) is None:
            raise ConversationNotFound(conversation_id, "conversation")

    async def _release(self, conversation_id: str, record: RunRecord) -> None:
        def released(known: StoredConversation) -> StoredConversation:
            return replace(known, run_id=None) if known.run_id == record.id else known

        await stored_conversations(self._store).change(conversation_id, released, owner=record.owner)

    async def add_items(self, run: Run) -> None:
        """Add the items of a response when it has ended, unless its conversation was deleted, or has another one."""
        await run.settled()
        if (conversation_id := response_ask(run.record.ask).conversation_id) is not None:
            with suppress(ConversationNotFound, ConversationLocked):
                await self.up_to_date(run.record.owner, conversation_id)


async def delete_unused(store: Store, before: Callable[[str], float]) -> None:
    """Delete the conversations that have not changed since a time, by owner, unless a response is being added."""
    conversations = stored_conversations(store)
    unused = [
        (stored.id, stored.version)
        async for stored in conversations.all()
        if stored.updated_at < before(stored.owner) and not await _is_growing(store, stored.body)
    ]
    for id, version in unused:  # not while they are listed: a page needs the last one of the page before
        await conversations.delete(id, version=version)


async def _is_growing(store: Store, known: StoredConversation) -> bool:
    record = None if known.run_id is None else await store.get_run(known.run_id)
    return record is not None and record.settlement is None


async def _items_of(store: Store, record: RunRecord) -> list[Item]:
    """Return the items of a response's request and answer. One that failed before any output leaves nothing."""
    ask = response_ask(record.ask)
    output = await output_of(store, record, ask)
    if isinstance(record.settlement, (Failed, Interrupted)) and not output:
        return []
    return [*listed(ask.input, record.id.removeprefix("run_")), *output]
