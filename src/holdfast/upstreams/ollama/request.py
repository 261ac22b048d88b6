"""Translates a request in OpenAI's shape to Ollama's `/api/chat`.

Pure. `PARAMS` has a rule for each parameter. An unknown parameter is refused, because Ollama would silently ignore it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import Unsupported
from ...fields import PASSED_ON, USED, Rule, Table, harmless, passed_on, refused
from .. import ChatRequest
from ..openai.messages import pictures_after_results
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

__all__ = ["MESSAGE_RULES", "PARAMS", "UNKNOWN_PARAM", "body_for"]

_OPTIONS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "max_tokens": "num_predict",
    "max_completion_tokens": "num_predict",
    "stop": "stop",
    "top_k": "top_k",
    "min_p": "min_p",
    "num_ctx": "num_ctx",
    "num_predict": "num_predict",
    "repeat_penalty": "repeat_penalty",
    "repeat_last_n": "repeat_last_n",
}
"""Ollama's options by the parameters that set them."""

_NO_LOGPROBS = refused("The probabilities of its tokens cannot be passed on.", 0)

PARAMS: Table = {
    **dict.fromkeys(_OPTIONS, USED),
    "tools": USED,
    "tool_choice": USED,
    "response_format": USED,
    "reasoning_effort": USED,
    "options": USED,
    # Ollama's own
    "think": PASSED_ON,
    "keep_alive": PASSED_ON,
    "format": PASSED_ON,
    "truncate": PASSED_ON,
    "shift": PASSED_ON,
    # left out
    **ONLY_OPENAIS,
    "metadata": harmless("It controls what OpenAI stores."),
    "service_tier": harmless("It only affects OpenAI's speed and price."),
    "user": harmless("It identifies the user to OpenAI."),
    # not supported by Ollama
    "audio": refused("Ollama's models produce no audio."),
    "modalities": refused("Ollama's models answer in text.", ["text"]),
    "logit_bias": refused("Ollama takes no bias.", {}),
    "logprobs": _NO_LOGPROBS,
    "top_logprobs": _NO_LOGPROBS,
    "functions": refused("Send tools instead.", []),
    "function_call": refused("Send tool_choice instead.", "auto", "none"),
    "moderation": refused("Only OpenAI has moderation."),
    "n": refused("Ollama gives one answer to a request.", 1),
    "parallel_tool_calls": refused("Ollama cannot be limited to one tool call at a time.", True),
    "verbosity": refused("Ollama has no such setting.", "medium"),
    "web_search_options": refused("Ollama does not search the web in a chat."),
}
"""Rules for OpenAI's parameters, and for Ollama's own."""

MESSAGE_RULES: Table = message_rules("Ollama", part_rules("Ollama"), strict=harmless("The schema is sent anyway."))
"""Rules for the fields of messages and tools."""

UNKNOWN_PARAM: Rule = refused("Ollama does not know it. Its own settings go into options.")

_WHO = "Ollama"
_EFFORTS = {"minimal": "low", "xhigh": "high", "none": False}


def body_for(request: ChatRequest, keep_alive: str | int | None, think: bool | str | None) -> dict[str, Any]:
    """Return the body of a request. `keep_alive` and `think` are the defaults of the provider."""
    check_request(request, PARAMS, UNKNOWN_PARAM, MESSAGE_RULES)
    params = {name: value for name, value in request.params.items() if value is not None}
    usual = {"keep_alive": keep_alive, "think": think}
    own: dict[str, Any] = request.as_sent.get("ollama", {})
    return (
        {name: value for name, value in usual.items() if value is not None}
        | _thinking(params)
        | passed_on(params, PARAMS, UNKNOWN_PARAM)
        | own
        | _format(params)
        | _options(params, own)
        | _tools(params)
        | {"model": request.model, "messages": _messages(request.messages), "stream": True}
    )


def _thinking(params: Mapping[str, Any]) -> dict[str, Any]:
    effort = params.get("reasoning_effort")
    return {"think": _EFFORTS.get(effort, effort)} if isinstance(effort, str) else {}


def _format(params: Mapping[str, Any]) -> dict[str, Any]:
    schema = schema_of(params.get("response_format"), "Ollama")
    return {} if schema is None else {"format": schema or "json"}


def _options(params: Mapping[str, Any], sent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options: those of the parameters, and over them those that a client of Ollama's API has sent."""
    own_options = params.get("options")
    options = dict(own_options) if isinstance(own_options, dict) else {}
    for name, own in _OPTIONS.items():
        if name in params:
            value = params[name]
            options[own] = [value] if own == "stop" and isinstance(value, str) else value
    options |= sent.get("options", {})
    return {"options": options} if options else {}


def _tools(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tools. Ollama has no tool choice: for `none` no tools are sent, and a forced call is refused."""
    choice, tools = params.get("tool_choice"), params.get("tools") or []
    if choice not in (None, "auto", "none"):
        raise Unsupported("tool_choice is not supported here. Ollama lets the model choose.", "tool_choice")
    for tool in tools:
        if not isinstance(tool, dict) or not isinstance(tool.get("function"), dict):
            raise Unsupported("Ollama's models take functions alone.", "tools")
    return {"tools": tools} if tools and choice != "none" else {}


# messages


def _messages(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    names = called_names(messages)
    return [_message(message, names) for message in pictures_after_results(messages)]


def _message(message: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    content = message.get("content")
    match message.get("role"):
        case "developer" | "system":
            return {"role": "system", "content": plain_text(content, _WHO)}
        case "tool":
            name = names.get(str(message.get("tool_call_id")), "")
            return {"role": "tool", "content": plain_text(content, _WHO)} | ({"tool_name": name} if name else {})
        case "assistant":
            calls = [_call(call) for call in message.get("tool_calls") or ()]
            fields = {"role": "assistant", "content": assistant_text(message, _WHO)}
            return fields | ({"tool_calls": calls} if calls else {})
    parts = user_parts(message)
    texts = [part for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    pictures = [_picture(part) for part in parts if part not in texts]
    return {"role": "user", "content": plain_text(texts, _WHO)} | ({"images": pictures} if pictures else {})


def _picture(part: Any) -> str:
    """Return an image in base64. Ollama accepts no other parts besides text."""
    if not isinstance(part, dict) or part.get("type") != "image_url":
        return text_in(part, _WHO)  # raises Unsupported
    data = inline_data(picture_url(part))
    if data is None:
        raise Unsupported("Ollama fetches no pictures. Send them as data: URLs in base64.", "messages")
    return data.data


def _call(call: Any) -> dict[str, Any]:
    function = function_of(call)
    return {"function": {"name": function.get("name"), "arguments": arguments_object(function.get("arguments"))}}
