"""Gemini's `streamGenerateContent?alt=sse`: each event is a GenerateContentResponse."""

import json
from typing import Any

from holdfast_lab.contracts import PLAYED
from tests.support.dialects import Dialect
from tests.support.upstream import Status

HALF = len(PLAYED.text) // 2
PIECES = (PLAYED.text[:HALF], PLAYED.text[HALF:])
USAGE = {
    "promptTokenCount": PLAYED.input_tokens,
    "candidatesTokenCount": PLAYED.output_tokens,
    "totalTokenCount": PLAYED.input_tokens + PLAYED.output_tokens,
    "promptTokensDetails": [{"modality": "TEXT", "tokenCount": PLAYED.input_tokens}],
}


def event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\r\n\r\n"


def response(*parts: dict[str, Any], finish: str = "", usage: dict[str, Any] | None = None, **more: Any) -> bytes:
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}} if parts else {}
    candidate |= ({"finishReason": finish} if finish else {}) | {"index": 0} | more
    told = {"promptTokenCount": PLAYED.input_tokens, "totalTokenCount": PLAYED.input_tokens}
    return event(
        {
            "candidates": [candidate],
            "usageMetadata": usage or told,
            "modelVersion": "gemini-2.5-flash",
            "responseId": "mAitaLmkHPPlz7IP",
        }
    )


def said(*texts: str) -> bytes:
    return b"".join(response({"text": text}) for text in texts)


def end(reason: str = "STOP", *parts: dict[str, Any], usage: dict[str, Any] = USAGE, **more: Any) -> bytes:
    return response(*parts, finish=reason, usage=usage, **more)


def called(name: str, args: Any, **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": args}} | more


def error(code: int, status: str, message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "status": status} | more}


CALLS = [called(name, json.loads(arguments)) for name, arguments in PLAYED.calls]
BEGIN = said(*PIECES)

GEMINI = Dialect(
    "gemini",
    "/v1beta",
    BEGIN,
    {
        "complete": BEGIN + end("STOP", {"text": ""}),
        "length": BEGIN + end("MAX_TOKENS"),
        "content_filter": BEGIN + end("SAFETY", safetyRatings=[{"category": "HARM_CATEGORY_HARASSMENT"}]),
        "reasoning": response({"text": PLAYED.reasoning[:3], "thought": True})
        + response({"text": PLAYED.reasoning[3:], "thought": True})
        + BEGIN
        + end(),
        "tool_call": end("STOP", CALLS[0] | {"thoughtSignature": "CpcBAVSoXO4"}),
        "parallel_calls": end("STOP", *CALLS),
        "error_later": BEGIN + event(error(503, "UNAVAILABLE", f"The model is overloaded. Key {PLAYED.secret}")),
    },
    [Status(400, error(400, "INVALID_ARGUMENT", "Request contains an invalid argument. Key $KEY"))],
    b'data: {"candidates": [{"content": {"par\r\n\r\n',
    cannot=frozenset({"refusal"}),
)
