"""Renders a prompt for Ollama's `/api/chat`.

Pure. `PARAMS` has a rule for each parameter. An unknown parameter is refused, because Ollama would silently ignore it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...asks.own import OwnOllama
from ...errors import Unsupported
from ...fields import PASSED_ON, USED, Rule, Table, harmless, passed_on, refused
from ...prompt import (
    AnyTurn,
    AssistantTurn,
    Call,
    ImagePart,
    Opaque,
    Part,
    Prompt,
    ResultTurn,
    SystemTurn,
    TextPart,
)
from ...prompt.openai_shape import openai_tool
from .. import ChatRequest
from ..params import ONLY_OPENAIS, checked_prompt, message_rules, part_rules
from ..parts import (
    arguments_object,
    assistant_text,
    called_names,
    calls_of,
    inline_data,
    pictures_after_results,
    plain_text,
    refuse_part,
    schema_of,
    speaker_first,
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
    prompt = checked_prompt(request, PARAMS, UNKNOWN_PARAM, MESSAGE_RULES)
    usual = {"keep_alive": keep_alive, "think": think}
    own = request.own.fields() if isinstance(request.own, OwnOllama) else {}
    schema = schema_of(prompt.format, _WHO)
    return (
        {name: value for name, value in usual.items() if value is not None}
        | ({} if prompt.effort is None else {"think": _EFFORTS.get(prompt.effort, prompt.effort)})
        | passed_on(prompt.extra, PARAMS, UNKNOWN_PARAM)
        | own
        | ({} if schema is None else {"format": schema or "json"})
        | _options(prompt.extra, own)
        | _tools(prompt)
        | {"model": request.model, "messages": _messages(prompt.turns), "stream": True}
    )


def _options(params: Mapping[str, Any], sent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options: those of the parameters, and over them those that a client of Ollama's API has sent."""
    options: dict[str, Any] = {}
    match params:
        case {"options": dict(own_options)}:
            options |= own_options
    for name, own in _OPTIONS.items():
        if name in params:
            value = params[name]
            options[own] = [value] if own == "stop" and isinstance(value, str) else value
    match sent:
        case {"options": dict(own_options)}:
            options |= own_options
    return {"options": options} if options else {}


def _tools(prompt: Prompt) -> dict[str, Any]:
    """Return the tools. Ollama has no tool choice: for `none` no tools are sent, and a forced call is refused."""
    if prompt.choice not in (None, "auto", "none"):
        raise Unsupported("tool_choice is not supported here. Ollama lets the model choose.", "tool_choice")
    if any(isinstance(tool, Opaque) for tool in prompt.tools):
        raise Unsupported("Ollama's models take functions alone.", "tools")
    return {"tools": [*map(openai_tool, prompt.tools)]} if prompt.tools and prompt.choice != "none" else {}


# messages


def _messages(turns: Sequence[AnyTurn]) -> list[dict[str, Any]]:
    names = called_names(turns)
    return [_message(turn, names) for turn in pictures_after_results(turns)]


def _message(turn: AnyTurn, names: Mapping[str, str]) -> dict[str, Any]:
    match turn:
        case SystemTurn():
            return {"role": "system", "content": plain_text(turn.content, _WHO)}
        case ResultTurn():
            name = names.get(turn.call_id)
            return {"role": "tool", "content": plain_text(turn.content, _WHO)} | ({"tool_name": name} if name else {})
        case AssistantTurn():
            calls = [_call(call) for call in calls_of(turn)]
            fields = {"role": "assistant", "content": assistant_text(turn, _WHO)}
            return fields | ({"tool_calls": calls} if calls else {})
    parts = speaker_first(turn)
    texts = tuple(part for part in parts if isinstance(part, TextPart))
    pictures = [_picture(part) for part in parts if not isinstance(part, TextPart)]
    return {"role": "user", "content": plain_text(texts, _WHO)} | ({"images": pictures} if pictures else {})


def _picture(part: Part) -> str:
    """Return an image in base64. Ollama accepts no other parts besides text."""
    if not isinstance(part, ImagePart):
        refuse_part(part, _WHO)
    data = inline_data(part.url)
    if data is None:
        raise Unsupported("Ollama fetches no pictures. Send them as data: URLs in base64.", "messages")
    return data.data


def _call(call: Call) -> dict[str, Any]:
    return {"function": {"name": call.name, "arguments": arguments_object(call.arguments)}}
