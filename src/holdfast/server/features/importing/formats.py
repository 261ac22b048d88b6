"""The exports of ChatGPT, Open WebUI and LibreChat: each chat as a tree of messages in one form.

It runs in a child process without the packages of the server, so it uses nothing but the standard library. What it
reads may be anything: a wrong type is a `ValueError`, and the chat is refused.
"""

from __future__ import annotations

import datetime
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

Chat: TypeAlias = dict[str, Any]
FindFile: TypeAlias = Callable[[str, str], "tuple[str, str] | None"]
"""Returns name and base64 of a file of the export, by its id and its name; None if it is not in it."""

LONGEST_CHAT = 100_000
"""Maximum number of messages of a chat, hidden ones included."""
_NO_PARENT = "00000000-0000-0000-0000-000000000000"
_CITATION = re.compile("\ue200[^\ue201]{0,2000}\ue201|【[^】]{0,40}†[^】]{0,200}】")
_SEPARATORS = re.compile("[\ue200-\ue206]")
_DETAILS = re.compile(r'<details type="(\w+)"[^>]*>\s*<summary>[^<]*</summary>(.*?)</details>\s*', re.DOTALL)


class Fields:
    """A JSON object of unknown shape. A field of another type than the one asked for counts as missing."""

    def __init__(self, value: Any) -> None:
        self._fields: dict[str, Any] = value if isinstance(value, dict) else {}

    def raw(self, name: str) -> Any:
        return self._fields.get(name)

    def text(self, name: str) -> str:
        return _text(self.raw(name))

    def of(self, name: str) -> Fields:
        return Fields(self.raw(name))

    def all(self, name: str) -> list[Any]:
        found = self.raw(name)
        return found if isinstance(found, list) else []

    def each(self, name: str) -> list[Fields]:
        return [Fields(value) for value in self.all(name)]

    def flag(self, name: str) -> bool:
        return self.raw(name) is True

    def entries(self, name: str) -> dict[str, Fields] | None:
        """Return the objects of an object, by their names; None if it is none."""
        found = self.raw(name)
        return {key: Fields(value) for key, value in found.items()} if isinstance(found, dict) else None


class ChatNode:
    """A message of an export with its place in the tree. It is left out of the chat if it has nothing to show."""

    def __init__(self, id: str, parent: str | None, role: str, made_at: float | None = None) -> None:
        self.id, self.parent, self.role, self.made_at = id, parent, role, made_at
        self.parts: list[dict[str, Any]] = []
        self.reasoning = ""
        self.model = ""
        self.is_partial = False

    def say(self, text: str) -> None:
        """Add a text."""
        if text.strip():
            self.parts.append({"type": "text", "text": text})

    @property
    def is_shown(self) -> bool:
        return bool(self.parts or self.reasoning)


def read_chat(value: Any, find: FindFile) -> Chat | None:
    """Return a chat; None if it is none of a known format. `ValueError` says what is wrong with one."""
    if not isinstance(value, dict):
        return None
    given = Fields(value)
    if "mapping" in value:
        return _chatgpt(given, find)
    chat = given.of("chat") if "chat" in value else given
    if chat.of("history").raw("messages") is not None:
        return _open_webui(given, chat)
    if "conversationId" in value and ("messages" in value or "messagesTree" in value):
        return _librechat(given)
    return None


# all formats


def _chat(source: str, id: Any, title: Any, made_at: float | None, nodes: list[ChatNode], head: Any, lost: int) -> Chat:
    """Return a chat as the server reads it, with the messages in an order in which each follows its parent."""
    if len(nodes) > LONGEST_CHAT:
        raise ValueError(f"it has more than {LONGEST_CHAT} messages")
    messages, places = _placed(nodes)
    return {
        "source": source,
        "id": _text(id),
        "title": _text(title),
        "created_at": made_at,
        "messages": messages,
        "head_id": places.get(_text(head)),
        "lost": lost,
    }


