"""Translates a request in OpenAI's shape to the Gemini API.

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
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import Unsupported
from ...fields import PASSED_ON, USED, Table, harmless, passed_on, refused
from .. import ChatRequest
from ..params import ONLY_OPENAIS, check_request, message_rules, part_rules
from ..parts import (
    arguments_object,
    assistant_text,
    called_names,
    function_of,
    inline_data,
    picture_url,
    plain_text,
    schema_of,
    text_in,
    user_parts,
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
    "modalities": refused("Only text can be passed on.", ["text"]),
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
    check_request(request, PARAMS, PASSED_ON, MESSAGE_RULES)
    params = {name: value for name, value in request.params.items() if value is not None}
    version = _version(request.model)
    system = [text for message in request.messages if _is_system(message) for text in _system_texts(message)]
    config = _config(params, version, thoughts)
    return (
        passed_on(params, PARAMS, PASSED_ON)
        | ({"systemInstruction": {"parts": [{"text": text} for text in system]}} if system else {})
        | {"contents": _contents(request.messages, wants_signatures=version >= (3, 0))}
        | ({"generationConfig": config} if config else {})
        | _tools(params)
    )


# parameters


def _version(model: str) -> tuple[int, int]:
    """Return the version in a model's name; (0, 0) if it is not a chat model of Gemini."""
    match = _VERSION.search(model)
    if match is None or any(kind in model for kind in _NOT_FOR_CHATS):
        return (0, 0)
    return int(match[1]), int(match[2] or 0)


def _config(params: Mapping[str, Any], version: tuple[int, int], thoughts: bool) -> _Block:
    own_config = params.get("generationConfig")
    config: _Block = dict(own_config) if isinstance(own_config, dict) else {}
    for name, own in _CONFIG.items():
        if name in params:
            value = params[name]
            config[own] = [value] if own == "stopSequences" and isinstance(value, str) else value
    schema = schema_of(params.get("response_format"), _WHO)
    if schema is not None:
        config |= {"responseMimeType": "application/json"} | ({"responseJsonSchema": schema} if schema else {})
    thinking = _thinking(params.get("reasoning_effort"), version)
    summary = {"includeThoughts": True} if thoughts and version >= (2, 5) else {}
    own_thinking = config.get("thinkingConfig")
    thinking = summary | thinking | (own_thinking if isinstance(own_thinking, dict) else {})
    return config | ({"thinkingConfig": thinking} if thinking else {})


def _thinking(effort: Any, version: tuple[int, int]) -> _Block:
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


def _tools(params: Mapping[str, Any]) -> _Block:
    """Return the tools and the tool choice. A tool in Gemini's own shape is passed on unchanged."""
    declared: list[_Block] = []
    others: list[Any] = []
    for tool in params.get("tools") or ():
        function = tool.get("function") if isinstance(tool, dict) else None
        if isinstance(function, dict):
            declared.append(_declaration(function))
        elif isinstance(tool, dict) and ("custom" in tool or "type" in tool):
            raise Unsupported("Gemini takes no custom tools. Send a function with one string.", "tools")
        else:
            others.append(tool)
    tools = [*([{"functionDeclarations": declared}] if declared else []), *others]
    choice = _choice(params.get("tool_choice")) if declared else {}
    return ({"tools": tools} if tools else {}) | choice


def _declaration(function: Mapping[str, Any]) -> _Block:
    described = {"name": function.get("name"), "description": function.get("description")}
    described["parametersJsonSchema"] = function.get("parameters")
    return {name: value for name, value in described.items() if value}


def _choice(choice: Any) -> _Block:
    match choice:
        case None:
            return {}
        case str() if choice in _MODES:
            config: _Block = {"mode": _MODES[choice]}
        case {"function": {"name": str(name)}}:
            config = {"mode": "ANY", "allowedFunctionNames": [name]}
        case _:
            raise Unsupported("Gemini takes a tool_choice of auto, none, required, or a function.", "tool_choice")
    return {"toolConfig": {"functionCallingConfig": config}}


# messages


def _is_system(message: Mapping[str, Any]) -> bool:
    return message.get("role") in ("system", "developer")


