"""AG-UI 1.0 for clients: a run as AG-UI events, a pure function of the log.

Only a completed run ends in `RUN_FINISHED` with the outcome `success`. A stopped run ends with
`cancelled` if the client knows it. A client older than protocol 1.0 would take that for success, so it gets
`RUN_ERROR`. So does every client if a tool call is incomplete: closing it would mean that its arguments are complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ..error_help import help_at
from ..events import (
    Answered,
    AnySettlement,
    Completed,
    ErrorInfo,
    Event,
    Failed,
    Interrupted,
    LegStarted,
    Notice,
    Picture,
    Question,
    Reasoning,
    RunStarted,
    Settled,
    Steered,
    Stopped,
    Text,
    ToolCall,
    ToolDelta,
    ToolProgress,
    ToolResult,
    Usage,
)
from ..history import Message, text_of
from . import native, sse
from .outcome import cost_of, finish_reason, verdict
from .tool_calls import CallPiece, ToolCalls

_encode = msgspec.json.Encoder().encode

PROTOCOL_VERSION = "1.0"


def knows_cancelled(protocol_version: str | None) -> bool:
    """Return whether a client of this version knows `cancelled`."""
    major = (protocol_version or "").partition(".")[0]
    return major.isascii() and major.isdigit() and major.lstrip("0") != ""


def error_of(settled: AnySettlement) -> tuple[str, str]:
    """Return the code and the message of a settlement that is an error here."""
    if isinstance(settled, (Failed, Interrupted)):
        return settled.error.code, settled.error.message
    if isinstance(settled, Stopped):
        return f"stopped_by_{settled.by}", f"The run was stopped: {settled.by}. What it said before is kept."
    word = finish_reason(settled)
    return word, f"The answer was cut off: {word}. What was said before is kept."


class AgUiEvents:
    """Renders one run as AG-UI's events, in order from its first event: the same log always gives the same bytes.

    `thread_id` and `run_id` are the client's ids. `messages` are the earlier messages.
    """

    def __init__(
        self,
        run: str,
        model: str,
        *,
        thread_id: str,
        run_id: str | None = None,
        state: Any = None,
        messages: Sequence[Message] | None = None,
        cancelled: bool = False,
    ) -> None:
        self._run = run
        self._model = model
        self._names = {"threadId": thread_id, "runId": run_id or run}
        self._state = state
        self._messages = messages
        self._cancelled = cancelled
        self._message_id = f"msg_{run}"
        self._count = 0
        self._text = False
        self._reasoning = 0
        self._is_thinking = False
        self._calls = ToolCalls()
        self._half_written: set[str] = set()
        self._pending: list[str] = []
        self._text_head = b""

    def frames(self, events: Sequence[Event]) -> list[bytes]:
        """Return the frames of the next events, one by one."""
        out: list[bytes] = []
        for event in events:
            if type(event) is Text and self._text and not self._is_thinking and event.choice == 0 and event.text:
                out.append(b"%b%b}\n\n" % (self._text_head, _encode(event.text)))
            else:
                out.extend(sse.data(_encode(payload)) for payload in self._payloads(event))
        return out

    def broken(self, info: ErrorInfo) -> bytes:
        """Return the frame that ends the stream, not its run, with the reason."""
        more = {"metadata": {"holdfast": {"help": help_at(info.code)}}}
        return sse.data(_encode({"type": "RUN_ERROR", "message": info.message, "code": info.code, **more}))

    def _payloads(self, event: Event) -> Iterator[dict[str, Any]]:
        if isinstance(event, RunStarted):
            yield from self._begin(event)
        elif isinstance(event, Text):
            if event.choice == 0 and event.text:
                yield from self._say(event.text)
        elif isinstance(event, Reasoning):
            if event.choice == 0 and event.text:
                yield from self._think(event.text)
        elif isinstance(event, (ToolDelta, ToolCall)):
            if event.choice == 0:
                yield from self._call(event)
        elif isinstance(event, ToolResult):
            yield from self._result(event)
        elif isinstance(event, Settled):
            yield from self._end(event.settlement)
        elif isinstance(event, LegStarted):
            yield {"type": "CUSTOM", "name": "holdfast.leg.started", "value": native.seam(event)}
        elif isinstance(event, Picture):
            if event.choice == 0:
                yield {"type": "CUSTOM", "name": "holdfast.picture", "value": {"url": event.url}}
        elif isinstance(event, (Notice, ToolProgress, Steered, Question, Answered)):
            yield {"type": "CUSTOM", "name": f"holdfast.{event.__struct_config__.tag}", "value": _fields(event)}

    # the parts of an answer

    def _begin(self, event: RunStarted) -> Iterator[dict[str, Any]]:
        self._message_id = event.message_id or self._message_id
        yield {
            "type": "RUN_STARTED",
            **self._names,
            "protocolVersion": PROTOCOL_VERSION,
            "metadata": {"holdfast": {"run_id": self._run}},
        }
        if self._messages is not None:
            yield {"type": "MESSAGES_SNAPSHOT", "messages": [ag_ui_message(message) for message in self._messages]}
        if self._state is not None:
            yield {"type": "STATE_SNAPSHOT", "snapshot": self._state}

    @property
    def _message(self) -> str:
        """The id of the open message; the next begins after a tool's result."""
        return f"{self._message_id}-{self._count + 1}" if self._count else self._message_id

    def _say(self, text: str) -> Iterator[dict[str, Any]]:
        yield from self._stop_thinking()
        if not self._text:
            self._text = True
            head = {"type": "TEXT_MESSAGE_CONTENT", "messageId": self._message}
            self._text_head = b"data: " + _encode(head)[:-1] + b',"delta":'
            yield {"type": "TEXT_MESSAGE_START", "messageId": self._message, "role": "assistant"}
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": self._message, "delta": text}

    def _stop_saying(self) -> Iterator[dict[str, Any]]:
        if self._text:
            yield {"type": "TEXT_MESSAGE_END", "messageId": self._message}
        self._text = False

    def _think(self, text: str) -> Iterator[dict[str, Any]]:
        if not self._is_thinking:
            self._is_thinking = True
            self._reasoning += 1
            yield {"type": "REASONING_START", "messageId": self._thought}
            yield {"type": "REASONING_MESSAGE_START", "messageId": self._thought, "role": "reasoning"}
        yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": self._thought, "delta": text}

    @property
    def _thought(self) -> str:
        return f"{self._message_id}-reasoning-{self._reasoning}"

    def _stop_thinking(self) -> Iterator[dict[str, Any]]:
        if self._is_thinking:
            yield {"type": "REASONING_MESSAGE_END", "messageId": self._thought}
            yield {"type": "REASONING_END", "messageId": self._thought}
        self._is_thinking = False

    def _call(self, event: ToolDelta | ToolCall) -> Iterator[dict[str, Any]]:
        is_complete = isinstance(event, ToolCall)
        piece: CallPiece | None = self._calls.whole(event) if isinstance(event, ToolCall) else self._calls.piece(event)
        if piece is None:
            return
        if piece.begins:
            yield from self._stop_thinking()
            self._half_written.add(piece.id)
            self._pending.append(piece.id)
            fields = {"toolCallName": piece.name, "parentMessageId": self._message}
            yield {"type": "TOOL_CALL_START", "toolCallId": piece.id, **fields}
        if piece.arguments:
            yield {"type": "TOOL_CALL_ARGS", "toolCallId": piece.id, "delta": piece.arguments}
        if is_complete:
            self._half_written.discard(piece.id)
            yield {"type": "TOOL_CALL_END", "toolCallId": piece.id}

    def _result(self, event: ToolResult) -> Iterator[dict[str, Any]]:
        yield from self._stop_saying()
        self._count += 1
        if event.id in self._pending:
            self._pending.remove(event.id)
        failed = {"metadata": {"holdfast": {"is_error": True}}} if event.is_error else {}
        fields = {"messageId": f"{self._message_id}-result-{self._count}", "toolCallId": event.id, "role": "tool"}
        yield {"type": "TOOL_CALL_RESULT", **fields, "content": event.output, **failed}

    # the ending

    def _end(self, settled: AnySettlement) -> Iterator[dict[str, Any]]:
        yield from self._stop_thinking()
        yield from self._stop_saying()
        if isinstance(settled, Completed):  # every call is complete, even one without a `ToolCall`
            yield from ({"type": "TOOL_CALL_END", "toolCallId": id} for id in self._pending if id in self._half_written)
        used = {
            "model": settled.answered_by or self._model,
            "inputTokens": settled.usage.input_tokens,
            "outputTokens": settled.usage.output_tokens,
            "totalTokens": settled.usage.total_tokens,
            **_details(settled.usage),
        }
        told = {name: value for name, value in verdict(settled, self._run).items() if name == "holdfast"}
        metadata = told | cost_of(settled.usage)  # the protocol's usage has counts only
        yield {**self._ending(settled), "usage": [used], **({"metadata": metadata} if metadata else {})}

    def _ending(self, settled: AnySettlement) -> dict[str, Any]:
        """Return the last event of a settlement: the only such mapping."""
        finished = {"type": "RUN_FINISHED", **self._names}
        if isinstance(settled, Completed):
            pending = {"pendingToolCallIds": self._pending} if self._pending else {}
            return {**finished, "outcome": {"type": "success", **pending}}
        if isinstance(settled, Stopped) and self._cancelled and not self._half_written:
            return {**finished, "outcome": {"type": "cancelled"}}
        code, message = error_of(settled)
        return {"type": "RUN_ERROR", "message": message, "code": code}


