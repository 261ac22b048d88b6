"""Anthropic's Messages API for clients: stream events and the whole message, each a pure function of the log.

Blocks of a message are sequential, as Anthropic's are: a piece of a second block waits while a tool call is incomplete.
A run that did not complete ends in an `error` event, without `message_stop`: SDKs raise on one, and take any other end
for success. Only a run that hit a limit or a filter has its own stop reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from ...errors import NOT_RETRIED
from ...events import (
    NOT_AGAIN,
    AnySettlement,
    Completed,
    ErrorInfo,
    Event,
    Failed,
    Interrupted,
    Notice,
    Picture,
    ProviderData,
    Reasoning,
    RunStarted,
    Settled,
    StepStarted,
    Stopped,
    Text,
    ToolCall,
    ToolDelta,
    ToolResult,
    Truncated,
    Usage,
)
from .. import native
from ..outcome import cost_of, finish_reason, verdict
from ..tool_calls import CallPiece, ToolCalls

_encode = msgspec.json.Encoder().encode

STOP_REASONS = {
    "length": "max_tokens",
    "content_filter": "refusal",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
}
"""Anthropic's stop reason for each of OpenAI's finish reasons. All others are `end_turn`."""

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    NOT_RETRIED: "api_error",
    409: "invalid_request_error",
    410: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""Anthropic's name for an error of each status. All others are `api_error`."""

ERROR_CODES = frozenset({"thread_unsupported_request", "thread_not_found", "thread_continue_in_flight"})
"""Error codes that Anthropic's SDKs read from the details of an error."""


def message_id(run_id: str) -> str:
    """Return the message id of a run."""
    return "msg_" + run_id


def run_id_of_message(message_id: str) -> str:
    """Return the run of a message id."""
    return message_id.removeprefix("msg_")


def anthropic_error(info: ErrorInfo) -> dict[str, Any]:
    """Return an error in Anthropic's shape, with our own code beside its type.

    Clients repeat a request at most types for a status of 5xx, so one that must not be repeated has none of them.
    """
    kind = ERROR_TYPES.get(info.status, "invalid_request_error" if info.status < 500 else "api_error")
    kind = "api_error" if info.type == NOT_AGAIN else kind
    fields: dict[str, Any] = {**native.error(info), "type": kind}
    if info.code in ERROR_CODES:
        fields["details"] = {"error_code": info.code}
    return {"type": "error", "error": fields}


def stop_reason(settled: Completed | Truncated, *, calls: bool, refused: bool = False) -> str:
    """Return the stop reason of a delivered answer. A complete answer with tool calls always has `tool_use`.

    `refused` is true if the text is the model's reason for not answering.
    """
    if settled.stop_sequence is not None:
        return "stop_sequence"
    reason = finish_reason(settled)
    if isinstance(settled, Completed):
        return "tool_use" if calls else "refusal" if refused else STOP_REASONS.get(reason, "end_turn")
    return STOP_REASONS.get(reason, "max_tokens")


def unfinished(settled: Stopped | Failed | Interrupted, run: str) -> dict[str, Any]:
    """Return the error of a settlement without a delivered answer."""
    told = verdict(settled, run)["holdfast"]
    if isinstance(settled, Stopped):
        message = f"The run was stopped: {settled.by}. What it said before is kept."
        return {
            "type": "error",
            "error": {"type": "stopped", "message": message, "code": told["code"], "param": None},
            "holdfast": told,
        }
    return {**anthropic_error(settled.error), "holdfast": told}


def anthropic_usage(used: Usage) -> dict[str, float]:
    """Return the usage in Anthropic's shape."""
    cached = {
        "cache_creation_input_tokens": used.cache_write_tokens,
        "cache_read_input_tokens": used.cached_tokens,
    }
    uncached = max(0, used.input_tokens - used.cached_tokens - used.cache_write_tokens)
    return {"input_tokens": uncached, **cached, "output_tokens": used.output_tokens, **cost_of(used)}


