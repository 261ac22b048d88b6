"""One answer of OpenAI's Responses API: server-sent events become events of a run.

- A response is made of items: a message (text, or a refusal), a function call, reasoning. Each is added, written in
  deltas, and done. A picture that OpenAI has made is one of the answer;
  other items of OpenAI's own tools (web search, code) are left out.
- `response.completed` or `response.incomplete` is the last event of a complete response.
- Encrypted reasoning is a thought: if OpenAI stores nothing, it requires it with the results of the calls.
- Each event has a number. A response in the background can be read from any of them on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ...events import CallKind, Thought, Usage, Yielded
from ..decoding import count
from ..http.decoder import DialectDecoder

__all__ = ["ResponsesDecoder"]


class _Part(msgspec.Struct, gc=False):
    type: str = ""
    text: str | None = None
    refusal: str | None = None


class _Item(msgspec.Struct, gc=False):
    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    input: str | None = None
    encrypted_content: str | None = None
    result: str | None = None
    summary: list[_Part] | None = None
    content: list[_Part] | None = None

    @property
    def kind(self) -> CallKind | None:
        """The kind of the call, if the item is a call of a client's tool."""
        kinds: dict[str, CallKind] = {"function_call": "function", "custom_tool_call": "custom"}
        return kinds.get(self.type)


class _CachedTokens(msgspec.Struct, gc=False):
    cached_tokens: int | float | None = None


class _ReasoningTokens(msgspec.Struct, gc=False):
    reasoning_tokens: int | float | None = None


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int | float | None = None
    output_tokens: int | float | None = None
    input_tokens_details: _CachedTokens | None = None
    output_tokens_details: _ReasoningTokens | None = None

    def counted(self) -> Usage:
        cached, thought = self.input_tokens_details, self.output_tokens_details
        return Usage(
            count(self.input_tokens),
            count(self.output_tokens),
            "provider",
            count(cached.cached_tokens) if cached is not None else 0,
            count(thought.reasoning_tokens) if thought is not None else 0,
        )


class _Why(msgspec.Struct, gc=False):
    reason: str | None = None


class _Response(msgspec.Struct, gc=False):
    id: str | None = None
    status: str | None = None
    usage: _Usage | None = None
    incomplete_details: _Why | None = None
    error: Any = None
    output: list[_Item] | None = None


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    sequence_number: int | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    delta: Any = None
    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None
    input: str | None = None
    item: _Item | None = None
    response: _Response | None = None


_decode_event = msgspec.json.Decoder(_Event).decode

_ENDINGS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")


