"""OpenAI's Responses: the object and its stream of numbered events, each a pure function of the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from ..events import (
    AnySettlement,
    Completed,
    ErrorInfo,
    Event,
    Failed,
    Interrupted,
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
from .openai_chat import finish_reason, verdict

_encode = msgspec.json.Encoder().encode
PREFIX = "resp_"
_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Why an answer is incomplete, in OpenAI's words."""

Step = tuple[str, dict[str, Any]]
"""What happens in a stream: the type of the event and its fields, still without a number."""


def response_id(run_id: str) -> str:
    """Return the id under which a run is known as a response."""
    return PREFIX + run_id.removeprefix("run_")


def run_id(response_id: str) -> str:
    """Return the run that a response's id stands for; an id that is none stands for a run that cannot be."""
    return "run_" + response_id.removeprefix(PREFIX) if response_id.startswith(PREFIX) else response_id


def run_of_item(item_id: str) -> tuple[str, str]:
    """Return the response and the run that an output item belongs to, by its id."""
    suffix = item_id.partition("_")[2].rpartition("_")[0]
    return PREFIX + suffix, "run_" + suffix


def status(settled: Settlement) -> str:
    """Return how an ending is called here: the one table from a settlement to a response's status."""
    if isinstance(settled, Completed):
        return "completed"
    if isinstance(settled, Stopped):
        return "cancelled"
    return "failed" if isinstance(settled, (Failed, Interrupted)) else "incomplete"


