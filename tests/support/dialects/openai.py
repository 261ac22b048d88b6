"""OpenAI's chat completions: chunks, and `[DONE]`."""

import json
from typing import Any

from holdfast_lab.contracts import PLAYED
from tests.support.dialects import Dialect
from tests.support.upstream import Status

HALF = len(PLAYED.text) // 2
USAGE = {"prompt_tokens": PLAYED.input_tokens, "completion_tokens": PLAYED.output_tokens, "total_tokens": 8}
DONE = b"data: [DONE]\n\n"


def chunk(finish: str | None = None, choices: list[Any] | None = None, usage: Any = None, **delta: Any) -> bytes:
    head = {"id": "chatcmpl-123", "object": "chat.completion.chunk", "created": 1694268190, "model": "m"}
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    data = head | {"choices": [choice] if choices is None else choices, "usage": usage}
    return b"data: " + json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def end(reason: str = "stop") -> bytes:
    return chunk(reason) + chunk(choices=[], usage=USAGE) + DONE


def call(index: int) -> bytes:
    name, arguments = PLAYED.calls[index]
    begun = {"index": index, "id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": ""}}
    pieces = [{"index": index, "function": {"arguments": piece}} for piece in (arguments[:2], arguments[2:]) if piece]
    return b"".join(chunk(tool_calls=[piece]) for piece in (begun, *pieces))


ROLE = chunk(role="assistant", content="", refusal=None)
BEGIN = ROLE + chunk(content=PLAYED.text[:HALF]) + chunk(content=PLAYED.text[HALF:])
ERROR = {"error": {"message": f"The server had an error. Key {PLAYED.secret}", "type": "server_error"}}

OPENAI = Dialect(
    "openai",
    "/v1",
    BEGIN,
    {
        "complete": BEGIN + end(),
        "length": BEGIN + end("length"),
        "content_filter": BEGIN + end("content_filter"),
        "reasoning": ROLE + chunk(reasoning_content=PLAYED.reasoning) + BEGIN + end(),
        "tool_call": ROLE + call(0) + end("tool_calls"),
        "parallel_calls": ROLE + call(0) + call(1) + end("tool_calls"),
        "refusal": ROLE + chunk(refusal=PLAYED.text[:HALF]) + chunk(refusal=PLAYED.text[HALF:]) + end(),
        "error_later": BEGIN + b"data: " + json.dumps(ERROR).encode() + b"\n\n",
    },
    [Status(400)],
    b'data: {"choices":[{"del\n\n',
)
