"""Renders a prompt for OpenAI's Responses API.

Pure. `PARAMS` has a rule for each parameter. An unknown one is passed on: it may be one of Responses' own, and OpenAI
refuses parameters that it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...asks.own import OwnResponse
from ...errors import Unsupported
from ...fields import PASSED_ON, USED, Table, harmless, passed_on, refused
from ...prompt import (
    AnyTool,
    AnyTurn,
    AssistantTurn,
    AudioPart,
    Call,
    ChosenTool,
    Content,
    FilePart,
    Format,
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
from ...prompt.openai_shape import openai_file, openai_function, openai_part
from .. import ChatRequest
from ..params import WITH_PICTURES, checked_prompt, message_rules, part_rules, wants_pictures
from ..parts import content_parts, speaker_first, thoughts_of

__all__ = ["DIALECT", "ENCRYPTED", "MESSAGE_RULES", "PARAMS", "body_in", "wants_encrypted"]

_Item = dict[str, Any]

ENCRYPTED = "reasoning.encrypted_content"
DIALECT = "openai-responses"
"""The name of this dialect in the settings."""

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
    "prediction": harmless("It only makes a response quicker."),
    "seed": harmless("OpenAI promises best effort only."),
    "stream_options": harmless("The answer is always streamed with its usage."),
    # not supported by Responses, or not passed on
    "audio": refused("Only text can be passed on."),
    "modalities": WITH_PICTURES,
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
    return request.has_tools or ENCRYPTED in _list(_params_of(request, request.params).include)


def body_in(request: ChatRequest, *, background: bool, encrypted: bool, summary: str | None) -> dict[str, Any]:
    """Return the body of a request.

    With `background`, OpenAI finishes the answer without a reader, and has to store it. Otherwise it stores the answer
    only if the caller asks for that. `encrypted` asks for reasoning that can be sent back.
    """
    prompt = checked_prompt(request, PARAMS, PASSED_ON, MESSAGE_RULES)
    params = _params_of(request, prompt.extra)
    limit = params.max_tokens if params.max_completion_tokens is None else params.max_completion_tokens
    include = [each for each in _list(params.include) if each != ENCRYPTED]
    include += [ENCRYPTED] if encrypted else []
    return (
        passed_on(prompt.extra, PARAMS, PASSED_ON)
        | ({} if limit is None else {"max_output_tokens": limit})
        | ({"include": list(dict.fromkeys(include))} if include else {})
        | _reasoning(prompt.effort, params.reasoning, summary)
        | _text(prompt.format, params)
        | _tools(prompt)
        | {"model": request.model, "input": _input(prompt.turns), "stream": True}
        | ({"background": True, "store": True} if background else {"store": bool(params.store)})
    )


# parameters


class _Params(msgspec.Struct, frozen=True):
    """The parameters that are rendered here. A wrong value is OpenAI's to refuse."""

    max_tokens: Any = None
    max_completion_tokens: Any = None
    include: Any = None
    reasoning: Any = None
    store: Any = None
    text: Any = None
    verbosity: Any = None


def _params_of(request: ChatRequest, params: Mapping[str, Any]) -> _Params:
    """Return the parameters, and over them what a client of this API has sent itself."""
    own = request.own.fields() if isinstance(request.own, OwnResponse) else {}
    return msgspec.convert({**params, **own}, _Params)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _reasoning(effort: str | None, own: Any, summary: str | None) -> dict[str, Any]:
    usual = {"effort": effort, "summary": summary}
    fields = {name: value for name, value in usual.items() if value} | (own if isinstance(own, dict) else {})
    return {"reasoning": fields} if fields else {}


def _text(form: Format | Opaque | None, params: _Params) -> dict[str, Any]:
    """Return the format of the answer, which is one level less nested here, and its verbosity."""
    fields: dict[str, Any] = dict(params.text) if isinstance(params.text, dict) else {}
    if form is not None:
        fields["format"] = {"type": form.kind, **form.described} if isinstance(form, Format) else form.data
    if params.verbosity:
        fields["verbosity"] = params.verbosity
    return {"text": fields} if fields else {}


