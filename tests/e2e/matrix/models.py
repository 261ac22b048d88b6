"""What the upstream says to each check of the matrix, and what it looks for in the requests."""

import base64
import json
import struct
import zlib
from typing import Any

from tests.support.upstream import (
    REASONING,
    TEXT,
    Delta,
    Done,
    Finish,
    Gate,
    Hang,
    Headers,
    ReasoningDelta,
    Recorded,
    Role,
    Script,
    Step,
    UsageChunk,
    calling,
)

USAGE = (11, 7)
CITY = {"city": "Kiel", "inhabitants": 250000}
SUMS = ("3", "7")
END: list[Step] = [Finish(), UsageChunk(*USAGE), Done()]
COMPLETED = frozenset({"stop", "completed", "end_turn", "complete", "success", "succeeded"})
"""Words by which clients call an answer complete."""


def saying(*steps: Step) -> list[Step]:
    return [Headers(), Role(), *steps, *END]


def gated(gate: str) -> Script:
    """An answer in two pieces. The second is sent when the client has handed out the first."""
    return saying(Delta(TEXT[:5]), Gate(gate), Delta(TEXT[5:]))


def reasoned() -> Script:
    return saying(ReasoningDelta(REASONING), Delta(TEXT))


def hanging() -> Script:
    return [Headers(), Role(), Delta("Half "), Hang()]


def functions(body: dict[str, Any]) -> dict[str, Any]:
    """The functions that the model may call, with their parameters."""
    told = [tool["function"] for tool in body.get("tools") or [] if tool.get("type", "function") == "function"]
    return {function["name"]: function.get("parameters") or {} for function in told}


def results(body: dict[str, Any]) -> list[str]:
    """What the tools of the conversation returned. Smolagents says it as the user."""
    said = [(message["role"], json.dumps(message.get("content"))) for message in body["messages"]]
    return [text for role, text in said if role == "tool" or "Observation" in text]


def final(body: dict[str, Any], text: str) -> Script:
    """An answer in text; agents that end by calling a tool get that call."""
    ends = [name for name in functions(body) if name in ("final_answer", "finish", "attempt_completion")]
    if not ends:
        return saying(Delta(text))
    key = next(iter(functions(body)[ends[0]]["properties"]))
    return calling((ends[0], {key: text}), prefix="end")


def adding(request: Recorded) -> Script:
    """Two calls of `add` at once, then an answer with what they returned."""
    found = results(request.body)
    adders = [name for name in functions(request.body) if "add" in name.lower()]
    if not found and adders:
        return calling((adders[0], {"a": 1, "b": 2}), (adders[0], {"a": 3, "b": 4}))
    seen = [each for each in SUMS if any(each in result for result in found)]
    return final(request.body, f"The sums: {' and '.join(seen)}.")


def describing(request: Recorded) -> Script:
    """A city, in the way that the request asks for: as JSON, or as the arguments of a function."""
    takes_city = [name for name, schema in functions(request.body).items() if "inhabitants" in json.dumps(schema)]
    if takes_city and not request.body.get("response_format"):
        return calling((takes_city[0], CITY))
    return saying(Delta(json.dumps(CITY)))


def png() -> str:
    """A picture of one pixel, in base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixel = zlib.compress(b"\x00\x1e\x90\xff")
    return base64.b64encode(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")
    ).decode()
