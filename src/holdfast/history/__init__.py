"""Sessions and messages, and the messages that a model gets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from ..asks import OnBreak
from ..events import (
    AnySettlement,
    Completed,
    Event,
    Failed,
    Interrupted,
    Leg,
    Settled,
    Settlement,
    Stopped,
    Text,
    ToolCall,
    Usage,
    UsageSource,
)
from ..ids import ModelName
from ..log.log import Log
from ..log.steps import AgentStep
from ..pricing import tokens_in

Role = Literal["system", "developer", "user", "assistant", "tool"]


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The times and tokens of an answer, measured once by the engine."""

    input_tokens: int
    output_tokens: int
    usage_source: UsageSource
    ttft_ms: float | None = None
    """Time from the request to the model, of an agent's first step, to the first text, reasoning or tool call."""
    duration_ms: float | None = None
    tokens_per_second: float | None = None
    """Output tokens over the time from the first to the last; None if all came at once, and for agents."""
    cost: float | None = None
    """Cost at the prices of that time; None if the model had none."""
    thought_ms: float | None = None
    """Time that the model wrote reasoning; None if it wrote none."""


SHORTEST = 0.05
"""Minimum seconds from the first token to the last for a speed: below, the answer came at once."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The times of a run's start, request, first output, last output and end, in seconds of the loop's clock."""

    started: float
    asked: float
    """The start, or the first step of an agent: the start of its tools before it is not the model's time."""
    first: float | None
    last: float
    ended: float
    has_pace: bool = True
    """True if the model was writing all the time from the first to the last token. An agent also calls tools."""
    thought: float | None = None
    """The seconds of reasoning; None if there was none."""

    @property
    def ttft(self) -> float | None:
        """The seconds from the request to the first output; None if there was none."""
        return None if self.first is None else self.first - self.asked

    def figures(self, usage: Usage) -> Figures:
        """Return the times, and the speed from a count of the tokens."""
        seconds = 0.0 if self.first is None else self.last - self.first
        has_pace = self.has_pace and seconds >= SHORTEST
        return Figures(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            usage_source=usage.source,
            ttft_ms=None if self.ttft is None else round(self.ttft * 1000, 1),
            duration_ms=round((self.ended - self.started) * 1000, 1),
            tokens_per_second=round(usage.output_tokens / seconds, 2) if has_pace else None,
            cost=usage.cost,
            thought_ms=None if self.thought is None else round(self.thought * 1000, 1),
        )


def figures_of(measured: Measured | None, usage: Usage) -> Figures:
    """Return the times and tokens of a run. The times of one that began in another process are not known."""
    if measured is not None:
        return measured.figures(usage)
    return Figures(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        usage_source=usage.source,
        cost=usage.cost,
    )


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a session. Messages form a tree: an edit or a regenerated answer is a sibling."""

    id: str
    role: Role
    content: str | list[Any] | None
    parent_id: str | None = None
    run_id: str | None = None
    model: ModelName | None = None
    partial: bool = False
    outcome: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    steps: tuple[AgentStep, ...] = ()
    """The steps of an agent's answer: their texts together are its content."""
    figures: Figures | None = None
    """Its times and tokens; None if it was not answered here."""
    legs: tuple[Leg, ...] = ()
    """The calls of models that have written it, if there was more than one."""
    author: str = ""
    """The name of the person who wrote it; empty without accounts."""
    automatic: bool = False
    """True if the server wrote it, to have an answer continued."""
    compacts: bool = False
    """True if it asks for a summary that takes the place of the messages before it."""
    edited: bool = False
    """True if a person has changed what a model had written."""
    created_at: float = 0.0


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation with an owner. `head_id` is the last message of the branch that is shown."""

    id: str
    owner: str
    kind: str = "chat"
    """Its purpose. Lists and searches show chats only; a pane of a comparison is found through its comparison."""
    title: str = ""
    titled: Literal["", "person", "model"] = ""
    """Who wrote the title; empty if it is the beginning of the first message."""
    model: str | None = None
    """The model of its next runs, as the client wrote it."""
    system: str | None = None
    params: dict[str, Any] = {}
    preset: str = ""
    """The name of the preset from which it has its model, system prompt and parameters."""
    on_break: OnBreak | None = None
    """What is done if a response breaks off; None for what the settings say."""
    pinned: bool = False
    folder: str = ""
    """The name of the owner's folder that it is in; empty if it is in none."""
    tags: tuple[str, ...] = ()
    """In alphabetical order."""
    archived: bool = False
    head_id: str | None = None
    created_at: float = 0.0
    updated_at: float = 0.0


