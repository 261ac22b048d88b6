"""The contents of a link to a session: messages and events with only the fields that its owner has chosen.

Only fields and events that are listed here are shown. A new one stays hidden until it is added.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from ...events import (
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
from ...history import Message, title_from
from ...wires import native
from ...wires.shapes import MessageJson, SharedSettlementJson
from .shares import Share

_TOOLS = (StepStarted, StepFinished, ToolCall, ToolProgress, Steered)


def shown_title(title: str, messages: Sequence[Message], path: Sequence[Message]) -> str:
    """Return the title that a link shows. If it came from the session's first message, use the first one of the link.

    Otherwise it could show text of another branch.
    """
    made = {title_from(said.content) for said in messages if said.parent_id is None}
    first = next((said for said in path if said.role == "user"), None)
    return title if title not in made else title_from(first.content) if first is not None else ""


def shown_messages(path: Sequence[Message], share: Share) -> list[MessageJson]:
    """Return the messages of a branch as a link shows them."""
    return [_message(said, share) for said in path if _is_shown(said, share)]


def _is_shown(said: Message, share: Share) -> bool:
    if said.role in ("system", "developer"):
        return "system" in share.include
    return said.role != "tool" or "tools" in share.include


def _message(said: Message, share: Share) -> MessageJson:
    has_tools = "tools" in share.include
    shown = Message(
        id=said.id,
        role=said.role,
        content=said.content,
        model=said.model,
        partial=said.partial,
        outcome=said.outcome,
        reasoning=said.reasoning if "reasoning" in share.include else None,
        tool_calls=said.tool_calls if has_tools else (),
        tool_call_id=said.tool_call_id if has_tools else None,
        steps=said.steps if has_tools else (),
        author=said.author if "names" in share.include else "",
        automatic=said.automatic,
        created_at=said.created_at,
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
    told = native.settlement(settled)
    return {"outcome": told["outcome"], "partial": told["partial"], "text": told["text"]}
