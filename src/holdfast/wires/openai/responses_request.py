"""Requests to the Responses API, translated to chat completions: items as messages, flat tools as nested."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ...errors import BadRequest
from ...events import ToolCall
from ...fields import PASSED_ON, check_fields, passed_on
from ...history import Message, Role
from .fields import RESPONSES, RUN_BY_OPENAI

Item = dict[str, Any]

ROLES: tuple[Role, ...] = ("user", "assistant", "system", "developer")


def unsupported(what: str, param: str, instead: str = "") -> BadRequest:
    """Return the refusal of a feature that we do not have."""
    return BadRequest(f"{what} is not supported.{f' {instead}' if instead else ''}", param=param, code="unsupported")


# Items.


def items_of(input: str | Sequence[Any] | None, *, follows: bool = False, param: str = "input") -> list[Item]:
    """Return the input as checked items; a string is the user's message.

    It may be missing if the response follows another.
    """
    if input is None and follows:
        return []
    if input is None:
        raise BadRequest("input is missing.", param="input")
    if isinstance(input, str):
        input = [{"role": "user", "content": input}]
    items = [_checked(item, f"{param}[{place}]") for place, item in enumerate(input)]
    if not items:
        raise BadRequest("input is empty.", param=param)
    messages = messages_of(items, param)  # raises for items that a model cannot get
    if param == "input" and messages and messages[-1].role == "user" and not _has_content(messages[-1].content):
        raise BadRequest("The last message is empty.", param="input")
    return items


def _has_content(content: str | list[Any] | None) -> bool:
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
    for name in ("arguments", "input"):
        if not isinstance(item.get(name, ""), str | None):
            raise BadRequest(f"The {name} of a call are text.", param=f"{param}.{name}")
    return {**item, "type": kind}


_FIELDS: Mapping[str, tuple[str, ...]] = {
    "function_call": ("call_id", "name"),
    "function_call_output": ("call_id",),
    "custom_tool_call": ("call_id", "name"),
    "custom_tool_call_output": ("call_id",),
    "reasoning": (),
    "item_reference": ("id",),
    "compaction": ("encrypted_content",),
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
    """Return the items with their ids, for lists."""
    return [
        {**item, "id": item.get("id") or f"{_PREFIXES.get(item['type'], 'item')}_{suffix}_in{place}"}
        for place, item in enumerate(items)
    ]


_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
    "compaction": "cmp",
}


# Messages.


def messages_of(items: Iterable[Item], param: str = "input") -> list[Message]:
    """Return items as messages for the model.

    Reasoning is left out, and so are calls with the status `incomplete`. Clients send back `null` and `in_progress` for
    complete calls. Calls join the assistant message right before them, as in chats.
    """
    messages: list[Message] = []
    for place, item in enumerate(items):
        kind, at = item["type"], f"{param}[{place}]"
        if kind == "message":
            messages.append(Message(id="", role=item["role"], content=_content(item, at)))
        elif kind in ("function_call", "custom_tool_call"):
            if item.get("status") != "incomplete":
                _add_call(messages, item)
        elif kind in ("function_call_output", "custom_tool_call_output"):
            output = _output(item.get("output"), f"{at}.output")
            messages.append(Message(id="", role="tool", content=output, tool_call_id=item["call_id"]))
        elif kind == "compaction":
            summary = _summary(item["encrypted_content"], f"{at}.encrypted_content")
            messages.append(Message(id="", role="user", content=f"{_SO_FAR}\n\n{summary}"))
    return messages


# Compaction.

COMPACT = (
    "Summarise the conversation so far for a model that goes on with it and sees nothing else of it: what the user "
    "wants, what was decided and done, the facts, names, numbers and code that are still needed, and what is left to "
    "do. Answer with the summary alone."
)
"""The prompt for a summary of a conversation."""
_SO_FAR = "Summary of the conversation so far:"
_OURS = "hf1."


def compaction_item(summary: str, suffix: str) -> Item:
    """Return a summary as the item that clients send back in place of the conversation."""
    sealed = _OURS + b64encode(summary.encode("utf-8", "replace")).decode()
    return {"id": f"cmp_{suffix}", "type": "compaction", "encrypted_content": sealed}


def _summary(sealed: str, param: str) -> str:
    try:
        if sealed.startswith(_OURS):
            return b64decode(sealed.removeprefix(_OURS), validate=True).decode()
    except ValueError:
        pass
    raise unsupported("A compaction that was not made by this server", param, "Send the conversation itself.")


def _add_call(messages: list[Message], item: Item) -> None:
    if item["type"] == "custom_tool_call":
        arguments = msgspec.json.encode({CUSTOM_INPUT: item.get("input") or ""}).decode()
    else:
        arguments = item.get("arguments") or "{}"
    call = ToolCall(item["call_id"], flat_name(item["name"], item.get("namespace")), arguments)
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
    filename = {"filename": part["filename"]} if part.get("filename") else {}
    return {"type": "file", "file": {"file_data": part["file_data"], **filename}}


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


def _output(output: Any, param: str) -> str | list[Any]:
    """Return the result of a tool: text, or parts if there is more than text."""
    if isinstance(output, list) and all(isinstance(part, dict) for part in output):
        parts = [_part(part, param) for part in output]
        if all(part["type"] == "text" for part in parts):
            return "\n".join(part["text"] for part in parts)
        return parts
    if not isinstance(output, str):
        raise BadRequest("The output of a tool call is text or a list of parts.", param=param)
    return output


# Parameters.


def params_of(body: Mapping[str, Any], limit: str = "max_tokens") -> dict[str, Any]:
    """Return the parameters of a chat for this request; `limit` is the upstream's name of the token limit."""
    check_fields(body, RESPONSES, PASSED_ON)
    params = passed_on(body, RESPONSES, PASSED_ON)
    if body.get("max_output_tokens") is not None:
        params[limit] = body["max_output_tokens"]
    return params | _thinking(body) | _format(body) | _logprobs(body) | _tools(body)