def branch(messages: Iterable[Message], head_id: str | None) -> list[Message]:
    """Return the messages from the first to the head, without siblings."""
    by_id = {message.id: message for message in messages}
    path: list[Message] = []
    while head_id is not None and head_id in by_id:
        path.append(by_id[head_id])
        head_id = by_id[head_id].parent_id
    path.reverse()
    return path


def reasoning_of(run_id: str, messages: Iterable[Message]) -> str:
    """Return the reasoning in the answer of a run."""
    return next((message.reasoning or "" for message in messages if message.run_id == run_id), "")


def answer_message(
    log: Log,
    settlement: Settlement,
    *,
    id: str,
    parent_id: str | None,
    run_id: str,
    model: ModelName | None,
    at: float,
    figures: Figures | None = None,
    edited: bool = False,
) -> Message | None:
    """Return the assistant's message that a run leaves behind, or None if nothing was visible.

    `model` is the requested one. The message names the one that answered.

    Only a completed run leaves tool calls: others may be incomplete.
    """
    completed = isinstance(settlement, Completed)
    steps = log.steps.settled(_why_unanswered(settlement)) if log.steps is not None else ()
    calls = tuple(call for call in log.tool_calls if call.choice == 0) if completed and not steps else ()
    has_acted = calls or any(step.calls or step.inputs for step in steps)
    if not settlement.text and not log.pictures and not has_acted:
        return None
    return Message(
        id=id,
        role="assistant",
        content=_with_pictures(settlement.text, log.pictures),
        parent_id=parent_id,
        run_id=run_id,
        model=log.answered_by or model,
        partial=not completed,
        outcome=settlement.outcome,
        reasoning=log.reasoning or None,
        tool_calls=calls,
        steps=steps,
        figures=figures,
        legs=settlement.legs,
        edited=edited,
        created_at=at,
    )


def _with_pictures(text: str, pictures: Sequence[str]) -> str | list[Any]:
    """Return the content of an answer: its text, or parts if it has pictures."""
    if not pictures:
        return text
    shown = [{"type": "image_url", "image_url": {"url": url}} for url in pictures]
    return [{"type": "text", "text": text}, *shown] if text else shown


def _why_unanswered(settlement: Settlement) -> str:
    """Return the reason why a tool call has no result, for the model."""
    if isinstance(settlement, Stopped):
        return "The run was stopped before this call finished."
    if isinstance(settlement, Interrupted):
        return "The server ended before this call finished."
    if isinstance(settlement, Failed):
        return "The run failed before this call finished."
    return "The run ended before this call finished."


def left_of(settlement: AnySettlement | None, text: str) -> list[Event]:
    """Return the events that replace those of a trimmed log."""
    events: list[Event] = [Text(text)] if text else []
    return events if settlement is None else [*events, Settled(settlement)]


# Messages for the model.


def for_model(messages: Sequence[Message], system: str | None = None) -> list[dict[str, Any]]:
    """Return the messages in OpenAI's shape: valid for a strict provider, without our own fields.

    A partial answer is a normal assistant message; how its run ended is not included.
    """
    answered = _answered_calls_only(_step_by_step(messages))
    sent = [plain(message) for message in answered if not _is_empty(message)]
    if system:
        sent.insert(0, {"role": "system", "content": system})
    return sent


def step_messages(steps: Sequence[AgentStep]) -> list[dict[str, Any]]:
    """Return an agent's steps in OpenAI's shape."""
    message = Message(id="", role="assistant", content="", steps=tuple(steps))
    return for_model([message]) if steps else []


def _step_by_step(messages: Sequence[Message]) -> list[Message]:
    """Replace an agent's answer by its steps: texts, calls, results, and messages that steered it."""
    expanded: list[Message] = []
    for message in messages:
        expanded += _steps_of(message) if message.steps else [message]
    return expanded


def _steps_of(message: Message) -> list[Message]:
    expanded: list[Message] = []
    for step in message.steps:
        expanded.append(Message(id=message.id, role="assistant", content=step.text, tool_calls=step.calls))
        expanded += [
            Message(id=message.id, role="tool", content=result.output, tool_call_id=result.id)
            for result in step.results
        ]
        expanded += [Message(id=message.id, role="user", content=text) for text in step.inputs]
    return expanded


