"""One answer of Bedrock's `converse-stream`: frames of AWS's event stream become events of a run.

- An answer is made of blocks: text, reasoning, a tool use. `messageStop` has the stop reason. `metadata` follows with
  the usage: the answer ends there, or at the end of the connection.
- An exception in the stream is a frame of its own.
- The signature of reasoning is a thought: Bedrock requires it with the results of the calls.
- A picture comes in pieces, each in base64 of its own.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from ...events import Thought, Usage, Yielded
from ..decoding import count
from ..http.decoder import DialectDecoder
from .event_stream import EventStreamDecoder

__all__ = ["ConverseDecoder"]


class _ToolUse(msgspec.Struct, gc=False, rename="camel"):
    tool_use_id: str | None = None
    name: str | None = None
    input: str | None = None


class _Start(msgspec.Struct, gc=False, rename="camel"):
    tool_use: _ToolUse | None = None


class _Thinking(msgspec.Struct, gc=False, rename="camel"):
    text: str | None = None
    signature: str | None = None
    redacted_content: str | None = None


class _ImageSource(msgspec.Struct, gc=False, rename="camel"):
    bytes: str | None = None


class _Image(msgspec.Struct, gc=False, rename="camel"):
    source: _ImageSource | None = None


class _Delta(msgspec.Struct, gc=False, rename="camel"):
    text: str | None = None
    tool_use: _ToolUse | None = None
    reasoning_content: _Thinking | None = None
    image: _Image | None = None


class _Usage(msgspec.Struct, gc=False, rename="camel"):
    input_tokens: int | float | None = None
    output_tokens: int | float | None = None
    cache_read_input_tokens: int | float | None = None
    cache_write_input_tokens: int | float | None = None

    def counted(self) -> Usage:
        read, written = count(self.cache_read_input_tokens), count(self.cache_write_input_tokens)
        return Usage(
            count(self.input_tokens) + read + written,
            count(self.output_tokens),
            "provider",
            cached_tokens=read,
            cache_write_tokens=written,
        )


class _Event(msgspec.Struct, gc=False, rename="camel"):
    content_block_index: int | None = None
    start: _Start | None = None
    delta: _Delta | None = None
    stop_reason: str | None = None
    usage: _Usage | None = None


_decode_event = msgspec.json.Decoder(_Event).decode
_NO_PICTURE = b"\0"
"""What no picture begins with."""


class ConverseDecoder(DialectDecoder):
    """Turns the reads of one response into events."""

    frames = EventStreamDecoder

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name, **options)
        self._thoughts: dict[int, list[str]] = {}
        self._pictures: dict[int, bytearray] = {}

    def take(self, kind: bytes, payload: bytes, events: list[Yielded]) -> None:
        """Decode one frame."""
        if kind.startswith(b"exception:"):
            error = self.failed(payload)
            self.fail(error if payload != b"{}" else self.failed(kind.partition(b":")[2].decode("latin-1")), events)
            return
        event = self.decoded(payload, _decode_event, _Event)
        index = event.content_block_index or 0
        match kind:
            case b"contentBlockStart" if event.start is not None and event.start.tool_use is not None:
                self.begin_call(index, event.start.tool_use.tool_use_id, event.start.tool_use.name, events)
            case b"contentBlockDelta" if event.delta is not None and not self.finished:
                self._take_delta(index, event.delta, events)
            case b"contentBlockStop":
                self.flush(events, index)
                self.end_call(index, "{}", events)
                self._end_picture(index, events)
            case b"messageStop":
                for picture in tuple(self._pictures):
                    self._end_picture(picture, events)
                self.finish(event.stop_reason or "end_turn", events)
            case b"metadata" if event.usage is not None:
                self.use(event.usage.counted(), events)
                self.over = self.finished

    def _take_delta(self, index: int, delta: _Delta, events: list[Yielded]) -> None:
        if delta.text:
            self.say(delta.text, events, index)
        if delta.tool_use is not None:
            self.add_arguments(index, delta.tool_use.input or "", events)
        if delta.reasoning_content is not None:
            self._take_thought(index, delta.reasoning_content, events)
        if delta.image is not None:
            self._take_picture(index, delta.image)

    def _take_picture(self, index: int, image: _Image) -> None:
        """Add a piece. What is an address in Amazon's storage, or an error, is none."""
        picture = self._pictures.setdefault(index, bytearray())
        try:
            picture += base64.b64decode((image.source and image.source.bytes) or "", validate=True)
        except (binascii.Error, ValueError):
            picture[:0] = _NO_PICTURE
        if len(picture) > self._max_event or sum(map(len, self._pictures.values())) > self._room:
            self.leave_out("pictures that are too large")
            picture[:] = _NO_PICTURE

    def _end_picture(self, index: int, events: list[Yielded]) -> None:
        picture = self._pictures.pop(index, None)
        if picture is not None and not self.show_picture(f"data:;base64,{base64.b64encode(picture).decode()}", events):
            self.leave_out("pictures")

    def _take_thought(self, index: int, thought: _Thinking, events: list[Yielded]) -> None:
        if thought.text:
            self._thoughts.setdefault(index, []).append(thought.text)
            self.think(thought.text, events, index)
        if thought.redacted_content:
            self.spend(len(thought.redacted_content))
            events.append(Thought({"reasoningContent": {"redactedContent": thought.redacted_content}}))
        if thought.signature:
            self.spend(len(thought.signature))
            sealed = {"text": "".join(self._thoughts.pop(index, [])), "signature": thought.signature}
            events.append(Thought({"reasoningContent": {"reasoningText": sealed}}))
