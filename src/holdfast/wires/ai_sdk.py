"""The AI SDK's UI message stream, version 1: the parts of one assistant message, a pure function of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ..error_help import help_at
from ..events import (
    Answered,
    AnySettlement,
    ApprovalDecided,
    ApprovalRequested,
    Completed,
    ErrorInfo,
    Event,
    Failed,
    Interrupted,
    LegStarted,
    Notice,
    OpenCall,
    Picture,
    Question,
    Reasoning,
    RunStarted,
    Settled,
    Settlement,
    Steered,
    Stopped,
    Text,
    ToolCall,
    ToolDelta,
    ToolProgress,
    ToolResult,
)
from . import native, sse
from .outcome import cost_of, finish_reason
from .tool_calls import json_arguments

HEADER = "x-vercel-ai-ui-message-stream"
VERSION = "v1"
NOT_FINISHED = "The run ended before this call was written to its end."
NO_RESULT = "The run ended before the tool gave a result."

_encode = msgspec.json.Encoder().encode
_REASONS = {"tool_calls": "tool-calls", "function_call": "tool-calls", "content_filter": "content-filter"}

_Part = dict[str, Any]


def ui_finish_reason(settled: Settlement) -> str:
    """Return the finish reason of a settlement: the only such mapping.

    A stopped run has `other`: not all versions of the SDK know a reason for it. The `abort` part before it has one.
    """
    if isinstance(settled, Stopped):
        return "other"
    reason = finish_reason(settled)
    return _REASONS.get(reason, reason)


def media_type(url: str) -> str:
    """Return the media type of a data URL; `image/*` for any other URL."""
    if url.startswith("data:"):
        return url.removeprefix("data:").partition(",")[0].partition(";")[0] or "text/plain"
    return "image/*"


def run_metadata(settled: Settlement, run: str) -> _Part:
    """Return the metadata of a message about its run."""
    fields: _Part = {
        "runId": run,
        "outcome": settled.outcome,
        "usage": native.usage(settled.usage),
        **cost_of(settled.usage),
    }
    if isinstance(settled, (Failed, Interrupted)):
        fields["code"] = settled.error.code
        fields["help"] = help_at(settled.error.code)
    elif isinstance(settled, Stopped):
        fields["code"] = f"stopped_by_{settled.by}"
    if settled.answered_by:
        fields["answeredBy"] = settled.answered_by
    if settled.legs:
        fields["legs"] = native.legs(settled.legs)
    return {"holdfast": fields}


class PartStream:
    """Renders one run as parts, in order from its first event: the same log always gives the same bytes.

    A *step* is one answer of the model. The SDK requires text and reasoning in blocks that are opened and closed, and a
    new step after the results of tools.
    """

    def __init__(self, run: str, message_id: str | None = None) -> None:
        self._run = run
        self._message_id = message_id
        self._open: str | None = None
        self._blocks = 0
        self._delta_head = b""
        self._calls = _Calls()
        self._has_results = False

    def frames(self, events: Sequence[Event]) -> list[bytes]:
        """Return the frames of the next events, one by one."""
        out: list[bytes] = []
        for event in events:
            if type(event) is Text and self._open == "text" and event.choice == 0:
                out.append(b"%b%b}\n\n" % (self._delta_head, _encode(event.text)))
            else:
                out.extend(map(_frame, self._parts(event)))
                if isinstance(event, Settled):
                    out.append(sse.DONE)
        return out

    def broken(self, info: ErrorInfo) -> bytes:
        """Return the frame that ends the stream, not its run, with the reason."""
        return _frame({"type": "error", "errorText": info.message})

    def _parts(self, event: Event) -> list[_Part]:
        if getattr(event, "choice", 0) != 0:
            return []  # a message has one choice
        match event:
            case RunStarted():
                return self._started(event)
            case Text():
                return [*self._begin("text"), {"type": "text-delta", "id": self._block, "delta": event.text}]
            case Reasoning():
                return [*self._begin("reasoning"), {"type": "reasoning-delta", "id": self._block, "delta": event.text}]
            case Picture(url=url):
                return [*self._begin(None), {"type": "file", "mediaType": media_type(url), "url": url}]
            case ToolDelta(kind="custom"):
                return []  # shown when complete: its text is not JSON
            case ToolDelta():
                return [*self._begin(None), *self._calls.grow(event)]
            case ToolCall():
                return [*self._begin(None), *self._calls.complete(event)]
            case ToolResult():
                self._has_results = True
                return [*self._close(), *self._calls.answer(event)]
            case Settled():
                return self._ending(event.settlement)
            case _:
                return self._aside(event)

    def _started(self, event: RunStarted) -> list[_Part]:
        metadata = {"holdfast": {"runId": self._run, "model": event.model}}
        start: _Part = {"type": "start", "messageMetadata": metadata}
        message_id = self._message_id or event.message_id
        if message_id is not None:
            start["messageId"] = message_id
        return [start, {"type": "start-step"}]

    @property
    def _block(self) -> str:
        return f"{self._open}-{self._blocks}"

    def _begin(self, kind: str | None) -> list[_Part]:
        """Open a block, if it is not open: another open block is closed, and a step may end."""
        if kind is not None and self._open == kind:
            return []
        parts = self._close()
        if self._has_results:
            self._has_results = False
            parts += [{"type": "finish-step"}, {"type": "start-step"}]
        if kind is not None:
            self._open = kind
            self._blocks += 1
            parts.append({"type": f"{kind}-start", "id": self._block})
            self._delta_head = b'data: {"type":"text-delta","id":%b,"delta":' % _encode(self._block)
        return parts

    def _close(self) -> list[_Part]:
        if self._open is None:
            return []
        closed: _Part = {"type": f"{self._open}-end", "id": self._block}
        self._open = None
        return [closed]

    def _aside(self, event: Event) -> list[_Part]:
        """Return a part that is not in the answer. Transient data is for the page, and not stored in the message."""
        match event:
            case ToolProgress():
                progress = {"toolCallId": event.id, "message": event.message, "fraction": event.fraction}
                if event.output:
                    progress["output"] = event.output
                return [{"type": "data-tool-progress", "id": event.id, "data": progress, "transient": True}]
            case Notice():
                notice = {"code": event.code, "message": event.message, "model": event.model or None}
                return [{"type": "data-notice", "data": notice, "transient": True}]
            case LegStarted():
                return [{"type": "data-leg-started", "data": native.seam(event)}]
            case Steered():
                return [{"type": "data-steered", "id": event.id, "data": {"text": event.text}}]
            case ApprovalRequested():
                return self._calls.ask(event)
            case ApprovalDecided():
                return self._calls.decide(event)
            case _ if isinstance(event, Question):
                return [{"type": "data-asked", "id": event.id, "data": msgspec.to_builtins(event)}]
            case _ if isinstance(event, Answered):
                return [{"type": "data-answered", "id": event.id, "data": msgspec.to_builtins(event)}]
            case _:
                return []

    def _ending(self, settled: AnySettlement) -> list[_Part]:
        parts = self._close()
        parts += self._calls.end() if isinstance(settled, Completed) else self._calls.give_up()
        if isinstance(settled, (Failed, Interrupted)):
            parts.append({"type": "error", "errorText": settled.error.message})
        elif isinstance(settled, Stopped):
            parts.append({"type": "abort", "reason": settled.by})
        else:
            parts.append({"type": "finish-step"})
        metadata = run_metadata(settled, self._run)
        return [*parts, {"type": "finish", "finishReason": ui_finish_reason(settled), "messageMetadata": metadata}]


def _frame(part: _Part) -> bytes:
    return sse.data(_encode(part))


class _Calls:
    """The tool calls of a message, and their state."""

    def __init__(self) -> None:
        self._writing: dict[int, _Call] = {}
        self._waiting: dict[str, str] = {}
        self._approvals: dict[str, str] = {}

    def grow(self, event: ToolDelta) -> list[_Part]:
        """Add a piece of a call; it is shown as soon as it has an id and a name."""
        call = self._writing.get(event.index)
        if call is None or (event.id and call.id and event.id != call.id):
            call = self._writing[event.index] = _Call()
        return call.grow(event)

    def complete(self, event: ToolCall) -> list[_Part]:
        self._writing = {index: call for index, call in self._writing.items() if call.id != event.id}
        part: _Part = {"toolCallId": event.id, "toolName": event.name}
        try:
            arguments = msgspec.json.decode(json_arguments(event)) if event.arguments.strip() else {}
        except (msgspec.DecodeError, RecursionError):
            error = {"input": event.arguments, "errorText": "The arguments are not valid JSON."}
            return [{"type": "tool-input-error", **part, **error}]
        self._waiting[event.id] = event.name
        return [{"type": "tool-input-available", **part, "input": arguments}]

    def answer(self, event: ToolResult) -> list[_Part]:
        """Return a result. The SDK accepts results only of calls that it has seen."""
        if self._waiting.pop(event.id, None) is None:
            return []
        if event.is_error:
            return [{"type": "tool-output-error", "toolCallId": event.id, "errorText": event.output}]
        return [{"type": "tool-output-available", "toolCallId": event.id, "output": event.output}]

    def ask(self, event: ApprovalRequested) -> list[_Part]:
        """Ask for the approval of a waiting call; if it has no id, of the last call of the tool."""
        waiting = [id for id, name in self._waiting.items() if event.call in ("", id) and name == event.tool]
        if not waiting:
            return []
        self._approvals[event.id] = waiting[-1]
        return [{"type": "tool-approval-request", "approvalId": event.id, "toolCallId": waiting[-1]}]

    def decide(self, event: ApprovalDecided) -> list[_Part]:
        if event.id not in self._approvals:
            return []
        decided: _Part = {"type": "tool-approval-response", "approvalId": event.id}
        decided["approved"] = event.decision == "allow"
        return [{**decided, "reason": event.note} if event.note else decided]

    def end(self) -> list[_Part]:
        """Return the end of a completed run: its calls are complete, even those without a `ToolCall`."""
        written = [call.whole() for call in self._writing.values() if call.has_begun]
        return [part for call in written for part in self.complete(call)]

    def give_up(self) -> list[_Part]:
        """Return the end of open calls of a run that did not complete: the SDK would wait for them."""
        unfinished = [call.give_up() for call in self._writing.values() if call.has_begun]
        unanswered = [{"type": "tool-output-error", "toolCallId": id, "errorText": NO_RESULT} for id in self._waiting]
        return [*unfinished, *unanswered]


class _Call(OpenCall):
    """An incomplete call."""

    has_begun = False

    def grow(self, event: ToolDelta) -> list[_Part]:
        self.add(event.arguments, event.name, event.id)
        if self.has_begun:
            return self._delta(event.arguments)
        if not self.id or not self.name:
            return []
        self.has_begun = True
        start: _Part = {"type": "tool-input-start", "toolCallId": self.id, "toolName": self.name}
        return [start, *self._delta(self.arguments)]

    def _delta(self, arguments: str) -> list[_Part]:
        return [{"type": "tool-input-delta", "toolCallId": self.id, "inputTextDelta": arguments}] if arguments else []

    def give_up(self) -> _Part:
        part: _Part = {"type": "tool-input-error", "toolCallId": self.id, "toolName": self.name}
        return {**part, "input": self.arguments, "errorText": NOT_FINISHED}