def own_fields_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that an upstream of this API gets as they were sent: nothing else has them."""
    reasoning = body.get("reasoning") or {}
    summary = {name: reasoning[name] for name in ("summary", "generate_summary") if reasoning.get(name)}
    include = {"include": body["include"]} if body.get("include") else {}
    return {"reasoning": summary, **include} if summary else include


def _thinking(body: Mapping[str, Any]) -> dict[str, Any]:
    effort = (body.get("reasoning") or {}).get("effort")
    return {"reasoning_effort": effort} if effort else {}


def _format(body: Mapping[str, Any]) -> dict[str, Any]:
    text = body.get("text") or {}
    params: dict[str, Any] = {"verbosity": text["verbosity"]} if text.get("verbosity") else {}
    form = text.get("format") or {}
    match form.get("type", "text"):
        case "text":
            pass
        case "json_object":
            params["response_format"] = {"type": "json_object"}
        case "json_schema":
            described = {name: value for name, value in form.items() if name != "type" and value is not None}
            params["response_format"] = {"type": "json_schema", "json_schema": described}
        case other:
            raise unsupported(f"A format of type {other!r}", "text.format.type")
    return params


def _logprobs(body: Mapping[str, Any]) -> dict[str, Any]:
    count = body.get("top_logprobs")
    if count is None and "message.output_text.logprobs" not in (body.get("include") or ()):
        return {}
    return {"logprobs": True} | ({} if count is None else {"top_logprobs": count})


def _tools(body: Mapping[str, Any]) -> dict[str, Any]:
    tools = [function for tool in known_tools(body.get("tools")) if (function := tool.chat) is not None]
    allowed, choice = _choice(body.get("tool_choice"))
    if not tools:
        return {}
    if allowed is not None:
        tools = [tool for tool in tools if tool["function"]["name"] in allowed]
    return {"tools": tools} | ({} if choice is None else {"tool_choice": choice})


class KnownTool(NamedTuple):
    """One tool of a request: its name for the client, and its declaration for the model."""

    kind: str
    """`function` or `custom`, or the type of a tool that OpenAI runs."""
    name: str
    namespace: str | None = None
    chat: dict[str, Any] | None = None
    """The function of a chat. None for a tool that OpenAI runs, which the model does not get."""


def known_tools(tools: Any, param: str = "tools", namespace: str | None = None) -> list[KnownTool]:
    """Return the tools of a request: namespaces are flattened, and a custom tool is a function with one string."""
    if not isinstance(tools or [], list):
        raise BadRequest("The tools are a list.", param=param)
    found: list[KnownTool] = []
    for place, tool in enumerate(tools or ()):
        where = f"{param}[{place}]"
        kind = tool.get("type") if isinstance(tool, dict) else None
        if not isinstance(kind, str):
            raise BadRequest("A tool is an object with a type.", param=f"{where}.type")
        if kind == "namespace" and namespace is None:
            found += known_tools(tool.get("tools"), f"{where}.tools", _name(tool, where))
        elif kind in ("function", "custom"):
            name = _name(tool, where)
            found.append(KnownTool(kind, name, namespace, _as_function(tool, flat_name(name, namespace))))
        elif kind in RUN_BY_OPENAI:
            found.append(KnownTool(kind, kind))
        else:
            raise unsupported(
                f"A tool of type {kind!r}", f"{where}.type", "Supported: tools of type function and custom."
            )
    return found


CUSTOM_INPUT = "input"
"""The one parameter of the function of a custom tool."""

_LONGEST_NAME = 64


def flat_name(name: str, namespace: Any) -> str:
    """Return the name of a tool of a namespace for the model."""
    if not isinstance(namespace, str | None):
        raise BadRequest("A namespace is text.", param="namespace")
    flat = f"{namespace}__{name}" if namespace else name
    if len(flat) <= _LONGEST_NAME or not namespace:
        return flat
    return f"{flat[: _LONGEST_NAME - 9]}_{sha256(flat.encode()).hexdigest()[:8]}"


def _name(tool: Mapping[str, Any], param: str) -> str:
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise BadRequest("A tool has a name.", param=f"{param}.name")
    return name


def _as_function(tool: Mapping[str, Any], name: str) -> dict[str, Any]:
    described = {field: value for field, value in tool.items() if field in _OF_A_TOOL and value is not None}
    if tool["type"] == "custom":
        described |= {"parameters": _custom_parameters(tool.get("format"))}
    return {"type": "function", "function": described | {"name": name}}


def _custom_parameters(form: Any) -> dict[str, Any]:
    """Return the parameters of a custom tool as a function. Its grammar is described, not enforced."""
    match form:
        case {"type": "grammar", "definition": str(grammar), **more}:
            text = {"description": f"Text of this {more.get('syntax', '')} grammar:\n{grammar}"}
        case _:
            text = {}
    return {"type": "object", "properties": {CUSTOM_INPUT: {"type": "string", **text}}, "required": [CUSTOM_INPUT]}


_OF_A_TOOL = ("name", "description", "parameters", "strict")


def _choice(choice: Any) -> tuple[set[str] | None, Any]:
    """Return the allowed tools, if not all are, and the tool choice of a chat."""
    match choice:
        case None | "auto" | "none" | "required":
            return None, choice
        case {"type": "function" | "custom", "name": str(name)}:
            return None, {"type": "function", "function": {"name": flat_name(name, choice.get("namespace"))}}
        case {"type": "allowed_tools", "tools": list(tools)}:
            names = {
                flat_name(str(tool.get("name")), tool.get("namespace")) for tool in tools if isinstance(tool, dict)
            }
            return names, choice.get("mode", "auto")
    raise unsupported(
        "This tool_choice", "tool_choice", "auto, none, required, a function, a custom tool and allowed_tools are."
    )
