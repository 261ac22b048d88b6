"""Translates a request in OpenAI's shape to Bedrock's Converse API.

Pure. `PARAMS` has a rule for each parameter. Parameters of some of Bedrock's models go into
`additionalModelRequestFields`. An unknown parameter is refused, because Bedrock would silently ignore it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import Unsupported
from ...fields import PASSED_ON, USED, Rule, Table, harmless, passed_on, refused
from .. import ChatRequest
from ..params import ONLY_OPENAIS, check_request, message_rules, part_rules
from ..parts import (
    arguments_object,
    assistant_text,
    function_of,
    inline_data,
    picture_url,
    plain_text,
    text_in,
    user_parts,
)

__all__ = ["MESSAGE_RULES", "PARAMS", "UNKNOWN", "body_with"]

_Block = dict[str, Any]

_WHO = "Bedrock"
_NO_LOGPROBS = refused("Bedrock has no log probabilities.", 0)
_BY_MODEL = "It is a matter of the model: send it in additionalModelRequestFields."

_CONFIG = {
    "temperature": "temperature",
    "top_p": "topP",
    "max_tokens": "maxTokens",
    "max_completion_tokens": "maxTokens",
    "stop": "stopSequences",
}

PARAMS: Table = {
    **dict.fromkeys(_CONFIG, USED),
    "tools": USED,
    "tool_choice": USED,
    # Bedrock's own
    "additionalModelRequestFields": PASSED_ON,
    "guardrailConfig": PASSED_ON,
    "performanceConfig": PASSED_ON,
    "requestMetadata": PASSED_ON,
    # left out
    **ONLY_OPENAIS,
    "metadata": harmless("It controls what OpenAI stores."),
    "seed": harmless("OpenAI promises best effort only."),
    "service_tier": harmless("It only affects OpenAI's speed and price."),
    "user": harmless("It identifies the user to OpenAI."),
    # not supported by Bedrock, or only by some of its models
    "audio": refused("Bedrock's models produce no audio here."),
    "modalities": refused("Bedrock's models answer in text.", ["text"]),
    "frequency_penalty": refused(_BY_MODEL, 0),
    "presence_penalty": refused(_BY_MODEL, 0),
    "reasoning_effort": refused(_BY_MODEL),
    "response_format": refused("Bedrock has no such format.", {"type": "text"}),
    "logit_bias": refused("Bedrock takes no bias.", {}),
    "logprobs": _NO_LOGPROBS,
    "top_logprobs": _NO_LOGPROBS,
    "functions": refused("Send tools instead.", []),
    "function_call": refused("Send tool_choice instead.", "auto", "none"),
    "moderation": refused("Send guardrailConfig instead."),
    "n": refused("Bedrock gives one answer to a request.", 1),
    "parallel_tool_calls": refused("Bedrock cannot be limited to one tool call at a time.", True),
    "verbosity": refused("Bedrock has no such setting.", "medium"),
    "web_search_options": refused("Bedrock does not search the web."),
}
"""Rules for OpenAI's parameters, and for Bedrock's own."""

UNKNOWN: Rule = refused("Bedrock does not know it. A model's own settings go into additionalModelRequestFields.")

MESSAGE_RULES: Table = message_rules(_WHO, part_rules(_WHO, files=True), strict=harmless("The schema is sent anyway."))
"""Rules for the fields of messages and tools."""


def body_with(request: ChatRequest) -> dict[str, Any]:
    """Return the body of a request."""
    check_request(request, PARAMS, UNKNOWN, MESSAGE_RULES)
    params = {name: value for name, value in request.params.items() if value is not None}
    system = [{"text": text} for message in request.messages if _is_system(message) if (text := _text(message))]
    config = {own: _listed(own, params[name]) for name, own in _CONFIG.items() if name in params}
    return (
        passed_on(params, PARAMS, UNKNOWN)
        | ({"system": system} if system else {})
        | {"messages": _turns(request.messages)}
        | ({"inferenceConfig": config} if config else {})
        | _tools(params)
    )


def _listed(name: str, value: Any) -> Any:
    return [value] if name == "stopSequences" and isinstance(value, str) else value


def _tools(params: Mapping[str, Any]) -> _Block:
    """Return the tools. Bedrock has no tool choice `none`, so with it no tools are sent."""
    choice, tools = params.get("tool_choice"), params.get("tools") or []
    if not tools or choice == "none":
        return {}
    return {"toolConfig": {"tools": [_tool(tool) for tool in tools]} | _choice(choice)}


def _tool(tool: Any) -> _Block:
    function = function_of(tool)
    described = {"name": function.get("name"), "description": function.get("description")}
    schema = {"json": function.get("parameters") or {"type": "object", "properties": {}}}
    return {"toolSpec": {name: value for name, value in described.items() if value} | {"inputSchema": schema}}


def _choice(choice: Any) -> _Block:
    match choice:
        case None:
            return {}
        case "auto":
            return {"toolChoice": {"auto": {}}}
        case "required":
            return {"toolChoice": {"any": {}}}
        case {"function": {"name": str(name)}}:
            return {"toolChoice": {"tool": {"name": name}}}
    raise Unsupported("Bedrock takes a tool_choice of auto, none, required, or a function.", "tool_choice")


# messages


def _is_system(message: Mapping[str, Any]) -> bool:
    return message.get("role") in ("system", "developer")


def _text(message: Mapping[str, Any]) -> str:
    return plain_text(message.get("content"), _WHO).strip()


def _turns(messages: Sequence[Mapping[str, Any]]) -> list[_Block]:
    """Return the turns of user and assistant. Consecutive messages of one role become one turn."""
    turns: list[_Block] = []
    for message in messages:
        if _is_system(message):
            continue
        is_answer = message.get("role") == "assistant"
        role, blocks = ("assistant", _assistant_blocks(message)) if is_answer else ("user", _user_blocks(message))
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    return turns


def _assistant_blocks(message: Mapping[str, Any]) -> list[_Block]:
    text = assistant_text(message, _WHO)
    thoughts = [thought for thought in message.get("thoughts") or () if "reasoningContent" in thought]
    return [*thoughts, *([{"text": text}] if text.strip() else []), *map(_call, message.get("tool_calls") or ())]


def _call(call: Any) -> _Block:
    function = function_of(call)
    arguments = arguments_object(function.get("arguments"))
    return {"toolUse": {"toolUseId": call.get("id"), "name": function.get("name"), "input": arguments}}


def _user_blocks(message: Mapping[str, Any]) -> list[_Block]:
    if message.get("role") == "tool":
        content = [block for part in user_parts(message) if (block := _block(part)) != {"text": ""}]
        return [{"toolResult": {"toolUseId": message.get("tool_call_id"), "content": content or [{"text": "(empty)"}]}}]
    blocks = [_block(part) for part in user_parts(message)]
    return [block for block in blocks if block.get("text", "-").strip()]


def _block(part: Any) -> _Block:
    match part.get("type") if isinstance(part, dict) else None:
        case "image_url":
            picture = inline_data(picture_url(part))
            if picture is None:
                raise Unsupported("Bedrock fetches no pictures. Send them as data: URLs in base64.", "messages")
            return {"image": {"format": picture.media_type.partition("/")[2], "source": {"bytes": picture.data}}}
        case "file":
            return _document(part.get("file"))
        case _:
            return {"text": text_in(part, _WHO)}


def _document(file: Any) -> _Block:
    data = file.get("file_data") if isinstance(file, dict) else None
    pdf = inline_data(data) if isinstance(data, str) else None
    if pdf is None or pdf.media_type != "application/pdf":
        raise Unsupported("Bedrock takes a file as a PDF in file_data, a data: URL in base64.", "messages")
    return {"document": {"format": "pdf", "name": "document", "source": {"bytes": pdf.data}}}
