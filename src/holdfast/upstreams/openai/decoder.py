"""The decoder of OpenAI's dialect: how chunks map to events, for several choices.

- An answer is complete when each of its choices gave a finish reason, or when `[DONE]` came after some choice was
  seen. A choice without a reason then gets `stop`.
- `Finish` is held back until every choice that was asked for has its reason, since the first `Finish` may settle a run.
- A choice ends with its finish reason, and the answer with `[DONE]`: what follows is ignored.
- A body may be a whole `chat.completion`, from an upstream that does not stream.
- Audio, and pictures of unknown kinds, cannot be passed on. An answer of nothing else has failed; beside text there is
  a notice.

Cost: nearly all chunks are plain text like the one before, and take the fast path of `plain_chunk`. Their texts are
emitted as strings, those of one read together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ...errors import ProviderError
from ...events import TRUNCATED, Finish, Notice, ProviderData, Text, Yielded
from ..decoding import MAX_EVENT, loosely
from ..http.decoder import NOT_STRICT, DialectDecoder, is_error_object
from ..sse import ServerSentEvent, SSEDecoder
from .chunks import (
    NO_RAW,
    OLD_CALL,
    ChatChunk,
    ChunkCall,
    ChunkChoice,
    ChunkDelta,
    ContentPart,
    decode_chunk,
    logprobs_of,
    text_of_parts,
    without_logprobs,
)
from .plain_chunk import PlainChunk, decode_text
from .tool_calls import WrittenCalls

_A_FEW = 2048  # bytes of chunks that may be unlike what follows
_COST_OF_A_CHOICE = 1024  # against `max_text`, so that empty choices cannot fill the memory


class AnswerDecoder(DialectDecoder):
    """Turns the reads of one response into events, of as many `choices` as were asked for."""

    _frames: SSEDecoder

    def __init__(self, name: str, *, choices: int = 1, max_event: int = MAX_EVENT, **options: Any) -> None:
        super().__init__(name, max_event=max_event, **options)
        self._expected = choices
        self._answers: dict[int, _Answer] = {}
        self._plain = PlainChunk(max_event)
        self._is_between = False  # whether all bytes were plain chunks, and nothing is held back
        self._is_speaking = False  # text has begun: most of what follows is plain text

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
        decoded: list[Sequence[Yielded]] = []
        few = _A_FEW
        while data and not self.over:  # the fast way, then a few chunks one by one, then the fast way again
            if plain.opening:
                texts, data = self._read_alike(data)
                decoded.append(texts)
            if data:
                self._is_between = False
                decoded += super().feed(data[:few])
                data, few = data[few:], 2 * few
        return decoded

    # frames

    def _read_alike(self, data: bytes) -> tuple[Sequence[Yielded], bytes]:
        """Decode the first chunks of a read while they are plain and alike, with one split.

        Return their texts and the bytes that are not decoded: none, those after these chunks, or all of them if one is
        of another kind.
        """
        plain = self._plain
        if not self._is_between:
            tail = self._frames.take_back()
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
            self._take_frame(kind, payload, events)
            if self.over:
                return

    def take(self, kind: bytes, payload: bytes, events: list[Yielded]) -> None:
        """Decode one frame: a chunk, `[DONE]`, or an event of another kind, which may hold anything."""
        if kind == b"error":
            self.fail(self.failed(payload), events)
            return
        if payload.strip() == b"[DONE]":
            self._done(events)
            return
        if kind not in (b"", b"message") and not isinstance(loosely(payload), dict):
            return
        try:
            chunk = decode_chunk(payload)
        except NOT_STRICT:
            chunk = self.decoded_loosely(payload, ChatChunk, without_logprobs)
        if self._halves is not None:
            self._plain.forget()
        if self._is_speaking and chunk.choices and self._take_plain(chunk, payload, events):
            return
        self._take_in(chunk, events)
        is_empty = chunk.choices is None and chunk.usage is None
        if chunk.error or (is_empty and is_error_object(loosely(payload))):
            self.fail(self.failed(chunk.error or payload), events)

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
        answer.has_begun = answer.has_content = True
        self.show(text, events, answer.index, logprobs=logprobs)
        if logprobs is None:
            self._plain.learn(payload, answer.index)
        return True

    def _take_in(self, chunk: ChatChunk, events: list[Yielded]) -> None:
        for choice in chunk.choices or ():
            self._take_choice(choice, events)
        usage = chunk.usage or (chunk.x_groq.usage if chunk.x_groq is not None else None)
        if usage is not None:
            self.use(usage.counted(), events, is_final=self.finished or not chunk.choices)

    # choices

    def _take_choice(self, choice: ChunkChoice, events: list[Yielded]) -> None:
        answer = self._answers.get(choice.index or 0)
        if answer is None:
            self._room -= _COST_OF_A_CHOICE
            answer = self._answers[choice.index or 0] = _Answer(choice.index or 0)
        if answer.reason is not None:
            return
        if choice.delta is not None:
            self._take_delta(answer, choice.delta, choice.logprobs, events)
        elif choice.message is not None and not answer.has_begun:  # else it repeats the deltas
            self._take_delta(answer, choice.message, choice.logprobs, events)
        elif choice.text:
            self._take_text(answer, choice.text, events, logprobs_of(choice.logprobs))
        if choice.finish_reason and choice.finish_reason != "null":
            self._finish(answer, choice.finish_reason, events)

    def _take_delta(self, answer: _Answer, delta: ChunkDelta, logprobs: msgspec.Raw, events: list[Yielded]) -> None:
        if reasoning := delta.reasoning_content or delta.reasoning:
            self._take_thought(answer, reasoning, events)
        if isinstance(delta.content, str):
            if delta.content:
                given = None if logprobs is NO_RAW else logprobs_of(logprobs)
                self._take_text(answer, delta.content, events, given)
        elif delta.content:
            self._take_parts(answer, delta.content, events)
        if delta.refusal:
            self._take_text(answer, delta.refusal, events, refusal=True)
        for piece in delta.tool_calls or ():
            self._take_call(answer, piece, events)
        if delta.function_call is not None:
            self._take_call(answer, ChunkCall(OLD_CALL, function=delta.function_call), events)
        if delta.audio:
            answer.left_out = "audio"
        for image in delta.images if isinstance(delta.images, list) else ():
            self._take_picture(answer, image, events)
        if delta.annotations or delta.reasoning_details:
            self._take_own(answer, delta, events)

    def _take_own(self, answer: _Answer, delta: ChunkDelta, events: list[Yielded]) -> None:
        """Decode fields that are this dialect's alone."""
        own = {"annotations": delta.annotations, "reasoning_details": delta.reasoning_details}
        if found := {name: value for name, value in own.items() if isinstance(value, list) and value}:
            self.spend(len(str(found)))
            events.append(ProviderData("openai", found, answer.index))

    def _take_text(
        self, answer: _Answer, text: str, events: list[Yielded], logprobs: Any = None, *, refusal: bool = False
    ) -> None:
        answer.has_begun = answer.has_content = True
        self._is_speaking = self._is_speaking or not refusal
        self.say(text, events, 0, answer.index, refusal=refusal, logprobs=logprobs)

    def _take_thought(self, answer: _Answer, text: str, events: list[Yielded]) -> None:
        answer.has_begun = True
        self.think(text, events, 0, answer.index)

    def _take_parts(self, answer: _Answer, parts: Sequence[ContentPart], events: list[Yielded]) -> None:
        """Decode content that is a list, as Mistral's reasoning models send."""
        for part in parts:
            if part.thinking:
                self._take_thought(answer, text_of_parts(part.thinking), events)
            elif part.text:
                self._take_text(answer, part.text, events)
            elif part.refusal:
                self._take_text(answer, part.refusal, events, refusal=True)
            elif part.image_url:
                self._take_picture(answer, {"image_url": part.image_url}, events)

    def _take_picture(self, answer: _Answer, image: Any, events: list[Yielded]) -> None:
        """Decode a picture, as gateways send them: in a field of the message, or as a part of its content."""
        match image:
            case {"image_url": {"url": str(url)}} | {"image_url": str(url)} if self.show_picture(
                url, events, answer.index
            ):
                answer.has_begun = answer.has_content = True
            case _:
                answer.left_out = self._left_out or "pictures"

    def _take_call(self, answer: _Answer, piece: ChunkCall, events: list[Yielded]) -> None:
        answer.has_begun = answer.has_content = True
        answer.calls = answer.calls or WrittenCalls()
        call = answer.calls.find(piece)
        self.write_call(call, events, *call.read(piece), answer.index)

    # the end

    def _finish(self, answer: _Answer, reason: str, events: list[Yielded]) -> None:
        """Record the finish reason of a choice. Its calls are complete now, unless it was cut off."""
        if self._plain.opening:
            self._plain.forget()
        if self._halves is not None:
            self.flush(events, choice=answer.index)
        if answer.left_out and not answer.has_content:
            what = f"{self.name} answered with {answer.left_out} alone, which cannot be passed on. Ask for text."
            self.fail(ProviderError(what, code="unsupported_content"), events)
            return
        if answer.left_out:
            what = f"{self.name} sent {answer.left_out} too, which cannot be passed on."
            events.append(Notice("content_left_out", what))
        answer.reason = reason
        if answer.calls is not None and reason not in TRUNCATED:
            events += answer.calls.whole(answer.index)
        if len(self._answers) >= self._expected:
            self._give_reasons(events)

    def _give_reasons(self, events: list[Yielded]) -> None:
        """Emit the finishes, once all choices that have begun have ended."""
        for answer in self._answers.values():
            if answer.reason is None:
                return
        self.finished = True
        for index, answer in sorted(self._answers.items()):
            if answer.reason is not None and not answer.reason_given:
                answer.reason_given = True
                is_error = answer.reason == "error"
                error = self.failed("it ended with the finish reason 'error'").info() if is_error else None
                events.append(Finish(answer.reason, index, error))

    def _done(self, events: list[Yielded]) -> None:
        """Handle `[DONE]`: the answer is complete."""
        if not self._answers:
            self.fail(self.broke("ended its stream without an answer in it"), events)
            return
        self.over = True
        for answer in self._answers.values():
            if answer.reason is None:
                self.finished = False
                self._finish(answer, "stop" if answer.calls is None else answer.calls.finish_reason(), events)
        if not self.finished:
            self._give_reasons(events)
        if self._usage is not None:
            self.show_usage(events)

    def take_end(self, cut: bool, events: list[Yielded]) -> None:
        """Complete the answer: fewer choices than were asked for are one too, unless the rest was cut off."""
        if self._answers and not cut:
            self._give_reasons(events)

    def take_body(self, body: bytes, events: list[Yielded]) -> None:
        """Decode a whole `chat.completion`."""
        completion = self.decoded(body, decode_chunk, ChatChunk, without_logprobs)
        if not any(choice.message is not None for choice in completion.choices or ()):
            raise ValueError("JSON without a message")
        self._take_in(completion, events)
        self._done(events)


class _Answer(msgspec.Struct):
    """The state of one choice."""

    index: int
    calls: WrittenCalls | None = None
    """None until there is one."""
    has_begun: bool = False
    has_content: bool = False
    """Whether there was text or a call, not only reasoning."""
    left_out: str = ""
    """Kinds of content that cannot be passed on."""
    reason: str | None = None
    reason_given: bool = False