class ResponsesDecoder(DialectDecoder):
    """Turns the reads of one response into events. `keep` is called with its id when that arrives."""

    def __init__(
        self,
        name: str,
        *,
        id: str = "",
        keep: Callable[[str], None] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        self.id = id
        """The id of the response; empty until it arrives."""
        self._keep = keep
        self.sequence = -1
        """The number of the last event that was decoded; -1 before the first."""
        self.has_ended = False
        """True if the upstream has ended the response."""
        self._streamed: set[tuple[int, int]] = (
            set()
        )  # parts that came as deltas: the whole text at their end repeats it
        self._summaries = 0

    def take(self, kind: bytes, payload: bytes, events: list[Yielded]) -> None:
        """Decode one event."""
        if payload.strip() == b"[DONE]":
            return
        event = self.decoded(payload, _decode_event, _Event)
        self.sequence = self.sequence if event.sequence_number is None else event.sequence_number
        if event.type == "error" or kind == b"error":
            self.has_ended = True
            self.fail(self.failed(payload), events)
        elif event.type in _ENDINGS:
            self._take_end(event.response or _Response(), event.type.removeprefix("response."), events)
        elif event.response is not None:
            self._take_id(event.response.id or "")
        elif not self.finished:
            self._take_piece(event, events)

    def _take_id(self, id: str) -> None:
        if id and not self.id:
            self.id = id
            if self._keep is not None:
                self._keep(id)

    # pieces

    def _take_piece(self, event: _Event, events: list[Yielded]) -> None:
        index = event.output_index or 0
        match event.type:
            case "response.output_text.delta" | "response.refusal.delta":
                self._add_text(event, str(event.delta or ""), events)
            case "response.output_text.done" | "response.refusal.done":
                if (index, event.content_index or 0) not in self._streamed:
                    self._add_text(event, event.text or event.refusal or "", events)
            case "response.reasoning_text.delta" | "response.reasoning_summary_text.delta":
                self.think(str(event.delta or ""), events, index)
            case "response.reasoning_summary_part.added":
                self._separate_summaries(index, events)
            case "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta":
                self.add_arguments(index, str(event.delta or ""), events)
            case "response.output_item.added":
                self._add_item(index, event.item or _Item(), events)
            case "response.output_item.done":
                self._end_item(index, event.item or _Item(), events)

    def _add_text(self, event: _Event, text: str, events: list[Yielded]) -> None:
        index = event.output_index or 0
        self._streamed.add((index, event.content_index or 0))
        self.say(text, events, index, refusal=event.type.startswith("response.refusal"))

    def _separate_summaries(self, index: int, events: list[Yielded]) -> None:
        """Emit a blank line between two parts of a summary: each is a paragraph with a heading."""
        self._summaries += 1
        if self._summaries > 1:
            self.think("\n\n", events, index)

    # items

    def _add_item(self, index: int, item: _Item, events: list[Yielded]) -> None:
        if item.kind is not None:
            self.begin_call(index, item.call_id or item.id, item.name, events, item.kind)

    def _end_item(self, index: int, item: _Item, events: list[Yielded]) -> None:
        self.flush(events, index)
        if item.kind is not None:
            if not self.has_call(index):
                self._add_item(index, item, events)
            self.end_call(index, (item.input if item.kind == "custom" else item.arguments) or "", events)
        elif item.type == "image_generation_call" and item.result:
            if not self.show_picture(f"data:;base64,{item.result}", events):
                self.leave_out("pictures")
        elif item.type == "reasoning" and item.encrypted_content:
            self.spend(len(item.encrypted_content))
            events.append(Thought(_thought(item)))

    # the end

    def _take_end(self, response: _Response, status: str, events: list[Yielded]) -> None:
        self.has_ended = self.over = True
        if response.usage is not None:
            self.use(response.usage.counted(), events)
        if status in ("failed", "cancelled"):
            error = response.error or f"the response was {status}"
            self.fail(self.failed(error), events)
        elif status == "incomplete":
            why = response.incomplete_details
            self.finish((why.reason if why is not None else None) or "length", events)
        else:
            self.finish("stop", events)

    def whole(self, value: Any) -> list[Yielded]:
        """Return the events of a response from its object; none if the response has not ended."""
        events: list[Yielded] = []
        try:
            response = msgspec.convert(value, _Response, strict=False)
        except msgspec.ValidationError:
            return events
        if f"response.{response.status}" not in _ENDINGS:
            return events
        for index, item in enumerate(response.output or ()):
            self._take_item(index, item, events)
        self._take_end(response, response.status or "", events)
        return events

    def _take_item(self, index: int, item: _Item, events: list[Yielded]) -> None:
        for part in item.summary or ():
            self._separate_summaries(index, events)
            self.think(part.text or "", events, index)
        for part in item.content or ():
            if part.type == "refusal":
                self.say(part.refusal or "", events, index, refusal=True)
            elif part.type == "reasoning_text":
                self.think(part.text or "", events, index)
            else:
                self.say(part.text or "", events, index)
        self._end_item(index, item, events)


def _thought(item: _Item) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": part.text or ""} for part in item.summary or ()]
    sealed = {"type": "reasoning", "summary": summary, "encrypted_content": item.encrypted_content}
    return sealed | ({"id": item.id} if item.id else {})
