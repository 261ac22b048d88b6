"""The AI SDK's UI messages: requests of clients, and stored messages in its shape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal

import msgspec

from ..errors import BadRequest
from ..history import Message
from .ai_sdk import media_type

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


class _Text(msgspec.Struct, frozen=True):
    text: str


class _File(msgspec.Struct, frozen=True, rename="camel"):
    url: str
    media_type: str
    filename: Any = None


def _content_part(part: _Part) -> _Part | None:
    try:
        match part:
            case {"type": "text"}:
                text = msgspec.convert(part, _Text).text
                return {"type": "text", "text": text} if text else None
            case {"type": "file"}:
                return _file(msgspec.convert(part, _File))
    except msgspec.ValidationError:
        message = "A text part has a text, and a file part a url and a mediaType."
        raise BadRequest(message, param="messages") from None
    return None


def _file(file: _File) -> _Part:
    if file.media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": file.url}}
    if not file.url.startswith("data:"):
        raise BadRequest("A file that is no image has to be sent as a data URL.", param="messages")
    name = file.filename if isinstance(file.filename, str) else "file"
    return {"type": "file", "file": {"filename": name, "file_data": file.url}}


class _Tool(msgspec.Struct, frozen=True, rename="camel"):
    """A part for one call of a tool. A tool that the client does not know by its type has a name."""

    type: str
    tool_call_id: str
    state: str
    tool_name: Any = None
    input: Any = {}
    output: Any = None
    error_text: Any = None

    @property
    def name(self) -> str:
        return str(self.tool_name if self.type == "dynamic-tool" else self.type.removeprefix("tool-"))

    @property
    def result(self) -> str | None:
        """What it has returned; None if it has not ended."""
        match self.state:
            case "output-available":
                return _text(self.output)
            case "output-error":
                return _text(self.error_text or "The tool failed.")
            case "output-denied":
                return "The user did not allow this call."
        return None


class ToolPartOutput(msgspec.Struct, frozen=True):
    """The result of a tool that ran in the client."""

    id: str
    text: str


def outputs(message: UIMessage) -> list[ToolPartOutput]:
    """Return the tool results of a message."""
    return [ToolPartOutput(tool.tool_call_id, result) for tool, result in _results(message.parts)]


def _results(parts: Iterable[_Part]) -> list[tuple[_Tool, str]]:
    """Return the calls that have ended, with their results."""
    tools = [tool for part in parts if (tool := _tool(part)) is not None]
    return [(tool, result) for tool in tools if (result := tool.result) is not None]


def _tool(part: _Part) -> _Tool | None:
    match part:
        case {"type": str(kind)} if kind == "dynamic-tool" or kind.startswith("tool-"):
            with suppress(msgspec.ValidationError):
                return msgspec.convert(part, _Tool)
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
        match part:
            case {"type": "step-start"}:
                steps.append([])
            case _:
                steps[-1].append(part)
    return steps


def _step(parts: list[_Part]) -> list[dict[str, Any]]:
    """Return one answer of the model with the results of its calls. A call without a result is left out."""
    text, results = "".join(map(_said, parts)), _results(parts)
    if not text and not results:
        return []
    answer: dict[str, Any] = {"role": "assistant", "content": text or None}
    if results:
        answer["tool_calls"] = [_call(tool) for tool, _ in results]
    return [answer, *({"role": "tool", "tool_call_id": tool.tool_call_id, "content": said} for tool, said in results)]


def _said(part: _Part) -> str:
    match part:
        case {"type": "text", "text": str(text)}:
            return text
    return ""


def _call(tool: _Tool) -> dict[str, Any]:
    called = {"name": tool.name, "arguments": _text(tool.input)}
    return {"id": tool.tool_call_id, "type": "function", "function": called}


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
        parts += [{**part, "state": "done"} if "text" in part else part for part in _parts(message.content)]
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
        if "toolCallId" in part and part["toolCallId"] == message.tool_call_id:
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
            return {"type": "file", "mediaType": media_type(url), "url": url}
        case {"type": "file", "file": {"file_data": str(url), "filename": str(name)}}:
            return {"type": "file", "mediaType": media_type(url), "url": url, "filename": name}
    return None
