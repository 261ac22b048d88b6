"""The AI SDK's UI messages: requests of clients, and stored messages in its shape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from ..errors import BadRequest
from ..history import Message

_Part = dict[str, Any]
_Content = str | list[dict[str, Any]]


class UIMessage(msgspec.Struct, frozen=True):
    """A message in the SDK's shape: one of the user, or all that the assistant did in a turn."""

    role: Literal["system", "user", "assistant"]
    parts: list[_Part]
    id: str = ""


# Requests.


def content(message: UIMessage) -> _Content:
    """Return the content of a message: a text, or texts and files in OpenAI's shape."""
    parts = [content_part for part in message.parts if (content_part := _content_part(part)) is not None]
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def _content_part(part: _Part) -> _Part | None:
    match part:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text} if text else None
        case {"type": "file", "url": str(url), "mediaType": str(media_type)}:
            return _file(url, media_type, part.get("filename"))
        case {"type": "text"} | {"type": "file"}:
            raise BadRequest("A text part has a text, and a file part a url and a mediaType.", param="messages")
    return None


def _file(url: str, media_type: str, name: Any) -> _Part:
    if media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    if not url.startswith("data:"):
        raise BadRequest("A file that is no image has to be sent as a data URL.", param="messages")
    return {"type": "file", "file": {"filename": name if isinstance(name, str) else "file", "file_data": url}}


class ToolPartOutput(msgspec.Struct, frozen=True):
    """The result of a tool that ran in the client."""

    id: str
    text: str


def outputs(message: UIMessage) -> list[ToolPartOutput]:
    """Return the tool results of a message."""
    results = [_output(part) for part in message.parts if _is_tool(part)]
    return [output for output in results if output is not None]


def _is_tool(part: _Part) -> bool:
    kind = part.get("type")
    return isinstance(kind, str) and (kind == "dynamic-tool" or kind.startswith("tool-"))


def _output(part: _Part) -> ToolPartOutput | None:
    match part:
        case {"toolCallId": str(id), "state": "output-available"}:
            return ToolPartOutput(id, _text(part.get("output")))
        case {"toolCallId": str(id), "state": "output-error"}:
            return ToolPartOutput(id, _text(part.get("errorText") or "The tool failed."))
        case {"toolCallId": str(id), "state": "output-denied"}:
            return ToolPartOutput(id, "The user did not allow this call.")
    return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def model_messages(messages: Sequence[UIMessage]) -> list[dict[str, Any]]:
    """Return a whole conversation in OpenAI's shape, for a request without a session."""
    chat: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "assistant":
            for step in _steps(message.parts):
                chat += _step(step)
        elif text_or_parts := content(message):
            chat.append({"role": message.role, "content": text_or_parts})
    return chat


def _steps(parts: Iterable[_Part]) -> list[list[_Part]]:
    steps: list[list[_Part]] = [[]]
    for part in parts:
        if part.get("type") == "step-start":
            steps.append([])
        else:
            steps[-1].append(part)
    return steps


def _step(parts: list[_Part]) -> list[dict[str, Any]]:
    """Return one answer of the model with the results of its calls. A call without a result is left out."""
    text = "".join(part["text"] for part in parts if part.get("type") == "text" and isinstance(part.get("text"), str))
    answered = [(part, output) for part in parts if _is_tool(part) and (output := _output(part)) is not None]
    calls = [_call(part, output.id) for part, output in answered]
    if not text and not calls:
        return []
    answer: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        answer["tool_calls"] = calls
    results = [{"role": "tool", "tool_call_id": output.id, "content": output.text} for _, output in answered]
    return [answer, *results]


def _call(part: _Part, id: str) -> dict[str, Any]:
    name = part.get("toolName") if part["type"] == "dynamic-tool" else part["type"].removeprefix("tool-")
    return {"id": id, "type": "function", "function": {"name": str(name), "arguments": _text(part.get("input", {}))}}


# Stored messages.


def ui_messages(path: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the messages of a branch in the SDK's shape: a turn of the assistant is one message."""
    messages: list[dict[str, Any]] = []
    for message in path:
        if message.role == "user":
            messages.append({"id": client_id(message.id), "role": "user", "parts": _parts(message.content)})
        elif message.role == "assistant":
            _add_answer(_turn(messages, message), message)
        elif message.role == "tool" and messages:
            _add_result(messages[-1]["parts"], message)
    return messages


def client_id(id: str) -> str:
    """Return the client's id of a message. The store appends a number to the id of an edited message."""
    base, _, number = id.rpartition("~")
    return base if base and number.isdigit() else id


def _turn(messages: list[dict[str, Any]], message: Message) -> dict[str, Any]:
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"id": message.id, "role": "assistant", "parts": []})
    turn = messages[-1]
    turn["metadata"] = {"holdfast": {"runId": message.run_id, "model": message.model, "outcome": message.outcome}}
    return turn


def _add_answer(turn: dict[str, Any], message: Message) -> None:
    parts = turn["parts"]
    parts.append({"type": "step-start"})
    if message.reasoning:
        parts.append({"type": "reasoning", "text": message.reasoning, "state": "done"})
    if message.content:
        parts += [{**part, "state": "done"} for part in _parts(message.content)]
    for call in message.tool_calls:
        parts.append(
            {
                "type": f"tool-{call.name}",
                "toolCallId": call.id,
                "state": "input-available",
                "input": _decoded(call.arguments),
            }
        )


def _add_result(parts: list[_Part], message: Message) -> None:
    for part in parts:
        if part.get("toolCallId") == message.tool_call_id:
            part |= {"state": "output-available", "output": message.content}


def _decoded(arguments: str) -> Any:
    try:
        return msgspec.json.decode(arguments) if arguments.strip() else {}
    except (msgspec.DecodeError, RecursionError):
        return arguments


def _parts(content: str | list[Any] | None) -> list[_Part]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [ui_part for part in content or () if (ui_part := _ui_part(part)) is not None]


def _ui_part(part: Any) -> _Part | None:
    match part:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return {"type": "file", "mediaType": _media_type(url), "url": url}
        case {"type": "file", "file": {"file_data": str(url), "filename": str(name)}}:
            return {"type": "file", "mediaType": _media_type(url), "url": url, "filename": name}
    return None


def _media_type(url: str) -> str:
    """Return the media type of a data URL; `image/*` for any other URL."""
    if url.startswith("data:"):
        return url.removeprefix("data:").partition(",")[0].partition(";")[0] or "text/plain"
    return "image/*"