def usage(used: Usage) -> dict[str, Any]:
    """Return the tokens used, in OpenAI's words."""
    return {
        "input_tokens": used.input_tokens,
        "input_tokens_details": {"cached_tokens": used.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
        "total_tokens": used.total_tokens,
    }


# The items of an answer.


class _Item:
    """One output item while it is put together."""

    kind: str
    prefix: str

    def __init__(self, suffix: str, place: int) -> None:
        self.id = f"{self.prefix}_{suffix}_{place}"
        self.place = place
        self.status = "in_progress"

    def body(self) -> dict[str, Any]:
        """Return the item as far as it has come."""
        return {"id": self.id, "type": self.kind, "status": self.status}

    def opening(self) -> list[Step]:
        """Return what is said when it begins."""
        return [("response.output_item.added", {"output_index": self.place, "item": self.body()})]

    def closing(self, status: str) -> list[Step]:
        """Return what is said when it is over."""
        self.status = status
        return [("response.output_item.done", {"output_index": self.place, "item": self.body()})]

    def _step(self, kind: str, **fields: Any) -> Step:
        return kind, {"item_id": self.id, "output_index": self.place, **fields}


class _Written(_Item):
    """An item that holds one part of growing text."""

    stream: str
    part_type: str

    def __init__(self, suffix: str, place: int) -> None:
        super().__init__(suffix, place)
        self.pieces: list[str] = []
        self.more: dict[str, Any] = {}
        """What a part has besides its text, and..."""
        self.in_events: dict[str, Any] = {}
        """...what the events of its text have."""

    def part(self) -> dict[str, Any]:
        """Return the part that holds the text."""
        return {"type": self.part_type, "text": "".join(self.pieces), **self.more}

    def opening(self) -> list[Step]:
        """Return what is said when it begins: the item without its part, then the part without its text."""
        _, added = super().opening()[0]
        added["item"]["content"] = []
        return [
            ("response.output_item.added", added),
            self._step("response.content_part.added", content_index=0, part=self.part()),
        ]

    def say(self, text: str) -> Step:
        """Take in more text."""
        self.pieces.append(text)
        return self._step(f"response.{self.stream}.delta", content_index=0, delta=text, **self.in_events)

    def closing(self, status: str) -> list[Step]:
        """Return what is said when it is over."""
        part = self.part()
        return [
            self._step(f"response.{self.stream}.done", content_index=0, text=part["text"], **self.in_events),
            self._step("response.content_part.done", content_index=0, part=part),
            *super().closing(status),
        ]


class _Message(_Written):
    kind, prefix, stream, part_type = "message", "msg", "output_text", "output_text"

    def __init__(self, suffix: str, place: int) -> None:
        super().__init__(suffix, place)
        self.more = {"annotations": [], "logprobs": []}
        self.in_events = {"logprobs": []}
        self.head = _TEXT_OF % (self.id.encode(), place)
        """What every event of its text says of it, ready to be sent."""

    def say_with(self, text: str, logprobs: Any) -> Step:
        """Take in more text and how likely it was."""
        _, fields = self.say(text)
        found = (logprobs.get("content") if isinstance(logprobs, dict) else None) or []
        self.more["logprobs"] = [*self.more["logprobs"], *found]
        return "response.output_text.delta", fields | {"logprobs": found}

    def body(self) -> dict[str, Any]:
        return {**super().body(), "role": "assistant", "content": [self.part()]}

    def closing(self, status: str) -> list[Step]:
        self.in_events = {"logprobs": self.more["logprobs"]}
        return super().closing(status)


class _Thought(_Written):
    kind, prefix, stream, part_type = "reasoning", "rs", "reasoning_text", "reasoning_text"

    def body(self) -> dict[str, Any]:
        return {**super().body(), "summary": [], "content": [self.part()]}


class _Call(_Item):
    kind, prefix = "function_call", "fc"

    def __init__(self, suffix: str, place: int, call_id: str) -> None:
        super().__init__(suffix, place)
        self.call_id = call_id or f"call_{suffix}_{place}"
        self.name = ""
        self.pieces: list[str] = []

    def body(self) -> dict[str, Any]:
        called = {"call_id": self.call_id, "name": self.name, "arguments": "".join(self.pieces)}
        return {**super().body(), **called}

    def write(self, arguments: str) -> list[Step]:
        if not arguments:
            return []
        self.pieces.append(arguments)
        return [self._step("response.function_call_arguments.delta", delta=arguments)]

    def closing(self, status: str) -> list[Step]:
        arguments = "".join(self.pieces)
        done = self._step("response.function_call_arguments.done", name=self.name, arguments=arguments)
        return [done, *super().closing(status)]


class _Result(_Item):
    kind, prefix = "function_call_output", "fco"

    def __init__(self, suffix: str, place: int, result: ToolResult) -> None:
        super().__init__(suffix, place)
        self._result = result

    def body(self) -> dict[str, Any]:
        return {**super().body(), "call_id": self._result.id, "output": self._result.output}


class Output:
    """The items of one response, put together event by event.

    A call that the model wrote is said to be done only when it is whole: clients act upon that. Text is done when
    something else begins, or when the run has ended.
    """

    def __init__(self, run: str) -> None:
        self._suffix = run.removeprefix("run_")
        self._items: list[_Item] = []
        self._calls: dict[int, _Call] = {}
        self.writing: _Written | None = None
        """The item whose text grows."""

    def items(self) -> list[dict[str, Any]]:
        """Return the items as far as they have come."""
        return [item.body() for item in self._items]

    def take(self, event: Event) -> list[Step]:
        """Take in the next event, and return what is to be said of it."""
        match event:
            case Text(text=text, choice=0, logprobs=logprobs):
                steps, message = self._turn_to(_Message)
                return [*steps, message.say(text) if logprobs is None else message.say_with(text, logprobs)]
            case Reasoning(text=text, choice=0):
                steps, thought = self._turn_to(_Thought)
                return [*steps, thought.say(text)]
            case ToolDelta(choice=0):
                return self._write_call(event)
            case ToolCall(choice=0):
                return self._whole_call(event)
            case ToolResult():
                return self._result(event)
        return []

    def end(self, settled: Settlement) -> list[Step]:
        """Close what is open. A call that the model did not finish is no call, and nothing calls it done."""
        if isinstance(settled, Completed):
            written = self._lay_down()
            whole = [step for call in self._calls.values() for step in call.closing("completed")]
            self._calls.clear()
            return [*written, *whole]
        for call in self._calls.values():
            call.status = "incomplete"
        return self._lay_down("incomplete")

    @property
    def _next(self) -> int:
        return len(self._items)

    def _add(self, item: _Item) -> list[Step]:
        self._items.append(item)
        return item.opening()

    def _turn_to(self, kind: type[_Written]) -> tuple[list[Step], Any]:
        if type(self.writing) is kind:
            return [], self.writing
        steps = self._lay_down()
        self.writing = kind(self._suffix, self._next)
        return [*steps, *self._add(self.writing)], self.writing

    def _lay_down(self, status: str = "completed") -> list[Step]:
        written, self.writing = self.writing, None
        return [] if written is None else written.closing(status)

    def _write_call(self, piece: ToolDelta) -> list[Step]:
        steps: list[Step] = []
        call = self._calls.get(piece.index)
        if call is None:
            call = self._calls[piece.index] = _Call(self._suffix, self._next, piece.id)
            call.name = piece.name
            steps = [*self._lay_down(), *self._add(call)]
        else:
            call.name += piece.name
        return [*steps, *call.write(piece.arguments)]

    def _whole_call(self, whole: ToolCall) -> list[Step]:
        index = next((index for index, call in self._calls.items() if call.call_id == whole.id), None)
        if index is not None:
            return self._calls.pop(index).closing("completed")
        call = _Call(self._suffix, self._next, whole.id)
        call.name = whole.name
        return [*self._lay_down(), *self._add(call), *call.write(whole.arguments), *call.closing("completed")]

    def _result(self, given: ToolResult) -> list[Step]:
        result = _Result(self._suffix, self._next, given)
        return [*self._lay_down(), *self._add(result), *result.closing("completed")]


# The object.


class Response:
    """One run as a response: what was asked, what has been said, and how it ended."""

    def __init__(self, run: str, model: str, created: float, asked: dict[str, Any]) -> None:
        self._run = run
        self.output = Output(run)
        self.settled: AnySettlement | None = None
        """How it ended, where that was taken in."""
        self.is_background = bool(asked.get("background"))
        self._head = {
            "id": response_id(run),
            "object": "response",
            "created_at": int(created),
            "model": model,
            **{name: asked.get(name, default) for name, default in ECHOED.items()},
        }

    def add(self, events: Iterable[Event]) -> None:
        """Take in the next events."""
        for event in events:
            writing = self.output.writing
            if type(event) is Text and event.choice == 0 and event.logprobs is None and type(writing) is _Message:
                writing.pieces.append(event.text)
            elif isinstance(event, Settled):
                self.settled = event.settlement
                self.output.end(event.settlement)
            else:
                self.output.take(event)

    def body(self, settled: AnySettlement | None, *, waiting: bool = False) -> dict[str, Any]:
        """Return the object, as far as the run has come."""
        fields: dict[str, Any] = {
            **self._head,
            "status": status(settled) if settled else "queued" if waiting else "in_progress",
            "output": self.output.items(),
            "usage": usage(settled.usage) if settled else None,
            "error": None,
            "incomplete_details": None,
        }
        if settled is None:
            return fields
        if fields["status"] == "incomplete":
            fields["incomplete_details"] = {"reason": _REASONS.get(finish_reason(settled), "max_output_tokens")}
        return fields | verdict(settled, self._run)


ECHOED: dict[str, Any] = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "service_tier": None,
    "store": False,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": None,
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}
"""What a response repeats of its request, and what it says where the request said nothing."""


