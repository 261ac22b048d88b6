"""The contents of a link to a session: messages and events with only the fields that its owner has chosen.

Only fields and events that are listed here are shown. A new one stays hidden until it is added.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from ....events import (
    Event,
    Reasoning,
    RunStarted,
    Settled,
    Settlement,
    Snapshot,
    Steered,
    StepFinished,
    StepStarted,
    Text,
    ToolCall,
    ToolProgress,
    ToolResult,
)
from ....history import Message, title_from
from ....wires import native
from ....wires.shapes import MessageJson, SharedSettlementJson
from .shares import Share

_TOOLS = (StepStarted, StepFinished, ToolCall, ToolProgress, Steered)


def shown_title(title: str, messages: Sequence[Message], path: Sequence[Message]) -> str:
    """Return the title that a link shows. If it came from the session's first message, use the first one of the link.

    Otherwise it could show text of another branch.
    """
    made = {title_from(message.content) for message in messages if message.parent_id is None}
    first = next((message for message in path if message.role == "user"), None)
    return title if title not in made else title_from(first.content) if first is not None else ""


def shown_messages(path: Sequence[Message], share: Share) -> list[MessageJson]:
    """Return the messages of a branch as a link shows them."""
    return [_message(message, share) for message in path if _is_shown(message, share)]


def _is_shown(message: Message, share: Share) -> bool:
    if message.role in ("system", "developer"):
        return "system" in share.include
    return message.role != "tool" or "tools" in share.include


def _message(message: Message, share: Share) -> MessageJson:
    has_tools = "tools" in share.include
    shown = Message(
        id=message.id,
        role=message.role,
        content=message.content,
        model=message.model,
        partial=message.partial,
        outcome=message.outcome,
        reasoning=message.reasoning if "reasoning" in share.include else None,
        tool_calls=message.tool_calls if has_tools else (),
        tool_call_id=message.tool_call_id if has_tools else None,
        steps=message.steps if has_tools else (),
        author=message.author if "names" in share.include else "",
        automatic=message.automatic,
        compacts=message.compacts,
        created_at=message.created_at,
    )
    return native.message(shown)


def shown_event(event: Event, share: Share) -> Event | None:
    """Return an event as a link shows it; None if it is not shown. The end of a run has its own shape."""
    if isinstance(event, (RunStarted, Settled)):
        return event
    if isinstance(event, Text):
        return Text(event.text, refusal=event.refusal) if event.choice == 0 else None
    if isinstance(event, Snapshot):
        return Snapshot(event.text, event.reasoning if "reasoning" in share.include else "")
    if isinstance(event, Reasoning):
        return event if "reasoning" in share.include else None
    if "tools" not in share.include:
        return None
    if isinstance(event, ToolResult):
        return ToolResult(event.id, event.output, event.is_error, event.seconds, event.cut, content=UNSET)
    return event if isinstance(event, _TOOLS) else None


def shown_settlement(settled: Settlement) -> SharedSettlementJson:
    """Return how a run ended, without tokens, costs and the details of an error."""
    json = native.settlement(settled)
    return {"outcome": json["outcome"], "partial": json["partial"], "text": json["text"]}
