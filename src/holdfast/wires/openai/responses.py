"""OpenAI's Responses: the object and its stream of numbered events, each a pure function of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from ...asks import ResponseAsk
from ...events import (
    AnySettlement,
    Completed,
    ErrorInfo,
    Event,
    Failed,
    Interrupted,
    OpenCall,
    ProviderData,
    Reasoning,
    Settled,
    Settlement,
    Stopped,
    Text,
    ToolCall,
    ToolDelta,
    ToolResult,
    Usage,
)
from .. import native, sse
from ..outcome import cost_of, finish_reason, verdict
from ..tool_calls import json_arguments
from .chat import tokens_of
from .fields import RUN_BY_OPENAI
from .response_items import CUSTOM_INPUT, flat_name
from .responses_request import KnownTool, known_tools, with_defaults

_encode = msgspec.json.Encoder().encode
PREFIX = "resp_"
_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""OpenAI's reason for an incomplete answer, by finish reason."""

ResponseEvent = tuple[str, dict[str, Any]]
"""An event of the stream: its type and its fields, without its number."""


def response_id(run_id: str) -> str:
    """Return the response id of a run."""
    return PREFIX + run_id.removeprefix("run_")


def run_id_of_response(response_id: str) -> str:
    """Return the run of a response id; an invalid id gives a run that cannot exist."""
    return "run_" + response_id.removeprefix(PREFIX) if response_id.startswith(PREFIX) else response_id


def run_of_item(item_id: str) -> tuple[str, str]:
    """Return the response and the run that an output item belongs to, by its id."""
    suffix = item_id.partition("_")[2].rpartition("_")[0]
    return PREFIX + suffix, "run_" + suffix


def status(settled: Settlement) -> str:
    """Return a response's status for a settlement: the only such mapping."""
    if isinstance(settled, Completed):
        return "completed"
    if isinstance(settled, Stopped):
        return "cancelled"
    return "failed" if isinstance(settled, (Failed, Interrupted)) else "incomplete"


def responses_usage(used: Usage) -> dict[str, Any]:
    """Return the usage in OpenAI's shape."""
    return {
        "input_tokens": used.input_tokens,
        "input_tokens_details": {"cached_tokens": used.cached_tokens, "cache_write_tokens": used.cache_write_tokens},
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
        "total_tokens": used.total_tokens,
        **cost_of(used),
    }


# The items of an answer.


class _Item:
    """One output item, as it is built."""

    kind: str
    prefix: str

    def __init__(self, suffix: str, place: int) -> None:
        self.id = f"{self.prefix}_{suffix}_{place}"
        self.place = place
        self.status = "in_progress"

    def body(self) -> dict[str, Any]:
        """Return the item so far."""
        return {"id": self.id, "type": self.kind, "status": self.status}

    def opening(self) -> list[ResponseEvent]:
        """Return the events of its beginning."""
        return [("response.output_item.added", {"output_index": self.place, "item": self.body()})]

    def closing(self, status: str) -> list[ResponseEvent]:
        """Return the events of its end."""
        self.status = status
        return [("response.output_item.done", {"output_index": self.place, "item": self.body()})]

    def _step(self, kind: str, **fields: Any) -> ResponseEvent:
        return kind, {"item_id": self.id, "output_index": self.place, **fields}


class _Written(_Item):
    """An item with one part of growing text."""

    stream: str
    part_type: str
    text_field = "text"
    part_event, index_field = "content_part", "content_index"
    holder = "content"
    """The field of the item that holds the part."""

    def __init__(self, suffix: str, place: int) -> None:
        super().__init__(suffix, place)
        self.pieces: list[str] = []
        self.more: dict[str, Any] = {}
        """The other fields of a part."""
        self.in_events: dict[str, Any] = {}
        """The other fields of the events of its text."""

    def part(self) -> dict[str, Any]:
        """Return the part that holds the text."""
        return {"type": self.part_type, "text": "".join(self.pieces), **self.more}

    def opening(self) -> list[ResponseEvent]:
        """Return the events of its beginning: the item without its part, then the part without its text."""
        _, added = super().opening()[0]
        added["item"][self.holder] = []
        return [
            ("response.output_item.added", added),
            self._of_part(f"response.{self.part_event}.added", part=self.part()),
        ]

    def add_text(self, text: str) -> ResponseEvent:
        """Add text, and return its delta event."""
        self.pieces.append(text)
        return self._of_part(f"response.{self.stream}.delta", delta=text, **self.in_events)

    def closing(self, status: str) -> list[ResponseEvent]:
        """Return the events of its end."""
        part = self.part()
        fields = {self.text_field: part[self.text_field], **self.in_events}
        return [
            self._of_part(f"response.{self.stream}.done", **fields),
            self._of_part(f"response.{self.part_event}.done", part=part),
            *super().closing(status),
        ]

    def _of_part(self, kind: str, **fields: Any) -> ResponseEvent:
        return self._step(kind, **{self.index_field: 0}, **fields)


