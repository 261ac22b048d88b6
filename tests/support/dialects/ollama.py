"""Ollama's `/api/chat`: lines of JSON, as docs/api.md of Ollama has them."""

import json
from typing import Any

from holdfast_lab.contracts import PLAYED
from tests.support.dialects import Dialect
from tests.support.upstream import Status

HALF = len(PLAYED.text) // 2
PIECES = (PLAYED.text[:HALF], PLAYED.text[HALF:])


def line(**fields: Any) -> bytes:
    head = {"model": "m", "created_at": "2023-08-04T08:52:19.385406455-07:00"}
    return json.dumps(head | fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def piece(**message: Any) -> bytes:
    return line(message={"role": "assistant", "content": ""} | message, done=False)


def said(*texts: str) -> bytes:
    return b"".join(piece(content=text) for text in texts)


def called(name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}} | more


def end(reason: str = "stop", **more: Any) -> bytes:
    figures = {"total_duration": 4883583458, "load_duration": 1334875, "prompt_eval_duration": 342546000}
    counts = {"prompt_eval_count": PLAYED.input_tokens, "eval_count": PLAYED.output_tokens, "eval_duration": 4535599000}
    message = {"role": "assistant", "content": ""}
    return line(message=message, done_reason=reason, done=True, **(figures | counts | more))


CALLS = [called(name, json.loads(arguments)) for name, arguments in PLAYED.calls]
BEGIN = said(*PIECES)

OLLAMA = Dialect(
    "ollama",
    "",
    BEGIN,
    {
        "complete": BEGIN + end(),
        "length": BEGIN + end("length"),
        "reasoning": b"".join(piece(thinking=text) for text in (PLAYED.reasoning[:3], PLAYED.reasoning[3:]))
        + BEGIN
        + end(),
        "tool_call": piece(tool_calls=CALLS[:1]) + end(),
        "parallel_calls": piece(tool_calls=CALLS[:1]) + piece(tool_calls=CALLS[1:]) + end(),
        "error_later": BEGIN + json.dumps({"error": f"an error was encountered with {PLAYED.secret}"}).encode() + b"\n",
    },
    [Status(404, {"error": "model 'm' not found, with key $KEY"})],
    b'{"model":"m","message":{"role":"assis\n',
    cannot=frozenset({"content_filter", "refusal"}),
)
