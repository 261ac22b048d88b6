"""A prompt in OpenAI's shape: as it is stored, and as it is sent to upstreams of OpenAI's dialect.

Reading is total and loses nothing: `openai_messages` and `openai_params` return what `prompt_of` has read. Only this
module knows the fields that are added to OpenAI's messages (`OURS`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from . import (
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
    UserTurn,
    text_in,
)

_Fields: TypeAlias = dict[str, Any]

OUR_OWN = ("thoughts", "reasoned", "placed")
"""Fields that are added to OpenAI's messages here."""
OURS = frozenset({*OUR_OWN, "cache_control"})
"""Fields of a message that are not OpenAI's: `cache_control` is Anthropic's."""
PLACED = {"placed": True}
"""The field of a system message that stays where it is."""


# From OpenAI's shape.


def prompt_of(messages: Sequence[Mapping[str, Any]], params: Mapping[str, Any]) -> Prompt:
    """Read a prompt. A parameter that is null was not sent. One that is not valid is in `extra`."""
    rest = {name: value for name, value in params.items() if value is not None}
    effort = rest.pop("reasoning_effort") if _is(rest, "reasoning_effort", str) else None
    tools = rest.pop("tools") if _is(rest, "tools", list) else ()
    return Prompt(
        tuple(turns_of(messages)),
        tuple(map(_tool, tools)),
        _choice(rest.pop("tool_choice", None)),
        _format(rest.pop("response_format", None)),
        effort,
        rest,
    )


def turns_of(messages: Iterable[Mapping[str, Any]]) -> Iterator[AnyTurn]:
    """Read messages. One without a known role is a user's."""
    return map(_turn, messages)


def _turn(message: Mapping[str, Any]) -> AnyTurn:
    fields = dict(message)
    content = _content(fields.pop("content", None))
    match fields:
        case {"role": "system" | "developer" as role}:
            del fields["role"]
            placed = fields.pop("placed") if _has(fields, "placed", bool) else False
            return SystemTurn(content, role, placed, fields)
        case {"role": "assistant"}:
            del fields["role"]
            calls = fields.pop("tool_calls") if _has(fields, "tool_calls", list) else ()
            refusal = fields.pop("refusal") if _has(fields, "refusal", str) else ""
            thoughts = fields.pop("thoughts") if _has(fields, "thoughts", list) else ()
            reasoned = fields.pop("reasoned") if _has(fields, "reasoned", str) else ""
            return AssistantTurn(content, tuple(map(_call, calls)), refusal, tuple(thoughts), reasoned, fields)
        case {"role": "tool"}:
            del fields["role"]
            return ResultTurn(fields.pop("tool_call_id") if _has(fields, "tool_call_id", str) else "", content, fields)
        case {"role": "user"}:
            del fields["role"]
    return UserTurn(content, fields.pop("name") if _has(fields, "name", str) else "", fields)


def _is(fields: _Fields, name: str, kind: type) -> bool:
    """Return whether a field has a value of that type."""
    return isinstance(fields.get(name), kind)


def _has(fields: _Fields, name: str, kind: type) -> bool:
    """Return whether a field has a value of that type that is not empty."""
    return _is(fields, name, kind) and bool(fields[name])


def _content(content: Any) -> Content:
    if content is None or isinstance(content, str):
        return content
    return tuple(map(_part, content)) if isinstance(content, list) else Opaque(content)


def _part(part: Any) -> Part:
    fields = _but(part, "type")
    match part:
        case {"type": "text", "text": str(text)}:
            return TextPart(text, "text", _but(fields, "text"))
        case {"type": "refusal", "refusal": str(text)}:
            return TextPart(text, "refusal", _but(fields, "refusal"))
        case {"type": "image_url", "image_url": {"url": str(url)} as image}:
            return ImagePart(url, _but(image, "url"), _but(fields, "image_url"))
        case {"type": "image_url", "image_url": str(url)}:
            return ImagePart(url, None, _but(fields, "image_url"))
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(form)} as audio}:
            return AudioPart(data, form, _but(audio, "data", "format"), _but(fields, "input_audio"))
        case {"type": "file", "file": {"file_data": str(data)} as file} if data:
            return FilePart(data, _but(file, "file_data"), _but(fields, "file"))
        case {"type": "file", "file": dict(file)}:
            return FilePart("", file, _but(fields, "file"))
    return Opaque(part)


def _but(fields: Any, *names: str) -> _Fields:
    """Return the other fields of an object."""
    return {name: value for name, value in fields.items() if name not in names} if isinstance(fields, dict) else {}


def _call(call: Any) -> Call | Opaque:
    match call:
        case {"type": "custom", "id": str(id), "custom": {"name": str(name), "input": str(text)}}:
            extra = _but(call, "type", "id", "custom")
            return Call(id, name, text, "custom", extra) if len(call["custom"]) == 2 else Opaque(call)
        case {"function": {"name": str(name)} as function} if _is_function(call):
            extra, given = _but(call, "type", "function"), _but(function, "name")
            id = extra.pop("id") if _has(extra, "id", str) else ""
            arguments = given.pop("arguments", None)
            if not given:
                return Call(id, name, arguments, "function", extra)
    return Opaque(call)


def _tool(tool: Any) -> AnyTool:
    match tool:
        case {"function": dict(function)} if _is_function(tool):
            more = dict(function)
            name = more.pop("name") if _has(more, "name", str) else ""
            description = more.pop("description") if _has(more, "description", str) else ""
            parameters = more.pop("parameters") if _has(more, "parameters", dict) else {}
            strict = more.pop("strict") if _has(more, "strict", bool) else False
            return ToolSpec(name, description, parameters, strict, more, _but(tool, "type", "function"))
    return Opaque(tool)