def _placed(nodes: list[ChatNode]) -> tuple[list[dict[str, Any]], dict[str, str | None]]:
    """Return the messages that are shown, and for each node the message in which it is, or after which it would be."""
    by_id = {node.id: node for node in nodes}
    if len(by_id) != len(nodes):
        raise ValueError("two of its messages have the same id")
    children: dict[str | None, list[ChatNode]] = {}
    for node in nodes:
        children.setdefault(node.parent if node.parent in by_id else None, []).append(node)
    places: dict[str, str | None] = {}
    messages: dict[str, dict[str, Any]] = {}
    todo: list[tuple[ChatNode, str | None]] = [(node, None) for node in reversed(children.get(None, []))]
    while todo:
        node, parent = todo.pop()
        place = places[node.id] = _place(node, parent, messages, len(children.get(node.parent, [])) == 1)
        todo += [(child, place) for child in reversed(children.get(node.id, []))]
    if len(places) != len(nodes):
        raise ValueError("its messages follow one another in a circle")
    return [*messages.values()], places


def _place(node: ChatNode, parent: str | None, messages: dict[str, dict[str, Any]], is_alone: bool) -> str | None:
    """Add a node as a message, or to the answer that it goes on with. Return the id of that message."""
    if not node.is_shown:
        return parent
    before = messages.get(parent or "")
    if before is not None and before["role"] == node.role == "assistant" and is_alone:
        before["parts"] += node.parts
        before["reasoning"] = "\n\n".join(filter(None, (before["reasoning"], node.reasoning)))
        before["model"] = node.model or before["model"]
        before["partial"] = node.is_partial
        return parent
    messages[node.id] = {
        "id": node.id,
        "parent_id": parent,
        "role": node.role,
        "parts": node.parts,
        "reasoning": node.reasoning,
        "model": node.model,
        "partial": node.is_partial,
        "created_at": node.made_at,
    }
    return node.id


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _seconds(value: Any) -> float | None:
    """Return a time: seconds or milliseconds since 1970, or ISO 8601."""
    if isinstance(value, str):
        try:
            at = datetime.datetime.fromisoformat(value.replace("Z", "+00:00"))
            return at.replace(tzinfo=at.tzinfo or datetime.UTC).timestamp()
        except (ValueError, OverflowError):
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e13:
        return None
    return value / 1000 if value > 1e11 else float(value)