def _system_texts(message: Mapping[str, Any]) -> list[str]:
    text = plain_text(message.get("content"), _WHO)
    return [text] if text.strip() else []


def _contents(messages: Sequence[Mapping[str, Any]], *, wants_signatures: bool) -> list[_Block]:
    names = called_names(messages)
    contents: list[_Block] = []
    for message in messages:
        if _is_system(message):
            continue
        role = "model" if message.get("role") == "assistant" else "user"
        parts = _message_parts(message, names, wants_signatures)
        if contents and contents[-1]["role"] == role:
            contents[-1]["parts"] += parts
        elif parts:
            contents.append({"role": role, "parts": parts})
    return contents


def _message_parts(message: Mapping[str, Any], names: Mapping[str, str], wants_signatures: bool) -> list[_Block]:
    if message.get("role") == "tool":
        return [_result(message, names), *_pictures_of(message.get("content"))]
    if message.get("role") == "assistant":
        return _parts_of(assistant_text(message, _WHO)) + _calls(message, wants_signatures)
    return _parts_of(user_parts(message))


def _calls(message: Mapping[str, Any], wants_signatures: bool) -> list[_Block]:
    signatures = {
        thought["call"]: thought["signature"] for thought in message.get("thoughts") or () if _is_signature(thought)
    }
    calls: list[_Block] = []
    for call in message.get("tool_calls") or ():
        function = function_of(call)
        called = {"name": function.get("name"), "args": arguments_object(function.get("arguments"))}
        if call.get("id"):
            called["id"] = call["id"]
        signature = signatures.get(call.get("id")) or _signature_of_client(call)
        if not signature and wants_signatures and not calls:  # only the first of parallel calls is signed
            signature = _NO_SIGNATURE
        calls.append({"functionCall": called} | ({"thoughtSignature": signature} if signature else {}))
    return calls


def _is_signature(thought: Any) -> bool:
    return isinstance(thought, dict) and thought.get("type") == SIGNATURE


def _signature_of_client(call: Mapping[str, Any]) -> Any:
    """Return the signature that the client sent, in the field that Google's endpoint for OpenAI's dialect uses."""
    match call.get("extra_content"):
        case {"google": {"thought_signature": str(signature)}}:
            return signature
    return None


def _result(message: Mapping[str, Any], names: Mapping[str, str]) -> _Block:
    """Return the result of a call: an object if its text is one in JSON, else the text."""
    id = str(message.get("tool_call_id") or "")
    content = message.get("content")
    parts = [part for part in content if not _is_picture(part)] if isinstance(content, list) else content
    text = plain_text(parts, _WHO)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    response = value if isinstance(value, dict) else {"result": text}
    return {"functionResponse": {"id": id, "name": names.get(id, ""), "response": response}}


def _is_picture(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "image_url"


def _pictures_of(content: Any) -> list[_Block]:
    return [_part(part) for part in content if _is_picture(part)] if isinstance(content, list) else []


def _parts_of(content: Any) -> list[_Block]:
    """Return a message's content as parts, without the empty ones."""
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content or [], list):
        raise Unsupported("A message's content must be a string or a list of parts.", "messages")
    parts = [_part(part) for part in content or ()]
    return [part for part in parts if part != {"text": ""}]


def _part(part: Any) -> _Block:
    kind = part.get("type") if isinstance(part, dict) else None
    match kind:
        case "image_url":
            return _data(picture_url(part))
        case "input_audio":
            sound = part.get("input_audio")
            sound = sound if isinstance(sound, dict) else {}
            return {"inlineData": {"mimeType": f"audio/{sound.get('format')}", "data": sound.get("data")}}
        case "file":
            file = part.get("file")
            return _data(str(file.get("file_data") or "") if isinstance(file, dict) else "")
        case _:
            return {"text": text_in(part, _WHO)}


def _data(url: str) -> _Block:
    if data := inline_data(url):
        return {"inlineData": {"mimeType": data.media_type, "data": data.data}}
    if url.lower().startswith(("http://", "https://", "gs://")):
        return {"fileData": {"fileUri": url}}
    raise Unsupported("A picture or file must be a data: URL in base64, or an address.", "messages")
