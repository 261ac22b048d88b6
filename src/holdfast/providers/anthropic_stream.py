"""One answer of Anthropic's Messages API: the upstream's bytes become events, and every way to end is told apart.

Pure: no connection and no task, so that any cutting of the same bytes gives the same events.

- An answer is whole when it gave a stop reason, and over at `message_stop` or at the end of the connection. Without a
  stop reason it has failed, also where `message_stop` came.
- An answer is made of blocks. Text is shown, thinking is reasoning, a tool use is a call. What Anthropic's own
  tools do, and kinds that are not known, are left out: to a reader they say nothing.
- Thinking that is signed, or redacted, is a thought too: Anthropic wants it back with the results of the calls.
- A call is whole when its block ends with JSON. What is no JSON by then is a call only if the model was not cut off.
- At its start an answer says what the input cost: that takes the place of our estimate. Only the end counts the output.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any

import msgspec

from ..errors import ProviderBroke, ProviderError
from ..events import Finish, Reasoning, Text, Thought, ToolCall, ToolDelta, Usage, Yielded
from ..ids import new_id
from .openai_stream import CUT_SHORT, MAX_EVENT, MAX_TEXT, Halves, count, loosely, told
from .redaction import redact
from .sse import EventTooLarge, ServerSentEvent, SSEDecoder

__all__ = ["FINISH_REASONS", "MessageDecoder"]

FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
    "pause_turn": "length",  # Anthropic's own tools took too many steps: there is more to say, and we do not ask for it
}
"""Anthropic's stop reasons in OpenAI's words. Others are passed on as they are."""

_ERROR_BODY = 64 * 1024
_COST_OF_AN_EVENT = 8  # what an empty piece counts against `max_text`, so that none can go on for ever


# What an event may hold.


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int | float | None = None
    output_tokens: int | float | None = None
    cache_creation_input_tokens: int | float | None = None
    cache_read_input_tokens: int | float | None = None

    def all_input(self) -> int:
        """Return the whole input. Anthropic counts what it wrote to its cache, or found there, apart."""
        return count(self.input_tokens) + count(self.cache_creation_input_tokens) + count(self.cache_read_input_tokens)


class _Message(msgspec.Struct, gc=False):
    usage: _Usage | None = None


class _Block(msgspec.Struct, gc=False):
    type: str = ""
    id: str | None = None
    name: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    input: Any = None


class _Delta(msgspec.Struct, gc=False):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    index: int | None = None
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None
    error: Any = None


_decode_event = msgspec.json.Decoder(_Event).decode


class MessageDecoder:
    """Turns the reads of one response into events.

    `error` is set where the answer has failed; what came before is returned all the same. `over` says that nothing
    more is looked at, `finished` that the answer is whole, although `message_stop` may still come. `after` is white
    space that the reader has seen already and the model has not: where its text begins with it, it is not said twice.
    """

    def __init__(
        self,
        name: str,
        *,
        after: str = "",
        secrets: Sequence[str] = (),
        max_event: int = MAX_EVENT,
        max_text: int = MAX_TEXT,
    ) -> None:
        self.over = False
        self.finished = False
        self.error: ProviderError | None = None
        self._name = name
        self._after = after
        self._secrets = secrets
        self._max_event = max_event
        self._max_text = self._room = max_text
        self._sse = SSEDecoder(max_event)
        self._began = bytearray()  # of a body that may be no event stream
        self._saw_events = False
        self._halves = Halves()
        self._calls: dict[int, _Call] = {}
        self._thoughts: dict[int, _Thinking] = {}
        self._called = 0
        self._doubtful: list[ToolCall] = []
        self._input_tokens = 0

    def feed(self, data: bytes) -> list[Sequence[Yielded]]:
        """Return the events that one more read completes."""
        events: list[Yielded] = []
        if self.over or not data:
            return []
        if not self._saw_events:
            self._began += data[: _ERROR_BODY - len(self._began)]
        try:
            self._read(self._sse.feed(data), events)
        except EventTooLarge:
            self._fail(self._broke(f"sent an event of more than {self._max_event} bytes"), events)
        if self._room < 0 and not self.over:
            self._fail(self._broke(f"sent an answer of more than {self._max_text} characters"), events)
        return [events]

    def end(self, *, cut: bool = False) -> list[Yielded]:
        """Return what is left when the upstream has ended: of its own accord, or `cut` off."""
        events: list[Yielded] = []
        if self.over:
            return events
        self._read_last_event(cut, events)
        self._end_unless_over(cut, events)
        return events

    # events

    def _read(self, frames: Iterable[ServerSentEvent], events: list[Yielded]) -> None:
        for kind, payload in frames:
            if kind == b"error":
                self._fail(self._failed(payload), events)
            elif payload.strip():
                self._take(payload, events)
            if self.over:
                return

    def _take(self, payload: bytes, events: list[Yielded]) -> None:
        self._saw_events = True
        self._room -= _COST_OF_AN_EVENT
        try:
            event = _decode(payload)
        except ValueError as error:
            self._fail(self._broke(f"sent {error}"), events)
            return
        match event.type:
            case "content_block_delta":
                self._take_delta(event.index or 0, event.delta or _Delta(), events)
            case "content_block_start":
                self._take_start(event.index or 0, event.content_block or _Block(), events)
            case "content_block_stop":
                self._take_stop(event.index or 0, events)
            case "message_start":
                self._take_input(event.message, events)
            case "message_delta":
                self._take_ending(event, events)
            case "message_stop":
                self._take_end(events)
            case "error":
                self._fail(self._failed(payload), events)

    # blocks

    def _take_start(self, index: int, block: _Block, events: list[Yielded]) -> None:
        if self.finished:
            return
        if block.type == "tool_use":
            self._calls[index] = call = _Call(self._called, block)
            self._called += 1
            self._room -= len(call.id) + len(call.name)
            events.append(ToolDelta(call.place, call.id, call.name))
        elif block.type == "redacted_thinking" and block.data:
            self._room -= len(block.data)
            events.append(Thought({"type": "redacted_thinking", "data": block.data}))
        elif block.type in ("text", "thinking"):  # as a rule empty, but what is there is part of the answer
            self._take_delta(index, _Delta(f"{block.type}_delta", block.text, block.thinking), events)
            self._take_delta(index, _Delta("signature_delta", signature=block.signature), events)

    def _take_delta(self, index: int, delta: _Delta, events: list[Yielded]) -> None:
        if self.finished:
            return
        if delta.type == "text_delta" and delta.text:
            self._show(Text(self._unrepeated(self._halves.join((index, "text"), delta.text))), events)
        elif delta.type == "thinking_delta" and delta.thinking:
            thought = self._halves.join((index, "thinking"), delta.thinking)
            self._thoughts.setdefault(index, _Thinking()).text.append(thought)
            self._show(Reasoning(thought), events)
        elif delta.type == "signature_delta" and delta.signature:
            self._room -= len(delta.signature)
            self._thoughts.setdefault(index, _Thinking()).signature.append(delta.signature)
        elif delta.type == "input_json_delta" and delta.partial_json and index in self._calls:
            self._take_arguments(self._calls[index], self._halves.join((index, "input"), delta.partial_json), events)

    def _unrepeated(self, text: str) -> str:
        """Return the text without what of its beginning was seen already."""
        seen = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self._after, text, strict=False)))
        self._after = self._after[seen:] if seen == len(text) else ""
        return text[seen:]

    def _show(self, event: Text | Reasoning, events: list[Yielded]) -> None:
        self._room -= len(event.text)
        if event.text:
            events.append(event)

    def _take_arguments(self, call: _Call, piece: str, events: list[Yielded]) -> None:
        self._room -= len(piece)
        call.arguments.append(piece)
        events.append(ToolDelta(call.place, arguments=piece))

    def _take_stop(self, index: int, events: list[Yielded]) -> None:
        self._flush(index, events)
        thought = self._thoughts.pop(index, None)
        if thought is not None and thought.signature:
            events.append(thought.whole())
        call = self._calls.pop(index, None)
        if call is None or self.finished:
            return
        if not call.arguments:
            self._take_arguments(call, call.given, events)
        whole = call.whole()
        if loosely(whole.arguments.encode("utf-8", "replace")) is None:
            self._doubtful.append(whole)
        else:
            events.append(whole)

    def _flush(self, index: int, events: list[Yielded]) -> None:
        """Show what stands for half an emoji whose other half never came."""
        self._show(Reasoning(self._halves.give_up((index, "thinking"))), events)
        self._show(Text(self._halves.give_up((index, "text"))), events)

    # usage

    def _take_input(self, message: _Message | None, events: list[Yielded]) -> None:
        """Take the count of the input for a better estimate: how much the output will be is not known yet."""
        if message is not None and message.usage is not None and (counted := message.usage.all_input()):
            self._input_tokens = counted
            events.append(Usage(counted, 0, "estimated"))

    def _take_output(self, usage: _Usage | None, events: list[Yielded]) -> None:
        if usage is not None and usage.output_tokens is not None:
            self._input_tokens = max(self._input_tokens, usage.all_input())
            events.append(Usage(self._input_tokens, count(usage.output_tokens), "provider"))

    # the end

    def _take_ending(self, event: _Event, events: list[Yielded]) -> None:
        if self.finished:
            return
        reason = event.delta.stop_reason if event.delta is not None else None
        if reason:
            self._finish(FINISH_REASONS.get(reason, reason), events)
            self._take_output(event.usage, events)

    def _finish(self, reason: str, events: list[Yielded]) -> None:
        for index in list(self._calls):  # blocks that nobody ended
            self._take_stop(index, events)
        if reason not in CUT_SHORT:
            events += self._doubtful
        self.finished = True
        events.append(Finish(reason))

    def _take_end(self, events: list[Yielded]) -> None:
        self.over = True
        if not self.finished:
            self._fail(self._broke("ended its answer without saying why"), events)

    def _read_last_event(self, cut: bool, events: list[Yielded]) -> None:
        try:
            last = self._sse.finish()
        except EventTooLarge:
            return
        self._read([frame for frame in last if not cut or loosely(frame[1]) is not None], events)

    def _end_unless_over(self, cut: bool, events: list[Yielded]) -> None:
        if not self.over and not self.finished:
            self._fail(self._why_unfinished(cut), events)
        self.over = True

    def _why_unfinished(self, cut: bool) -> ProviderError:
        if cut:
            return self._broke("broke off the connection in the middle of its answer")
        if self._saw_events:
            return self._broke("ended its stream without saying why")
        if told(loosely(bytes(self._began))):
            return self._failed(bytes(self._began))
        return self._broke("answered with something that is no event stream")

    def _fail(self, error: ProviderError, events: list[Yielded]) -> None:
        """End with an error, after what was held back: it is part of what the model said."""
        for index in self._halves.places():
            self._flush(index, events)
        self.error = error
        self.over = True

    def _broke(self, what: str) -> ProviderBroke:
        return ProviderBroke(f"{self._name} {what}.")

    def _failed(self, payload: bytes) -> ProviderError:
        message = redact(told(loosely(payload)), self._secrets)
        return ProviderError(f"{self._name} failed: {message or 'it did not say why.'}")


class _Thinking:
    """A block of thinking while it comes, and its signature. Without one it is worth nothing to Anthropic."""

    __slots__ = ("signature", "text")

    def __init__(self) -> None:
        self.text: list[str] = []
        self.signature: list[str] = []

    def whole(self) -> Thought:
        text, signature = "".join(self.text), "".join(self.signature)
        return Thought({"type": "thinking", "thinking": text, "signature": signature})


class _Call:
    """One tool call while it is being written. `given` is the input that came with its start: as a rule none."""

    __slots__ = ("arguments", "given", "id", "name", "place")

    def __init__(self, place: int, block: _Block) -> None:
        self.place = place
        self.id = block.id or new_id("call")
        self.name = block.name or ""
        self.given = json.dumps(block.input or {}, ensure_ascii=False)
        self.arguments: list[str] = []

    def whole(self) -> ToolCall:
        return ToolCall(self.id, self.name, "".join(self.arguments))


def _decode(payload: bytes) -> _Event:
    """Decode one event, loosely where it has to be: a lone surrogate, bytes that are no UTF-8, a number as a string."""
    try:
        return _decode_event(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = loosely(payload)
    if value is None:
        raise ValueError("something that is not JSON")
    try:
        return msgspec.convert(value, _Event, strict=False)
    except (msgspec.ValidationError, UnicodeEncodeError, RecursionError):
        raise ValueError("JSON that is no part of an answer") from None