def _is_function(value: Mapping[str, Any]) -> bool:
    """Return whether a call or a tool is a function, as one without a type is."""
    return "type" not in value or value["type"] == "function"


_A_FUNCTION: tuple[_Fields, ...] = ({}, {"type": "function"})


def _choice(choice: Any) -> ToolChoice:
    match choice:
        case None | "auto" | "none" | "required":
            return choice
        case {"function": {"name": str(name)} as called} if (
            len(called) == 1 and _but(choice, "function") in _A_FUNCTION
        ):
            return ChosenTool(name)
    return Opaque(choice)


def _format(form: Any) -> Format | Opaque | None:
    match form:
        case None:
            return None
        case {"type": "text" | "json_object" as kind} if len(form) == 1:
            return Format(kind)
        case {"type": "json_schema", "json_schema": {"schema": dict()} as described} if len(form) == 2:
            return Format("json_schema", described)
    return Opaque(form)


# To OpenAI's shape.


def openai_params(prompt: Prompt) -> _Fields:
    """Return the parameters of a prompt."""
    effort = {"reasoning_effort": prompt.effort} if prompt.effort is not None else {}
    tools = {"tools": [openai_tool(tool) for tool in prompt.tools]} if prompt.tools else {}
    choice, form = _openai_choice(prompt.choice), _openai_format(prompt.format)
    return (
        prompt.extra
        | effort
        | tools
        | ({} if choice is None else {"tool_choice": choice})
        | ({} if form is None else {"response_format": form})
    )


def role_of(turn: AnyTurn) -> str:
    """Return the role of a turn's message."""
    match turn:
        case SystemTurn(role=role):
            return role
        case ResultTurn():
            return "tool"
    return str(turn.extra.get("role", "user")) if isinstance(turn, UserTurn) else "assistant"


def newest_question(messages: Iterable[Mapping[str, Any]]) -> str:
    """Return the text of the newest message of the user."""
    questions = [turn for turn in turns_of(messages) if isinstance(turn, UserTurn) and role_of(turn) == "user"]
    return text_in(questions[-1].content) if questions else ""


def openai_messages(turns: Iterable[AnyTurn]) -> list[_Fields]:
    """Return the messages of turns."""
    return [openai_message(turn) for turn in turns]


def openai_message(turn: AnyTurn) -> _Fields:
    """Return a turn as a message."""
    content = openai_content(turn.content)
    match turn:
        case SystemTurn():
            return {"role": turn.role, "content": content, **(PLACED if turn.placed else {}), **turn.extra}
        case ResultTurn():
            named = {"tool_call_id": turn.call_id} if turn.call_id else {}
            return {"role": "tool", **named, "content": content, **turn.extra}
        case UserTurn():
            named = {"name": turn.name} if turn.name else {}
            return {"role": "user", "content": content, **named, **turn.extra}
    refusal = {"refusal": turn.refusal} if turn.refusal else {}
    calls = {"tool_calls": [_openai_call(call) for call in turn.calls]} if turn.calls else {}
    thoughts = openai_thoughts(turn.thoughts, turn.reasoned)
    return {"role": "assistant", "content": content, **refusal, **thoughts, **calls, **turn.extra}


def openai_thoughts(thoughts: Sequence[_Fields], reasoned: str = "") -> _Fields:
    """Return the fields of an assistant's message with the reasoning before its calls."""
    return ({"thoughts": list(thoughts)} if thoughts else {}) | ({"reasoned": reasoned} if reasoned else {})


def openai_content(content: Content) -> Any:
    """Return the content of a message."""
    if isinstance(content, tuple):
        return [openai_part(part) for part in content]
    return content.data if isinstance(content, Opaque) else content


def openai_part(part: Part) -> Any:
    """Return a part of a message's content."""
    if isinstance(part, Opaque):
        return part.data
    value: Any
    match part:
        case TextPart():
            value = part.text
        case ImagePart():
            value = part.url if part.more is None else {"url": part.url, **part.more}
        case AudioPart():
            value = {"data": part.data, "format": part.format, **part.more}
        case _:
            value = openai_file(part)
    return {"type": part.kind, part.kind: value, **part.extra}


def openai_file(part: FilePart) -> _Fields:
    """Return the fields of a file."""
    return ({"file_data": part.data} if part.data else {}) | part.more


def _openai_call(call: Call | Opaque) -> Any:
    if isinstance(call, Opaque):
        return call.data
    if call.kind == "custom":
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}, **call.extra}
    given = {} if call.arguments is None else {"arguments": call.arguments}
    named = {"id": call.id} if call.id else {}
    return {**named, "type": "function", "function": {"name": call.name, **given}, **call.extra}


def openai_tool(tool: AnyTool) -> Any:
    """Return a tool."""
    if isinstance(tool, Opaque):
        return tool.data
    return {"type": "function", "function": openai_function(tool), **tool.extra}


def openai_function(tool: ToolSpec) -> _Fields:
    """Return the function of a tool, without empty fields."""
    fields = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": tool.strict,
    }
    return {name: value for name, value in fields.items() if value} | tool.more


def _openai_choice(choice: ToolChoice) -> Any:
    if isinstance(choice, ChosenTool):
        return {"type": "function", "function": {"name": choice.name}}
    return choice.data if isinstance(choice, Opaque) else choice


def _openai_format(form: Format | Opaque | None) -> Any:
    if not isinstance(form, Format):
        return form.data if form is not None else None
    return {"type": form.kind} | ({"json_schema": form.described} if form.kind == "json_schema" else {})
