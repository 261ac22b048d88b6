"""Renders a prompt for Bedrock's Converse API.

Pure. `PARAMS` has a rule for each parameter. Parameters of some of Bedrock's models go into
`additionalModelRequestFields`. An unknown parameter is refused, because Bedrock would silently ignore it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import Unsupported
from ...fields import PASSED_ON, USED, Rule, Table, harmless, passed_on, refused
from ...prompt import (
    AnyTool,
    AnyTurn,
    AssistantTurn,
    Call,
    ChosenTool,
    FilePart,
    ImagePart,
    Opaque,
    Part,
    Prompt,
    ResultTurn,
    SystemTurn,
    TextPart,
    ToolChoice,
    UserTurn,
)
from .. import ChatRequest
from ..params import ONLY_OPENAIS, WITH_PICTURES, checked_prompt, message_rules, part_rules
from ..parts import (
    arguments_object,
    assistant_text,
    calls_of,
    content_parts,
    inline_data,
    plain_text,
    refuse_part,
    speaker_first,
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
    "modalities": WITH_PICTURES,
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
    prompt = checked_prompt(request, PARAMS, UNKNOWN, MESSAGE_RULES)
    system = [{"text": text} for turn in prompt.turns if isinstance(turn, SystemTurn) if (text := _text(turn))]
    config = {own: _listed(own, prompt.extra[name]) for name, own in _CONFIG.items() if name in prompt.extra}
    return (
        passed_on(prompt.extra, PARAMS, UNKNOWN)
        | ({"system": system} if system else {})
        | {"messages": _turns(prompt.turns)}
        | ({"inferenceConfig": config} if config else {})
        | _tools(prompt)
    )


def _listed(name: str, value: Any) -> Any:
    return [value] if name == "stopSequences" and isinstance(value, str) else value


def _tools(prompt: Prompt) -> _Block:
    """Return the tools. Bedrock has no tool choice `none`, so with it no tools are sent."""
    if not prompt.tools or prompt.choice == "none":
        return {}
    return {"toolConfig": {"tools": [_tool(tool) for tool in prompt.tools]} | _choice(prompt.choice)}


def _tool(tool: AnyTool) -> _Block:
    if isinstance(tool, Opaque):
        raise Unsupported("A tool must be a function.", "tools")
    described = {"description": tool.description} if tool.description else {}
    schema = {"json": tool.parameters or {"type": "object", "properties": {}}}
    return {"toolSpec": {"name": tool.name, **described, "inputSchema": schema}}


def _choice(choice: ToolChoice) -> _Block:
    match choice:
        case None:
            return {}
        case "auto":
            return {"toolChoice": {"auto": {}}}
        case "required":
            return {"toolChoice": {"any": {}}}
        case ChosenTool(name):
            return {"toolChoice": {"tool": {"name": name}}}
    raise Unsupported("Bedrock takes a tool_choice of auto, none, required, or a function.", "tool_choice")


# messages


def _text(turn: SystemTurn) -> str:
    return plain_text(turn.content, _WHO).strip()


def _turns(given: Sequence[AnyTurn]) -> list[_Block]:
    """Return the turns of user and assistant. Consecutive ones of one role become one."""
    turns: list[_Block] = []
    for turn in given:
        if isinstance(turn, SystemTurn):
            continue
        role, blocks = ("assistant" if isinstance(turn, AssistantTurn) else "user"), _blocks(turn)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    return turns


def _blocks(turn: AssistantTurn | UserTurn | ResultTurn) -> list[_Block]:
    match turn:
        case AssistantTurn():
            text = assistant_text(turn, _WHO)
            thoughts = [thought for thought in turn.thoughts if "reasoningContent" in thought]
            return [*thoughts, *([{"text": text}] if text.strip() else []), *map(_call, calls_of(turn))]
        case ResultTurn():
            content = [block for part in content_parts(turn.content) if (block := _block(part)) != {"text": ""}]
            return [{"toolResult": {"toolUseId": turn.call_id, "content": content or [{"text": "(empty)"}]}}]
    return [_block(part) for part in speaker_first(turn) if not (isinstance(part, TextPart) and not part.text.strip())]


def _call(call: Call) -> _Block:
    return {"toolUse": {"toolUseId": call.id, "name": call.name, "input": arguments_object(call.arguments)}}


def _block(part: Part) -> _Block:
    match part:
        case TextPart():
            return {"text": part.text}
        case ImagePart():
            picture = inline_data(part.url)
            if picture is None:
                raise Unsupported("Bedrock fetches no pictures. Send them as data: URLs in base64.", "messages")
            return {"image": {"format": picture.media_type.partition("/")[2], "source": {"bytes": picture.data}}}
        case FilePart():
            pdf = inline_data(part.data)
            if pdf is None or pdf.media_type != "application/pdf":
                raise Unsupported("Bedrock takes a file as a PDF in file_data, a data: URL in base64.", "messages")
            return {"document": {"format": "pdf", "name": "document", "source": {"bytes": pdf.data}}}
    refuse_part(part, _WHO)
