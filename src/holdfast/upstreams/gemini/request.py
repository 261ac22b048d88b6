"""Renders a prompt for the Gemini API.

Pure. `PARAMS` has a rule for each parameter. An unknown one is passed on: it may be Gemini's, and Gemini refuses
parameters that it does not know.

- System and developer messages become the `systemInstruction`, in their order.
- Consecutive messages of one role become one content; results of calls have the role `user`.
- A call is sent with its signature. Gemini 3 refuses a call without one. If it was lost (by a restart, or by a client
  that does not keep it), Google's documented placeholder is sent instead, which skips the check.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...errors import Unsupported
from ...fields import PASSED_ON, USED, Table, harmless, passed_on, refused
from ...prompt import (
    AnyTurn,
    AssistantTurn,
    AudioPart,
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
    ToolSpec,
)
from .. import ChatRequest
from ..params import ONLY_OPENAIS, WITH_PICTURES, checked_prompt, message_rules, part_rules, wants_pictures
from ..parts import (
    arguments_object,
    assistant_text,
    called_names,
    calls_of,
    content_parts,
    inline_data,
    plain_text,
    refuse_part,
    schema_of,
    speaker_first,
    thoughts_of,
)
from .decoder import SIGNATURE

__all__ = ["MESSAGE_RULES", "PARAMS", "body_to"]

_Block = dict[str, Any]

_NO_LOGPROBS = refused("The probabilities of its tokens cannot be passed on.", 0)

_CONFIG = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "max_tokens": "maxOutputTokens",
    "max_completion_tokens": "maxOutputTokens",
    "stop": "stopSequences",
}
"""Gemini's generation settings by the parameters that set them."""

PARAMS: Table = {
    **dict.fromkeys(_CONFIG, USED),
    "tools": USED,
    "tool_choice": USED,
    "response_format": USED,
    "reasoning_effort": USED,
    "generationConfig": USED,
    # left out
    **ONLY_OPENAIS,
    "metadata": harmless("It controls what OpenAI stores."),
    "service_tier": harmless("It only affects OpenAI's speed and price."),
    "user": harmless("It identifies the user to OpenAI."),
    # not supported by Gemini, or not passed on
    "audio": refused("Only text can be passed on."),
    "modalities": WITH_PICTURES,
    "logit_bias": refused("Gemini takes no bias.", {}),
    "logprobs": _NO_LOGPROBS,
    "top_logprobs": _NO_LOGPROBS,
    "functions": refused("Send tools instead.", []),
    "function_call": refused("Send tool_choice instead.", "auto", "none"),
    "moderation": refused("Only OpenAI has moderation."),
    "n": refused("One answer to a request is passed on.", 1),
    "parallel_tool_calls": refused("Gemini cannot be limited to one tool call at a time.", True),
    "verbosity": refused("Gemini has no such setting.", "medium"),
    "web_search_options": refused('Send {"googleSearch": {}} in tools.'),
}
"""Rules for OpenAI's parameters. An unknown one is passed on: it may be Gemini's."""

_WHO = "Gemini"
MESSAGE_RULES: Table = message_rules(
    _WHO,
    part_rules(_WHO, sound=True, files=True),
    strict=harmless("The schema is sent anyway."),
    call={"extra_content": USED},
)
"""Rules for the fields of messages and tools."""

