"""The output items of a response, built event by event: messages, reasoning, calls and results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ...events import (
    Completed,
    Event,
    OpenCall,
    Picture,
    ProviderData,
    Reasoning,
    Settlement,
    Text,
    ToolCall,
    ToolDelta,
    ToolResult,
)
from ..tool_calls import json_arguments
from .chat import tokens_of
from .response_items import CUSTOM_INPUT, flat_name
from .responses_request import KnownTool, known_tools

ResponseEvent = tuple[str, dict[str, Any]]
"""An event of the stream: its type and its fields, without its number."""
_TEXT_OF = b'"item_id":"%b","output_index":%d,"content_index":0,"delta":'


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


class MessageOutput(_Written):
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


class _Image(_Item):
    """A picture of the answer, as a call of OpenAI's own tool."""

    kind, prefix = "image_generation_call", "ig"

    def __init__(self, suffix: str, place: int, url: str) -> None:
        super().__init__(suffix, place)
        _, found, data = url.partition(";base64,")
        self._made = {"result": data} if found else {"result": None, "url": url}

    def body(self) -> dict[str, Any]:
        return {**super().body(), **({"result": None} if self.status == "in_progress" else self._made)}

    def closing(self, status: str) -> list[ResponseEvent]:
        return [self._step("response.image_generation_call.completed"), *super().closing(status)]


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
                steps, message = self._open_item(MessageOutput)
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
                return self._done(_Result(self._suffix, self._next, event))
            case Picture(url=url, choice=0):
                return self._done(_Image(self._suffix, self._next, url))
            case ProviderData(dialect="openai", choice=0, data={"annotations": list(annotations)}):
                steps, message = self._open_item(MessageOutput)
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

    def _done(self, item: _Item) -> list[ResponseEvent]:
        return [*self._close_open(), *self._add(item), *item.closing("completed")]


def _by_flat_name(tools: list[dict[str, Any]]) -> dict[str, KnownTool]:
    """Return the tools that have another name or form for the model than for the client."""
    if not tools:
        return {}
    return {
        flat_name(tool.name, tool.namespace): tool
        for tool in known_tools(tools)
        if tool.chat is not None and (tool.namespace or tool.kind == "custom")
    }


def _flat(annotation: Any) -> Any:
    match annotation:
        case {"type": str(kind)} if isinstance(inner := annotation.get(kind), dict):
            return {"type": kind, **inner}
    return annotation
