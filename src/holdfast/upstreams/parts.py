"""Parts of a message in OpenAI's shape, for dialects into which they are translated."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import Unsupported

__all__ = [
    "InlineData",
    "arguments_object",
    "assistant_text",
    "called_names",
    "function_of",
    "inline_data",
    "picture_url",
    "plain_text",
    "schema_of",
    "text_in",
    "user_parts",
]

_DATA_URL = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+)(?:;[^,;]+)*;base64,(?P<data>.*)", re.DOTALL | re.IGNORECASE)


class InlineData(NamedTuple):
    """The content of a `data:` URL: its media type, and its bytes in base64."""

    media_type: str
    data: str


def inline_data(url: str) -> InlineData | None:
    """Return the content of a `data:` URL in base64; None for any other URL."""
    match = _DATA_URL.fullmatch(url.strip())
    return InlineData(match["type"].lower().replace("image/jpg", "image/jpeg"), match["data"]) if match else None


def picture_url(part: Mapping[str, Any]) -> str:
    """Return the URL of a part of the type `image_url`."""
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    if not isinstance(url, str):
        raise Unsupported("An image must have a URL.", "messages")
    return url


def plain_text(content: Any, who: str) -> str:
    """Return content that must be text, such as that of a system message. Its parts become paragraphs."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    return "\n\n".join(text for part in content if (text := text_in(part, who)))


def text_in(part: Any, who: str) -> str:
    """Return the text of a part. Raises `Unsupported` if it is something else."""
    kind = part.get("type") if isinstance(part, dict) else None
    if kind not in ("text", "refusal"):
        raise Unsupported(f"{who} takes no part of the type {kind!r} here.", "messages")
    return str(part.get(kind) or "")


def assistant_text(message: Mapping[str, Any], who: str) -> str:
    """Return the text and the refusal of an assistant's message."""
    refusal = message.get("refusal")
    texts = [plain_text(message.get("content"), who), refusal if isinstance(refusal, str) else ""]
    return "\n\n".join(filter(None, texts))


def user_parts(message: Mapping[str, Any]) -> list[Any]:
    """Return the parts of a user's message. If it has a `name`, a text part with the name comes first."""
    content, name = message.get("content"), message.get("name")
    if not isinstance(content, list | str | None):
        raise Unsupported("A message's content must be a string or a list of parts.", "messages")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    return [{"type": "text", "text": f"{name}:"}, *parts] if name else parts


def function_of(call: Any) -> Mapping[str, Any]:
    """Return the function of a tool call. Raises `Unsupported` if it has none."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise Unsupported("A tool call must be a call of a function.", "messages")
    return function


def arguments_object(arguments: Any) -> dict[str, Any]:
    """Return a call's arguments as an object. Any other value becomes its field `arguments`."""
    if isinstance(arguments, str) and arguments.strip():
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return {"arguments": arguments}
    if isinstance(arguments, dict):
        return arguments
    return {"arguments": arguments} if arguments else {}


def called_names(messages: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the name of each call's function by the call's id: a result in OpenAI's shape has only the id."""
    calls = [call for message in messages for call in message.get("tool_calls") or () if isinstance(call, dict)]
    pairs = [(call.get("id"), call.get("function")) for call in calls]
    return {id: str(function.get("name") or "") for id, function in pairs if id and isinstance(function, dict)}


def schema_of(response_format: Any, who: str) -> dict[str, Any] | None:
    """Return the JSON schema for an answer: empty for any JSON object, None for text."""
    match response_format:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return {}
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return schema
    raise Unsupported(f"{who} takes a response_format of the type text, json_object or json_schema.", "response_format")
