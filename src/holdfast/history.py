"""Sessions, turns and messages, and what of them a model is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from .events import AnySettlement, Completed, Event, Failed, Interrupted, Settled, Settlement, Stopped, Text, ToolCall
from .log import Log
from .steps import Step

Role = Literal["system", "developer", "user", "assistant", "tool"]


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer took, as the engine saw it: measured once, so that every reader is told the same."""

    input_tokens: int
    output_tokens: int
    usage_source: str
    ttft_ms: float | None = None
    """From the start of the run to the first of its text, reasoning or tool call."""
    duration_ms: float | None = None
    tokens_per_second: float | None = None
    """Output tokens over the time from the first to the last; None where all came at once, and for agents."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is shown or said. Messages form a tree: an edit or a regenerated answer is a sibling."""

    id: str
    role: Role
    content: str | list[Any] | None
    parent_id: str | None = None
    run_id: str | None = None
    model: str | None = None
    partial: bool = False
    outcome: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    steps: tuple[Step, ...] = ()
    """What an agent did on the way to this answer: their texts together are its content."""
    figures: Figures | None = None
    """What it took; None for what was not answered here, or before this was counted."""
    created_at: float = 0.0


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation with an owner. `head_id` is the last message of the branch that is shown."""

    id: str
    owner: str
    kind: str = "chat"
    """What it is for. Lists and searches show chats only; a pane of a comparison is found through its comparison."""
    title: str = ""
    model: str | None = None
    system: str | None = None
    params: dict[str, Any] = {}
    pinned: bool = False
    head_id: str | None = None
    created_at: float = 0.0
    updated_at: float = 0.0


def branch(messages: Iterable[Message], head_id: str | None) -> list[Message]:
    """Return the messages from the first to the head, leaving out the siblings."""
    by_id = {message.id: message for message in messages}
    path: list[Message] = []
    while head_id is not None and head_id in by_id:
        path.append(by_id[head_id])
        head_id = by_id[head_id].parent_id
    path.reverse()
    return path


def answer(
    log: Log,
    settlement: Settlement,
    *,
    id: str,
    parent_id: str | None,
    run_id: str,
    model: str | None,
    at: float,
    figures: Figures | None = None,
) -> Message | None:
    """Return the assistant's message that a run leaves behind, or None where nothing was visible.

    A tool call that the model did not finish writing is no call, so only a completed run leaves calls.
    """
    completed = isinstance(settlement, Completed)
    steps = log.steps.settled(_why_unanswered(settlement)) if log.steps is not None else ()
    calls = tuple(call for call in log.tool_calls if call.choice == 0) if completed and not steps else ()
    if not settlement.text and not calls and not any(step.calls or step.inputs for step in steps):
        return None
    return Message(
        id=id,
        role="assistant",
        content=settlement.text,
        parent_id=parent_id,
        run_id=run_id,
        model=model,
        partial=not completed,
        outcome=outcome(settlement),
        reasoning=log.reasoning or None,
        tool_calls=calls,
        steps=steps,
        figures=figures,
        created_at=at,
    )


def _why_unanswered(settlement: Settlement) -> str:
    """Return why a tool call has no result, in words that are true and that a model understands."""
    if isinstance(settlement, Stopped):
        return "The run was stopped before this call finished."
    if isinstance(settlement, Interrupted):
        return "The server ended before this call finished."
    if isinstance(settlement, Failed):
        return "The run failed before this call finished."
    return "The run ended before this call finished."


def outcome(settlement: Settlement) -> str:
    """Return the word for how a run ended."""
    return str(settlement.__struct_config__.tag)


def left_of(settlement: AnySettlement | None, text: str) -> list[Event]:
    """Return what stands for the events of a log that was trimmed."""
    said: list[Event] = [Text(text)] if text else []
    return said if settlement is None else [*said, Settled(settlement)]


# What the model is shown.


def for_model(messages: Sequence[Message], system: str | None = None) -> list[dict[str, Any]]:
    """Return the messages in OpenAI's shape: valid for a strict provider, and with nothing of ours in them.

    A partial answer is shown as what it is, the assistant's words; how its run ended is never shown.
    """
    told = _answered_calls_only(_step_by_step(messages))
    shown = [plain(message) for message in told if not _is_empty(message)]
    if system:
        shown.insert(0, {"role": "system", "content": system})
    return shown


def told(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Return an agent's steps in OpenAI's shape."""
    message = Message(id="", role="assistant", content="", steps=tuple(steps))
    return for_model([message]) if steps else []


