"""The branch of its messages that a session shows."""

from __future__ import annotations

from collections.abc import Sequence

from ....engine.core import Core
from ....errors import MessageNotFound, SessionBusy, StaleView
from ....history import Message, Session, branch
from ....store import Store


async def branch_from(store: Store, session: Session, message_id: str) -> tuple[list[Message], list[Message]]:
    """Return the messages of the branch before a message, and those from it on. 409 if it is on another branch."""
    messages = await store.messages(session.id)
    path = branch(messages, session.head_id)
    for place, message in enumerate(path):
        if message.id == message_id:
            return path[:place], path[place:]
    if any(message.id == message_id for message in messages):
        raise StaleView("This message is on another branch than the one the session shows now. Load it again.")
    raise MessageNotFound(message_id)


async def show_branch(
    store: Store, engine: Core, session: Session, messages: Sequence[Message], parent: str | None
) -> Session:
    """Add messages to a session after their parent, and show the branch that ends with them."""
    try:
        changed = await store.add_branch(
            session.id, messages, parent=parent, expect_head=session.head_id, now=engine.now()
        )
    except SessionBusy as busy:
        raise SessionBusy(busy.run_id, can_wait=False) from None
    engine.touch(session.id, session.owner)
    return changed
