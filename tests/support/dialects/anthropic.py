"""Anthropic's Messages: blocks of content, and a stop reason."""

import json
from typing import Any

from holdfast_lab.contracts import PLAYED
from tests.support.dialects import Dialect
from tests.support.upstream import Status

HALF = len(PLAYED.text) // 2


def event(kind: str, **fields: Any) -> bytes:
    data = json.dumps({"type": kind, **fields}, ensure_ascii=False)
    return f"event: {kind}\ndata: {data}\n\n".encode()


def block(index: int, content: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
    begun = event("content_block_start", index=index, content_block=content)
    pieces = b"".join(event("content_block_delta", index=index, delta=delta) for delta in deltas)
    return begun + pieces + event("content_block_stop", index=index)


def call(index: int) -> bytes:
    name, arguments = PLAYED.calls[index]
    content = {"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": {}}
    return block(index, content, {"type": "input_json_delta", "partial_json": arguments})


def text(index: int = 0) -> bytes:
    pieces = (PLAYED.text[:HALF], PLAYED.text[HALF:])
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": piece} for piece in pieces))


def end(reason: str = "end_turn") -> bytes:
    delta = {"stop_reason": reason, "stop_sequence": None}
    usage = {"output_tokens": PLAYED.output_tokens}
    return event("message_delta", delta=delta, usage=usage) + event("message_stop")


MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "m", "stop_reason": None}
COUNTED = {"input_tokens": PLAYED.input_tokens, "output_tokens": 1}
START = event("message_start", message=MESSAGE | {"usage": COUNTED}) + event("ping")
THINKING = block(0, {"type": "thinking", "thinking": ""}, {"type": "thinking_delta", "thinking": PLAYED.reasoning})
ERROR = {"type": "overloaded_error", "message": f"Overloaded. Key {PLAYED.secret}"}

ANTHROPIC = Dialect(
    "anthropic",
    "",
    START + text(),
    {
        "complete": START + text() + end(),
        "length": START + text() + end("max_tokens"),
        "content_filter": START + text() + end("refusal"),
        "reasoning": START + THINKING + text(1) + end(),
        "tool_call": START + call(0) + end("tool_use"),
        "parallel_calls": START + call(0) + call(1) + end("tool_use"),
        "refusal": START + text() + end("refusal"),
        "error_later": START + text() + event("error", error=ERROR),
    },
    [Status(400)],
    b'event: content_block_delta\ndata: {"type": "content_blo\n\n',
)
