"""One answer of Gemini's `streamGenerateContent`: server-sent events become events of a run.

- Each frame is a whole response with a piece of the answer. The one with a `finishReason` is the last: the stream has
  no other mark of its end.
- A part is text, a thought (text with `thought`), or a complete call with its arguments as an object.
- The signature of a call is a thought too: Gemini requires it with the call when the result is sent.
- A prompt that Gemini blocks gets no candidate, only `promptFeedback`: the answer is filtered, with a notice.
- The usage of a frame counts all tokens so far. Tokens of thoughts are not in those of the answer.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...events import Notice, Thought, Usage, Yielded
from ...redaction import redact
from ..decoding import count
from ..http.decoder import DialectDecoder

__all__ = ["SIGNATURE", "GeminiDecoder"]

SIGNATURE = "thought_signature"
"""The type of a thought that holds the signature of a call."""


class _Call(msgspec.Struct, gc=False):
    id: str | None = None
    name: str | None = None
    args: Any = None


class _Inline(msgspec.Struct, gc=False):
    data: str = ""


class _Part(msgspec.Struct, gc=False, rename="camel"):
    text: str | None = None
    thought: bool = False
    thought_signature: str | None = None
    function_call: _Call | None = None
    inline_data: _Inline | None = None


class _Content(msgspec.Struct, gc=False):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct, gc=False, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None


class _Feedback(msgspec.Struct, gc=False, rename="camel"):
    block_reason: str | None = None
    block_reason_message: str | None = None


class _Usage(msgspec.Struct, gc=False, rename="camel"):
    prompt_token_count: int | float | None = None
    tool_use_prompt_token_count: int | float | None = None
    cached_content_token_count: int | float | None = None
    candidates_token_count: int | float | None = None
    thoughts_token_count: int | float | None = None

    def counted(self) -> Usage:
        thoughts = count(self.thoughts_token_count)
        return Usage(
            count(self.prompt_token_count) + count(self.tool_use_prompt_token_count),
            count(self.candidates_token_count) + thoughts,
            "provider",
            cached_tokens=count(self.cached_content_token_count),
            reasoning_tokens=thoughts,
        )


class _Response(msgspec.Struct, gc=False, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: _Feedback | None = None
    usage_metadata: _Usage | None = None
    error: Any = None


_decode_response = msgspec.json.Decoder(_Response).decode


class GeminiDecoder(DialectDecoder):
    """Turns the reads of one response into events."""

    def take(self, kind: bytes, payload: bytes, events: list[Yielded]) -> None:
        """Decode one frame."""
        response = self.decoded(payload, _decode_response, _Response)
        if response.error:
            self.fail(self.failed(payload), events)
            return
        if response.usage_metadata is not None:
            self.use(response.usage_metadata.counted(), events, is_final=False)
        candidates = response.candidates or []
        if candidates:
            self._take_candidate(candidates[0], events)
        elif response.prompt_feedback is not None and response.prompt_feedback.block_reason:
            self._take_block(response.prompt_feedback, events)

    def _take_candidate(self, candidate: _Candidate, events: list[Yielded]) -> None:
        if self.finished:
            self.show_usage(events)
            return
        for part in (candidate.content.parts or ()) if candidate.content is not None else ():
            self._take_part(part, events)
        if candidate.finish_reason:
            self.show_usage(events)
            self.finish(candidate.finish_reason, events, candidate.finish_message or "")

    def _take_part(self, part: _Part, events: list[Yielded]) -> None:
        if part.text and part.thought:
            self.think(part.text, events)
        elif part.text:
            self.say(part.text, events)
        elif part.function_call is not None:
            self._take_call(part.function_call, part.thought_signature, events)
        elif part.inline_data is None or part.thought:
            return
        elif not self.show_picture(f"data:;base64,{part.inline_data.data}", events):
            self.leave_out("pictures or sound")

    def _take_call(self, called: _Call, signature: str | None, events: list[Yielded]) -> None:
        call = self.add_call(called.id, called.name, called.args, events)
        if signature:
            self.spend(len(signature))
            events.append(Thought({"type": SIGNATURE, "call": call.id, "signature": signature}))

    def _take_block(self, feedback: _Feedback, events: list[Yielded]) -> None:
        reason = redact(feedback.block_reason_message or feedback.block_reason or "", self.secrets)
        events.append(Notice("prompt_blocked", f"{self.name} blocked the prompt: {reason}"))
        self.show_usage(events)
        self.finish("content_filter", events)
