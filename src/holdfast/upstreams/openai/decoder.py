"""The decoder of OpenAI's dialect: bytes of the upstream become events, and every ending is distinguished.

Pure: no connection and no task. The same bytes give the same events, however they are cut.

- An answer is complete when each of its choices gave a finish reason, or when `[DONE]` came after some choice was
  seen. A choice without a reason then gets `stop`. Anything less is an error, and so is an invalid chunk: to skip it
  would lose text silently.
- `Finish` is held back until every choice that was asked for has its reason, since the first `Finish` may settle a run.
- A choice ends with its finish reason, and the answer with `[DONE]`: what follows is ignored.
- A body that is not an event stream is recognised by its first character: JSON (an error, or a whole
  `chat.completion` from an upstream that does not stream) or HTML.
- A lone surrogate waits for its other half in the next delta. If none comes it becomes U+FFFD.
- Usage that comes with every chunk is shown once, as it stood last.
- Audio and images cannot be passed on. An answer of nothing else has failed; beside text there is a notice.

Cost: nearly all chunks are plain text like the one before, and take the fast path of `plain_chunk`. Their texts are
emitted as strings, those of one read together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ...errors import ProviderBroke, ProviderError
from ...events import TRUNCATED, Finish, Notice, ProviderData, Reasoning, Text, ToolDelta, Usage, Yielded
from ...redaction import redact
from ..decoding import MAX_EVENT, MAX_TEXT, Halves, error_message, loosely
from ..sse import EventTooLarge, ServerSentEvent, SSEDecoder
from .chunks import (
    NO_RAW,
    OLD_CALL,
    ChatChunk,
    ChunkCall,
    ChunkChoice,
    ChunkDelta,
    ChunkUsage,
    ContentPart,
    UnreadableChunk,
    decode_chunk,
    decode_chunk_loosely,
    is_error_chunk,
    is_readable,
    logprobs_of,
    text_of_parts,
)
from .plain_chunk import PlainChunk, decode_text
from .tool_calls import WrittenCalls

_BOM = b"\xef\xbb\xbf"
_A_FEW = 2048  # bytes of chunks that may be unlike what follows
_LONGEST_WORD = 16  # a longer payload is neither `[DONE]` nor empty
# What counts against MAX_TEXT besides text, so that empty pieces cannot fill the memory.
_COST_OF_A_CALL = 64
_COST_OF_A_CHOICE = 1024


class AnswerDecoder:
    """Turns the reads of one response into events.

    `error` is set if the answer has failed; the events before it are returned all the same. `over` means that further
    bytes are ignored, `finished` that the answer is complete, although its usage and `[DONE]` may still come.
    """

    def __init__(
        self,
        name: str,
        *,
        choices: int = 1,
        secrets: Sequence[str] = (),
        max_event: int = MAX_EVENT,
        max_text: int = MAX_TEXT,
    ) -> None:
        self.over = False
        self.finished = False
        self.error: ProviderError | None = None
        self._name = name
        self._expected = choices
        self._secrets = secrets
        self._max_event = max_event
        self._max_text = self._room = max_text
        self._sse = SSEDecoder(max_event)
        self._is_stream: bool | None = None  # unknown before the first character
        self._body = bytearray()
        self._saw_chunks = False
        self._answers: dict[int, _Answer] = {}
        self._usage: Usage | None = None
        self._shown_usage: Usage | None = None
        self._halves: Halves | None = None  # set once a lone surrogate may have been seen
        self._plain = PlainChunk(max_event)
        self._is_between = False  # whether all bytes were plain chunks, and nothing is held back
        self._is_speaking = False  # text has begun: most of what follows is plain text

    @property
    def began(self) -> bool:
        """Whether anything of the answer has been seen."""
        return self._is_stream is not None

    def feed(self, data: bytes) -> list[Sequence[Yielded]]:
        """Return the events that one more read completes; texts of one read stay together."""
        plain, size = self._plain, len(data)
        if self._is_between and size < plain.two:  # the most frequent case: one token alone
            string = data.removeprefix(plain.head).removesuffix(plain.tail)
            try:
                text = decode_text(string) if size - len(string) == plain.around else ""
            except (msgspec.DecodeError, UnicodeDecodeError):
                text = ""  # not exactly one string
            if text and len(text) <= self._room:
                plain.was_useful = True
                self._room -= len(text)
                return [(Text(text, plain.choice) if plain.choice else text,)]
        texts, data = self._read_alike(data)
        if not data:
            return [texts]
        said: list[Sequence[Yielded]] = [texts]
        events: list[Yielded] = []
        if not self._is_stream:
            data = self._open(data, events)
        few = _A_FEW
        try:
            while data and not self.over:  # is read chunk by chunk if there is no other way, and tried after a few
                self._is_between = False
                self._read(self._sse.feed(data[:few]), events)
                data, few = data[few:], 2 * few
                texts, data = self._read_alike(data)
                if texts:
                    said += [events, texts]
                    events = []
        except EventTooLarge:
            self._fail(self._broke(f"sent an event of more than {self._max_event} bytes"), events)
        if self._room < 0 and not self.over:
            self._fail(self._broke(f"sent an answer of more than {self._max_text} characters"), events)
        return [*said, events]

    def end(self, *, cut: bool = False) -> list[Yielded]:
        """Return the last events when the upstream has ended, or was `cut` off."""
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

    def _read_alike(self, data: bytes) -> tuple[Sequence[Yielded], bytes]:
        """Decode the first chunks of a read while they are plain and alike, with one split.

        Return what they say, and what is left to read: nothing, what follows them, or everything if another is
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
            return (), data  # one event may be too large
        texts, end = plain.texts(data)
        size = sum(map(len, texts))
        if not end or size > self._room:
            return (), data
        plain.was_useful = True
        self._room -= size
        texts = texts if all(texts) else [*filter(None, texts)]
        rest = data[end:]
        self._is_between = not rest
        return [Text(text, plain.choice) for text in texts] if plain.choice else texts, rest

    def _read(self, frames: Iterable[ServerSentEvent], events: list[Yielded]) -> None:
        plain = self._plain
        for kind, payload in frames:
            if payload.startswith(plain.before) and payload.endswith(plain.after) and not kind:
                try:
                    text = decode_text(payload[plain.start : plain.stop])
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
        """Decode a frame that may not be a chunk."""
        word = payload.strip()
        if kind == b"error":
            self._fail(self._failed(error_message(loosely(payload)) or payload.decode("utf-8", "replace")), events)
        elif word == b"[DONE]":
            self._done(events)
        elif word and (kind in (b"", b"message") or isinstance(loosely(payload), dict)):  # others may hold anything
            self._take_chunk(payload, events)

    def _take_chunk(self, payload: bytes, events: list[Yielded]) -> None:
        self._saw_chunks = True
        try:
            chunk = self._decode(payload)
        except UnreadableChunk as error:
            self._fail(self._broke(f"sent {error}"), events)
            return
        if self._is_speaking and self._take_plain(chunk, payload, events):
            return
        self._take_in(chunk, events)
        if chunk.error or (chunk.choices is None and chunk.usage is None and is_error_chunk(payload)):
            self._fail(self._failed(error_message(chunk.error or loosely(payload))), events)

    def _decode(self, payload: bytes) -> ChatChunk:
        try:
            return decode_chunk(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            chunk = decode_chunk_loosely(payload)
        self._halves = self._halves or Halves()
        self._plain.forget()
        return chunk

    def _take_plain(self, chunk: ChatChunk, payload: bytes, events: list[Yielded]) -> bool:
        """Decode a chunk of plain text by a faster way, and recognise chunks like it from now on."""
        if not chunk.choices or len(chunk.choices) > 1 or chunk.usage is not None or chunk.error:
            return False
        choice = chunk.choices[0]
        delta = choice.delta
        if choice.finish_reason or delta is None or not delta.is_text_alone():
            return False
        answer = self._answers.get(choice.index or 0)
        if answer is None or answer.reason is not None:
            return False
        text, logprobs = delta.content, logprobs_of(choice.logprobs)
        if not isinstance(text, str) or not text or self._halves is not None:
            return False
        self._room -= len(text)
        answer.has_begun = answer.has_content = True
        events.append(Text(text, answer.index, logprobs))
        if logprobs is None:
            self._plain.learn(payload, answer.index)
        return True

    def _take_in(self, chunk: ChatChunk, events: list[Yielded]) -> None:
        for choice in chunk.choices or ():
            self._take_choice(choice, events)
        usage = chunk.usage or (chunk.x_groq.usage if chunk.x_groq is not None else None)
        if usage is not None:
            self._take_usage(usage, events, provisional=bool(chunk.choices) and not self.finished)

    # choices

    def _take_choice(self, choice: ChunkChoice, events: list[Yielded]) -> None:
        answer = self._answers.get(choice.index or 0) or self._new_answer(choice.index or 0)
        if answer.reason is not None:
            return
        if choice.delta is not None:
            self._take_delta(answer, choice.delta, choice.logprobs, events)
        elif choice.message is not None and not answer.has_begun:  # else it repeats the deltas
            self._take_delta(answer, choice.message, choice.logprobs, events)
        elif choice.text:
            self._take_text(answer, choice.text, choice.logprobs, events)
        if choice.finish_reason and choice.finish_reason != "null":
            self._finish(answer, choice.finish_reason, events)

    def _new_answer(self, index: int) -> _Answer:
        self._room -= _COST_OF_A_CHOICE
        self._answers[index] = answer = _Answer(index)
        return answer

    def _take_delta(self, answer: _Answer, delta: ChunkDelta, logprobs: msgspec.Raw, events: list[Yielded]) -> None:
        if reasoning := delta.reasoning_content or delta.reasoning:
            self._think(answer, self._mended(answer, "reasoning", reasoning), events)
        if content := delta.content:
            if isinstance(content, str):
                self._take_text(answer, content, logprobs, events)
            else:
                self._take_parts(answer, content, events)
        if delta.refusal:
            self._take_refusal(answer, self._mended(answer, "refusal", delta.refusal), events)
        if delta.tool_calls:
            for piece in delta.tool_calls:
                self._take_call(answer, piece, events)
        if delta.function_call is not None:
            self._take_call(answer, ChunkCall(OLD_CALL, function=delta.function_call), events)
        if delta.audio or delta.images:
            answer.left_out = "audio" if delta.audio else "pictures"
        if delta.annotations or delta.reasoning_details:
            self._take_own(answer, delta, events)

    def _take_own(self, answer: _Answer, delta: ChunkDelta, events: list[Yielded]) -> None:
        """Decode fields that are this dialect's alone."""
        own = {"annotations": delta.annotations, "reasoning_details": delta.reasoning_details}
        if found := {name: value for name, value in own.items() if isinstance(value, list) and value}:
            self._room -= len(str(found))
            events.append(ProviderData("openai", found, answer.index))

    def _take_text(self, answer: _Answer, text: str, logprobs: msgspec.Raw, events: list[Yielded]) -> None:
        text = self._mended(answer, "content", text)
        self._room -= len(text)
        if text:
            answer.has_begun = answer.has_content = self._is_speaking = True
            events.append(Text(text, answer.index, logprobs_of(logprobs)))

    def _take_parts(self, answer: _Answer, parts: Sequence[ContentPart], events: list[Yielded]) -> None:
        """Decode content that is a list, as Mistral's reasoning models send."""
        for part in parts:
            if part.thinking:
                self._think(answer, text_of_parts(part.thinking), events)
            elif part.text:
                self._take_text(answer, part.text, NO_RAW, events)
            elif part.refusal:
                self._take_refusal(answer, part.refusal, events)
            elif part.image_url:
                answer.left_out = "pictures"

    def _take_refusal(self, answer: _Answer, text: str, events: list[Yielded]) -> None:
        """Decode a refusal. It is never reasoning, whatever it begins with."""
        self._room -= len(text)
        if text:
            answer.has_begun = answer.has_content = True
            events.append(Text(text, answer.index, refusal=True))

    def _think(self, answer: _Answer, text: str, events: list[Yielded]) -> None:
        self._room -= len(text)
        if text:
            answer.has_begun = True
            events.append(Reasoning(text, answer.index))

    def _take_call(self, answer: _Answer, piece: ChunkCall, events: list[Yielded]) -> None:
        place, call = answer.calls.find(piece)
        name, arguments = call.read(piece)
        arguments = self._mended(answer, f"call {place}", arguments)
        self._room -= len(arguments) + len(name) + _COST_OF_A_CALL
        id = call.id if call.is_new else ""
        call.add(arguments, name)
        if id or name or arguments:
            answer.has_begun = answer.has_content = True
            events.append(ToolDelta(place, id, name, arguments, answer.index, call.kind))

    def _mended(self, answer: _Answer, field: str, text: str) -> str:
        return text if self._halves is None else self._halves.join((answer.index, field), text)

    def _finish(self, answer: _Answer, reason: str, events: list[Yielded]) -> None:
        """Record the finish reason of a choice. Its calls are complete now, unless it was cut off."""
        if self._plain.opening:
            self._plain.forget()
        if self._halves is not None:
            self._flush(answer, self._halves, events)
        if answer.left_out and not answer.has_content:
            what = f"{self._name} answered with {answer.left_out} alone, which cannot be passed on. Ask for text."
            self._fail(ProviderError(what, code="unsupported_content"), events)
            return
        if answer.left_out:
            what = f"{self._name} sent {answer.left_out} too, which cannot be passed on."
            events.append(Notice("content_left_out", what))
        answer.reason = reason
        if len(answer.calls) and reason not in TRUNCATED:
            events += answer.calls.whole(answer.index)
        if len(self._answers) >= self._expected:
            self._give_reasons(events)

    def _flush(self, answer: _Answer, halves: Halves, events: list[Yielded]) -> None:
        """Emit a lone surrogate that was held back, as U+FFFD."""
        self._think(answer, halves.give_up((answer.index, "reasoning")), events)
        self._take_text(answer, halves.give_up((answer.index, "content")), NO_RAW, events)
        self._take_refusal(answer, halves.give_up((answer.index, "refusal")), events)

    def _give_reasons(self, events: list[Yielded]) -> None:
        """Emit the finishes, once all choices that have begun have ended."""
        if [True for answer in self._answers.values() if answer.reason is None]:
            return
        self.finished = True
        for index, answer in sorted(self._answers.items()):
            if answer.reason is not None and not answer.reason_given:
                answer.reason_given = True
                is_error = answer.reason == "error"
                error = self._failed("it ended with the finish reason 'error'").info() if is_error else None
                events.append(Finish(answer.reason, index, error))

    # usage

    def _take_usage(self, usage: ChunkUsage, events: list[Yielded], *, provisional: bool) -> None:
        counted = usage.counted()
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
        """Handle `[DONE]`: the answer is complete."""
        if not self._answers:
            self._fail(self._broke("ended its stream without an answer in it"), events)
            return
        self.over = True
        without_reason = [answer for answer in self._answers.values() if answer.reason is None]
        for answer in without_reason:
            self._finish(answer, answer.calls.finish_reason() or "stop", events)
        if without_reason or not self.finished:
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
        self._read([frame for frame in last if not cut or is_readable(frame[1])], events)

    def _how_it_broke(self, cut: bool) -> str:
        if cut:
            return "broke off the connection in the middle of its answer"
        if not self._saw_chunks:
            return "answered with something that is no event stream"
        return "ended its stream before the answer was complete"

    def _fail(self, error: ProviderError, events: list[Yielded]) -> None:
        """End with an error, after the text that was held back."""
        for answer in self._answers.values():
            if answer.reason is None and self._halves is not None:
                self._flush(answer, self._halves, events)
        self._show_usage(events)
        self.error = error
        self.over = True

    def _broke(self, what: str) -> ProviderBroke:
        return ProviderBroke(f"{self._name} {what}.")

    def _failed(self, message: str) -> ProviderError:
        return ProviderError(f"{self._name} failed: {redact(message, self._secrets) or 'it did not say why.'}")

    # a body that may not be an event stream

    def _open(self, data: bytes, events: list[Yielded]) -> bytes:
        """Recognise the kind of the body; return the bytes for the decoder of event streams."""
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
        """Decode a whole `chat.completion` of an upstream that does not stream, or its error."""
        body = bytes(self._body).removeprefix(_BOM)
        value = loosely(body)
        if cut or value is None:
            self._fail(self._broke("broke off in the middle of its answer"), events)
        elif isinstance(value, list) or value.get("error") or is_error_chunk(body):
            self._fail(self._failed(error_message(value)), events)
        else:
            self._take_completion(body, events)

    def _take_completion(self, body: bytes, events: list[Yielded]) -> None:
        try:
            completion = self._decode(body)
        except UnreadableChunk:
            completion = ChatChunk()
        if any(choice.message is not None for choice in completion.choices or ()):
            self._take_in(completion, events)
            self._done(events)
        else:
            self._fail(self._broke("answered with JSON that is no answer"), events)


class _Answer:
    """The state of one choice."""

    __slots__ = ("calls", "has_begun", "has_content", "index", "left_out", "reason", "reason_given")

    def __init__(self, index: int) -> None:
        self.index = index
        self.calls = WrittenCalls()
        self.has_begun = False
        self.has_content = False  # text or a call, not only reasoning
        self.left_out = ""  # kinds of content that cannot be passed on
        self.reason: str | None = None
        self.reason_given = False
