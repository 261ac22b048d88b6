"""One answer in OpenAI's dialect: the upstream's bytes become events, and every way to end is told apart.

Pure: no connection and no task, so that any cutting of the same bytes can be tried, and gives the same events.

- An answer is whole when each of its choices gave a finish reason, or when `[DONE]` came after some choice was seen.
  A choice without a reason then gets `stop`. Anything less is an error, and so is what cannot be read: to skip a chunk
  would lose text silently.
- `Finish` is held back until every choice that was asked for has its reason, since the first `Finish` may settle a run.
- After its finish reason a choice says nothing more, after `[DONE]` nobody does.
- A body that is no event stream is told by its first character: JSON (an error, or a whole `chat.completion` from an
  upstream that does not stream) or HTML.
- Half an emoji waits for its other half in the next delta. Where none comes it becomes U+FFFD.
- Usage that comes with every chunk is shown once, as it stood last.

Cost: most chunks of an answer are the same bytes around another string. Those bytes are remembered, and of a chunk
that has them only its string is decoded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import msgspec

from ..errors import ProviderBroke, ProviderError
from ..events import Finish, Reasoning, Text, ToolCall, ToolDelta, Usage, Words, Yielded, needs_no_escape
from ..ids import new_id
from ..reasoning import Piece, ThinkSplitter
from .redaction import redact
from .sse import EventTooLarge, ServerSentEvent, SSEDecoder

__all__ = ["CUT_SHORT", "MAX_EVENT", "MAX_TEXT", "AnswerDecoder", "Halves", "count", "loosely", "told"]

MAX_EVENT = 8 * 1024 * 1024
"""Bytes of one event, and of a body that is no event stream."""
MAX_TEXT = 64 * 1024 * 1024
"""Characters of one answer, with its reasoning and tool calls."""

CUT_SHORT = frozenset({"length", "max_tokens", "content_filter"})
"""Finish reasons after which the last thing that the model wrote may be incomplete."""

_BOM = b"\xef\xbb\xbf"
_NO_RAW = msgspec.Raw(b"")
_MOST_TOKENS = 2**53
_MANY = 16  # chunks in one read from which on it pays that they stay together
_A_FEW = 2048  # bytes of chunks that may be unlike what follows
_LONGEST_WORD = 16  # a longer payload is neither `[DONE]` nor blank
# What counts against MAX_TEXT besides text, so that empty pieces cannot fill the memory.
_COST_OF_A_CALL = 64
_COST_OF_A_CHOICE = 1024
_MOST_CHOICES = 128  # as many as OpenAI gives; whoever puts them in a row must not be made to leave room for a billion


# What a chunk may hold. Upstreams leave out, or send as null, whatever they like.


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _CallPiece(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Part(msgspec.Struct, gc=False):
    text: str | None = None
    thinking: str | list[_Part] | None = None


class _Delta(msgspec.Struct, gc=False):
    content: str | list[_Part] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_CallPiece] | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    index: Annotated[int, msgspec.Meta(ge=0, lt=_MOST_CHOICES)] | None = None
    finish_reason: str | None = None
    logprobs: msgspec.Raw = _NO_RAW
    message: _Delta | None = None
    """In place of a delta, where the upstream gives its answer in one piece."""


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | float | None = None
    completion_tokens: int | float | None = None
    prompt_tokens_details: Any = None
    completion_tokens_details: Any = None


class _Groq(msgspec.Struct, gc=False):
    usage: _Usage | None = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    x_groq: _Groq | None = None
    error: Any = None


_decode_chunk = msgspec.json.Decoder(_Chunk).decode
_decode_text = msgspec.json.Decoder(str).decode


class _Unreadable(ValueError):
    """What the upstream sent is not JSON, or no part of an answer."""


class AnswerDecoder:
    """Turns the reads of one response into events.

    `error` is set where the answer has failed; what came before is returned all the same. `over` says that nothing
    more is looked at, `finished` that the answer is whole, although its usage and `[DONE]` may still come.
    """

    def __init__(
        self,
        name: str,
        *,
        think: bool = True,
        choices: int = 1,
        secrets: Sequence[str] = (),
        max_event: int = MAX_EVENT,
        max_text: int = MAX_TEXT,
    ) -> None:
        self.over = False
        self.finished = False
        self.error: ProviderError | None = None
        self._name = name
        self._think = think
        self._expected = choices
        self._secrets = secrets
        self._max_event = max_event
        self._max_text = self._room = max_text
        self._sse = SSEDecoder(max_event)
        self._is_stream: bool | None = None  # not known before the first telling character
        self._body = bytearray()
        self._saw_chunks = False
        self._answers: dict[int, _Answer] = {}
        self._usage: Usage | None = None
        self._shown_usage: Usage | None = None
        self._halves: Halves | None = None  # there is one once half a surrogate pair may have been seen
        self._plain = _PlainChunk(max_event)
        self._is_between = False  # whether all that came was read as plain chunks, and nothing waits for its end
        self._is_speaking = not think  # visible text has begun: most of what follows is that, and nothing else

    @property
    def began(self) -> bool:
        """Whether anything of the answer has been seen."""
        return self._is_stream is not None

    def feed(self, data: bytes) -> list[Sequence[Yielded]]:
        """Return the events that one more read completes; words that came together stay together."""
        plain = self._plain
        if self._is_between and (text := plain.text(data)) and len(text) <= self._room:
            plain.was_useful = True
            self._room -= len(text)
            return [[Text(text, plain.choice)]]  # the most usual: one more token, alone
        words, data = self._read_alike(data)
        if not data:
            return [words]
        said: list[Sequence[Yielded]] = [words]
        events: list[Yielded] = []
        if not self._is_stream:
            data = self._open(data, events)
        few = _A_FEW
        try:
            while data and not self.over:  # is read chunk by chunk where there is no other way, and tried after a few
                self._is_between = False
                self._read(self._sse.feed(data[:few]), events)
                data, few = data[few:], 2 * few
                words, data = self._read_alike(data)
                if words:
                    said += [events, words]
                    events = []
        except EventTooLarge:
            self._fail(self._broke(f"sent an event of more than {self._max_event} bytes"), events)
        if self._room < 0 and not self.over:
            self._fail(self._broke(f"sent an answer of more than {self._max_text} characters"), events)
        return [*said, events]

    def end(self, *, cut: bool = False) -> list[Yielded]:
        """Return what is left when the upstream has ended: of its own accord, or `cut` off."""
        events: list[Yielded] = []
        if self.over:
            return events
        if self._is_stream is False:
            self._end_body(cut, events)
        else:
            self._end_stream(cut, events)
        self.over = True
        return events

    # frames

    def _read_alike(self, data: bytes) -> tuple[Sequence[Text], bytes]:
        """Take in the first chunks of a read, as long as they are plain ones and alike, by one cut through all of them.

        Return what they say, and what is left to read: nothing, what follows them, or everything where another is
        among them.
        """
        plain = self._plain
        if not plain.opening or not data or self.over:
            return (), data
        if not self._is_between:
            tail = self._sse.take_back()
            if tail is None:
                return (), data
            data = tail + data
        if len(data) > self._max_event:
            return (), data  # one of them may be too large
        texts, end = plain.texts(data)
        size = sum(map(len, texts))
        if not end or size > self._room:
            return (), data
        plain.was_useful = True
        self._room -= size
        texts = texts if all(texts) else [*filter(None, texts)]
        rest = data[end:]
        self._is_between = not rest
        if plain.choice:
            return [Text(text, plain.choice) for text in texts], rest
        return Words(texts, are_simple=True) if len(texts) >= _MANY else [*map(Text, texts)], rest

    def _read(self, frames: Iterable[ServerSentEvent], events: list[Yielded]) -> None:
        plain = self._plain
        for kind, payload in frames:
            if payload.startswith(plain.before) and payload.endswith(plain.after) and not kind:
                try:
                    text = _decode_text(payload[plain.start : plain.stop])
                except (msgspec.DecodeError, UnicodeDecodeError):
                    pass  # more than a string stands there, or less: read the chunk as any other
                else:
                    plain.was_useful = True
                    if text:
                        self._room -= len(text)
                        events.append(Text(text, plain.choice))
                    continue
            if kind or len(payload) <= _LONGEST_WORD:
                self._take(kind, payload, events)
            else:
                self._take_chunk(payload, events)
            if self.over:
                return

    def _take(self, kind: bytes, payload: bytes, events: list[Yielded]) -> None:
        """Take a frame that may be more, or less, than a chunk."""
        word = payload.strip()
        if kind == b"error":
            self._fail(self._failed(told(loosely(payload)) or payload.decode("utf-8", "replace")), events)
        elif word == b"[DONE]":
            self._done(events)
        elif word and (kind in (b"", b"message") or isinstance(loosely(payload), dict)):  # other kinds may be anything
            self._take_chunk(payload, events)

    def _take_chunk(self, payload: bytes, events: list[Yielded]) -> None:
        self._saw_chunks = True
        try:
            chunk = self._decode(payload)
        except _Unreadable as error:
            self._fail(self._broke(f"sent {error}"), events)
            return
        if self._is_speaking and self._take_plain(chunk, payload, events):
            return
        self._take_in(chunk, events)
        if chunk.error or (chunk.choices is None and chunk.usage is None and _is_error(payload)):
            self._fail(self._failed(told(chunk.error or loosely(payload))), events)

    def _decode(self, payload: bytes) -> _Chunk:
        try:
            return _decode_chunk(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            chunk = _decode_loosely(payload)
        self._halves = self._halves or Halves()
        self._plain.forget()
        return chunk

    def _take_plain(self, chunk: _Chunk, payload: bytes, events: list[Yielded]) -> bool:
        """Take a chunk of visible text and nothing else by a shorter way, and have the like of it recognised."""
        if not chunk.choices or len(chunk.choices) > 1 or chunk.usage is not None or chunk.error:
            return False
        choice = chunk.choices[0]
        answer, delta = self._answers.get(choice.index or 0), choice.delta
        if answer is None or answer.splitter is not None or answer.reason is not None or choice.finish_reason:
            return False
        if delta is None or delta.tool_calls or delta.reasoning_content or delta.reasoning or delta.refusal:
            return False
        text, logprobs = delta.content, _decoded(choice.logprobs)
        if not isinstance(text, str) or not text or self._halves is not None:
            return False
        self._room -= len(text)
        events.append(Text(text, answer.index, logprobs))
        if logprobs is None:
            self._plain.learn(payload, answer.index)
        return True

    def _take_in(self, chunk: _Chunk, events: list[Yielded]) -> None:
        for choice in chunk.choices or ():
            self._take_choice(choice, events)
        usage = chunk.usage or (chunk.x_groq.usage if chunk.x_groq is not None else None)
        if usage is not None:
            self._take_usage(usage, events, provisional=bool(chunk.choices) and not self.finished)

    # choices

    def _take_choice(self, choice: _Choice, events: list[Yielded]) -> None:
        answer = self._answers.get(choice.index or 0) or self._new_answer(choice.index or 0)
        if answer.reason is not None:
            return
        if choice.delta is not None:
            self._take_delta(answer, choice.delta, choice.logprobs, events)
        elif choice.message is not None and not answer.has_begun:  # else it repeats what the deltas said
            self._take_delta(answer, choice.message, choice.logprobs, events)
        if choice.finish_reason and choice.finish_reason != "null":
            self._finish(answer, choice.finish_reason, events)

    def _new_answer(self, index: int) -> _Answer:
        self._room -= _COST_OF_A_CHOICE
        self._answers[index] = answer = _Answer(index, self._think)
        return answer

    def _take_delta(self, answer: _Answer, delta: _Delta, logprobs: msgspec.Raw, events: list[Yielded]) -> None:
        if reasoning := delta.reasoning_content or delta.reasoning:
            self._show(answer, [(True, self._mended(answer, "reasoning", reasoning))], events)
        if content := delta.content or delta.refusal:
            if isinstance(content, str):
                self._take_text(answer, content, logprobs, events)
            else:
                self._take_parts(answer, content, events)
        if delta.tool_calls:
            for piece in delta.tool_calls:
                self._take_call(answer, piece, events)

    def _take_text(self, answer: _Answer, text: str, logprobs: msgspec.Raw, events: list[Yielded]) -> None:
        text = self._mended(answer, "content", text)
        pieces = [(False, text)] if answer.splitter is None else answer.splitter.feed(text)
        self._show(answer, pieces, events, logprobs)

    def _take_parts(self, answer: _Answer, parts: Sequence[_Part], events: list[Yielded]) -> None:
        """Take content that comes as a list, as Mistral's does when it thinks."""
        for part in parts:
            if part.thinking:
                self._show(answer, [(True, _text_of(part.thinking))], events)
            elif part.text:
                self._take_text(answer, part.text, _NO_RAW, events)

    def _show(
        self, answer: _Answer, pieces: Iterable[Piece], events: list[Yielded], logprobs: msgspec.Raw = _NO_RAW
    ) -> None:
        for is_reasoning, text in pieces:
            self._room -= len(text)
            if not text:
                continue
            answer.has_begun = True
            if is_reasoning:
                events.append(Reasoning(text, answer.index))
            else:
                answer.splitter = None
                self._is_speaking = True
                events.append(Text(text, answer.index, _decoded(logprobs)))
                logprobs = _NO_RAW

    def _take_call(self, answer: _Answer, piece: _CallPiece, events: list[Yielded]) -> None:
        place, call = answer.calls.find(piece)
        name, arguments = call.read(piece)
        arguments = self._mended(answer, f"call {place}", arguments)
        self._room -= len(arguments) + len(name) + _COST_OF_A_CALL
        id = call.add(name, arguments)
        if id or name or arguments:
            answer.has_begun = True
            events.append(ToolDelta(place, id, name, arguments, answer.index))

    def _mended(self, answer: _Answer, field: str, text: str) -> str:
        return text if self._halves is None else self._halves.join((answer.index, field), text)

    def _finish(self, answer: _Answer, reason: str, events: list[Yielded]) -> None:
        """Write down why a choice ended. Its calls are whole now, unless it was cut off while it wrote them."""
        is_whole = reason not in CUT_SHORT
        self._plain.forget()
        self._flush(answer, events, complete=is_whole)
        answer.reason = reason
        if is_whole:
            events += answer.calls.whole(answer.index)
        if len(self._answers) >= self._expected:
            self._give_reasons(events)

    def _flush(self, answer: _Answer, events: list[Yielded], *, complete: bool) -> None:
        """Show what was held back: half an emoji, an unfinished tag."""
        if self._halves is not None:
            self._show(answer, [(True, self._halves.give_up((answer.index, "reasoning")))], events)
            self._take_text(answer, self._halves.give_up((answer.index, "content")), _NO_RAW, events)
        if answer.splitter is not None:
            self._show(answer, answer.splitter.finish(complete=complete), events)

    def _give_reasons(self, events: list[Yielded]) -> None:
        """Say how the choices ended, once all that have begun have ended."""
        if [True for answer in self._answers.values() if answer.reason is None]:
            return
        self.finished = True
        for index, answer in sorted(self._answers.items()):
            if answer.reason is not None and not answer.reason_given:
                answer.reason_given = True
                events.append(Finish(answer.reason, index, self._error_of(answer.reason)))

    def _error_of(self, reason: str) -> Any:
        return self._failed("it ended with the finish reason 'error'").info() if reason == "error" else None

    # usage

    def _take_usage(self, usage: _Usage, events: list[Yielded], *, provisional: bool) -> None:
        counted = Usage(
            count(usage.prompt_tokens),
            count(usage.completion_tokens),
            "provider",
            _detail(usage.prompt_tokens_details, "cached_tokens") if usage.prompt_tokens_details else 0,
            _detail(usage.completion_tokens_details, "reasoning_tokens") if usage.completion_tokens_details else 0,
        )
        if counted.input_tokens or counted.output_tokens:
            self._usage = counted
            if not provisional:
                self._show_usage(events)

    def _show_usage(self, events: list[Yielded]) -> None:
        if self._usage is not None and self._usage != self._shown_usage:
            events.append(self._usage)
            self._shown_usage = self._usage

    # the end

    def _done(self, events: list[Yielded]) -> None:
        """`[DONE]`: what was said is all there is."""
        if not self._answers:
            self._fail(self._broke("ended its stream without an answer in it"), events)
            return
        self.over = True
        for answer in self._answers.values():
            if answer.reason is None:
                self._finish(answer, "tool_calls" if answer.calls else "stop", events)
        self._give_reasons(events)
        self._show_usage(events)

    def _end_stream(self, cut: bool, events: list[Yielded]) -> None:
        """End without `[DONE]`. Fewer choices than were asked for are an answer too, unless the rest was cut off."""
        self._read_last_frame(cut, events)
        if self.over:
            return
        if self._answers and not cut:
            self._give_reasons(events)
        if self.finished:
            self._show_usage(events)
        else:
            self._fail(self._broke(self._how_it_broke(cut)), events)

    def _read_last_frame(self, cut: bool, events: list[Yielded]) -> None:
        try:
            last = self._sse.finish()
        except EventTooLarge:
            return
        self._read([frame for frame in last if not cut or _is_readable(frame[1])], events)

    def _how_it_broke(self, cut: bool) -> str:
        if cut:
            return "broke off the connection in the middle of its answer"
        if not self._saw_chunks:
            return "answered with something that is no event stream"
        return "ended its stream without saying why"

    def _fail(self, error: ProviderError, events: list[Yielded]) -> None:
        """End with an error, after all that was held back: it is part of what the model said."""
        for answer in self._answers.values():
            if answer.reason is None:
                self._flush(answer, events, complete=False)
        self._show_usage(events)
        self.error = error
        self.over = True

    def _broke(self, what: str) -> ProviderBroke:
        return ProviderBroke(f"{self._name} {what}.")

    def _failed(self, message: str) -> ProviderError:
        return ProviderError(f"{self._name} failed: {redact(message, self._secrets) or 'it did not say why.'}")

    # a body that may be no event stream

    def _open(self, data: bytes, events: list[Yielded]) -> bytes:
        """Find out what the body is; return what is for the decoder of event streams."""
        if self._is_stream is None:
            data, self._body = bytes(self._body) + data if self._body else data, bytearray()
            self._judge_by_first_character(data, events)
        if self._is_stream:
            return data
        self._body += data
        if len(self._body) > self._max_event and not self.over:
            self._fail(self._broke(f"sent an answer of more than {self._max_event} bytes in one piece"), events)
        return b""

    def _judge_by_first_character(self, data: bytes, events: list[Yielded]) -> None:
        first = (data[:_A_FEW].removeprefix(_BOM).lstrip() or data.removeprefix(_BOM).lstrip())[:1]
        if first in (b"{", b"["):
            self._is_stream = False
        elif first == b"<":
            self._fail(self._broke("answered with a page of HTML"), events)
        elif first and not _BOM.startswith(data):
            self._is_stream = True

    def _end_body(self, cut: bool, events: list[Yielded]) -> None:
        """Take a whole `chat.completion` as the answer of an upstream that does not stream, or find its error."""
        body = bytes(self._body).removeprefix(_BOM)
        value = loosely(body)
        if cut or value is None:
            self._fail(self._broke("broke off in the middle of its answer"), events)
        elif isinstance(value, list) or value.get("error") or _is_error(body):
            self._fail(self._failed(told(value)), events)
        else:
            self._take_completion(body, events)

    def _take_completion(self, body: bytes, events: list[Yielded]) -> None:
        try:
            completion = self._decode(body)
        except _Unreadable:
            completion = _Chunk()
        if any(choice.message is not None for choice in completion.choices or ()):
            self._take_in(completion, events)
            self._done(events)
        else:
            self._fail(self._broke("answered with JSON that is no answer"), events)