class _Message(_Written):
    kind, prefix, stream, part_type = "message", "msg", "output_text", "output_text"

    def __init__(self, suffix: str, place: int) -> None:
        super().__init__(suffix, place)
        self.more = {"annotations": [], "logprobs": []}
        self.in_events = {"logprobs": []}
        self.head = _TEXT_OF % (self.id.encode(), place)
        """The encoded fields that every event of its text has."""

    def add_text_with(self, text: str, logprobs: Any) -> ResponseEvent:
        """Add text with its logprobs, and return its delta event."""
        _, fields = self.add_text(text)
        tokens = tokens_of(logprobs)
        self.more["logprobs"] = [*self.more["logprobs"], *tokens]
        return "response.output_text.delta", fields | {"logprobs": tokens}

    def annotate(self, annotations: Iterable[Any]) -> list[ResponseEvent]:
        """Add annotations. In a chat their fields are one level deeper."""
        steps: list[ResponseEvent] = []
        for annotation in annotations:
            existing = self.more["annotations"]
            flat = _flat(annotation)
            place = {"annotation_index": len(existing), "annotation": flat}
            self.more["annotations"] = [*existing, flat]
            steps.append(self._of_part("response.output_text.annotation.added", **place))
        return steps

    def body(self) -> dict[str, Any]:
        return {**super().body(), "role": "assistant", "content": [self.part()]}

    def closing(self, status: str) -> list[ResponseEvent]:
        self.in_events = {"logprobs": self.more["logprobs"]}
        return super().closing(status)


class _Refusal(_Written):
    kind, prefix, stream, part_type = "message", "msg", "refusal", "refusal"
    text_field = "refusal"

    def part(self) -> dict[str, Any]:
        return {"type": "refusal", "refusal": "".join(self.pieces)}

    def body(self) -> dict[str, Any]:
        return {**super().body(), "role": "assistant", "content": [self.part()]}


class _Thought(_Written):
    """Reasoning, in the form of a summary: the only one that OpenAI's types and Open Responses have in common."""

    kind, prefix, stream, part_type = "reasoning", "rs", "reasoning_summary_text", "summary_text"
    part_event, index_field = "reasoning_summary_part", "summary_index"
    holder = "summary"

    def body(self) -> dict[str, Any]:
        return {**super().body(), "summary": [self.part()]}


class _Call(_Item):
    kind, prefix = "function_call", "fc"

    def __init__(self, suffix: str, place: int, call_id: str, name: str, tool: KnownTool | None) -> None:
        super().__init__(suffix, place)
        self.call = OpenCall(call_id or f"call_{suffix}_{place}", tool.name if tool else name)
        self.namespace = {"namespace": tool.namespace} if tool and tool.namespace else {}

    def body(self) -> dict[str, Any]:
        called = {"call_id": self.call.id, "name": self.call.name, "arguments": self.call.arguments}
        return {**super().body(), **called, **self.namespace}

    def write(self, arguments: str, name: str = "") -> list[ResponseEvent]:
        self.call.add(arguments, name)
        return [self._step("response.function_call_arguments.delta", delta=arguments)] if arguments else []

    def closing(self, status: str) -> list[ResponseEvent]:
        written = {"name": self.call.name, "arguments": self.call.arguments}
        done = self._step("response.function_call_arguments.done", **written)
        return [done, *super().closing(status)]


