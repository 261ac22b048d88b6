"""Translates a request of chat completions to OpenAI's Responses API.

Pure. `PARAMS` has a rule for each parameter. An unknown one is passed on: it may be one of Responses' own, and OpenAI
refuses parameters that it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import Unsupported
from ...fields import PASSED_ON, USED, Table, harmless, passed_on, refused
from .. import ChatRequest
from ..params import check_request, message_rules, part_rules
from ..parts import picture_url, user_parts

__all__ = ["DIALECT", "ENCRYPTED", "MESSAGE_RULES", "PARAMS", "body_in", "wants_encrypted"]

_Item = dict[str, Any]

ENCRYPTED = "reasoning.encrypted_content"
DIALECT = "openai-responses"
"""The name of this dialect in the settings, and in `as_sent`."""

_NOT_HERE = "The Responses API does not have it. A provider of the dialect openai has."

PARAMS: Table = {
    "max_tokens": USED,
    "max_completion_tokens": USED,
    "tools": USED,
    "tool_choice": USED,
    "response_format": USED,
    "reasoning_effort": USED,
    "verbosity": USED,
    "reasoning": USED,
    "text": USED,
    "include": USED,
    "store": USED,
    "background": USED,
    # the same here
    "metadata": PASSED_ON,
    "moderation": PASSED_ON,
    "parallel_tool_calls": PASSED_ON,
    "prompt_cache_key": PASSED_ON,
    "prompt_cache_options": PASSED_ON,
    "prompt_cache_retention": PASSED_ON,
    "safety_identifier": PASSED_ON,
    "service_tier": PASSED_ON,
    "user": PASSED_ON,
    # left out
    "prediction": harmless("It only makes an answer quicker."),
    "seed": harmless("OpenAI promises best effort only."),
    "stream_options": harmless("The answer is always streamed with its usage."),
    # not supported by Responses, or not passed on
    "audio": refused("Only text can be passed on."),
    "modalities": refused("Only text can be passed on.", ["text"]),
    "frequency_penalty": refused(_NOT_HERE, 0),
    "presence_penalty": refused(_NOT_HERE, 0),
    "logit_bias": refused(_NOT_HERE, {}),
    "logprobs": refused(_NOT_HERE, 0),
    "top_logprobs": refused(_NOT_HERE, 0),
    "stop": refused(_NOT_HERE, []),
    "functions": refused("Send tools instead.", []),
    "function_call": refused("Send tool_choice instead.", "auto", "none"),
    "n": refused("A response is one answer.", 1),
    "web_search_options": refused('Send {"type": "web_search"} in tools.'),
    "previous_response_id": refused("The messages are sent each time."),
    "conversation": refused("The messages are sent each time."),
}
"""Rules for the parameters of chat completions. An unknown one is passed on."""

MESSAGE_RULES: Table = message_rules(
    "Responses",
    part_rules("Responses", detail=USED, sound=True, files=True),
    custom=True,
    strict=USED,
)
"""Rules for the fields of messages and tools."""


def wants_encrypted(request: ChatRequest) -> bool:
    """Return whether reasoning is to be encrypted: the client asks for it, or tools make more than one request."""
    return bool(request.params.get("tools")) or ENCRYPTED in _list(_params(request).get("include"))


def _params(request: ChatRequest) -> dict[str, Any]:
    """Return the parameters. Over them are the fields that a client of the Responses API has sent itself."""
    sent = request.as_sent.get(DIALECT, {})
    return {name: value for name, value in (request.params | sent).items() if value is not None}


def body_in(request: ChatRequest, *, background: bool, encrypted: bool, summary: str | None) -> dict[str, Any]:
    """Return the body of a request.

    With `background`, OpenAI finishes the answer without a reader, and has to store it. Otherwise it stores the answer
    only if the caller asks for that. `encrypted` asks for reasoning that can be sent back.
    """
    check_request(request, PARAMS, PASSED_ON, MESSAGE_RULES)
    params = _params(request)
    limit = params.get("max_completion_tokens", params.get("max_tokens"))
    include = [each for each in _list(params.get("include")) if each != ENCRYPTED]
    include += [ENCRYPTED] if encrypted else []
    return (
        passed_on(params, PARAMS, PASSED_ON)
        | ({} if limit is None else {"max_output_tokens": limit})
        | ({"include": list(dict.fromkeys(include))} if include else {})
        | _reasoning(params, summary)
        | _text(params)
        | _tools(params)
        | {"model": request.model, "input": _input(request.messages), "stream": True}
        | ({"background": True, "store": True} if background else {"store": bool(params.get("store"))})
    )


# parameters


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _reasoning(params: Mapping[str, Any], summary: str | None) -> dict[str, Any]:
    own = params.get("reasoning")
    usual = {"effort": params.get("reasoning_effort"), "summary": summary}
    fields = {name: value for name, value in usual.items() if value} | (own if isinstance(own, dict) else {})
    return {"reasoning": fields} if fields else {}


def _text(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the format of the answer, which is one level less nested here, and its verbosity."""
    own = params.get("text")
    fields: dict[str, Any] = dict(own) if isinstance(own, dict) else {}
    match params.get("response_format"):
        case None:
            pass
        case {"type": "json_schema", "json_schema": dict(described)}:
            fields["format"] = {"type": "json_schema", **described}
        case form:
            fields["format"] = form
    if params.get("verbosity"):
        fields["verbosity"] = params["verbosity"]
    return {"text": fields} if fields else {}


