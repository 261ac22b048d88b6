"""Requests of AG-UI's clients, translated to OpenAI's chat completions."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..errors import BadRequest

_Part = dict[str, Any]


class AgUiMessage(msgspec.Struct, frozen=True, rename="camel"):
    """One message of the conversation, with the fields that are checked here."""

    role: Literal["developer", "system", "assistant", "user", "tool", "activity", "reasoning"]
    id: str = ""
    content: str | list[_Part] | _Part | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    error: str | None = None


class AgUiTool(msgspec.Struct, frozen=True):
    """A tool of the application: the model may call it, and the next request has the result."""

    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None


class AgUiContext(msgspec.Struct, frozen=True):
    """A piece of context of the application, for the model."""

    value: str
    description: str = ""


class RunAgentInput(msgspec.Struct, frozen=True, rename="camel"):
    """A request to run an agent."""

    thread_id: str
    run_id: str
    messages: list[AgUiMessage]
    tools: list[AgUiTool] | None = None
    context: list[AgUiContext] | None = None
    state: Any = None
    forwarded_props: Any = None
    protocol_version: str | None = None


class Props(msgspec.Struct, frozen=True):
    """The forwarded properties for us; others are ignored."""

    model: str = ""
    background: bool = False
    if_busy: Literal["reject", "queue", "interrupt"] = "reject"
    params: dict[str, Any] = {}


def agent_chat(request: RunAgentInput, props: Props) -> dict[str, Any]:
    """Return the request in OpenAI's shape. The thread is the session."""
    tools = [_tool(tool) for tool in request.tools or ()]
    return {
        **props.params,
        **({"tools": tools} if tools else {}),
        "messages": [
            *_context(request.context or []),
            *(chat for place, message in enumerate(request.messages) for chat in _as_chat(message, place)),
        ],
        "session_id": request.thread_id,
        "background": props.background,
        "if_busy": props.if_busy,
    }


def _tool(tool: AgUiTool) -> dict[str, Any]:
    schema = tool.parameters or {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": schema}}


def _context(context: list[AgUiContext]) -> list[dict[str, Any]]:
    if not context:
        return []
    text = "\n\n".join(
        f"{entry.description}:\n{entry.value}" if entry.description else entry.value for entry in context
    )
    return [{"role": "system", "content": text}]


def _as_chat(message: AgUiMessage, place: int) -> list[dict[str, Any]]:
    """Return a message; none for reasoning and activities, which models do not get."""
    if message.role in ("activity", "reasoning"):
        return []
    where = f"messages[{place}].content"
    chat: dict[str, Any] = {"role": message.role, "content": _content(message.content, where)}
    if message.name:
        chat["name"] = message.name
    if message.role == "assistant" and message.tool_calls:
        chat |= {"content": chat["content"] or None, "tool_calls": [_call(call) for call in message.tool_calls]}
    if message.role == "tool":
        if not message.tool_call_id:
            raise BadRequest("A tool's message has a toolCallId.", param=f"messages[{place}].toolCallId")
        chat["tool_call_id"] = message.tool_call_id
        if message.error and isinstance(chat["content"], str):
            chat["content"] = f"Error: {message.error}\n\n{chat['content']}".strip()
    return [chat]


def _call(call: dict[str, Any]) -> dict[str, Any]:
    """Return a call with only the fields that providers know."""
    return {name: call[name] for name in ("id", "type", "function") if name in call}


def _content(content: str | list[_Part] | _Part | None, where: str) -> str | list[_Part]:
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, dict):
        raise BadRequest("A message's content is text, or a list of parts.", param=where)
    parts = [_part(part, where) for part in content]
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def _part(part: _Part, where: str) -> _Part:
    match part:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "image", "source": {"type": "url", "value": str(url)}}:
            return {"type": "image_url", "image_url": {"url": url}}
        case {"type": "image", "source": {"type": "data", "value": str(data), "mimeType": str(kind)}}:
            return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
        case {"type": "document", "source": {"type": "data", "value": str(data), "mimeType": str(kind)}}:
            return _file("", kind, data)
        case {"type": "binary", "mimeType": str(kind), "data": str(data)} if kind.startswith("image/"):
            return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
        case {"type": "binary", "mimeType": str(kind), "data": str(data), "filename": str(name)}:
            return _file(name, kind, data)
        case {"type": "binary", "mimeType": str(kind), "data": str(data)}:
            return _file("", kind, data)
    what = "A part is text, an image by its URL, or an image or a document with its data and mimeType."
    raise BadRequest(what, param=where)


def _file(name: str, kind: str, data: str) -> _Part:
    return {"type": "file", "file": {"filename": name or "document", "file_data": f"data:{kind};base64,{data}"}}