# The stream.


class Frames:
    """Renders one run as events, in order from its first: the same log always gives the same bytes."""

    def __init__(self, response: Response) -> None:
        self._response = response
        self._has_begun = False
        self.said = 0
        """Events so far: the next one's `sequence_number`."""

    def frames(self, events: Sequence[Event]) -> list[bytes]:
        """Return the frames of the next events, one by one."""
        out: list[bytes] = []
        output = self._response.output
        if events:
            out.extend(self._begun())
        for event in events:
            if (
                type(event) is Text
                and event.choice == 0
                and event.logprobs is None
                and type(output.writing) is _Message
            ):
                out.append(self._text(output.writing, event.text))
            elif isinstance(event, Settled):
                out.extend(self.ending(event))
            else:
                out.extend(self._say(output.take(event)))
        return out

    def ending(self, event: Settled) -> Iterator[bytes]:
        """Yield the last frames as they are made: most of them repeat all of the text, which may be long."""
        yield from self._begun()
        yield from self._say(self._ending(event.settlement))

    def broken(self, info: ErrorInfo) -> bytes:
        """Return the frame that says that the stream, not its run, ends here, and why."""
        return b"".join(self._say([("error", {"code": info.code, "message": info.message, "param": info.param})]))

    def _begun(self) -> Iterator[bytes]:
        if not self._has_begun:
            self._has_begun = True
            yield from self._say(self._beginning())

    def _say(self, steps: Iterable[Step]) -> Iterator[bytes]:
        for kind, fields in steps:
            data = _encode({"type": kind, "sequence_number": self.said, **fields})
            self.said += 1
            yield b"event: %b\ndata: %b\n\n" % (kind.encode(), data)

    def _text(self, message: _Message, text: str) -> bytes:
        """Render the event that nearly all are, without a dict for each."""
        message.pieces.append(text)
        number, self.said = self.said, self.said + 1
        return _TEXT % (number, message.head, _encode(text))

    def _beginning(self) -> Iterable[Step]:
        """Say what was asked. Whoever started it in the background is told that it waits, as it might have."""
        response, waiting = self._response, self._response.is_background
        yield "response.created", {"response": response.body(None, waiting=waiting)}
        if waiting:
            yield "response.queued", {"response": response.body(None, waiting=True)}
        yield "response.in_progress", {"response": response.body(None)}

    def _ending(self, settled: AnySettlement) -> Iterable[Step]:
        yield from self._response.output.end(settled)
        yield f"response.{status(settled)}", {"response": self._response.body(settled)}


_TEXT = (
    b"event: response.output_text.delta\n"
    b'data: {"type":"response.output_text.delta","sequence_number":%d,%b%b,"logprobs":[]}\n\n'
)
_TEXT_OF = b'"item_id":"%b","output_index":%d,"content_index":0,"delta":'