class _Answer:
    """What is known of one choice."""

    __slots__ = ("calls", "has_begun", "index", "reason", "reason_given", "splitter")

    def __init__(self, index: int, think: bool) -> None:
        self.index = index
        self.splitter = ThinkSplitter() if think else None  # gone once visible text has begun: then all is text
        self.calls = _Calls()
        self.has_begun = False
        self.reason: str | None = None
        self.reason_given = False


class _Calls:
    """The tool calls of one choice, while they are being written."""

    __slots__ = ("_by_index", "_calls")

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def find(self, piece: _CallPiece) -> tuple[int, _Call]:
        """Return the call that a piece belongs to, and its place.

        The index says so, but some upstreams send none, and some send 0 for each of several calls.
        """
        last = len(self._calls) - 1
        place = last if piece.index is None else self._by_index.get(piece.index, -1)
        if place < 0 or self._calls[place].is_another(piece):
            self._calls.append(_Call(piece.id))
            place = last + 1
        if piece.index is not None:
            self._by_index[piece.index] = place
        return place, self._calls[place]

    def whole(self, choice: int) -> list[ToolCall]:
        return [ToolCall(call.id, call.name, "".join(call.arguments), choice) for call in self._calls]


class _Call:
    """One tool call. An upstream that gives it no id gets one made up, so that the result can name it."""

    __slots__ = ("_id_shown", "_upstream_id", "arguments", "id", "name")

    def __init__(self, id: str | None) -> None:
        self.id = id or new_id("call")
        self.name = ""
        self.arguments: list[str] = []
        self._upstream_id = id
        self._id_shown = False

    def is_another(self, piece: _CallPiece) -> bool:
        """Tell whether a piece begins a new call: by its id, or, without ids, by its name when this one is whole."""
        if piece.id and self._upstream_id:
            return piece.id != self._upstream_id
        named = piece.function is not None and bool(piece.function.name)
        return named and loosely("".join(self.arguments).encode("utf-8", "replace")) is not None

    def read(self, piece: _CallPiece) -> tuple[str, str]:
        """Return the piece's part of the name and of the arguments. Some repeat the whole name in each piece."""
        function = piece.function or _Function()
        name = "" if function.name == self.name else function.name or ""
        if isinstance(function.arguments, dict):
            return name, msgspec.json.encode(function.arguments).decode()
        return name, function.arguments or ""

    def add(self, name: str, arguments: str) -> str:
        """Take in a piece; return the id the first time."""
        self.name += name
        self.arguments.append(arguments)
        id, self._id_shown = "" if self._id_shown else self.id, True
        return id