def _tools(prompt: Prompt) -> dict[str, Any]:
    tools = [_tool(tool) for tool in prompt.tools] + [{"type": "image_generation"}] * wants_pictures(prompt.extra)
    choice = {} if prompt.choice is None else {"tool_choice": _choice(prompt.choice)}
    return ({"tools": tools} if tools else {}) | choice


def _tool(tool: AnyTool) -> Any:
    """Return a tool, which is one level less nested here. `strict` is always sent: here its default is true."""
    match tool:
        case ToolSpec():
            return {"type": "function", "parameters": None, "strict": False, **openai_function(tool)}
        case Opaque({"type": "custom", "custom": dict(custom)}):
            return {"type": "custom", **custom, **_flat_grammar(custom)}
    return tool.data  # one of OpenAI's own, or invalid: then OpenAI returns the error


def _flat_grammar(custom: Mapping[str, Any]) -> _Item:
    match custom:
        case {"format": {"grammar": dict(grammar)}}:
            return {"format": {"type": "grammar", **grammar}}
    return {}


def _choice(choice: ToolChoice) -> Any:
    match choice:
        case ChosenTool(name):
            return {"type": "function", "name": name}
        case Opaque(own):
            return _flat(own)
    return choice


def _flat(choice: Any) -> Any:
    match choice:
        case {"type": ("function" | "custom" | "allowed_tools") as kind} if isinstance(choice.get(kind), dict):
            inner = choice[kind]
            if kind == "allowed_tools":
                inner = {"tools": [], **inner}
                inner |= {"tools": [_flat(tool) for tool in _list(inner["tools"])]}
            return {"type": kind, **inner}
    return choice


# messages


def _input(turns: Sequence[AnyTurn]) -> list[_Item]:
    answers = [turn for turn in turns if isinstance(turn, AssistantTurn)]
    calls = [call for turn in answers for call in turn.calls if isinstance(call, Call)]
    customs = {call.id for call in calls if call.kind == "custom"}
    return [item for turn in turns for item in _items(turn, customs)]


def _items(turn: AnyTurn, customs: set[str]) -> list[_Item]:
    """Return the items of a turn: its reasoning, its content, and its calls."""
    match turn:
        case AssistantTurn():
            thoughts = thoughts_of(turn, "reasoning")
            refusal = (TextPart(turn.refusal, "refusal"),) if turn.refusal else ()
            said = [*_message("assistant", turn.content), *_message("assistant", refusal)]
            return [*thoughts, *said, *map(_call, turn.calls)]
        case ResultTurn():
            kind = "custom_tool_call_output" if turn.call_id in customs else "function_call_output"
            output = turn.content if isinstance(turn.content, str) else _parts(turn.content, "input_text")
            return [{"type": kind, "call_id": turn.call_id, "output": output}]
        case SystemTurn():
            return _message(turn.role, turn.content)
    return _message("user", speaker_first(turn) if turn.name else turn.content)


def _message(role: str, content: Content) -> list[_Item]:
    """Return a message item; none for an assistant without content, whose calls are items of their own."""
    if isinstance(content, str):
        return [{"role": role, "content": content}] if content or role != "assistant" else []
    parts = _parts(content, "output_text" if role == "assistant" else "input_text")
    return [{"role": role, "content": parts}] if parts else []


def _parts(content: Content, text: str) -> list[_Item]:
    return [_part(part, text) for part in content_parts(content)]


def _part(part: Part, text: str) -> _Item:
    match part:
        case TextPart():
            return (
                {"type": "refusal", "refusal": part.text}
                if part.kind == "refusal"
                else {"type": text, "text": part.text}
            )
        case ImagePart():
            image = {"type": "input_image", "image_url": part.url}
            match part.more:
                case {"detail": detail} if detail:
                    return {**image, "detail": detail}
            return image
        case FilePart():
            return {"type": "input_file", **openai_file(part)}
        case AudioPart():
            return dict(openai_part(part))
    raise Unsupported(f"Responses takes no part of the type {part.kind!r}.", "messages")


def _call(call: Call | Opaque) -> _Item:
    if isinstance(call, Opaque):
        raise Unsupported("A tool call must be a call of a function or a custom tool.", "messages")
    if call.kind == "custom":
        return {"type": "custom_tool_call", "call_id": call.id, "name": call.name, "input": call.arguments}
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments or "{}"}