class _CustomCall(_Call):
    """A call of a custom tool. The model wrote it as a function with one string, which is shown when complete."""

    kind, prefix = "custom_tool_call", "ctc"

    def body(self) -> dict[str, Any]:
        names = {"call_id": self.call.id, "name": self.call.name}
        return {"id": self.id, "type": self.kind, "status": self.status, **names, "input": self._input()}

    def write(self, arguments: str, name: str = "") -> list[ResponseEvent]:
        self.call.add(arguments, name)
        return []

    def closing(self, status: str) -> list[ResponseEvent]:
        self.status = status
        input_text = self._input()
        return [
            self._step("response.custom_tool_call_input.delta", delta=input_text),
            self._step("response.custom_tool_call_input.done", input=input_text),
            ("response.output_item.done", {"output_index": self.place, "item": self.body()}),
        ]

    def _input(self) -> str:
        """Return the string, or all that the model wrote if there is none."""
        written = self.call.arguments
        try:
            decoded = msgspec.json.decode(written.encode("utf-8", "replace"))
        except (msgspec.DecodeError, RecursionError):
            return "" if self.status == "in_progress" else written
        is_string = isinstance(decoded, dict) and isinstance(decoded.get(CUSTOM_INPUT), str)
        return str(decoded[CUSTOM_INPUT]) if is_string else written


class _Result(_Item):
    kind, prefix = "function_call_output", "fco"

    def __init__(self, suffix: str, place: int, result: ToolResult) -> None:
        super().__init__(suffix, place)
        self._result = result

    def body(self) -> dict[str, Any]:
        return {**super().body(), "call_id": self._result.id, "output": self._result.output}


class Output:
    """The items of one response, built event by event.

    A call is done only when it is complete: clients act upon that. Text is done when another item begins, or the run
    has ended.
    """

    def __init__(self, run: str, tools: list[dict[str, Any]]) -> None:
        self._suffix = run.removeprefix("run_")
        self._tools = _by_flat_name(tools)
        self._items: list[_Item] = []
        self._calls: dict[int, _Call] = {}
        self.writing: _Written | None = None
        """The open item."""

    def items(self) -> list[dict[str, Any]]:
        """Return the items so far."""
        return [item.body() for item in self._items]

    def take(self, event: Event) -> list[ResponseEvent]:
        """Add the next event, and return its events for the stream."""
        match event:
            case Text(text=text, choice=0, refusal=True):
                steps, refusal = self._open_item(_Refusal)
                return [*steps, refusal.add_text(text)]
            case Text(text=text, choice=0, logprobs=logprobs):
                steps, message = self._open_item(_Message)
                return [*steps, message.add_text(text) if logprobs is None else message.add_text_with(text, logprobs)]
            case Reasoning(text=text, choice=0):
                steps, thought = self._open_item(_Thought)
                return [*steps, thought.add_text(text)]
            case ToolDelta(choice=0, kind="custom"):
                return []  # shown when complete: its text is not JSON
            case ToolDelta(choice=0):
                return self._grow_call(event)
            case ToolCall(choice=0):
                return self._complete_call(event)
            case ToolResult():
                return self._result(event)
            case ProviderData(dialect="openai", choice=0, data={"annotations": list(annotations)}):
                steps, message = self._open_item(_Message)
                return [*steps, *message.annotate(annotations)]
        return []

    def end(self, settled: Settlement) -> list[ResponseEvent]:
        """Close the open items. An incomplete call never becomes done."""
        if isinstance(settled, Completed):
            written = self._close_open()
            complete = [step for call in self._calls.values() for step in call.closing("completed")]
            self._calls.clear()
            return [*written, *complete]
        for call in self._calls.values():
            call.status = "incomplete"
        return self._close_open("incomplete")

    @property
    def _next(self) -> int:
        return len(self._items)

    def _add(self, item: _Item) -> list[ResponseEvent]:
        self._items.append(item)
        return item.opening()

    def _open_item(self, kind: type[_Written]) -> tuple[list[ResponseEvent], Any]:
        if type(self.writing) is kind:
            return [], self.writing
        steps = self._close_open()
        self.writing = kind(self._suffix, self._next)
        return [*steps, *self._add(self.writing)], self.writing

    def _close_open(self, status: str = "completed") -> list[ResponseEvent]:
        written, self.writing = self.writing, None
        return [] if written is None else written.closing(status)

    def _grow_call(self, piece: ToolDelta) -> list[ResponseEvent]:
        call = self._calls.get(piece.index)
        if call is None:
            call = self._calls[piece.index] = self._new_call(piece.id, piece.name)
            steps = [*self._close_open(), *self._add(call)]
            return [*steps, *call.write(piece.arguments)]
        return call.write(piece.arguments, piece.name)

    def _complete_call(self, event: ToolCall) -> list[ResponseEvent]:
        index = next((index for index, call in self._calls.items() if call.call.id == event.id), None)
        if index is not None:
            return self._calls.pop(index).closing("completed")
        call = self._new_call(event.id, event.name)
        return [*self._close_open(), *self._add(call), *call.write(json_arguments(event)), *call.closing("completed")]

    def _new_call(self, call_id: str, name: str) -> _Call:
        tool = self._tools.get(name)
        kind = _CustomCall if tool is not None and tool.kind == "custom" else _Call
        return kind(self._suffix, self._next, call_id, name, tool)

    def _result(self, event: ToolResult) -> list[ResponseEvent]:
        result = _Result(self._suffix, self._next, event)
        return [*self._close_open(), *self._add(result), *result.closing("completed")]