def _fields(event: msgspec.Struct) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(event)
    return {name: value for name, value in fields.items() if name != "type"}


# Earlier messages.


def ag_ui_message(message: Message) -> dict[str, Any]:
    """Return a message of a session in AG-UI's shape."""
    fields: dict[str, Any] = {"id": message.id, "role": message.role, "content": _content(message)}
    if message.tool_calls:
        fields["toolCalls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        fields["toolCallId"] = message.tool_call_id
    return fields


def _content(message: Message) -> str | list[dict[str, Any]]:
    """Return text, or parts if there are images or files. Parts that AG-UI does not have are left out."""
    if not isinstance(message.content, list):
        return message.content or ""
    parts = [part for part in map(_part, message.content) if part is not None]
    if message.role in ("user", "tool"):
        return parts
    return text_of(parts)


def _part(part: Any) -> dict[str, Any] | None:
    match part:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "image_url", "image_url": {"url": str(url)}} if url.startswith("data:") and ";base64," in url:
            kind, _, data = url.removeprefix("data:").partition(";base64,")
            return {"type": "image", "source": {"type": "data", "value": data, "mimeType": kind}}
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return {"type": "image", "source": {"type": "url", "value": url}}
        case {"type": "file", "file": {"file_data": str(url)}} if url.startswith("data:") and ";base64," in url:
            kind, _, data = url.removeprefix("data:").partition(";base64,")
            return {"type": "document", "source": {"type": "data", "value": data, "mimeType": kind}}
    return None


def _details(used: Usage) -> dict[str, int]:
    """Return the cached and the reasoning tokens, if the upstream counted them."""
    counted = {
        "cachedInputTokens": used.cached_tokens,
        "cacheWriteInputTokens": used.cache_write_tokens,
        "reasoningTokens": used.reasoning_tokens,
    }
    return {name: count for name, count in counted.items() if count}
