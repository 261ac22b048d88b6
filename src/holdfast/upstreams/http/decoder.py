"""The base of the decoders of all dialects: cuts reads into frames, and distinguishes every way an answer ends.

Pure: no connection and no task. The same bytes give the same events, however they are split into reads.

- An answer is complete when the upstream has sent its finish reason. Without one it is an error, and so is an invalid
  frame: to skip it would lose text silently.
- A call is complete when its upstream ends it with JSON. Without JSON it is a call only if the model was not cut off.
- A lone surrogate waits for its other half. If none comes it becomes U+FFFD.

A dialect subclasses `DialectDecoder` and implements `take`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from ...errors import ProviderBroke, ProviderError
from ...events import (
    FAILED,
    TRUNCATED,
    CallKind,
    Finish,
    Notice,
    OpenCall,
    Reasoning,
    Text,
    ToolCall,
    ToolDelta,
    Yielded,
    openai_reason,
)
from ...ids import new_id
from ...redaction import redact
from ..decoding import MAX_EVENT, MAX_TEXT, Halves, error_message, loosely
from ..sse import EventTooLarge, ServerSentEvent

__all__ = ["DialectDecoder", "FrameReader", "ResponseDecoder", "decoded"]

T = TypeVar("T")

_ERROR_BODY = 64 * 1024
_WHOLE_CALL = object()  # the key of a call that arrives whole
_COST_OF_A_FRAME = 8  # what each frame counts against `max_text`, so that empty frames cannot go on for ever


class ResponseDecoder(Protocol):
    """Turns the bytes of one response into events. `DialectDecoder` describes `error` and `finished`."""

    error: ProviderError | None

    @property
    def over(self) -> bool:
        """Whether further bytes are ignored."""
        ...

    @property
    def finished(self) -> bool:
        """Whether the answer is complete."""
        ...

    def feed(self, data: bytes) -> list[Sequence[Yielded]]:
        """Return the events that one more read completes, in order, as sequences. Some may be empty."""
        ...

    def end(self, *, cut: bool = False) -> list[Yielded]:
        """Return the last events when the upstream has ended: normally, or `cut` off."""
        ...


class FrameReader(Protocol):
    """Cuts a body into frames: server-sent events, or lines. Raises `EventTooLarge`."""

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """Return the frames that one more read completes."""
        ...

    def finish(self) -> list[ServerSentEvent]:
        """Return the remaining frames at the end."""
        ...


class DialectDecoder:
    """Turns the reads of one response into events.

    `error` is set if the answer has failed; the events before it are returned all the same. `over` means that further
    bytes are ignored, `finished` that the answer is complete, although the dialect's last frame may still come.
    """

    def __init__(
        self,
        name: str,
        frames: FrameReader,
        *,
        secrets: Sequence[str] = (),
        max_event: int = MAX_EVENT,
        max_text: int = MAX_TEXT,
    ) -> None:
        self.over = False
        self.finished = False
        self.error: ProviderError | None = None
        self.broke_off = False
        """Whether the response ended, or was cut off, before the upstream sent a finish reason."""
        self.name = name
        self.secrets = secrets
        self._frames = frames
        self._max_event = max_event
        self._max_text = self._room = max_text
        self._first_bytes = bytearray()  # the first bytes of a body that may not be of the dialect
        self._saw_frames = False
        self._halves = Halves()
        self._calls: dict[Hashable, OpenCall] = {}
        self._call_count = 0
        self._incomplete_calls: list[ToolCall] = []  # arguments that are not JSON: dropped if the model was cut off
        self._left_out = ""

    # implemented by the dialect

    def take(self, kind: bytes, payload: bytes, events: list[Yielded]) -> None:
        """Decode one frame. If it is not of the dialect, raise `ValueError` with a description of what it is."""
        raise NotImplementedError

    # called by the upstream

    def feed(self, data: bytes) -> list[Sequence[Yielded]]:
        """Return the events that one more read completes."""
        events: list[Yielded] = []
        if self.over or not data:
            return []
        if not self._saw_frames:
            self._first_bytes += data[: _ERROR_BODY - len(self._first_bytes)]
        try:
            self._read(self._frames.feed(data), events)
        except EventTooLarge:
            self.fail(self.broke(f"sent an event of more than {self._max_event} bytes"), events)
        if self._room < 0 and not self.over:
            self.fail(self.broke(f"sent an answer of more than {self._max_text} characters"), events)
        return [events]

    def end(self, *, cut: bool = False) -> list[Yielded]:
        """Return the last events when the upstream has ended: normally, or `cut` off."""
        events: list[Yielded] = []
        if self.over:
            return events
        self._read_last_frame(cut, events)
        if self.error is None and not self.finished:
            self.broke_off = True
            self.fail(self._why_unfinished(cut), events)
        self.over = True
        return events

    def reopen(self, frames: FrameReader) -> None:
        """Continue with another response, which continues the interrupted one."""
        self._frames = frames
        self.over = self.broke_off = False
        self.error = None

    def _read(self, frames: Iterable[ServerSentEvent], events: list[Yielded]) -> None:
        for kind, payload in frames:
            if not payload.strip():
                continue
            self._saw_frames = True
            self._room -= _COST_OF_A_FRAME
            try:
                self.take(kind, payload, events)
            except ValueError as error:
                self.fail(self.broke(f"sent {error}"), events)
            if self.over:
                return

    def _read_last_frame(self, cut: bool, events: list[Yielded]) -> None:
        try:
            last = self._frames.finish()
        except EventTooLarge:
            return
        self._read([frame for frame in last if not cut or loosely(frame[1]) is not None], events)

    def _why_unfinished(self, cut: bool) -> ProviderError:
        if cut:
            return self.broke("broke off the connection in the middle of its answer")
        if self._saw_frames:
            return self.broke("ended its stream before the answer was complete")
        if error_message(loosely(bytes(self._first_bytes))):
            return self.failed(bytes(self._first_bytes))
        return self.broke("answered with something that is no event stream")

    # for dialects

    def joined(self, place: tuple[int, str], text: str) -> str:
        """Return a piece of text with surrogates joined; a last half waits for the next piece."""
        return self._halves.join(place, text)

    def say(self, text: str, events: list[Yielded], place: int = 0, *, refusal: bool = False) -> None:
        """Emit a piece of the answer."""
        self.show(self.joined((place, "text"), text), events, refusal=refusal)

    def think(self, text: str, events: list[Yielded], place: int = 0) -> None:
        """Emit a piece of the reasoning."""
        self.show_thought(self.joined((place, "thinking"), text), events)

    def show(self, text: str, events: list[Yielded], *, refusal: bool = False) -> None:
        """Emit text without lone surrogates, if there is any."""
        self.spend(len(text))
        if text:
            events.append(Text(text, refusal=True) if refusal else text)

    def show_thought(self, text: str, events: list[Yielded]) -> None:
        """Emit reasoning without lone surrogates, if there is any."""
        self.spend(len(text))
        if text:
            events.append(Reasoning(text))

    def spend(self, size: int) -> None:
        """Count stored data against `max_text`."""
        self._room -= size

    def leave_out(self, what: str) -> None:
        """Record content that cannot be passed on, such as an image."""
        self._left_out = what

    def flush(self, place: int, events: list[Yielded]) -> None:
        """Emit U+FFFD for a lone surrogate."""
        self.show_thought(self._halves.give_up((place, "thinking")), events)
        self.show(self._halves.give_up((place, "text")), events)

    # calls

    def begin_call(
        self, key: Hashable, id: str | None, name: str | None, events: list[Yielded], kind: CallKind = "function"
    ) -> OpenCall:
        """Begin a call. Its pieces are found by the key."""
        call = self._calls[key] = OpenCall(id or new_id("call"), name or "", kind, self._call_count)
        self._call_count += 1
        self.spend(len(call.id) + len(call.name) + _COST_OF_A_FRAME)
        events.append(ToolDelta(call.place, call.id, call.name, kind=kind))
        return call

    def has_call(self, key: Hashable) -> bool:
        """Return whether a call is open."""
        return key in self._calls

    def add_arguments(self, key: Hashable, piece: str, events: list[Yielded]) -> None:
        """Add a piece to a call's arguments."""
        call = self._calls.get(key)
        if call is not None and piece:
            piece = self.joined((call.place, "input"), piece)
            self.spend(len(piece))
            call.add(piece)
            events.append(ToolDelta(call.place, arguments=piece, kind=call.kind))

    def end_call(self, key: Hashable, given: str, events: list[Yielded]) -> None:
        """End a call; `given` are its arguments if no piece of them came."""
        if key in self._calls and self._calls[key].is_new:
            self.add_arguments(key, given, events)
        call = self._calls.pop(key, None)
        if call is None or self.finished:
            return
        whole = call.whole()
        if call.kind == "function" and loosely(whole.arguments.encode("utf-8", "replace")) is None:
            self._incomplete_calls.append(whole)
        else:
            events.append(whole)

    def add_call(self, id: str | None, name: str | None, arguments: Any, events: list[Yielded]) -> OpenCall:
        """Add a complete call, with its arguments as an object or as text."""
        call = self.begin_call(_WHOLE_CALL, id, name, events)
        written = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
        self.end_call(_WHOLE_CALL, written, events)
        return call

    # the end

    def finish(self, word: str, events: list[Yielded], why: str = "", *, stop_sequence: str | None = None) -> None:
        """End the answer, with the upstream's finish reason and its details."""
        reason = openai_reason(word, otherwise=word)
        if reason in FAILED:
            self.fail(self.failed(why or f"it ended with {word!r}"), events)
            return
        for key in list(self._calls):  # calls that were not ended
            self.end_call(key, "", events)
        for place in self._halves.places():
            self.flush(place, events)
        if reason not in TRUNCATED:
            events += self._incomplete_calls
        if self._left_out:
            events.append(Notice("content_left_out", f"{self.name} sent {self._left_out}, which cannot be passed on."))
        self.finished = True
        reason = "tool_calls" if reason == "stop" and self._call_count else reason
        events.append(Finish(reason, stop_sequence=stop_sequence))

    def fail(self, error: ProviderError, events: list[Yielded]) -> None:
        """End with an error, after the text that was held back."""
        for place in self._halves.places():
            self.flush(place, events)
        self.error = error
        self.over = True

    def broke(self, what: str) -> ProviderBroke:
        """Return the error for an upstream that violates its dialect."""
        return ProviderBroke(f"{self.name} {what}.")

    def failed(self, report: Any) -> ProviderError:
        """Return the error for a failure that the upstream reports: as bytes, JSON or text."""
        value = loosely(report) if isinstance(report, bytes) else report
        message = redact(error_message(value), self.secrets)
        return ProviderError(f"{self.name} failed: {message or 'it did not say why.'}")


def decoded(payload: bytes, decode: Any, shape: type[T]) -> T:
    """Decode one frame, loosely if needed: a lone surrogate, invalid UTF-8, a number as a string."""
    try:
        strict: T = decode(payload)
        return strict
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = loosely(payload)
    if value is None:
        raise ValueError("something that is not JSON")
    try:
        return msgspec.convert(value, shape, strict=False)
    except (msgspec.ValidationError, UnicodeEncodeError, RecursionError):
        raise ValueError("JSON that is no part of an answer") from None
