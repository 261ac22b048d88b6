"""One answer of Ollama's `/api/chat`: lines of JSON become events.

- Each line has a piece of the message; the last one has `done`, with the reason and the counts.
- An error in the middle is a line with `error`.
- A tool call is always complete, with its arguments as an object.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...events import Usage, Yielded
from ..decoding import count
from ..http.decoder import DialectDecoder
from ..lines import LineDecoder

__all__ = ["OllamaDecoder"]


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: Any = None


class _Call(msgspec.Struct, gc=False):
    id: str | None = None
    function: _Function | None = None


class _Message(msgspec.Struct, gc=False):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[_Call] | None = None
    images: Any = None


class _Line(msgspec.Struct, gc=False):
    message: _Message | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | float | None = None
    eval_count: int | float | None = None
    error: Any = None


_decode_line = msgspec.json.Decoder(_Line).decode


class OllamaDecoder(DialectDecoder):
    """Turns the reads of one response into events."""

    frames = LineDecoder

    def take(self, kind: bytes, payload: bytes, events: list[Yielded]) -> None:
        """Decode one line."""
        line = self.decoded(payload, _decode_line, _Line)
        if line.error:
            self.fail(self.failed(line.error), events)
            return
        if line.message is None and not line.done:
            raise ValueError("JSON that is no part of an answer")
        if line.message is not None:
            self._take_message(line.message, events)
        if line.done:
            self._take_end(line, events)

    def _take_message(self, message: _Message, events: list[Yielded]) -> None:
        if message.thinking:
            self.think(message.thinking, events)
        if message.content:
            self.say(message.content, events)
        for call in message.tool_calls or ():
            function = call.function or _Function()
            self.add_call(call.id, function.name, function.arguments, events)
        for image in message.images if isinstance(message.images, list) else ():
            if not self.show_picture(f"data:;base64,{image}", events):
                self.leave_out("pictures")

    def _take_end(self, line: _Line, events: list[Yielded]) -> None:
        self.over = True
        self.use(Usage(count(line.prompt_eval_count), count(line.eval_count), "provider"), events)
        self.finish(line.done_reason or "stop", events)