class Halves:
    """Halves of surrogate pairs that wait for the other half: upstreams cut text in the middle of an emoji."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, str], str] = {}

    def join(self, place: tuple[int, str], text: str) -> str:
        """Return the text with its halves joined, those that cannot be replaced, and the last one kept back."""
        text = self._waiting.pop(place, "") + text
        if "\ud800" <= text[-1:] <= "\udbff":
            self._waiting[place] = text[-1]
            text = text[:-1]
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def give_up(self, place: tuple[int, str]) -> str:
        """Return what stands for a half whose other half never came."""
        return "\ufffd" if self._waiting.pop(place, "") else ""

    def places(self) -> set[int]:
        """Return where halves still wait."""
        return {index for index, _ in self._waiting}


class _PlainChunk:
    """The bytes before and after the text of a chunk that is visible text and nothing else.

    Whatever has the same bytes around one JSON string is the same chunk with another text. So the test is exact.
    """

    __slots__ = (
        "_between",
        "_closing",
        "_first",
        "_last",
        "_longest",
        "_pause",
        "_skipped",
        "_two",
        "after",
        "before",
        "choice",
        "opening",
        "start",
        "stop",
        "was_useful",
    )

    _CONTENT = re.compile(rb'"content"\s*:\s*')
    _STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
    _LONGEST_PAUSE = 1024

    def __init__(self, longest: int) -> None:
        self.was_useful = False
        self._longest = longest
        self._pause = self._skipped = 0
        self.forget()

    def forget(self) -> None:
        """Recognise nothing: no bytes start with one of no prefixes."""
        self.before: bytes | tuple[()] = ()
        self.after = self.opening = b""
        self.start = self.stop = self.choice = self._two = 0

    def learn(self, payload: bytes, choice: int) -> None:
        """Recognise chunks like this plain one.

        Where that never helps (an upstream that pads each chunk with random letters) it is tried less and less often.
        """
        if self.was_useful:
            self.was_useful, self._pause, self._skipped = False, 0, 0
        elif self._skipped < self._pause:
            self._skipped += 1
            return
        self._pause, self._skipped = min(2 * self._pause + 1, self._LONGEST_PAUSE), 0
        contents = list(self._CONTENT.finditer(payload))
        string = self._STRING.match(payload, contents[0].end()) if len(contents) == 1 else None
        if string is not None and self._is_content(payload, string):
            self.before, self.after = payload[: string.start()], payload[string.end() :]
            self.start, self.stop = len(self.before), -len(self.after)
            self.choice = choice
            self.opening, self._closing = b'data: %b"' % self.before, b'"%b\n\n' % self.after
            self._first, self._last = len(self.opening) - 1, 1 - len(self._closing)
            # What is as long as two may be two, or one that is too large.
            self._two = min(2 * (len(self.opening) + len(self._closing)), self._longest)
            # Nobody has read all of these bytes: what is no UTF-8 becomes something that is in no text.
            self._between = (self._closing + self.opening).decode("utf-8", "surrogateescape")

    def text(self, data: bytes) -> str:
        """Return the text of a chunk that is like this one and came alone; empty where it is not, or says nothing."""
        if len(data) < self._two and data.startswith(self.opening) and data.endswith(self._closing):
            try:
                return _decode_text(data[self._first : self._last])
            except (msgspec.DecodeError, UnicodeDecodeError):
                pass  # more than a string stands there, or less
        return ""

    def texts(self, data: bytes) -> tuple[Sequence[str], int]:
        """Return the texts of the chunks up to the last that is like this one, and where that ends; 0 if one is not.

        Between the same bytes a text stands as it is if there is nothing in it that JSON would have to escape.
        """
        start, end = len(self.opening), data.rfind(self._closing)
        if end < start or not data.startswith(self.opening):
            return (), 0
        try:
            inner = data[start:end].decode()
        except UnicodeDecodeError:
            return (), 0
        texts = inner.rsplit(self._between)  # split() would prepare its search again for each piece
        return (texts, end + len(self._closing)) if needs_no_escape("".join(texts)) else ((), 0)

    def _is_content(self, payload: bytes, string: re.Match[bytes]) -> bool:
        """Prove that the string is the content: with another string in its place, another content is read."""
        probe = _decode_chunk(payload[: string.start()] + b'"\\u0000probe"' + payload[string.end() :])
        delta = probe.choices[0].delta if probe.choices else None
        return delta is not None and delta.content == "\0probe"


def told(value: Any, depth: int = 4) -> str:
    """Return what an upstream's error says, in any of the shapes that are in use; empty where it says nothing."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and depth:
        return told(value[0], depth - 1)
    if isinstance(value, dict) and depth:
        for field in ("error", "message", "detail", "msg"):
            if message := told(value.get(field), depth - 1):
                return message
    return ""


