"""The base of the decoders of all dialects: cuts reads into frames, and distinguishes every way an answer ends.

Pure: no connection and no task. The same bytes give the same events, however they are split into reads.

- An answer is complete when the upstream has sent its finish reason. Without one it is an error, and so is an invalid
  frame: to skip it would lose text silently.
- A call is complete when its upstream ends it with JSON. Without JSON it is a call only if the model was not cut off.
- A lone surrogate waits for its other half. If none comes it becomes U+FFFD. Strict JSON has none: they are looked for
  after the first frame that had to be decoded loosely.
- A body without a frame is recognised at its end: a whole answer, an error, HTML, or something else.
- Usage that comes with every frame is emitted once, as it stood last.

A dialect subclasses `DialectDecoder` and implements `take`: which methods "for dialects" a frame calls.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec

from ...attachments.kinds import picture_url
from ...errors import ProviderBroke, ProviderError
from ...events import (
    FAILED,
    TRUNCATED,
    CallKind,
    Finish,
    Notice,
    OpenCall,
    Picture,
    Reasoning,
    Text,
    ToolCall,
    ToolDelta,
    Usage,
    Yielded,
    openai_reason,
)
from ...ids import new_id
from ...redaction import redact
from ..decoding import MAX_EVENT, MAX_TEXT, Halves, error_message, loosely
from ..sse import LEFT_OUT, EventTooLarge, ServerSentEvent, SSEDecoder, without_data

__all__ = ["NOT_STRICT", "DialectDecoder", "FrameReader", "ResponseDecoder"]

T = TypeVar("T")

NOT_STRICT = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of a strict decoder, after which a frame is decoded loosely."""

