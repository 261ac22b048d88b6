"""What a request for a response asks for, in the words that providers take: items as messages, flat tools as nested."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ..errors import BadRequest
from ..events import ToolCall
from ..history import Message, Role

Item = dict[str, Any]

ROLES: tuple[Role, ...] = ("user", "assistant", "system", "developer")
OURS = frozenset(
    {
        "background",
        "context_management",
        "conversation",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "model",
        "moderation",
        "previous_response_id",
        "prompt",
        "reasoning",
        "store",
        "stream",
        "stream_options",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "truncation",
    }
)
"""What of a request is read here; everything else has the same name and meaning in a chat, and is passed on."""
WITHOUT = ("conversation", "prompt", "context_management", "moderation", "session_id", "if_busy")
"""What OpenAI does on its own machines, and what only our other calls do: leaving it out would change the answer."""


def unsupported(what: str, param: str, instead: str = "") -> BadRequest:
    """Return the refusal of something that OpenAI has and we do not."""
    return BadRequest(f"{what} is not supported.{f' {instead}' if instead else ''}", param=param, code="unsupported")


# Items.


def items_of(input: str | Sequence[Any]) -> list[Item]:
    """Return the input as items, each of which has been looked at; a string is the user's message."""
    if isinstance(input, str):
        input = [{"role": "user", "content": input}]
    items = [_checked(item, f"input[{place}]") for place, item in enumerate(input)]
    if not items:
        raise BadRequest("input is empty.", param="input")
    messages = messages_of(items)  # whatever cannot be shown to a model is refused now
    if messages and messages[-1].role == "user" and not _says_something(messages[-1].content):
        raise BadRequest("The last message is empty.", param="input")
    return items


def _says_something(content: str | list[Any] | None) -> bool:
    parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    return any(part["type"] != "text" or part["text"].strip() for part in parts)


def _checked(item: Any, param: str) -> Item:
    if not isinstance(item, dict):
        raise BadRequest("An item of the input is an object.", param=param)
    if not isinstance(item.get("id", ""), str | None):
        raise BadRequest("The id of an item is text.", param=f"{param}.id")
    kind = item.get("type") or ("message" if "role" in item else "item_reference" if "id" in item else None)
    if kind == "message":
        return _checked_message(item, param)
    fields = _FIELDS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        raise unsupported(f"An item of type {kind!r}", f"{param}.type")
    for name in fields:
        if not isinstance(item.get(name), str) or not item[name]:
            raise BadRequest(f"An item of type {kind} needs a {name}, which is text.", param=f"{param}.{name}")
    if not isinstance(item.get("arguments", ""), str | None):
        raise BadRequest("The arguments of a call are JSON, as text.", param=f"{param}.arguments")
    return {**item, "type": kind}


_FIELDS: Mapping[str, tuple[str, ...]] = {
    "function_call": ("call_id", "name"),
    "function_call_output": ("call_id",),
    "reasoning": (),
    "item_reference": ("id",),
}


def _checked_message(item: Item, param: str) -> Item:
    if item.get("role") not in ROLES:
        raise BadRequest(f"role is one of {', '.join(ROLES)}.", param=f"{param}.role")
    content = item.get("content")
    if isinstance(content, str):
        kind = "output_text" if item["role"] == "assistant" else "input_text"
        content = [{"type": kind, "text": content}]
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise BadRequest("content is text or a list of parts.", param=f"{param}.content")
    return {**item, "type": "message", "content": content}


def listed(items: Sequence[Item], suffix: str) -> list[Item]:
    """Return the items as they are listed: each has an id."""
    return [
        {**item, "id": item.get("id") or f"{_PREFIXES.get(item['type'], 'item')}_{suffix}_in{place}"}
        for place, item in enumerate(items)
    ]


_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}


# Messages.


def messages_of(items: Iterable[Item]) -> list[Message]:
    """Return items as the messages that a model is shown.

    Reasoning is not shown again, and a call that was not finished is no call. Calls join what the assistant said
    right before them, as chats have it.
    """
    messages: list[Message] = []
    for place, item in enumerate(items):
        kind, param = item["type"], f"input[{place}]"
        if kind == "message":
            messages.append(Message(id="", role=item["role"], content=_content(item, param)))
        elif kind == "function_call":
            if item.get("status", "completed") == "completed":
                _add_call(messages, item)
        elif kind == "function_call_output":
            output = _output(item.get("output"), f"{param}.output")
            messages.append(Message(id="", role="tool", content=output, tool_call_id=item["call_id"]))
    return messages


def _add_call(messages: list[Message], item: Item) -> None:
    call = ToolCall(item["call_id"], item["name"], item.get("arguments") or "{}")
    if messages and messages[-1].role == "assistant":
        messages[-1] = replace(messages[-1], tool_calls=(*messages[-1].tool_calls, call))
    else:
        messages.append(Message(id="", role="assistant", content="", tool_calls=(call,)))


def _content(item: Item, param: str) -> str | list[Any]:
    parts = [_part(part, f"{param}.content[{place}]") for place, part in enumerate(item["content"])]
    if item["role"] == "assistant":
        return "".join(part.get("text", "") for part in parts)
    if len(parts) == 1 and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return parts


def _part(part: Item, param: str) -> Item:
    kind = part.get("type")
    convert = _PARTS.get(kind) if isinstance(kind, str) else None
    if convert is None:
        raise unsupported(f"A part of type {kind!r}", f"{param}.type")
    return convert(part, param)