def plain(message: Message) -> dict[str, Any]:
    """Return one message in OpenAI's shape."""
    sent: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        sent["content"] = message.content or None
        sent["tool_calls"] = [called(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        sent["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        sent["name"] = message.name
    return sent


def called(call: ToolCall) -> dict[str, Any]:
    """Return a tool call in OpenAI's shape."""
    if call.kind == "custom":
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _is_empty(message: Message) -> bool:
    return message.role == "assistant" and not message.content and not message.tool_calls


def _answered_calls_only(messages: Sequence[Message]) -> list[Message]:
    """Put each result right behind its call. Drop calls without a result and results without a call.

    Strict providers refuse all three: a result in another place, a call without a result, and a result without a
    call.
    """
    results, _ = _matched(messages)
    kept: list[Message] = []
    for place, message in enumerate(messages):
        if message.role == "tool":
            continue
        answers = results.get(place, [])
        if message.tool_calls:
            answered = {answer.tool_call_id for answer in answers}
            calls = tuple(call for call in message.tool_calls if call.id in answered)
            message = msgspec.structs.replace(message, tool_calls=calls)
        kept += [message, *answers]
    return kept


def results_without_calls(messages: Sequence[Message]) -> list[Message]:
    """Return the tool results without an open call: the call is missing, or already has a result."""
    return _matched(_step_by_step(messages))[1]


def _matched(messages: Sequence[Message]) -> tuple[dict[int, list[Message]], list[Message]]:
    """Match results and calls by id. Return the results by the index of their message, and those without a call.

    Some upstreams reuse ids in each answer, so a result belongs to the last call with its id before it.
    """
    waiting: dict[str, int] = {}
    results: dict[int, list[Message]] = {}
    without: list[Message] = []
    for place, message in enumerate(messages):
        waiting |= {call.id: place for call in message.tool_calls}
        if message.role != "tool":
            continue
        called = waiting.pop(message.tool_call_id or "", None)
        if called is None:
            without.append(message)
        else:
            results.setdefault(called, []).append(message)
    return results, without


def alternating(
    messages: Sequence[dict[str, Any]], roles: Sequence[str] = ("user", "assistant")
) -> list[dict[str, Any]]:
    """Join neighbouring messages of one of the roles, for providers that require user and assistant to alternate."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        last = joined[-1] if joined else None
        if last is not None and message["role"] in roles and _joinable(last, message):
            joined[-1] = {**last, "content": _join(last["content"], message["content"])}
        else:
            joined.append(message)
    return joined


def _joinable(one: dict[str, Any], two: dict[str, Any]) -> bool:
    return one["role"] == two["role"] and "tool_calls" not in one and "tool_calls" not in two


def _join(one: Any, two: Any) -> Any:
    if isinstance(one, str) and isinstance(two, str):
        return f"{one}\n\n{two}"
    return [*_parts(one), *_parts(two)]


def _parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def title_from(content: str | list[Any] | None) -> str:
    """Return a session's title from its first message: one line without Markdown, cut at a word.

    A message of files alone has their names.
    """
    text = text_of(content)[:_READ_FOR_TITLE] or ", ".join(_names_of_files(content))
    line = " ".join(" ".join(map(_without_marks, text.splitlines())).split()) or " ".join(text.split())
    return line if len(line) <= 60 else line[:60].rsplit(" ", 1)[0] + "…"


def _names_of_files(content: str | list[Any] | None) -> Iterator[str]:
    for part in content if isinstance(content, list) else ():
        match part:
            case {"type": "file", "file": {"filename": str(name)}}:
                yield name


_READ_FOR_TITLE = 1000
"""Number of characters of a message from which its title is made."""
_LINE_MARKS = re.compile(r"^(?:\s{0,3}(?:#{1,6}(?=\s)|>|[-*+](?=\s)|(?:```|~~~|\|).*))+")
_LINK = re.compile(r"!?\[([^\]\[]{1,200})\]\([^()\s]{0,500}\)")
_EMPHASIS = re.compile(r"(?<!\w)(\*{1,3}|_{1,3}|~~|`{1,2})(?=\S)([^*_~`]{1,200}?)(?<=\S)\1(?!\w)")


def _without_marks(line: str) -> str:
    """Return a line without the marks of headings, quotes, lists, fences, links and emphasis."""
    return _EMPHASIS.sub(r"\2", _LINK.sub(r"\1", _LINE_MARKS.sub("", line)))


def text_of(content: Any) -> str:
    """Return the text of a message's content: a string, or the texts of its parts with an empty line between two.

    Images and other parts have none. The content is not validated: it may come from a client or an upstream.
    """
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list | tuple) else ()
    return "\n\n".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))


_COUNTED = frozenset({"content", "text", "tool_calls", "function", "name", "arguments"})


def estimate_tokens(messages: Sequence[Mapping[str, Any]]) -> int:
    """Return about how many tokens the messages are, without images."""
    return tokens_in(sum(map(_characters, messages)))


def _characters(value: Any) -> int:
    """Count the characters of a message's own text, the text of its parts and the arguments of its calls."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list):
        return sum(map(_characters, value))
    if not isinstance(value, dict):
        return 0
    count = 0
    for field, inner in value.items():  # a loop, since each turn counts every message of a session again
        if field in _COUNTED:
            count += len(inner) if isinstance(inner, str) else _characters(inner)
    return count