_BOM = b"\xef\xbb\xbf"
_WHOLE_CALL = object()  # the key of a call that arrives whole
# What counts against `max_text` besides text, so that empty pieces cannot go on for ever.
_COST_OF_A_FRAME = 8
_COST_OF_A_CALL = 64


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

    left_out: int
    """The size of the data that was left out of frames that were too large. `LEFT_OUT` is in its place."""

    def __init__(self, limit: int, /) -> None:
        """`limit` is the maximum size of a frame in bytes."""

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

    frames: ClassVar[type[FrameReader]] = SSEDecoder

    def __init__(
        self, name: str, *, secrets: Sequence[str] = (), max_event: int = MAX_EVENT, max_text: int = MAX_TEXT
    ) -> None:
        self.over = False
        self.finished = False
        self.error: ProviderError | None = None
        self.broke_off = False
        """Whether the response ended, or was cut off, before the upstream sent a finish reason."""
        self.name = name
        self.secrets = secrets
        self._frames = self.frames(max_event)
        self._max_event = max_event
        self._max_text = self._room = max_text
        self._first_bytes = bytearray()  # the body, until the first frame
        self._saw_frames = False
        self._halves: Halves | None = None  # set once a lone surrogate may have been seen
        self._calls: dict[Hashable, OpenCall] = {}
        self._call_count = 0
        self._incomplete_calls: list[ToolCall] = []  # arguments that are not JSON: dropped if the model was cut off
        self._left_out = ""
        self._usage: Usage | None = None
        self._shown_usage: Usage | None = None

    @property
    def began(self) -> bool:
        """Whether anything of the response has been seen."""
        return self._saw_frames or bool(self._first_bytes)

    # implemented by the dialect

    def take(self, kind: bytes, payload: bytes, events: list[Yielded]) -> None:
        """Decode one frame. If it is not of the dialect, raise `ValueError` with a description of what it is."""
        raise NotImplementedError

    def take_body(self, body: bytes, events: list[Yielded]) -> None:
        """Decode a whole answer of an upstream that does not stream. If it is none, raise `ValueError`."""
        raise ValueError

    def take_end(self, cut: bool, events: list[Yielded]) -> None:
        """Complete an answer at the end of the connection, if the dialect can without a last frame."""

    # called by the upstream

    def feed(self, data: bytes) -> list[Sequence[Yielded]]:
        """Return the events that one more read completes."""
        events: list[Yielded] = []
        if self.over or not data:
            return []
        if not self._saw_frames and len(self._first_bytes) <= self._max_event:
            self._first_bytes += data
            if len(self._first_bytes) > self._max_event:
                self._first_bytes[:] = without_data(self._first_bytes)[: self._max_event + 1]
        try:
            frames = self._frames.feed(data)
            (self._read_cut if self._frames.left_out else self._read)(frames, events)
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
            self._complete(cut, events)
        if self.error is None and not self.finished:
            self.broke_off = True
            cause = "broke off the connection in the middle of its answer"
            self.fail(self.broke(cause if cut else "ended its stream before the answer was complete"), events)
        self.show_usage(events)
        self.over = True
        return events

    def reopen(self) -> None:
        """Continue with another response, which continues the interrupted one."""
        self._frames = self.frames(self._max_event)
        self.over = self.broke_off = False
        self.error = None

    def _read_cut(self, frames: Iterable[ServerSentEvent], events: list[Yielded]) -> None:
        """Read frames of which some may have lost data."""
        for frame in frames:
            begun = len(events)
            self._read([] if self.over else [frame], events)
            self._refuse_cut(events, begun)

    def _refuse_cut(self, events: list[Yielded], begun: int) -> None:
        """Fail if what was left out of a frame was no data, but text: its rest must not look like all of it."""
        if LEFT_OUT.decode() in repr(events[begun:]):
            del events[begun:]
            self.fail(self.broke(f"sent an event of more than {self._max_event} bytes"), events)

    def _read(self, frames: Iterable[ServerSentEvent], events: list[Yielded]) -> None:
        for kind, payload in frames:
            self._take_frame(kind, payload, events)
            if self.over:
                return

    def _take_frame(self, kind: bytes, payload: bytes, events: list[Yielded]) -> None:
        if not payload.strip():
            return
        if not self._saw_frames:
            self._saw_frames = True
            self._first_bytes.clear()
        self._room -= _COST_OF_A_FRAME
        try:
            self.take(kind, payload, events)
        except ValueError as error:
            self.fail(self.broke(f"sent {error}"), events)

    def _read_last_frame(self, cut: bool, events: list[Yielded]) -> None:
        try:
            last = self._frames.finish()
        except EventTooLarge:
            return
        whole = [frame for frame in last if not cut or _is_readable(frame[1])]
        (self._read_cut if self._frames.left_out else self._read)(whole, events)

    def _complete(self, cut: bool, events: list[Yielded]) -> None:
        if self._saw_frames or cut:
            self.take_end(cut, events)
        else:
            self._end_body(events)

    def _end_body(self, events: list[Yielded]) -> None:
        """Decode a body that has no frame. Only an error's own words are quoted: a page may have anything in it."""
        body = bytes(self._first_bytes).removeprefix(_BOM).lstrip()
        value = loosely(body)
        if body.startswith(b"<"):
            self.fail(self.broke("answered with a page of HTML"), events)
        elif not body.startswith((b"{", b"[")):
            self.fail(self.broke("answered with something that is no event stream"), events)
        elif value is None:
            self.fail(self.broke("broke off in the middle of its answer"), events)
        elif isinstance(value, list) or value.get("error") or error_message(value) or is_error_object(value):
            self.fail(self.failed(value), events)
        else:
            try:
                self.take_body(body, events)
                self._refuse_cut(events, 0)
            except ValueError:
                self.fail(self.broke("answered with JSON that is no answer"), events)

    # for dialects

    def decoded(
        self, payload: bytes, decode: Callable[[bytes], T], shape: type[T], hook: Callable[[Any], Any] | None = None
    ) -> T:
        """Decode one frame, loosely if needed."""
        try:
            return decode(payload)
        except NOT_STRICT:
            return self.decoded_loosely(payload, shape, hook)

    def decoded_loosely(self, payload: bytes, shape: type[T], hook: Callable[[Any], Any] | None = None) -> T:
        """Decode a frame that is no strict JSON of its shape: a lone surrogate, invalid UTF-8, a number as a string."""
        value = loosely(payload, hook)
        self._halves = self._halves or Halves()
        if value is None:
            raise ValueError("something that is not JSON")
        try:
            return msgspec.convert(value, shape, strict=False)
        except (msgspec.ValidationError, UnicodeEncodeError, RecursionError):
            raise ValueError("JSON that is no part of an answer") from None

    def joined(self, text: str, field: str, block: int = 0, choice: int = 0) -> str:
        """Return a piece of text with surrogates joined; a last half waits for the next piece of the field."""
        return text if self._halves is None else self._halves.join((choice, block, field), text)

    def say(
        self,
        text: str,
        events: list[Yielded],
        block: int = 0,
        choice: int = 0,
        *,
        refusal: bool = False,
        logprobs: Any = None,
    ) -> None:
        """Emit a piece of the answer."""
        if self._halves is not None:
            text = self.joined(text, "refusal" if refusal else "text", block, choice)
        self.show(text, events, choice, refusal=refusal, logprobs=logprobs)

    def think(self, text: str, events: list[Yielded], block: int = 0, choice: int = 0) -> None:
        """Emit a piece of the reasoning."""
        self.show_thought(self.joined(text, "thinking", block, choice), events, choice)

    def show(
        self, text: str, events: list[Yielded], choice: int = 0, *, refusal: bool = False, logprobs: Any = None
    ) -> None:
        """Emit text without lone surrogates, if there is any."""
        self._room -= len(text)
        if text:
            is_plain = not (choice or refusal or logprobs)
            events.append(text if is_plain else Text(text, choice, logprobs, refusal))

    def show_thought(self, text: str, events: list[Yielded], choice: int = 0) -> None:
        """Emit reasoning without lone surrogates, if there is any."""
        self._room -= len(text)
        if text:
            events.append(Reasoning(text, choice))

    def spend(self, size: int) -> None:
        """Count stored data against `max_text`."""
        self._room -= size

    def show_picture(self, url: Any, events: list[Yielded], choice: int = 0) -> bool:
        """Emit a picture. False if it is none that can be shown."""
        shown = picture_url(url) if isinstance(url, str) else None
        if shown is None or len(shown) > self._room:
            if shown is not None or (isinstance(url, str) and LEFT_OUT.decode() in url):
                self.leave_out("pictures that are too large")
            return False
        self.spend(len(shown))
        events.append(Picture(shown, choice))
        return True

    def leave_out(self, what: str) -> None:
        """Record content that cannot be passed on, such as an image. The first reason is said."""
        self._left_out = self._left_out or what

    def flush(self, events: list[Yielded], block: int | None = None, choice: int | None = None) -> None:
        """Emit U+FFFD for lone surrogates: those of a block, of a choice, or all."""
        if self._halves is None:
            return
        for its_choice, field in self._halves.give_up(block, choice):
            if field == "thinking":
                self.show_thought("\ufffd", events, its_choice)
            elif field in ("text", "refusal"):
                self.show("\ufffd", events, its_choice, refusal=field == "refusal")

    def use(self, usage: Usage, events: list[Yielded], *, is_final: bool = True) -> None:
        """Record the upstream's count so far, if it counts anything. It is emitted when it is final, or at the end."""
        if usage.input_tokens or usage.output_tokens:
            self._usage = usage
            if is_final:
                self.show_usage(events)

    def show_usage(self, events: list[Yielded]) -> None:
        """Emit the last count, once."""
        if self._usage is not None and self._usage != self._shown_usage:
            events.append(self._usage)
            self._shown_usage = self._usage

    # calls

    def begin_call(
        self, key: Hashable, id: str | None, name: str | None, events: list[Yielded], kind: CallKind = "function"
    ) -> OpenCall:
        """Begin a call. Its pieces are found by the key."""
        call = self._calls[key] = OpenCall(id or new_id("call"), "", kind, self._call_count)
        self._call_count += 1
        self.write_call(call, events, name or "")
        return call

    def write_call(
        self, call: OpenCall, events: list[Yielded], name: str = "", arguments: str = "", choice: int = 0
    ) -> None:
        """Add a piece to a call, and emit it. The first piece has the id."""
        arguments = self.joined(arguments, "input", call.place, choice)
        self.spend(len(name) + len(arguments) + _COST_OF_A_CALL)
        id = call.id if call.is_new else ""
        call.add(arguments, name)
        if id or name or arguments:
            events.append(ToolDelta(call.place, id, name, arguments, choice, call.kind))

    def has_call(self, key: Hashable) -> bool:
        """Return whether a call is open."""
        return key in self._calls

    def add_arguments(self, key: Hashable, piece: str, events: list[Yielded]) -> None:
        """Add a piece to a call's arguments."""
        call = self._calls.get(key)
        if call is not None and piece:
            self.write_call(call, events, arguments=piece)

    def end_call(self, key: Hashable, given: str, events: list[Yielded]) -> None:
        """End a call; `given` are its arguments if no piece of them came."""
        if key in self._calls and not self._calls[key].arguments:
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
        self.flush(events)
        if reason not in TRUNCATED:
            events += self._incomplete_calls
        if self._left_out:
            events.append(Notice("content_left_out", f"{self.name} sent {self._left_out}, which cannot be passed on."))
        self.finished = True
        reason = "tool_calls" if reason == "stop" and self._call_count else reason
        events.append(Finish(reason, stop_sequence=stop_sequence))

    def fail(self, error: ProviderError, events: list[Yielded]) -> None:
        """End with an error, after the text that was held back."""
        self.flush(events)
        self.show_usage(events)
        self.error = error
        self.over = True

    def broke(self, what: str) -> ProviderBroke:
        """Return the error for an upstream that violates its dialect."""
        return ProviderBroke(f"{self.name} {what}.")

    def failed(self, report: Any) -> ProviderError:
        """Return the error for a failure that the upstream reports: as bytes, JSON or text."""
        value = (loosely(report) or report.decode("utf-8", "replace")) if isinstance(report, bytes) else report
        message = redact(error_message(value), self.secrets)
        return ProviderError(f"{self.name} failed: {message or 'it did not say why.'}")


def is_error_object(value: Any) -> bool:
    """Return whether JSON is an error by its type: old servers put the fields of an error at the top level."""
    return isinstance(value, dict) and "error" in (value.get("object"), value.get("type"))


def _is_readable(payload: bytes) -> bool:
    return payload.strip() == b"[DONE]" or loosely(payload) is not None