def _tools(params: Mapping[str, Any]) -> dict[str, Any]:
    tools = [_tool(tool) for tool in params.get("tools") or ()]
    choice = params.get("tool_choice")
    return ({"tools": tools} if tools else {}) | ({} if choice is None else {"tool_choice": _choice(choice)})


def _tool(tool: Any) -> Any:
    """Return a tool, which is one level less nested here. `strict` is always sent: here its default is true."""
    match tool:
        case {"type": "function", "function": dict(function)}:
            return {"type": "function", "parameters": None, "strict": False, **function}
        case {"type": "custom", "custom": dict(custom)}:
            form = custom.get("format")
            grammar = form.get("grammar") if isinstance(form, dict) else None
            flat = {"format": {"type": "grammar", **grammar}} if isinstance(grammar, dict) else {}
            return {"type": "custom", **custom, **flat}
        case _:
            return tool  # one of OpenAI's own, or invalid: then OpenAI returns the error


def _choice(choice: Any) -> Any:
    match choice:
        case {"type": ("function" | "custom" | "allowed_tools") as kind} if isinstance(choice.get(kind), dict):
            inner = choice[kind]
            if kind == "allowed_tools":
                inner = inner | {"tools": [_choice(tool) for tool in _list(inner.get("tools"))]}
            return {"type": kind, **inner}
        case _:
            return choice


# messages


def _input(messages: Sequence[Mapping[str, Any]]) -> list[_Item]:
    customs = {call["id"] for message in messages for call in _custom_calls(message)}
    return [item for message in messages for item in _items(message, customs)]


def _custom_calls(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    calls = message.get("tool_calls") or ()
    return [call for call in calls if isinstance(call, dict) and isinstance(call.get("custom"), dict)]


def _items(message: Mapping[str, Any], customs: set[Any]) -> list[_Item]:
    """Return the items of a message: its reasoning, its content, and its calls."""
    content = message.get("content")
    match message.get("role"):
        case "assistant":
            thoughts = [thought for thought in message.get("thoughts") or () if thought.get("type") == "reasoning"]
            answer = _message("assistant", content, "output_text")
            refusal = _message("assistant", _refusal(message), "output_text")
            return [*thoughts, *answer, *refusal, *map(_call, message.get("tool_calls") or ())]
        case "tool":
            id = message.get("tool_call_id")
            kind = "custom_tool_call_output" if id in customs else "function_call_output"
            output = content if isinstance(content, str) else _parts(content, "input_text")
            return [{"type": kind, "call_id": id, "output": output}]
        case "user" if message.get("name"):
            return _message("user", user_parts(message), "input_text")
        case role:
            return _message(str(role), content, "input_text")


def _refusal(message: Mapping[str, Any]) -> list[_Item]:
    refusal = message.get("refusal")
    return [{"type": "refusal", "refusal": refusal}] if isinstance(refusal, str) and refusal else []


def _message(role: str, content: Any, text: str) -> list[_Item]:
    """Return a message item; none for an assistant without content, whose calls are items of their own."""
    if isinstance(content, str):
        return [{"role": role, "content": content}] if content or role != "assistant" else []
    parts = _parts(content, text)
    return [{"role": role, "content": parts}] if parts else []


def _parts(content: Any, text: str) -> list[_Item]:
    if not isinstance(content or [], list):
        raise Unsupported("A message's content must be a string or a list of parts.", "messages")
    return [_part(part, text) for part in content or ()]


def _part(part: Any, text: str) -> _Item:
    match part:
        case {"type": "text", "text": str(value)}:
            return {"type": text, "text": value}
        case {"type": "refusal", "refusal": str(value)}:
            return {"type": "refusal", "refusal": value}
        case {"type": "image_url", "image_url": image}:
            detail = image.get("detail") if isinstance(image, dict) else None
            return {"type": "input_image", "image_url": picture_url(part)} | ({"detail": detail} if detail else {})
        case {"type": "file", "file": dict(file)}:
            return {"type": "input_file", **file}
        case {"type": "input_audio"}:
            return dict(part)
    kind = part.get("type") if isinstance(part, dict) else None
    raise Unsupported(f"Responses takes no part of the type {kind!r}.", "messages")


def _call(call: Any) -> _Item:
    match call:
        case {"custom": dict(custom)}:
            fields = {"name": custom.get("name"), "input": custom.get("input") or ""}
            return {"type": "custom_tool_call", "call_id": call.get("id"), **fields}
        case {"function": dict(function)}:
            fields = {"name": function.get("name"), "arguments": function.get("arguments") or "{}"}
            return {"type": "function_call", "call_id": call.get("id"), **fields}
    raise Unsupported("A tool call must be a call of a function or a custom tool.", "messages")