_Piece: TypeAlias = CallPiece | str | dict[str, Any]
"""A new piece of a block: of a call, text, thinking, or Anthropic's own data."""


class _Open:
    """The open block."""

    __slots__ = ("index", "key", "whole")

    def __init__(self, index: int, key: str) -> None:
        self.index = index
        self.key = key
        self.whole = not key.startswith("call ")
        """True if another block may follow: text can end anywhere, a call only when it is complete."""


class Blocks:
    """Translates the events of a run to blocks, as the payloads of Anthropic's stream events."""

    def __init__(self) -> None:
        self._calls = ToolCalls()
        self._open: _Open | None = None
        self._count = 0
        self._held: list[tuple[str, _Piece]] = []
        self._begun_calls: set[str] = set()
        self._unanswered: set[str] = set()
        self.refused = False
        """The model has refused to answer; the text is its reason."""

    @property
    def calls(self) -> bool:
        """True if the client has to run a tool: a call has no result in this run."""
        return bool(self._unanswered)

    @property
    def text_index(self) -> int | None:
        """The index of the open text block."""
        return self._open.index if self._open is not None and self._open.key == "text" and not self._held else None

    def take(self, event: Event) -> Iterator[dict[str, Any]]:
        """Return the payloads of one event."""
        if isinstance(event, (Text, Reasoning)):
            if event.choice == 0 and event.text:
                self.refused = self.refused or (isinstance(event, Text) and event.refusal)
                yield from self._add("text" if isinstance(event, Text) else "thinking", event.text)
        elif isinstance(event, ToolCall) and event.own:
            return  # the agent runs it itself
        elif isinstance(event, (ToolDelta, ToolCall)) and event.choice == 0:
            piece = self._calls.piece(event) if isinstance(event, ToolDelta) else self._calls.whole(event)
            if piece is not None:
                self._unanswered.add(piece.id)
                yield from self._add(f"call {piece.id}", piece)
        elif isinstance(event, Picture) and event.choice == 0:
            yield from self._add(_BLOCK, {"type": "content_block", "content_block": _image(event.url)})
        elif isinstance(event, ProviderData) and event.dialect == "anthropic":
            yield from self._add(_key_of(event.data), event.data)
        elif isinstance(event, ToolResult):
            self._unanswered.discard(event.id)

    def end(self, *, close: bool) -> Iterator[dict[str, Any]]:
        """Return the pieces that were held back, and with `close` the end of the last block."""
        while self._held:
            yield from self._stop()
            yield from self._release_held()
        if close:
            yield from self._stop()

    def _add(self, key: str, piece: _Piece) -> Iterator[dict[str, Any]]:
        if self._open is not None and self._open.key == key and key != _BLOCK:
            yield from self._continue(self._open, piece)
        elif self._open is not None and not self._open.whole:
            self._held.append((key, piece))
            return
        elif key in self._begun_calls:
            return  # white space after a complete call
        else:
            yield from self._begin(key, piece)
        if self._open is not None and self._open.whole and self._held:
            yield from self._release_held()

    def _release_held(self) -> Iterator[dict[str, Any]]:
        held, self._held = self._held, []
        for key, piece in held:
            yield from self._add(key, piece)

    def _begin(self, key: str, piece: _Piece) -> Iterator[dict[str, Any]]:
        yield from self._stop()
        self._open = _Open(self._count, key)
        self._count += 1
        if isinstance(piece, CallPiece):
            self._begun_calls.add(key)
        block = _empty(key, piece)
        yield {"type": "content_block_start", "index": self._open.index, "content_block": block}
        yield from self._continue(self._open, piece)

    def _continue(self, block: _Open, piece: _Piece) -> Iterator[dict[str, Any]]:
        if isinstance(piece, CallPiece):
            block.whole = block.whole or piece.whole
            delta = {"type": "input_json_delta", "partial_json": piece.arguments}
            if not piece.arguments:
                return
        elif isinstance(piece, dict):
            if (own := _own_delta(piece)) is None:
                return
            delta = own
        elif block.key == "text":
            delta = {"type": "text_delta", "text": piece}
        else:
            delta = {"type": "thinking_delta", "thinking": piece}
        yield {"type": "content_block_delta", "index": block.index, "delta": delta}
        if delta["type"] == "signature_delta":
            yield from self._stop()  # another thinking block follows

    def _stop(self) -> Iterator[dict[str, Any]]:
        if self._open is not None:
            yield {"type": "content_block_stop", "index": self._open.index}
        self._open = None


