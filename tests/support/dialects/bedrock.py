"""Bedrock's `converse-stream`: frames of AWS's binary event stream."""

import json
import struct
import zlib
from typing import Any

from holdfast_lab.contracts import PLAYED
from tests.support.dialects import Dialect
from tests.support.upstream import Status

HALF = len(PLAYED.text) // 2


def header(name: str, value: str) -> bytes:
    told = value.encode()
    return bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(told)) + told


def message(headers: bytes, payload: bytes) -> bytes:
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    frame = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return frame + struct.pack(">I", zlib.crc32(frame))


def event(kind: str, **fields: Any) -> bytes:
    headers = (
        header(":event-type", kind) + header(":content-type", "application/json") + header(":message-type", "event")
    )
    return message(headers, json.dumps(fields | {"p": "abcdefgh"}, ensure_ascii=False).encode())


def exception(kind: str, text: str) -> bytes:
    headers = header(":exception-type", kind) + header(":content-type", "application/json")
    return message(headers + header(":message-type", "exception"), json.dumps({"message": text}).encode())


def block(index: int, *deltas: dict[str, Any], start: dict[str, Any] | None = None) -> bytes:
    begun = event("contentBlockStart", contentBlockIndex=index, start=start) if start else b""
    pieces = b"".join(event("contentBlockDelta", contentBlockIndex=index, delta=delta) for delta in deltas)
    return begun + pieces + event("contentBlockStop", contentBlockIndex=index)


def call(index: int) -> bytes:
    name, arguments = PLAYED.calls[index]
    pieces = [{"toolUse": {"input": piece}} for piece in (arguments[:2], arguments[2:]) if piece]
    return block(index, *pieces, start={"toolUse": {"toolUseId": f"tooluse_{index}", "name": name}})


def end(reason: str = "end_turn") -> bytes:
    usage = {"inputTokens": PLAYED.input_tokens, "outputTokens": PLAYED.output_tokens, "totalTokens": 8}
    return event("messageStop", stopReason=reason) + event("metadata", usage=usage, metrics={"latencyMs": 7})


START = event("messageStart", role="assistant")
TEXT = block(0, {"text": PLAYED.text[:HALF]}, {"text": PLAYED.text[HALF:]})
THINKING = block(0, {"reasoningContent": {"text": PLAYED.reasoning}}, {"reasoningContent": {"signature": "c2ln"}})

BEDROCK = Dialect(
    "bedrock",
    "",
    START + TEXT,
    {
        "complete": START + TEXT + end(),
        "length": START + TEXT + end("max_tokens"),
        "content_filter": START + TEXT + end("guardrail_intervened"),
        "reasoning": START + THINKING + TEXT + end(),
        "tool_call": START + call(0) + end("tool_use"),
        "parallel_calls": START + call(0) + call(1) + end("tool_use"),
        "error_later": START + TEXT + exception("throttlingException", f"Too many requests. Key {PLAYED.secret}"),
    },
    [Status(403, {"message": "The security token $KEY included in the request is invalid."})],
    event("contentBlockDelta", contentBlockIndex=0, delta={"text": "x"})[:-1] + b"\x00",
    cannot=frozenset({"refusal"}),
)