def _by_flat_name(tools: list[dict[str, Any]]) -> dict[str, KnownTool]:
    """Return the tools that have another name or form for the model than for the client."""
    if not tools:
        return {}
    return {
        flat_name(tool.name, tool.namespace): tool
        for tool in known_tools(tools)
        if tool.chat is not None and (tool.namespace or tool.kind == "custom")
    }


# The object.


class Response:
    """One run as a response: its request, its items, and its end."""

    def __init__(
        self,
        run: str,
        model: str,
        created: float,
        ask: ResponseAsk,
        settled_at: Callable[[], float | None] = lambda: None,
    ) -> None:
        """`settled_at` is called when the run has ended."""
        self._run = run
        self._settled_at = settled_at
        self.output = Output(run, ask.tools)
        self.settled: AnySettlement | None = None
        """The settlement, if it was added."""
        self.is_background = ask.background
        self._head = {
            "id": response_id(run),
            "object": "response",
            "created_at": int(created),
            "model": model,
            **ECHOED,
            **ask.echoed,
            "background": ask.background,
            "instructions": ask.instructions,
            "previous_response_id": ask.previous_response_id,
            "store": ask.store,
            "tools": [with_defaults(tool) for tool in ask.tools if tool["type"] not in RUN_BY_OPENAI],
            **({} if ask.conversation_id is None else {"conversation": {"id": ask.conversation_id}}),
        }

    def add(self, events: Iterable[Event]) -> None:
        """Add the next events."""
        for event in events:
            writing = self.output.writing
            if (
                type(event) is Text
                and not (event.choice or event.refusal or event.logprobs is not None)
                and type(writing) is _Message
            ):
                writing.pieces.append(event.text)
            elif isinstance(event, Settled):
                self.settled = event.settlement
                self.output.end(event.settlement)
            else:
                self.output.take(event)

    def body(self, settled: AnySettlement | None, *, waiting: bool = False) -> dict[str, Any]:
        """Return the object so far."""
        fields: dict[str, Any] = {
            **self._head,
            "status": status(settled) if settled else "queued" if waiting else "in_progress",
            "output": self.output.items(),
            "usage": responses_usage(settled.usage) if settled else None,
            "completed_at": self._completed_at(settled),
            "error": None,
            "incomplete_details": None,
        }
        if settled is None:
            return fields
        if fields["status"] == "incomplete":
            fields["incomplete_details"] = {"reason": _REASONS.get(finish_reason(settled), "max_output_tokens")}
        return fields | verdict(settled, self._run)

    def _completed_at(self, settled: AnySettlement | None) -> int | None:
        at = self._settled_at() if isinstance(settled, Completed) else None
        return None if at is None else int(at)