_BLOCK = "block"


def _key_of(data: dict[str, Any]) -> str:
    """Return the key of the block that Anthropic's own data belongs to."""
    return {"signature_delta": "thinking", "citations_delta": "text"}.get(data["type"], _BLOCK)


def _image(url: str) -> dict[str, Any]:
    """Return a picture as a block, in the form that the dialect has for those of people."""
    type, found, data = url.removeprefix("data:").partition(";base64,")
    source = {"type": "base64", "media_type": type, "data": data} if found else {"type": "url", "url": url}
    return {"type": "image", "source": source}


def _own_delta(data: dict[str, Any]) -> dict[str, Any] | None:
    """Return the delta of Anthropic's own data: for a whole block its input, or None if it has no input."""
    if data["type"] != "content_block":
        return data
    match data["content_block"]:
        case {"input": arguments} if arguments:
            return {"type": "input_json_delta", "partial_json": _encode(arguments).decode()}
    return None


def _citations(block: dict[str, Any]) -> list[Any]:
    match block:
        case {"citations": list(citations)}:
            return citations
    return []


def _empty(key: str, piece: _Piece) -> dict[str, Any]:
    if key == _BLOCK and isinstance(piece, dict):
        block: dict[str, Any] = piece["content_block"]
        return {**block, "input": {}} if "input" in block else block
    if isinstance(piece, CallPiece):
        return {"type": "tool_use", "id": piece.id, "name": piece.name, "input": {}}
    return {"type": "text", "text": ""} if key == "text" else {"type": "thinking", "thinking": "", "signature": ""}


_BEFORE_THE_COUNT = (RunStarted, Notice, StepStarted)
"""Events that may come before an upstream's count of the input, which the first frame has."""


class MessageEvents:
    """Renders one run as stream events, in order from its first event: the same log always gives the same bytes."""

    def __init__(self, run: str, model: str, input_tokens: int = 0) -> None:
        """`input_tokens` is an estimate, for an upstream that has not counted when the answer begins."""
        self._run = run
        self._model = model
        self._input = Usage(input_tokens)
        self._has_begun = False
        self._blocks = Blocks()

    def frames(self, events: Sequence[Event]) -> list[bytes]:
        """Return the frames of the next events, one by one."""
        out: list[bytes] = []
        for event in events:
            is_plain = type(event) is Text and event.choice == 0 and event.text and not event.refusal
            index = self._blocks.text_index if is_plain else None
            if index is not None:
                assert isinstance(event, Text)
                out.append(
                    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,'
                    b'"delta":{"type":"text_delta","text":%b}}\n\n' % (index, _encode(event.text))
                )
            else:
                out.extend(_frame(payload) for payload in self._payloads(event))
        return out

    def heartbeat(self) -> bytes:
        """Return the sign of life of a stream: its first frames, if the upstream has not begun to answer."""
        return PING if self._has_begun else b"".join(map(_frame, self._begin(self._input)))

    def broken(self, info: ErrorInfo) -> bytes:
        """Return the frame that ends the stream, not its run, with the reason."""
        return _frame(anthropic_error(info))

    def _payloads(self, event: Event) -> Iterator[dict[str, Any]]:
        if isinstance(event, _BEFORE_THE_COUNT):
            return
        if not self._has_begun:
            yield from self._begin(event if isinstance(event, Usage) else self._input)
        if isinstance(event, Settled):
            yield from self._ending(event.settlement)
        else:
            yield from self._blocks.take(event)

    def _begin(self, used: Usage) -> Iterator[dict[str, Any]]:
        self._has_begun = True
        started = {**_head(self._run, self._model), "content": [], "stop_reason": None, "stop_sequence": None}
        yield {"type": "message_start", "message": {**started, "usage": anthropic_usage(used)}}
        yield {"type": "ping"}

    def _ending(self, settled: AnySettlement) -> Iterator[dict[str, Any]]:
        if isinstance(settled, (Completed, Truncated)):
            yield from self._blocks.end(close=True)
            reason = stop_reason(settled, calls=self._blocks.calls, refused=self._blocks.refused)
            yield {
                "type": "message_delta",
                "delta": {"stop_reason": reason, "stop_sequence": settled.stop_sequence},
                "usage": anthropic_usage(settled.usage),
                **verdict(settled, self._run),
            }
            yield {"type": "message_stop"}
        else:
            yield from self._blocks.end(close=False)
            yield unfinished(settled, self._run)


