"""The decoder of Anthropic's Messages API: bytes of the upstream become events.

- An answer is complete once it has a stop reason, and ends at `message_stop` or at the end of the connection. Without
  a stop reason it has failed, even after `message_stop`.
- An answer is made of blocks. Thinking becomes reasoning, and a tool use becomes a call. Blocks of Anthropic's own
  tools, citations, and unknown blocks become `ProviderData`, for clients of this dialect only.
- Signed or redacted thinking is a thought too: Anthropic requires it with the results of the calls.
- The start of an answer has the input tokens, which replace our estimate and are logged. Only the end has the output
  tokens.
"""

from __future__ import annotations

import json
from itertools import takewhile
from typing import Any

import msgspec
from msgspec.structs import replace

from ...errors import ProviderError, ProviderRefused
from ...events import ProviderData, Thought, Usage, Yielded
from ..decoding import count, loosely
from ..http.decoder import DialectDecoder

__all__ = ["MessageDecoder"]


# Fields of an event.


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int | float | None = None
    output_tokens: int | float | None = None
    cache_creation_input_tokens: int | float | None = None
    cache_read_input_tokens: int | float | None = None

    def all_input(self) -> int:
        """Return all input tokens. Anthropic counts those of its cache separately."""
        return count(self.input_tokens) + count(self.cache_creation_input_tokens) + count(self.cache_read_input_tokens)

    def input(self) -> Usage:
        """Return the usage of the input, before that of the output is known."""
        return Usage(
            self.all_input(),
            cached_tokens=count(self.cache_read_input_tokens),
            cache_write_tokens=count(self.cache_creation_input_tokens),
        )


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
    citation: Any = None
    stop_reason: str | None = None
    stop_sequence: str | None = None


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    index: int | None = None
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None
    error: Any = None


_decode_event = msgspec.json.Decoder(_Event).decode