def _text_part(part: Item, param: str) -> Item:
    text = part.get("refusal") if part["type"] == "refusal" else part.get("text")
    if not isinstance(text, str):
        raise BadRequest("A part of text has a text.", param=f"{param}.text")
    return {"type": "text", "text": text}


def _image_part(part: Item, param: str) -> Item:
    url = part.get("image_url")
    if not isinstance(url, str) or not url:
        raise unsupported("An image without an image_url", f"{param}.image_url", "Send a URL or a data: URL.")
    detail = {"detail": part["detail"]} if part.get("detail") else {}
    return {"type": "image_url", "image_url": {"url": url, **detail}}


def _file_part(part: Item, param: str) -> Item:
    if not isinstance(part.get("file_data"), str):
        raise unsupported("A file without its file_data", f"{param}.file_data", "Send the file itself.")
    named = {"filename": part["filename"]} if part.get("filename") else {}
    return {"type": "file", "file": {"file_data": part["file_data"], **named}}


def _audio_part(part: Item, param: str) -> Item:
    return {"type": "input_audio", "input_audio": part.get("input_audio")}


_PARTS: Mapping[str, Callable[[Item, str], Item]] = {
    "input_text": _text_part,
    "output_text": _text_part,
    "text": _text_part,
    "refusal": _text_part,
    "input_image": _image_part,
    "input_file": _file_part,
    "input_audio": _audio_part,
}


def _output(output: Any, param: str) -> str:
    """Return what a tool gave back, as text."""
    if isinstance(output, list):
        parts = [_part(part, param) if isinstance(part, dict) else {"type": "?"} for part in output]
        if all(part["type"] == "text" for part in parts):
            return "\n".join(part["text"] for part in parts)
        raise unsupported("The output of a tool that is not text", param)
    if not isinstance(output, str):
        raise BadRequest("The output of a function call is text.", param=param)
    return output


# What else is asked.


def params_of(body: Mapping[str, Any], limit: str = "max_tokens") -> dict[str, Any]:
    """Return what a chat's parameters would be for this request; `limit` is what the upstream calls that one."""
    for name in WITHOUT:
        if body.get(name):
            raise unsupported(name, name)
    if body.get("truncation") not in (None, "disabled"):
        raise unsupported("truncation other than disabled", "truncation")
    params = {name: value for name, value in body.items() if name not in OURS and value is not None}
    if body.get("max_output_tokens") is not None:
        params[limit] = body["max_output_tokens"]
    return params | _thinking(body) | _format(body) | _logprobs(body) | _tools(body)


def _thinking(body: Mapping[str, Any]) -> dict[str, Any]:
    effort = (body.get("reasoning") or {}).get("effort")
    return {"reasoning_effort": effort} if effort else {}


def _format(body: Mapping[str, Any]) -> dict[str, Any]:
    text = body.get("text") or {}
    asked: dict[str, Any] = {"verbosity": text["verbosity"]} if text.get("verbosity") else {}
    form = text.get("format") or {}
    match form.get("type", "text"):
        case "text":
            pass
        case "json_object":
            asked["response_format"] = {"type": "json_object"}
        case "json_schema":
            described = {name: value for name, value in form.items() if name != "type" and value is not None}
            asked["response_format"] = {"type": "json_schema", "json_schema": described}
        case other:
            raise unsupported(f"A format of type {other!r}", "text.format.type")
    return asked


def _logprobs(body: Mapping[str, Any]) -> dict[str, Any]:
    wanted = body.get("top_logprobs")
    if wanted is None and "message.output_text.logprobs" not in (body.get("include") or ()):
        return {}
    return {"logprobs": True} | ({} if wanted is None else {"top_logprobs": wanted})


def _tools(body: Mapping[str, Any]) -> dict[str, Any]:
    tools = [_tool(tool, f"tools[{place}]") for place, tool in enumerate(body.get("tools") or ())]
    if not tools:
        return {}
    allowed, choice = _choice(body.get("tool_choice"))
    if allowed is not None:
        tools = [tool for tool in tools if tool["function"]["name"] in allowed]
    return {"tools": tools} | ({} if choice is None else {"tool_choice": choice})


def _tool(tool: Any, param: str) -> dict[str, Any]:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        kind = tool.get("type") if isinstance(tool, dict) else tool
        raise unsupported(f"A tool of type {kind!r}", f"{param}.type", "Tools of type function are.")
    if not isinstance(tool.get("name"), str) or not tool["name"]:
        raise BadRequest("A function has a name.", param=f"{param}.name")
    described = {name: value for name, value in tool.items() if name in _OF_A_TOOL and value is not None}
    return {"type": "function", "function": described}


_OF_A_TOOL = ("name", "description", "parameters", "strict")


def _choice(choice: Any) -> tuple[set[str] | None, Any]:
    """Return the names of the tools that may be called, where not all may, and the choice as a chat has it."""
    match choice:
        case None | "auto" | "none" | "required":
            return None, choice
        case {"type": "function", "name": str(name)}:
            return None, {"type": "function", "function": {"name": name}}
        case {"type": "allowed_tools", "tools": list(tools)}:
            names = {str(tool.get("name")) for tool in tools if isinstance(tool, dict)}
            return names, choice.get("mode", "auto")
    raise unsupported("This tool_choice", "tool_choice", "auto, none, required, a function and allowed_tools are.")
