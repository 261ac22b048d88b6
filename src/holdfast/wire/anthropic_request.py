"""A request to Anthropic's Messages API, put into the words that every provider takes: OpenAI's.

Pure. `native` says that the upstream speaks Anthropic's dialect itself: then marks for its cache, its thinking budget
and tools that it runs itself are passed on, and are left out or refused for every other. Thinking that a client sends
back is left out always: no signature goes with ours, and a model is not shown what it thought.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from ..errors import BadRequest

Block = dict[str, Any]
Content = str | list[Block]


class MessageParam(msgspec.Struct, frozen=True):
    """One message of a conversation."""

    role: Literal["user", "assistant", "system"]
    content: Content


class CountBody(msgspec.Struct, frozen=True):
    """What is to be counted."""

    messages: list[MessageParam]
    model: str = ""
    system: Content | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None


class MessagesBody(CountBody, frozen=True):
    """A request, as far as it is checked here. `session_id` and `background` are ours."""

    max_tokens: int | None = None
    stream: bool | None = False
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    metadata: dict[str, Any] | None = None
    service_tier: str | None = None
    session_id: str | None = None
    background: bool = False
    if_busy: Literal["reject", "queue", "interrupt"] = "reject"


_TOOL_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_LEFT_OUT = ("thinking", "redacted_thinking")
_PASSED_ON = ("document", "search_result")


def to_chat(body: MessagesBody, *, native: bool) -> dict[str, Any]:
    """Return the request as OpenAI would have it."""
    if body.max_tokens is not None and body.max_tokens < 1:
        raise BadRequest("max_tokens is at least 1.", param="max_tokens")
    chat: dict[str, Any] = {
        "model": body.model,
        "messages": messages_of(body, native=native),
        "session_id": body.session_id,
        "background": body.background,
        "if_busy": body.if_busy,
    }
    return chat | _params(body, native) | _tools(body, native)


def _params(body: MessagesBody, native: bool) -> dict[str, Any]:
    user = (body.metadata or {}).get("user_id")
    params = {
        "max_tokens": body.max_tokens,
        "stop": body.stop_sequences or None,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "user": user if isinstance(user, str) else None,
        "top_k": body.top_k if native else None,
        "thinking": body.thinking if native else None,
        "service_tier": body.service_tier if native else None,
    }
    return {name: value for name, value in params.items() if value is not None}


# Tools.


def _tools(body: MessagesBody, native: bool) -> dict[str, Any]:
    if not body.tools:
        return {}
    tools = [_tool(tool, place, native) for place, tool in enumerate(body.tools)]
    choice = body.tool_choice or {}
    said: dict[str, Any] = {"tools": tools}
    if choice:
        said["tool_choice"] = _tool_choice(choice)
    if choice.get("disable_parallel_tool_use") is True:
        said["parallel_tool_calls"] = False
    return said


def _tool(tool: Block, place: int, native: bool) -> Block:
    name, schema = tool.get("name"), tool.get("input_schema")
    if isinstance(name, str) and isinstance(schema, dict):
        described = {"description": tool["description"]} if isinstance(tool.get("description"), str) else {}
        return {"type": "function", "function": {"name": name, **described, "parameters": schema}}
    if native and isinstance(tool.get("type"), str):
        return tool
    raise BadRequest(
        "A tool has a name and an input_schema. Tools that Anthropic runs itself need one of its own models.",
        param=f"tools[{place}]",
    )


def _tool_choice(choice: Block) -> Any:
    kind = choice.get("type")
    if kind == "tool" and isinstance(choice.get("name"), str):
        return {"type": "function", "function": {"name": choice["name"]}}
    if not isinstance(kind, str) or kind not in _TOOL_CHOICES:
        raise BadRequest("tool_choice.type is auto, any, none, or tool with a name.", param="tool_choice")
    return _TOOL_CHOICES[kind]


# Messages.


def messages_of(body: CountBody, *, native: bool) -> list[dict[str, Any]]:
    """Return the system's words and the turns."""
    said: list[dict[str, Any]] = []
    if body.system:
        said.append({"role": "system", "content": _content(_blocks(body.system), "system", native)})
    for place, message in enumerate(body.messages):
        said += _turn(message, f"messages[{place}].content", native)
    return said


