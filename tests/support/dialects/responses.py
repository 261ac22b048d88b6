"""OpenAI's Responses API: typed events with a number each."""

import json
from typing import Any

from holdfast_lab.contracts import PLAYED
from tests.support.dialects import Dialect
from tests.support.upstream import Status

HALF = len(PLAYED.text) // 2
PIECES = (PLAYED.text[:HALF], PLAYED.text[HALF:])
ID = "resp_67c9fdcecf488190bdd9a0409de3a1ec07b8b0ad4e5eb654"
USAGE = {
    "input_tokens": PLAYED.input_tokens,
    "input_tokens_details": {"cached_tokens": 2},
    "output_tokens": PLAYED.output_tokens,
    "output_tokens_details": {"reasoning_tokens": 1},
    "total_tokens": PLAYED.input_tokens + PLAYED.output_tokens,
}


def response(status: str = "in_progress", **more: Any) -> dict[str, Any]:
    usual = {"id": ID, "object": "response", "created_at": 1741290958, "status": status, "error": None, "model": "m"}
    return usual | {"incomplete_details": None, "output": [], "usage": None, "store": False} | more


class Told:
    """The events of one response, numbered as OpenAI numbers them."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.items: list[dict[str, Any]] = []

    def add(self, kind: str, **fields: Any) -> "Told":
        self.events.append({"type": kind, "sequence_number": len(self.events), **fields})
        return self

    def begin(self) -> "Told":
        return self.add("response.created", response=response()).add("response.in_progress", response=response())

    def text(self, *texts: str, kind: str = "output_text") -> "Told":
        field = "refusal" if kind == "refusal" else "text"
        empty = {"type": kind, field: ""} | ({"annotations": []} if kind == "output_text" else {})
        item = {"id": "msg_1", "type": "message", "status": "in_progress", "role": "assistant", "content": []}
        at = {"item_id": "msg_1", "output_index": len(self.items), "content_index": 0}
        self.add("response.output_item.added", output_index=len(self.items), item=item)
        self.add("response.content_part.added", **at, part=empty)
        for text in texts:
            self.add(f"response.{kind}.delta", **at, delta=text, **({"logprobs": []} if field == "text" else {}))
        whole = {**empty, field: "".join(texts)}
        self.add(f"response.{kind}.done", **at, **{field: "".join(texts)})
        self.add("response.content_part.done", **at, part=whole)
        return self._done(item | {"status": "completed", "content": [whole]})

    def reasoning(self, *texts: str, encrypted: str | None = None) -> "Told":
        at = {"item_id": "rs_1", "output_index": len(self.items), "summary_index": 0}
        item = {"id": "rs_1", "type": "reasoning", "summary": []}
        self.add("response.output_item.added", output_index=len(self.items), item=item)
        self.add("response.reasoning_summary_part.added", **at, part={"type": "summary_text", "text": ""})
        for text in texts:
            self.add("response.reasoning_summary_text.delta", **at, delta=text)
        self.add("response.reasoning_summary_text.done", **at, text="".join(texts))
        whole = {"summary": [{"type": "summary_text", "text": "".join(texts)}]}
        return self._done(item | whole | ({"encrypted_content": encrypted} if encrypted else {}))

    def call(self, name: str, arguments: str, id: str, kind: str = "function_call") -> "Told":
        field, event = ("input", "custom_tool_call_input") if kind == "custom_tool_call" else ("arguments", "")
        event = event or "function_call_arguments"
        item = {"type": kind, "id": f"fc_{id}", "call_id": id, "name": name, field: "", "status": "in_progress"}
        at = {"item_id": item["id"], "output_index": len(self.items)}
        self.add("response.output_item.added", output_index=len(self.items), item=item)
        for piece in (arguments[:3], arguments[3:]):
            self.add(f"response.{event}.delta", **at, delta=piece)
        self.add(f"response.{event}.done", **at, **{field: arguments})
        return self._done(item | {field: arguments, "status": "completed"})

    def end(self, status: str = "completed", **more: Any) -> "Told":
        ended = response(status, usage=USAGE, output=self.items, **more)
        return self.add(f"response.{status}", response=ended)

    def _done(self, item: dict[str, Any]) -> "Told":
        self.add("response.output_item.done", output_index=len(self.items), item=item)
        self.items.append(item)
        return self

    def bytes(self, after: int = -1) -> bytes:
        """The events after a number."""
        return b"".join(frame(event) for event in self.events if event["sequence_number"] > after)

    @property
    def up_to_the_text(self) -> bytes:
        """The events up to the last piece of the text."""
        last = max(n for n, event in enumerate(self.events) if event["type"] == "response.output_text.delta")
        return b"".join(map(frame, self.events[: last + 1]))


def frame(event: dict[str, Any]) -> bytes:
    data = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    return f"event: {event['type']}\ndata: {data}\n\n".encode()


def told() -> Told:
    return Told().begin()


WHOLE = told().text(*PIECES).end()
FAILURE = {"code": "server_error", "message": f"The model failed with {PLAYED.secret}."}
ERROR = {"type": "error", "code": "server_error", "message": f"Key {PLAYED.secret}", "param": None}

RESPONSES = Dialect(
    "openai-responses",
    "/v1",
    WHOLE.up_to_the_text,
    {
        "complete": WHOLE.bytes(),
        "length": told().text(*PIECES).end("incomplete", incomplete_details={"reason": "max_output_tokens"}).bytes(),
        "content_filter": told()
        .text(*PIECES)
        .end("incomplete", incomplete_details={"reason": "content_filter"})
        .bytes(),
        "reasoning": told().reasoning(PLAYED.reasoning[:3], PLAYED.reasoning[3:]).text(*PIECES).end().bytes(),
        "tool_call": told().call(*PLAYED.calls[0], "call_1").end().bytes(),
        "parallel_calls": told().call(*PLAYED.calls[0], "call_1").call(*PLAYED.calls[1], "call_2").end().bytes(),
        "refusal": told().text(*PIECES, kind="refusal").end().bytes(),
        "error_later": told().text(*PIECES).end("failed", error=FAILURE).bytes(),
    },
    [Status(401)],
    b'event: response.output_text.delta\ndata: {"type":"response.output_te\n\n',
)