def _fenced(text: str, language: str = "") -> str:
    """Return a text as a block of code that nothing in it can end."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language if language.isalnum() else ''}\n{text}\n{fence}"


# ChatGPT


def _chatgpt(value: Fields, find: FindFile) -> Chat:
    model = value.text("default_model_slug")
    if (entries := value.entries("mapping")) is None:
        raise ValueError("its messages cannot be read")
    lost = [0]
    nodes = [_chatgpt_node(id, entry, model, find, lost) for id, entry in entries.items()]
    id = value.text("conversation_id") or value.text("id")
    made_at = _seconds(value.raw("create_time"))
    chat = _chat("chatgpt", id, value.text("title"), made_at, nodes, value.text("current_node"), lost[0])
    chat["archived"], chat["pinned"] = value.flag("is_archived"), value.flag("is_starred")
    return chat


def _chatgpt_node(id: str, entry: Fields, model: str, find: FindFile, lost: list[int]) -> ChatNode:
    message = entry.of("message")
    role, metadata = message.of("author").text("role"), message.of("metadata")
    node = ChatNode(
        id,
        entry.text("parent") or None,
        "user" if role == "user" else "assistant",
        _seconds(message.raw("create_time")),
    )
    if role not in ("user", "assistant", "tool") or metadata.flag("is_visually_hidden_from_conversation"):
        return node
    if node.role == "assistant":
        node.model = metadata.text("model_slug") or model
        node.is_partial = message.text("status") == "in_progress"
    content = message.of("content")
    if role == "tool":
        _tool_output(node, message, content, find, lost)
    else:
        _said(node, message, content, metadata, find, lost)
    return node


def _said(node: ChatNode, message: Fields, content: Fields, metadata: Fields, find: FindFile, lost: list[int]) -> None:
    kind, recipient = content.text("content_type"), message.text("recipient") or "all"
    if kind == "thoughts":
        thoughts = content.each("thoughts")
        node.reasoning = "\n\n".join(filter(None, (each.text("content") for each in thoughts)))
    elif kind in ("text", "multimodal_text", "code") and recipient != "all":
        _call(node, recipient, content.text("text") or _joined(content.all("parts")), lost)
    elif kind == "code":
        node.say(_fenced(content.text("text"), content.text("language")))
    elif kind in ("text", "multimodal_text"):
        for part in content.all("parts"):
            _part(node, part, metadata, find, lost)
        for attachment in metadata.each("attachments"):
            if not attachment.text("mime_type").startswith("image/"):  # those are parts already
                _file(node, attachment.text("id"), attachment.text("name"), find, lost)
    elif kind not in ("reasoning_recap", "user_editable_context", "model_editable_context"):
        lost[0] += 1


def _call(node: ChatNode, recipient: str, text: str, lost: list[int]) -> None:
    """Show the code that a tool ran, and what was written on a canvas. Other calls are left out."""
    if recipient == "python":
        node.say(_fenced(text, "python"))
    elif recipient.startswith("canmore.create"):
        try:
            document = Fields(json.loads(text))
        except ValueError:
            document = Fields({"content": text})
        kind, written = document.text("type"), document.text("content")
        node.say(f"**{document.text('name')}**" if document.text("name") else "")
        node.say(_fenced(written, kind.partition("/")[2]) if kind.startswith("code") else written)
    elif recipient.startswith("canmore"):
        node.say(_fenced(text, "json"))
    else:
        lost[0] += 1


def _tool_output(node: ChatNode, message: Fields, content: Fields, find: FindFile, lost: list[int]) -> None:
    kind = content.text("content_type")
    pictures = [part for part in content.all("parts") if Fields(part).text("asset_pointer")]
    if kind == "execution_output":
        node.say(_fenced(content.text("text")))
    elif pictures:
        for part in pictures:
            _part(node, part, Fields({}), find, lost)
    elif message.of("author").text("name").startswith("canmore"):
        pass  # that it was saved is seen
    else:
        lost[0] += 1


def _part(node: ChatNode, part: Any, metadata: Fields, find: FindFile, lost: list[int]) -> None:
    if isinstance(part, str):
        node.say(_without_marks(part, metadata) if node.role == "assistant" else part)
        return
    given = Fields(part)
    if given.text("text"):  # what was said aloud
        node.say(given.text("text"))
    elif given.text("asset_pointer"):
        _file(node, given.text("asset_pointer").rpartition("://")[2].partition("?")[0], "", find, lost)
    elif part:
        lost[0] += 1


def _file(node: ChatNode, id: str, name: str, find: FindFile, lost: list[int]) -> None:
    found = find(id, name) if id or name else None
    if found is None:
        lost[0] += 1
        node.say(f"*[{name or 'file'}: not in the export]*")
    else:
        node.parts.append({"type": "asset", "name": found[0], "base64": found[1]})


def _without_marks(text: str, metadata: Fields) -> str:
    """Replace the marks of citations by the links that the export has for them, and remove the others."""
    for reference in metadata.each("content_references"):
        mark, shown = reference.text("matched_text"), reference.text("alt")
        if mark.strip() and _CITATION.search(mark):
            text = text.replace(mark, shown)
    return _SEPARATORS.sub("", _CITATION.sub("", text))


def _joined(parts: list[Any]) -> str:
    return "\n\n".join(part for part in parts if isinstance(part, str))


# Open WebUI


def _open_webui(value: Fields, chat: Fields) -> Chat:
    history = chat.of("history")
    messages = history.entries("messages")
    if messages is None:
        raise ValueError("its history has no messages")
    lost = [0]
    nodes = [_open_webui_node(id, entry, lost) for id, entry in messages.items()]
    made_at = _seconds(value.raw("created_at")) or _seconds(chat.raw("timestamp"))
    title = chat.text("title") or value.text("title")
    id = value.text("id") or chat.text("id")
    read = _chat("open-webui", id, title, made_at, nodes, history.text("currentId"), lost[0])
    tags = value.of("meta").all("tags") or chat.all("tags")
    read["tags"] = [_text(tag) or Fields(tag).text("name") for tag in tags]
    read["archived"], read["pinned"] = value.flag("archived"), value.flag("pinned")
    read["system"] = chat.of("params").text("system") or chat.text("system")
    return read


def _open_webui_node(id: str, entry: Fields, lost: list[int]) -> ChatNode:
    role = entry.text("role")
    node = ChatNode(id, entry.text("parentId") or None, role, _seconds(entry.raw("timestamp")))
    if role not in ("user", "assistant"):
        node.role = "assistant"
        lost[0] += 1
        return node
    text = entry.text("content")
    if role == "assistant":
        node.model = entry.text("model") or entry.text("modelName")
        node.is_partial = entry.raw("done") is False
        text = _without_details(node, text, lost)
    node.say(text)
    for file in entry.each("files"):
        _inline_file(node, file, lost)
    return node


def _without_details(node: ChatNode, text: str, lost: list[int]) -> str:
    """Take the reasoning out of a text. Calls of tools are left out."""

    def take(found: re.Match[str]) -> str:
        if found[1] == "reasoning":
            lines = (line.removeprefix(">").removeprefix(" ") for line in html.unescape(found[2]).strip().split("\n"))
            node.reasoning = "\n\n".join(filter(None, (node.reasoning, "\n".join(lines))))
        else:
            lost[0] += 1
        return ""

    return _DETAILS.sub(take, text)


def _inline_file(node: ChatNode, file: Fields, lost: list[int]) -> None:
    url, name = file.text("url"), file.text("name")
    data = file.of("file").of("data")
    if url.startswith("data:") and ";base64," in url:
        node.parts.append({"type": "asset", "name": name or "picture", "base64": url.partition(";base64,")[2]})
    elif data.text("content"):
        node.parts.append({"type": "asset", "name": name or "file", "text": data.text("content")})
    else:
        lost[0] += 1
        node.say(f"*[{name or 'file'}: not in the export]*")


# LibreChat


def _librechat(value: Fields) -> Chat:
    given = value.raw("messages") or value.raw("messagesTree")
    if not isinstance(given, list):
        raise ValueError("it has no list of messages")
    lost = [0]
    options = value.of("options")
    nodes = [_librechat_node(entry, parent, lost) for entry, parent in _flat(given)]
    read = _chat("librechat", value.text("conversationId"), value.text("title"), None, nodes, None, lost[0])
    read["created_at"] = min((node.made_at for node in nodes if node.made_at), default=None)
    read["tags"] = [_text(tag) for tag in value.all("tags")]
    read["archived"] = value.flag("isArchived")
    read["system"] = options.text("promptPrefix")
    for message in read["messages"]:
        if message["role"] == "assistant" and not message["model"]:
            message["model"] = options.text("model")
    return read


def _flat(entries: Iterable[Any]) -> Iterator[tuple[Fields, str]]:
    """Yield messages with the ids of their parents, each before its answers, which may be in it."""
    waiting: list[tuple[Fields, str]] = [(Fields(entry), "") for entry in reversed([*entries])]
    number = 0
    while waiting:
        entry, parent = waiting.pop()
        number += 1
        if number > LONGEST_CHAT:
            raise ValueError(f"it has more than {LONGEST_CHAT} messages")
        yield entry, parent or entry.text("parentMessageId")
        waiting += [(child, entry.text("messageId")) for child in reversed(entry.each("children"))]


def _librechat_node(entry: Fields, parent: str, lost: list[int]) -> ChatNode:
    is_user = entry.flag("isCreatedByUser") or entry.text("sender").lower() == "user"
    made_at = _seconds(entry.raw("createdAt"))
    node = ChatNode(
        entry.text("messageId"),
        None if parent in ("", _NO_PARENT) else parent,
        "user" if is_user else "assistant",
        made_at,
    )
    if not node.id:
        raise ValueError("a message of it has no messageId")
    node.model = "" if is_user else entry.text("model")
    node.is_partial = not is_user and (entry.flag("unfinished") or entry.flag("error"))
    content = entry.all("content")
    for part in map(Fields, content):
        _librechat_part(node, part, lost)
    if not content:
        node.say(entry.text("text"))
    for file in entry.each("files"):
        _inline_file(node, Fields({"name": file.text("filename"), "url": file.text("filepath")}), lost)
    return node


def _librechat_part(node: ChatNode, part: Fields, lost: list[int]) -> None:
    kind = part.text("type")
    if kind == "text":
        node.say(_without_marks(part.text("text") or part.of("text").text("value"), Fields({})))
    elif kind == "think":
        text = part.text("think") or part.of("think").text("value")
        node.reasoning = "\n\n".join(filter(None, (node.reasoning, text)))
    elif kind == "error":
        node.say(part.text("error"))
    else:
        lost[0] += 1