def _blocks(content: Content) -> list[Block]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _turn(message: MessageParam, where: str, native: bool) -> list[dict[str, Any]]:
    blocks = [block for block in _blocks(message.content) if block.get("type") not in _LEFT_OUT]
    if message.role == "assistant":
        return [_assistant(blocks, where)] if blocks else []
    results = [_result(block, where, native) for block in blocks if block.get("type") == "tool_result"]
    rest = [block for block in blocks if block.get("type") != "tool_result"]
    if message.role == "system":
        return [{"role": "system", "content": _content(rest, where, native)}]
    return [*results, {"role": "user", "content": _content(rest, where, native)}] if rest or not results else results


def _assistant(blocks: Sequence[Block], where: str) -> dict[str, Any]:
    texts = [_text(block, where) for block in blocks if block.get("type") == "text"]
    calls = [_call(block, where) for block in blocks if block.get("type") == "tool_use"]
    if others := [block.get("type") for block in blocks if block.get("type") not in ("text", "tool_use")]:
        raise BadRequest(f"An assistant's message takes no block of type {others[0]!r} here.", param=where)
    said: dict[str, Any] = {"role": "assistant", "content": "".join(texts) or (None if calls else "")}
    return said | ({"tool_calls": calls} if calls else {})


def _call(block: Block, where: str) -> dict[str, Any]:
    id, name, given = block.get("id"), block.get("name"), block.get("input", {})
    if not isinstance(id, str) or not isinstance(name, str):
        raise BadRequest("A tool_use block has an id and a name.", param=where)
    return {
        "id": id,
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(given, ensure_ascii=False, separators=(",", ":"))},
    }


def _result(block: Block, where: str, native: bool) -> dict[str, Any]:
    """Return a tool's result. That it failed is said in words: OpenAI has no field for it."""
    id, content = block.get("tool_use_id"), block.get("content") or ""
    if not isinstance(id, str) or not isinstance(content, (str, list)):
        raise BadRequest("A tool_result block has a tool_use_id, and text or blocks as content.", param=where)
    said = _content(_checked(_blocks(content), where), where, native)
    if block.get("is_error") is True:
        said = f"Error: {said}" if isinstance(said, str) else [{"type": "text", "text": "Error:"}, *said]
    return {"role": "tool", "tool_call_id": id, "content": said}


def _checked(blocks: list[Any], where: str) -> list[Block]:
    if not all(isinstance(block, dict) for block in blocks):
        raise BadRequest("A block is an object with a type.", param=where)
    return blocks


def _content(blocks: Iterable[Block], where: str, native: bool) -> Content:
    """Return blocks as OpenAI's parts; as a string where that says all."""
    parts = [_part(block, where, native) for block in blocks]
    if all(part.keys() == {"type", "text"} for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def _part(block: Block, where: str, native: bool) -> Block:
    kind = block.get("type")
    if kind == "text":
        cached = {"cache_control": block["cache_control"]} if native and block.get("cache_control") else {}
        return {"type": "text", "text": _text(block, where), **cached}
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": _image(block, where)}}
    if kind in _PASSED_ON:
        return _document(block, where, native)
    raise BadRequest(f"A block of type {kind!r} cannot be sent here.", param=where)


def _text(block: Block, where: str) -> str:
    text = block.get("text")
    if not isinstance(text, str):
        raise BadRequest("A text block has a text.", param=where)
    return text


def _image(block: Block, where: str) -> str:
    match block.get("source"):
        case {"type": "base64", "media_type": str(kind), "data": str(data)}:
            return f"data:{kind};base64,{data}"
        case {"type": "url", "url": str(url)}:
            return url
    raise BadRequest("An image's source is base64 with a media_type, or a url.", param=where)


def _document(block: Block, where: str, native: bool) -> Block:
    """Return a document: as text where it is text, as it is to Anthropic's own models, and else not at all."""
    match block.get("source"):
        case {"type": "text", "data": str(text)}:
            return {"type": "text", "text": text}
    if native:
        return block
    raise BadRequest("Documents other than text need one of Anthropic's own models.", param=where)


def estimated_tokens(chat: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None) -> int:
    """Return about how many tokens a request has: four characters to each, as wherever nobody has counted."""
    characters = sum(len(json.dumps(said, ensure_ascii=False)) for said in [*chat, *(tools or ())])
    return -(-characters // 4)