def _flat(annotation: Any) -> Any:
    match annotation:
        case {"type": str(kind)} if isinstance(inner := annotation.get(kind), dict):
            return {"type": kind, **inner}
    return annotation


ECHOED: dict[str, Any] = {
    "background": False,
    "frequency_penalty": 0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": False,
    "temperature": 1,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1,
    "truncation": "disabled",
}
"""The fields of the request that a response repeats, and their defaults."""


# The stream.


class ResponseFrames:
    """Renders one run as events, in order from its first: the same log always gives the same bytes."""

    def __init__(self, response: Response) -> None:
        self._response = response
        self._has_begun = False
        self._in_progress: dict[str, Any] = {}
        self.event_count = 0
        """Number of events so far, which is the `sequence_number` of the next."""

    def frames(self, events: Sequence[Event]) -> list[bytes]:
        """Return the frames of the next events, one by one."""
        out: list[bytes] = []
        output = self._response.output
        if events:
            out.extend(self._begun())
        for event in events:
            if (
                type(event) is Text
                and not (event.choice or event.refusal or event.logprobs is not None)
                and type(output.writing) is _Message
            ):
                out.append(self._text(output.writing, event.text))
            elif isinstance(event, Settled):
                out.extend(self.ending(event))
            else:
                out.extend(self._render(output.take(event)))
        return out

    def ending(self, event: Settled) -> Iterator[bytes]:
        """Yield the last frames one by one: most of them repeat all of the text, which may be long."""
        yield from self._begun()
        yield from self._render(self._ending(event.settlement))

    def broken(self, info: ErrorInfo) -> bytes:
        """Return the frame that ends the stream, not its run, with the reason."""
        return b"".join(self._render([_error(info)]))

    def heartbeat(self) -> bytes:
        """Return an event without effect, with the number of the last one: some clients do not count comments."""
        if not self._in_progress:
            return sse.HEARTBEAT
        fields = {"sequence_number": self.event_count - 1, "response": self._in_progress}
        return self._frame("response.in_progress", _encode({"type": "response.in_progress", **fields}))

    def _begun(self) -> Iterator[bytes]:
        if not self._has_begun:
            self._has_begun = True
            yield from self._render(self._beginning())

    def _render(self, steps: Iterable[ResponseEvent]) -> Iterator[bytes]:
        for kind, fields in steps:
            data = _encode({"type": kind, "sequence_number": self.event_count, **fields})
            self.event_count += 1
            yield self._frame(kind, data)

    def _frame(self, kind: str, data: bytes) -> bytes:
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)

    def _text(self, message: _Message, text: str) -> bytes:
        """Render a text delta, the most frequent event, without a dict."""
        message.pieces.append(text)
        number, self.event_count = self.event_count, self.event_count + 1
        return _TEXT % (number, message.head, _encode(text))

    def _beginning(self) -> Iterable[ResponseEvent]:
        """Return the first events. A response in the background is `queued` first, as OpenAI's are."""
        response, waiting = self._response, self._response.is_background
        yield "response.created", {"response": response.body(None, waiting=waiting)}
        if waiting:
            yield "response.queued", {"response": response.body(None, waiting=True)}
        self._in_progress = response.body(None)
        yield "response.in_progress", {"response": self._in_progress}

    def _ending(self, settled: AnySettlement) -> Iterable[ResponseEvent]:
        yield from self._response.output.end(settled)
        if isinstance(settled, (Failed, Interrupted)):
            yield _error(settled.error)
        yield f"response.{status(settled)}", {"response": self._response.body(settled)}


def _error(info: ErrorInfo) -> ResponseEvent:
    """Return the event on which OpenAI's SDKs raise. Some clients read no other event of a failure."""
    return "error", {"code": info.code, "message": info.message, "param": info.param, "error": native.error(info)}


_TEXT = (
    b"event: response.output_text.delta\n"
    b'data: {"type":"response.output_text.delta","sequence_number":%d,%b%b,"logprobs":[]}\n\n'
)
_TEXT_OF = b'"item_id":"%b","output_index":%d,"content_index":0,"delta":'