_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
_BUDGETS = {"none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 24576}
_LEVELS = {"minimal": "minimal", "low": "low", "medium": "medium", "high": "high", "xhigh": "high"}
_VERSION = re.compile(r"gemini-(\d+)(?:\.(\d+))?")
_NOT_FOR_CHATS = ("image", "tts", "live", "audio", "embedding")
_NO_SIGNATURE = "skip_thought_signature_validator"


def body_to(request: ChatRequest, *, thoughts: bool) -> dict[str, Any]:
    """Return the body of a request. `thoughts` asks thinking models for a summary of their thoughts."""
    prompt = checked_prompt(request, PARAMS, PASSED_ON, MESSAGE_RULES)
    version = _version(request.model)
    texts = [plain_text(turn.content, _WHO) for turn in prompt.turns if isinstance(turn, SystemTurn)]
    system = [{"text": text} for text in texts if text.strip()]
    config = _config(prompt, version, thoughts)
    return (
        passed_on(prompt.extra, PARAMS, PASSED_ON)
        | ({"systemInstruction": {"parts": system}} if system else {})
        | {"contents": _contents(prompt.turns, wants_signatures=version >= (3, 0))}
        | ({"generationConfig": config} if config else {})
        | _tools(prompt)
    )


# parameters


def _version(model: str) -> tuple[int, int]:
    """Return the version in a model's name; (0, 0) if it is not a chat model of Gemini."""
    match = _VERSION.search(model)
    if match is None or any(kind in model for kind in _NOT_FOR_CHATS):
        return (0, 0)
    return int(match[1]), int(match[2] or 0)


def _config(prompt: Prompt, version: tuple[int, int], thoughts: bool) -> _Block:
    params = prompt.extra
    config = _own_config(params)
    for name, own in _CONFIG.items():
        if name in params:
            value = params[name]
            config[own] = [value] if own == "stopSequences" and isinstance(value, str) else value
    if wants_pictures(params):
        config |= {"responseModalities": ["TEXT", "IMAGE"]}
    schema = schema_of(prompt.format, _WHO)
    if schema is not None:
        config |= {"responseMimeType": "application/json"} | ({"responseJsonSchema": schema} if schema else {})
    thinking = _thinking(prompt.effort, version)
    summary = {"includeThoughts": True} if thoughts and version >= (2, 5) else {}
    match config:
        case {"thinkingConfig": dict(own_thinking)}:
            thinking |= own_thinking
    thinking = summary | thinking
    return config | ({"thinkingConfig": thinking} if thinking else {})


def _own_config(params: Mapping[str, Any]) -> _Block:
    """Return what the request has in Gemini's own shape."""
    match params:
        case {"generationConfig": dict(config)}:
            return dict(config)
    return {}


def _thinking(effort: str | None, version: tuple[int, int]) -> _Block:
    """Return the thinking settings for an effort: a level since Gemini 3, a token budget before."""
    if effort is None:
        return {}
    if version >= (3, 0):
        if effort not in _LEVELS:
            raise Unsupported(f"Gemini 3 takes a reasoning_effort of {', '.join(_LEVELS)}.", "reasoning_effort")
        return {"thinkingLevel": _LEVELS[effort]}
    if effort not in _BUDGETS:
        raise Unsupported(f"Gemini takes a reasoning_effort of {', '.join(_BUDGETS)}.", "reasoning_effort")
    return {"thinkingBudget": _BUDGETS[effort]}


def _tools(prompt: Prompt) -> _Block:
    """Return the tools and the tool choice. A tool in Gemini's own shape is passed on unchanged."""
    declared = [_declaration(tool) for tool in prompt.tools if isinstance(tool, ToolSpec)]
    others = [tool.data for tool in prompt.tools if isinstance(tool, Opaque)]
    if any(isinstance(tool, dict) and ("custom" in tool or "type" in tool) for tool in others):
        raise Unsupported("Gemini takes no custom tools. Send a function with one string.", "tools")
    tools = [*([{"functionDeclarations": declared}] if declared else []), *others]
    choice = _choice(prompt.choice) if declared else {}
    return ({"tools": tools} if tools else {}) | choice


def _declaration(tool: ToolSpec) -> _Block:
    described = {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters}
    return {name: value for name, value in described.items() if value}


def _choice(choice: ToolChoice) -> _Block:
    match choice:
        case None:
            return {}
        case str():
            config: _Block = {"mode": _MODES[choice]}
        case ChosenTool(name):
            config = {"mode": "ANY", "allowedFunctionNames": [name]}
        case _:
            raise Unsupported("Gemini takes a tool_choice of auto, none, required, or a function.", "tool_choice")
    return {"toolConfig": {"functionCallingConfig": config}}


# messages


def _contents(turns: Sequence[AnyTurn], *, wants_signatures: bool) -> list[_Block]:
    names = called_names(turns)
    contents: list[_Block] = []
    for turn in turns:
        match turn:
            case SystemTurn():
                continue
            case AssistantTurn():
                role = "model"
                parts = _parts((TextPart(assistant_text(turn, _WHO)),)) + _calls(turn, wants_signatures)
            case ResultTurn():
                role, parts = "user", _result(turn, names.get(turn.call_id, ""))
            case _:
                role, parts = "user", _parts(speaker_first(turn))
        if contents and contents[-1]["role"] == role:
            contents[-1]["parts"] += parts
        elif parts:
            contents.append({"role": role, "parts": parts})
    return contents


def _calls(turn: AssistantTurn, wants_signatures: bool) -> list[_Block]:
    signatures = {thought["call"]: thought["signature"] for thought in thoughts_of(turn, SIGNATURE)}
    calls: list[_Block] = []
    for call in calls_of(turn):
        called = {"name": call.name, "args": arguments_object(call.arguments)} | ({"id": call.id} if call.id else {})
        signature = signatures.get(call.id) or _signature_of_client(call)
        if not signature and wants_signatures and not calls:  # only the first of parallel calls is signed
            signature = _NO_SIGNATURE
        calls.append({"functionCall": called} | ({"thoughtSignature": signature} if signature else {}))
    return calls


def _signature_of_client(call: Call) -> str | None:
    """Return the signature that the client sent, in the field that Google's endpoint for OpenAI's dialect uses."""
    match call.extra:
        case {"extra_content": {"google": {"thought_signature": str(signature)}}}:
            return signature
    return None


def _result(turn: ResultTurn, name: str) -> list[_Block]:
    """Return the result of a call, an object if its text is one in JSON, else the text; and its pictures."""
    parts = content_parts(turn.content)
    pictures = tuple(part for part in parts if isinstance(part, ImagePart))
    text = plain_text(tuple(part for part in parts if part not in pictures), _WHO)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    response = value if isinstance(value, dict) else {"result": text}
    return [{"functionResponse": {"id": turn.call_id, "name": name, "response": response}}, *_parts(pictures)]


def _parts(parts: Iterable[Part]) -> list[_Block]:
    """Return parts, without the empty ones."""
    return [block for part in parts if (block := _part(part)) != {"text": ""}]


def _part(part: Part) -> _Block:
    match part:
        case TextPart():
            return {"text": part.text}
        case ImagePart():
            return _data(part.url)
        case AudioPart():
            return {"inlineData": {"mimeType": f"audio/{part.format}", "data": part.data}}
        case FilePart():
            return _data(part.data)
    refuse_part(part, _WHO)


def _data(url: str) -> _Block:
    if data := inline_data(url):
        return {"inlineData": {"mimeType": data.media_type, "data": data.data}}
    if url.lower().startswith(("http://", "https://", "gs://")):
        return {"fileData": {"fileUri": url}}
    raise Unsupported("A picture or file must be a data: URL in base64, or an address.", "messages")
