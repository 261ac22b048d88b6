"""Chunks of OpenAI's chat completions as structs, and their decoders, for invalid ones too."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ...events import CallKind, Usage
from ..decoding import count

NO_RAW = msgspec.Raw(b"")
OLD_CALL = -1
"""The index of a call in OpenAI's older form, which has none."""

_MOST_CHOICES = 128  # as many as OpenAI allows: an index must not make clients allocate a huge list


# Fields of a chunk. Upstreams may leave out any, or send null.


class CalledFunction(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class CalledTool(msgspec.Struct, gc=False):
    name: str | None = None
    input: str | None = None


class ChunkCall(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    type: Any = None
    function: CalledFunction | None = None
    custom: CalledTool | None = None

    @property
    def kind(self) -> CallKind:
        if self.index == OLD_CALL:
            return "function_call"
        return "custom" if self.custom is not None or self.type == "custom" else "function"


class ContentPart(msgspec.Struct, gc=False):
    text: str | None = None
    thinking: str | list[ContentPart] | None = None
    refusal: str | None = None
    image_url: Any = None


class ChunkDelta(msgspec.Struct, gc=False):
    content: str | list[ContentPart] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[ChunkCall] | None = None
    function_call: CalledFunction | None = None
    audio: Any = None
    images: Any = None
    annotations: Any = None
    reasoning_details: Any = None

    def is_text_alone(self) -> bool:
        """Return whether its only field is the content."""
        if self.tool_calls or self.reasoning_content or self.reasoning or self.refusal:
            return False
        beside = self.annotations or self.reasoning_details
        return not (self.function_call or self.audio or self.images or beside)


class ChunkChoice(msgspec.Struct, gc=False):
    delta: ChunkDelta | None = None
    index: Annotated[int, msgspec.Meta(ge=0, lt=_MOST_CHOICES)] | None = None
    finish_reason: str | None = None
    logprobs: msgspec.Raw = NO_RAW
    message: ChunkDelta | None = None
    """In place of a delta, in an answer that is not a stream."""
    text: str | None = None
    """In place of a delta, in text completions."""


class ChunkUsage(msgspec.Struct, gc=False):
    prompt_tokens: int | float | None = None
    completion_tokens: int | float | None = None
    prompt_tokens_details: Any = None
    completion_tokens_details: Any = None

    def counted(self) -> Usage:
        """Return the usage as an event."""
        return Usage(
            count(self.prompt_tokens),
            count(self.completion_tokens),
            "provider",
            _detail(self.prompt_tokens_details, "cached_tokens") if self.prompt_tokens_details else 0,
            _detail(self.completion_tokens_details, "reasoning_tokens") if self.completion_tokens_details else 0,
        )


class GroqFields(msgspec.Struct, gc=False):
    usage: ChunkUsage | None = None


class ChatChunk(msgspec.Struct, gc=False):
    choices: list[ChunkChoice] | None = None
    usage: ChunkUsage | None = None
    x_groq: GroqFields | None = None
    error: Any = None


decode_chunk = msgspec.json.Decoder(ChatChunk).decode
"""Decodes a valid chunk."""


def without_logprobs(value: dict[str, Any]) -> dict[str, Any]:
    """Return an object of a chunk without logprobs: they can be stored only as the upstream's bytes."""
    value.pop("logprobs", None)
    return value


def logprobs_of(logprobs: msgspec.Raw) -> Any:
    """Return logprobs as an object, so that they are the same before and after they were stored; None if invalid."""
    if len(logprobs) <= len("null"):
        return None
    try:
        decoded = msgspec.json.decode(logprobs)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None  # these bytes were not decoded before
    match decoded:
        case {"content": list() | None}:
            return decoded
        case {"content": _}:
            return None
    return decoded if isinstance(decoded, dict) else None


def text_of_parts(thinking: str | list[ContentPart]) -> str:
    return thinking if isinstance(thinking, str) else "".join(part.text or "" for part in thinking)


def _detail(details: Any, name: str) -> int:
    """Return a number from the details of a usage, which may be anything."""
    tokens = details.get(name) if isinstance(details, dict) else None
    return count(tokens) if isinstance(tokens, int) else 0