def _step_by_step(messages: Sequence[Message]) -> list[Message]:
    """Tell an agent's answer as it came about: its words, its calls, their results, and what was put in between."""
    told: list[Message] = []
    for message in messages:
        told += _steps_of(message) if message.steps else [message]
    return told


def _steps_of(message: Message) -> list[Message]:
    told: list[Message] = []
    for step in message.steps:
        told.append(Message(id=message.id, role="assistant", content=step.text, tool_calls=step.calls))
        told += [
            Message(id=message.id, role="tool", content=result.output, tool_call_id=result.id)
            for result in step.results
        ]
        told += [Message(id=message.id, role="user", content=text) for text in step.inputs]
    return told


def plain(message: Message) -> dict[str, Any]:
    """Return one message as a provider takes it."""
    shown: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        shown["content"] = message.content or None
        shown["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        shown["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        shown["name"] = message.name
    return shown


def _is_empty(message: Message) -> bool:
    return message.role == "assistant" and not message.content and not message.tool_calls


def _answered_calls_only(messages: Sequence[Message]) -> list[Message]:
    """Drop calls that were never answered and results that nobody asked for: strict providers refuse both."""
    kept: list[Message] = []
    for position, message in enumerate(messages):
        if message.tool_calls:
            answers = _results_after(messages, position)
            calls = tuple(call for call in message.tool_calls if call.id in answers)
            message = msgspec.structs.replace(message, tool_calls=calls)
        elif message.role == "tool" and not _was_called(kept, message.tool_call_id):
            continue
        kept.append(message)
    return kept


def _results_after(messages: Sequence[Message], position: int) -> set[str]:
    """Return the ids that the tool messages right after an assistant's message answer."""
    found: set[str] = set()
    for message in messages[position + 1 :]:
        if message.role != "tool":
            break
        found.add(message.tool_call_id or "")
    return found


def _was_called(kept: Sequence[Message], call_id: str | None) -> bool:
    """Tell whether the nearest assistant's message above made this call and nothing else stands between."""
    for message in reversed(kept):
        if message.role == "tool":
            if message.tool_call_id == call_id:
                return False  # answered already
            continue
        return any(call.id == call_id for call in message.tool_calls)
    return False


def alternating(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join neighbours of one role, for providers that insist on user and assistant taking turns."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        last = joined[-1] if joined else None
        if last is not None and _joinable(last, message):
            joined[-1] = {**last, "content": _join(last["content"], message["content"])}
        else:
            joined.append(message)
    return joined


def _joinable(one: dict[str, Any], two: dict[str, Any]) -> bool:
    return (
        one["role"] == two["role"]
        and one["role"] in ("user", "assistant")
        and "tool_calls" not in one
        and "tool_calls" not in two
    )


def _join(one: Any, two: Any) -> Any:
    if isinstance(one, str) and isinstance(two, str):
        return f"{one}\n\n{two}"
    return [*_parts(one), *_parts(two)]


def _parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def title_from(content: str | list[Any] | None) -> str:
    """Return a session's title from its first message: one line, cut at a word."""
    text = content if isinstance(content, str) else " ".join(_texts(content or ()))
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:60].rsplit(" ", 1)[0] + "…"


def _texts(parts: Iterable[Any]) -> Iterable[str]:
    return (part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))