def _frame(payload: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (payload["type"].encode(), _encode(payload))


PING = _frame({"type": "ping"})
"""The heartbeat of Anthropic's streams."""


def _head(run: str, model: str) -> dict[str, Any]:
    return {"id": message_id(run), "type": "message", "role": "assistant", "model": model}


class MessageAnswer:
    """Builds the finished message from the events of a run."""

    def __init__(self, run: str, model: str) -> None:
        self._run = run
        self._model = model
        self._blocks = Blocks()
        self._content: list[dict[str, Any]] = []
        self._pieces: list[list[str]] = []

    def add(self, events: Sequence[Event]) -> None:
        """Add the next events."""
        for event in events:
            self._gather(self._blocks.take(event))

    def body(self, settled: AnySettlement | None) -> dict[str, Any]:
        """Return the message so far. If the run stopped or failed, it is the partial message of an error."""
        self._gather(self._blocks.end(close=False))
        reason = None
        if isinstance(settled, (Completed, Truncated)):
            reason = stop_reason(settled, calls=self._blocks.calls, refused=self._blocks.refused)
        message = {
            **_head(self._run, self._model),
            "content": [self._block(place) for place in range(len(self._content))],
            "stop_reason": reason,
            "stop_sequence": settled.stop_sequence if settled is not None else None,
            "usage": anthropic_usage(settled.usage if settled is not None else Usage()),
        }
        if settled is None:
            return {**message, "holdfast": {"outcome": None, "run_id": self._run}}
        if isinstance(settled, (Completed, Truncated)):
            return {**message, **verdict(settled, self._run)}
        error = unfinished(settled, self._run)
        return {**error, "holdfast": {**error["holdfast"], "partial": message}}

    def _gather(self, payloads: Iterator[dict[str, Any]]) -> None:
        for payload in payloads:
            if payload["type"] == "content_block_start":
                self._content.append(payload["content_block"])
                self._pieces.append([])
            elif payload["type"] == "content_block_delta":
                self._take_delta(payload["index"], payload["delta"])

    def _take_delta(self, place: int, delta: dict[str, Any]) -> None:
        block = self._content[place]
        if delta["type"] == "signature_delta":
            self._content[place] = {**block, "signature": delta["signature"]}
        elif delta["type"] == "citations_delta":
            self._content[place] = {**block, "citations": [*_citations(block), delta["citation"]]}
        else:
            self._pieces[place].append(delta[_FIELD[delta["type"]]])

    def _block(self, place: int) -> dict[str, Any]:
        block, text = self._content[place], "".join(self._pieces[place])
        if "input" in block:
            return {**block, "input": _input(text)}
        return {**block, block["type"]: text} if block["type"] in ("text", "thinking") else block


_FIELD = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


def _input(arguments: str) -> dict[str, Any]:
    """Return a call's arguments as an object. Any other value becomes its field `arguments`."""
    try:
        decoded = msgspec.json.decode((arguments.strip() or "{}").encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        return {"arguments": arguments}
    return decoded if isinstance(decoded, dict) else {"arguments": decoded}
