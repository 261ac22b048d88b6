"""The attributes of spans: names of OpenTelemetry's conventions for HTTP and GenAI, and our own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from opentelemetry.trace import Span, Status, StatusCode

from .....errors import HoldfastError
from .....events import AnySettlement, Failed, Interrupted, Stopped
from .....prompt import AnyTurn, Part, ResultTurn, TextPart, calls_in
from .....prompt.openai_shape import openai_content, role_of, turns_of
from .....store import RunRecord
from .....upstreams import ChatRequest

Attributes = dict[str, str | int | float | bool | Sequence[str]]
"""Attributes of a span."""

_AGENT = "agent"


def run_name(record: RunRecord) -> str:
    """Return the name of a run's span."""
    agent = _agent_name(record)
    return f"run {record.kind}" if agent is None else f"invoke_agent {agent}"


def run_attributes(record: RunRecord, node: str) -> Attributes:
    """Return the attributes of a run at its start."""
    agent = _agent_name(record)
    found: Attributes = {
        "holdfast.run.id": record.id,
        "holdfast.run.kind": record.kind,
        "holdfast.run.lifetime": record.lifetime,
        "holdfast.run.epoch": record.epoch,
        "holdfast.node": node,
    }
    if record.model:
        found["gen_ai.request.model"] = record.model
    if record.session_id is not None:
        found["gen_ai.conversation.id"] = record.session_id
    if agent is not None:
        found |= {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent}
    return found


def _agent_name(record: RunRecord) -> str | None:
    if record.kind != _AGENT:
        return None
    prefix, _, name = record.model.partition("/")
    return name if prefix == _AGENT else "default"


def note_settlement(span: Span, settlement: AnySettlement) -> None:
    """Record how a run ended. Only a failure and an interruption are errors."""
    usage = settlement.usage
    span.set_attributes(
        {
            "holdfast.run.outcome": settlement.outcome,
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
        }
    )
    if isinstance(settlement, Stopped):
        span.set_attribute("holdfast.run.stopped_by", settlement.by)
    if isinstance(settlement, (Failed, Interrupted)):
        fail(span, settlement.error.code)


def note_error(span: Span, error: BaseException) -> None:
    """Record an exception by its code or class. Its message may quote an answer, so it is only logged."""
    fail(span, error.code if isinstance(error, HoldfastError) else type(error).__name__)


def fail(span: Span, kind: str) -> None:
    """Mark a span as an error of a kind."""
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, kind))


_PARAMS = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "max_tokens": "gen_ai.request.max_tokens",
    "max_completion_tokens": "gen_ai.request.max_tokens",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "seed": "gen_ai.request.seed",
}


def call_attributes(provider: str, request: ChatRequest) -> Attributes:
    """Return the attributes of an upstream call at its start."""
    params = {
        name: request.params[param]
        for param, name in _PARAMS.items()
        if isinstance(request.params.get(param), (int, float))
    }
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": request.model,
        **params,
    }


def input_messages(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the messages of a request in the format of GenAI's conventions, without the data of pictures."""
    return msgspec.json.encode([{"role": role_of(turn), "parts": _parts(turn)} for turn in turns_of(messages)]).decode()


def output_message(text: str, finish_reason: str) -> str:
    """Return an answer in the format of GenAI's conventions."""
    parts = [{"type": "text", "content": text}]
    return msgspec.json.encode([{"role": "assistant", "parts": parts, "finish_reason": finish_reason}]).decode()


def _parts(turn: AnyTurn) -> list[dict[str, Any]]:
    if isinstance(turn, ResultTurn):
        return [{"type": "tool_call_response", "id": turn.call_id, "response": openai_content(turn.content)}]
    contents = [TextPart(turn.content)] if isinstance(turn.content, str) else turn.content
    parts = [_part(part) for part in contents] if isinstance(contents, tuple | list) else []
    return parts + [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments} for call in calls_in(turn)
    ]


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, TextPart) and part.kind == "text":
        return {"type": "text", "content": part.text}
    return {"type": str(part.kind or "unknown")}