class MessageDecoder(DialectDecoder):
    """Turns the reads of one response into events.

    `after` is white space at the end of the prefill, which was not sent to the model. If the model's text begins with
    it, it is dropped.
    """

    def __init__(
        self,
        name: str,
        *,
        after: str = "",
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        self._after = after
        self._thoughts: dict[int, _Thinking] = {}
        self._others: dict[int, _Other] = {}
        self._start_inputs: dict[int, str] = {}  # the input at the start of a call: usually empty
        self._input = Usage()

    def take(self, kind: bytes, payload: bytes, events: list[Yielded]) -> None:
        """Decode one event."""
        if kind == b"error":
            self.fail(self.failed(payload), events)
            return
        event = self.decoded(payload, _decode_event, _Event)
        match event.type:
            case "content_block_delta":
                self._take_delta(event.index or 0, event.delta or _Delta(), events)
            case "content_block_start":
                self._take_start(event.index or 0, event.content_block or _Block(), payload, events)
            case "content_block_stop":
                self._take_stop(event.index or 0, events)
            case "message_start":
                self._take_input(event.message, events)
            case "message_delta":
                self._take_ending(event, events)
            case "message_stop":
                self._take_end(events)
            case "error":
                self.fail(self.failed(payload), events)

    # blocks

    def _take_start(self, index: int, block: _Block, payload: bytes, events: list[Yielded]) -> None:
        if self.finished:
            return
        if block.type == "tool_use":
            self.begin_call(index, block.id, block.name, events)
            self._start_inputs[index] = json.dumps(block.input or {}, ensure_ascii=False)
        elif block.type == "redacted_thinking" and block.data:
            self.spend(len(block.data))
            redacted = {"type": "redacted_thinking", "data": block.data}
            events += [Thought(redacted), _whole_block(redacted)]
        elif block.type not in ("text", "thinking"):
            self.spend(len(payload))
            self._others[index] = _Other(payload)
        else:  # usually empty, but part of the answer
            self._take_delta(index, _Delta(f"{block.type}_delta", block.text, block.thinking), events)
            self._take_delta(index, _Delta("signature_delta", signature=block.signature), events)

    def _take_delta(self, index: int, delta: _Delta, events: list[Yielded]) -> None:
        if self.finished:
            return
        if delta.type == "text_delta" and delta.text:
            self.show(self._unrepeated(self.joined(delta.text, "text", index)), events)
        elif delta.type == "thinking_delta" and delta.thinking:
            thought = self.joined(delta.thinking, "thinking", index)
            self._thoughts.setdefault(index, _Thinking()).text.append(thought)
            self.show_thought(thought, events)
        elif delta.type == "signature_delta" and delta.signature:
            self.spend(len(delta.signature))
            self._thoughts.setdefault(index, _Thinking()).signature.append(delta.signature)
        elif delta.type == "citations_delta" and isinstance(delta.citation, dict):
            events.append(ProviderData("anthropic", {"type": delta.type, "citation": delta.citation}))
        elif delta.partial_json and index in self._others:
            self.spend(len(delta.partial_json))
            self._others[index].input.append(delta.partial_json)
        elif delta.type == "input_json_delta" and delta.partial_json:
            self.add_arguments(index, delta.partial_json, events)

    def _unrepeated(self, text: str) -> str:
        """Return the text without the white space at its start that the prefill already has."""
        repeated = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self._after, text, strict=False)))
        self._after = self._after[repeated:] if repeated == len(text) else ""
        return text[repeated:]

    def _take_stop(self, index: int, events: list[Yielded]) -> None:
        self.flush(events, index)
        thought = self._thoughts.pop(index, None)
        if thought is not None and thought.signature:
            events += [thought.whole(), thought.sealed()]
        if (other := self._others.pop(index, None)) is not None and (block := other.whole()):
            events.append(_whole_block(block))
        self.end_call(index, self._start_inputs.pop(index, "{}"), events)

    # usage

    def _take_input(self, message: _Message | None, events: list[Yielded]) -> None:
        """Emit the count of the input: the output is not known yet."""
        if message is not None and message.usage is not None and message.usage.all_input():
            self._input = message.usage.input()
            self.use(self._input, events)

    def _take_output(self, usage: _Usage | None, events: list[Yielded]) -> None:
        if usage is not None and usage.output_tokens is not None:
            counted = max(self._input, usage.input(), key=lambda input: input.input_tokens)
            self.use(replace(counted, output_tokens=count(usage.output_tokens)), events)

    # the end

    def _take_ending(self, event: _Event, events: list[Yielded]) -> None:
        reason = event.delta.stop_reason if event.delta is not None else None
        if reason and not self.finished:
            for index in [*self._start_inputs, *self._others]:  # blocks that were not ended
                self._take_stop(index, events)
            stop_sequence = event.delta.stop_sequence if event.delta is not None else None
            self.finish(reason, events, stop_sequence=stop_sequence)
            self._take_output(event.usage, events)

    def _take_end(self, events: list[Yielded]) -> None:
        self.over = True
        if not self.finished:
            self.fail(self.broke("ended its stream before the answer was complete"), events)

    def failed(self, reported: Any) -> ProviderError:
        """Return the error that the upstream reported. One that is overloaded has its own code, for a later retry."""
        error = super().failed(reported)
        match loosely(reported) if isinstance(reported, bytes) else reported:
            case {"error": {"type": "overloaded_error"}}:
                return ProviderRefused(str(error), code="upstream_overloaded", status=529)
        return error


class _Thinking:
    """A thinking block and its signature, as they are built. Anthropic refuses a block without a signature."""

    __slots__ = ("signature", "text")

    def __init__(self) -> None:
        self.text: list[str] = []
        self.signature: list[str] = []

    def whole(self) -> Thought:
        text, signature = "".join(self.text), "".join(self.signature)
        return Thought({"type": "thinking", "thinking": text, "signature": signature})

    def sealed(self) -> ProviderData:
        """Return the signature, for a client that sends the thinking back."""
        return ProviderData("anthropic", {"type": "signature_delta", "signature": "".join(self.signature)})


def _whole_block(block: dict[str, Any]) -> ProviderData:
    return ProviderData("anthropic", {"type": "content_block", "content_block": block})


class _Other:
    """A block of another kind than text, thinking, or a call of the client's tools."""

    __slots__ = ("_started", "input")

    def __init__(self, started: bytes) -> None:
        self._started = loosely(started)
        self.input: list[str] = []

    def whole(self) -> dict[str, Any] | None:
        match self._started:
            case {"content_block": dict(block)}:
                input_value = loosely("".join(self.input).encode("utf-8", "replace")) if self.input else None
                return block if input_value is None else block | {"input": input_value}
        return None