def loosely(data: bytes) -> Any:
    """Decode JSON as well as possible; None where it is none."""
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def _decode_loosely(payload: bytes) -> _Chunk:
    """Decode what the strict decoder refuses: lone surrogates, bytes that are no UTF-8, NaN, numbers as strings."""
    try:
        value = json.loads(payload.decode("utf-8", "replace"), object_hook=_without_logprobs)
    except (ValueError, RecursionError):
        raise _Unreadable("something that is not JSON") from None
    try:
        return msgspec.convert(value, _Chunk, strict=False)
    except (msgspec.ValidationError, UnicodeEncodeError, RecursionError):
        raise _Unreadable("JSON that is no part of an answer") from None


def _without_logprobs(value: dict[str, Any]) -> dict[str, Any]:
    value.pop("logprobs", None)  # they can be kept only as the upstream's own bytes
    return value


def _is_readable(payload: bytes) -> bool:
    return payload.strip() == b"[DONE]" or loosely(payload) is not None


def _is_error(payload: bytes) -> bool:
    """Tell whether a chunk without choices is an error by another name: old servers put it at the top level."""
    value = loosely(payload)
    return isinstance(value, dict) and "error" in (value.get("object"), value.get("type"))


def _decoded(logprobs: msgspec.Raw) -> Any:
    """Return logprobs as an object, so that they are the same before and after they were stored; odd ones are none."""
    if len(logprobs) <= len("null"):
        return None
    try:
        decoded = msgspec.json.decode(logprobs)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None  # nobody has read these bytes before
    sound = isinstance(decoded, dict) and isinstance(decoded.get("content"), list | None)
    return decoded if sound else None


def _text_of(thinking: str | list[_Part]) -> str:
    return thinking if isinstance(thinking, str) else "".join(part.text or "" for part in thinking)


def _detail(details: Any, name: str) -> int:
    """Return a number from the details of a usage, of which nothing is certain."""
    tokens = details.get(name) if isinstance(details, dict) else None
    return count(tokens) if isinstance(tokens, int) else 0


def count(tokens: int | float | None) -> int:
    """Return a number of tokens that makes sense, whatever an upstream says."""
    return int(min(tokens, _MOST_TOKENS)) if tokens and tokens > 0 else 0  # NaN is not more than 0 either
