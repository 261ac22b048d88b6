"""Items of the Responses API, each read into a type of its own: as they are stored, and as messages for the model."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Any, ClassVar, TypeAlias

import msgspec
from msgspec.structs import replace

from ...attachments.kinds import picture_url
from ...errors import BadRequest
from ...events import ToolCall
from ...fields import wrong_field
from ...history import Message, Role
from ...history.compaction import SO_FAR

Item: TypeAlias = dict[str, Any]
Given: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]
"""A text that is not empty."""

_UNSUPPORTED = "unsupported"
ROLES: tuple[Role, ...] = ("user", "assistant", "system", "developer")


def unsupported(what: str, param: str, instead: str = "") -> BadRequest:
    """Return the refusal of a feature that we do not have."""
    return BadRequest(f"{what} is not supported.{f' {instead}' if instead else ''}", param=param, code=_UNSUPPORTED)


class _Item(msgspec.Struct, frozen=True):
    id: str | None = None


class MessageItem(_Item, frozen=True, kw_only=True):
    """A message."""

    role: Role
    content: str | list[dict[str, Any]]


class FunctionCall(_Item, frozen=True, kw_only=True):
    """A call of a function."""

    call_id: Given
    name: Given
    arguments: str | None = None
    namespace: Any = None
    status: Any = None

    @property
    def written(self) -> str:
        """The arguments as the model has written them."""
        return self.arguments or "{}"


class CustomCall(_Item, frozen=True, kw_only=True):
    """A call of a custom tool, whose arguments are one text."""

    call_id: Given
    name: Given
    input: str | None = None
    namespace: Any = None
    status: Any = None

    @property
    def written(self) -> str:
        """The arguments as the model has written them: for it, the tool is a function."""
        return msgspec.json.encode({CUSTOM_INPUT: self.input or ""}).decode()


class CallOutput(_Item, frozen=True, kw_only=True):
    """The result of a call."""

    call_id: Given
    output: Any = None


class MadePicture(_Item, frozen=True, kw_only=True):
    """A picture that an answer had."""

    result: str | None = None
    url: str | None = None

    def parts(self) -> list[dict[str, Any]]:
        """Return the picture as content of a message; nothing if the item has only an id."""
        url = picture_url(f"data:;base64,{self.result}" if self.result else self.url or "")
        return [] if url is None else [{"type": "image_url", "image_url": {"url": url}}]


class Compaction(_Item, frozen=True, kw_only=True):
    """A summary in place of the conversation before it."""

    encrypted_content: Given


class ReasoningItem(_Item, frozen=True, kw_only=True):
    """Reasoning, which is not sent to the model."""


class Reference(_Item, frozen=True, kw_only=True):
    """An item by its id."""

    id: Given


AnyItem: TypeAlias = (
    MessageItem | FunctionCall | CustomCall | CallOutput | MadePicture | Compaction | ReasoningItem | Reference
)

_KINDS: Mapping[str, type[AnyItem]] = {
    "message": MessageItem,
    "function_call": FunctionCall,
    "function_call_output": CallOutput,
    "custom_tool_call": CustomCall,
    "custom_tool_call_output": CallOutput,
    "image_generation_call": MadePicture,
    "reasoning": ReasoningItem,
    "item_reference": Reference,
    "compaction": Compaction,
}
CUSTOM_INPUT = "input"
"""The one parameter of the function of a custom tool."""


def _read(item: Item, kind: str, param: str) -> AnyItem:
    """Read an item of a known kind."""
    try:
        return msgspec.convert(item, _KINDS[kind])
    except msgspec.ValidationError as error:
        name = wrong_field(error)
        if name == "role":
            message = f"role is one of {', '.join(ROLES)}."
        elif name == "content":
            message = "content is text or a list of parts."
        else:
            message = f"An item of type {kind} needs a {name}, which is text."
        raise BadRequest(message, param=f"{param}.{name}") from None


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
    match item:
        case {"type": kind} if kind:
            pass
        case {"role": _}:
            kind = "message"
        case {"id": _}:
            kind = "item_reference"
        case dict():
            raise unsupported("An item without a type", f"{param}.type")
        case _:
            raise BadRequest("An item of the input is an object.", param=param)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise unsupported(f"An item of type {kind!r}", f"{param}.type")
    match _read(item, kind, param):
        case MessageItem(role=role, content=str(text)):
            part = {"type": "output_text" if role == "assistant" else "input_text", "text": text}
            return {**item, "type": "message", "content": [part]}
    return {**item, "type": kind}


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
    "image_generation_call": "ig",
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
        if item["type"] in _KINDS:
            at = f"{param}[{place}]"
            _add(messages, _read(item, item["type"], at), at)
    return messages


def _add(messages: list[Message], item: AnyItem, at: str) -> None:
    """Add an item to the messages."""
    match item:
        case MessageItem():
            messages.append(Message(id="", role=item.role, content=_content(item, at)))
        case FunctionCall() | CustomCall() if item.status != "incomplete":
            _add_call(messages, item)
        case CallOutput():
            output = _output(item.output, f"{at}.output")
            messages.append(Message(id="", role="tool", content=output, tool_call_id=item.call_id))
        case MadePicture():
            _add_pictures(messages, item.parts())
        case Compaction(encrypted_content=sealed):
            summary = _summary(sealed, f"{at}.encrypted_content")
            messages.append(Message(id="", role="user", content=f"{SO_FAR}\n\n{summary}"))


# Compaction.

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


def _add_call(messages: list[Message], item: FunctionCall | CustomCall) -> None:
    call = ToolCall(item.call_id, flat_name(item.name, item.namespace), item.written)
    if messages and messages[-1].role == "assistant":
        messages[-1] = replace(messages[-1], tool_calls=(*messages[-1].tool_calls, call))
    else:
        messages.append(Message(id="", role="assistant", content="", tool_calls=(call,)))


def _add_pictures(messages: list[Message], pictures: list[dict[str, Any]]) -> None:
    if not messages or messages[-1].role != "assistant":
        messages.append(Message(id="", role="assistant", content=pictures))
        return
    said = messages[-1].content
    before = [{"type": "text", "text": said}] if isinstance(said, str) and said else list(said or ())
    messages[-1] = replace(messages[-1], content=[*before, *pictures])


_LONGEST_NAME = 64


def flat_name(name: str, namespace: Any) -> str:
    """Return the name of a tool of a namespace for the model."""
    if not isinstance(namespace, str | None):
        raise BadRequest("A namespace is text.", param="namespace")
    flat = f"{namespace}__{name}" if namespace else name
    if len(flat) <= _LONGEST_NAME or not namespace:
        return flat
    return f"{flat[: _LONGEST_NAME - 9]}_{sha256(flat.encode()).hexdigest()[:8]}"


# Parts.


def _content(item: MessageItem, param: str) -> str | list[Any]:
    given = [{"type": "text", "text": item.content}] if isinstance(item.content, str) else item.content
    parts = [_part(part, f"{param}.content[{place}]") for place, part in enumerate(given)]
    if item.role == "assistant":
        return "".join(part["text"] for part in parts if part["type"] == "text")
    if len(parts) == 1 and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return parts


class _Text(msgspec.Struct, frozen=True):
    text: str

    why: ClassVar[str] = "A part of text has a text."
    code: ClassVar[str] = BadRequest.code

    def chat(self) -> Item:
        return {"type": "text", "text": self.text}


class _Refusal(msgspec.Struct, frozen=True):
    refusal: str

    why: ClassVar[str] = "A refusal has a text."
    code: ClassVar[str] = BadRequest.code

    def chat(self) -> Item:
        return {"type": "text", "text": self.refusal}


class _Image(msgspec.Struct, frozen=True):
    image_url: Given
    detail: Any = None

    why: ClassVar[str] = "An image without an image_url is not supported. Send a URL or a data: URL."
    code: ClassVar[str] = _UNSUPPORTED

    def chat(self) -> Item:
        return {"type": "image_url", "image_url": {"url": self.image_url, **_if_given("detail", self.detail)}}


class _File(msgspec.Struct, frozen=True):
    file_data: str
    filename: Any = None

    why: ClassVar[str] = "A file without its file_data is not supported. Send the file itself."
    code: ClassVar[str] = _UNSUPPORTED

    def chat(self) -> Item:
        return {"type": "file", "file": {"file_data": self.file_data, **_if_given("filename", self.filename)}}


class _Audio(msgspec.Struct, frozen=True):
    input_audio: Any = None

    why: ClassVar[str] = "A recording has an input_audio."
    code: ClassVar[str] = BadRequest.code

    def chat(self) -> Item:
        return {"type": "input_audio", "input_audio": self.input_audio}


def _if_given(name: str, value: Any) -> Item:
    return {name: value} if value else {}


_PARTS: Mapping[str, type[_Text | _Refusal | _Image | _File | _Audio]] = {
    "input_text": _Text,
    "output_text": _Text,
    "text": _Text,
    "refusal": _Refusal,
    "input_image": _Image,
    "input_file": _File,
    "input_audio": _Audio,
}


def _part(part: Item, param: str) -> Item:
    match part:
        case {"type": str(kind)} if kind in _PARTS:
            try:
                return msgspec.convert(part, _PARTS[kind]).chat()
            except msgspec.ValidationError as error:
                why, code = _PARTS[kind].why, _PARTS[kind].code
                raise BadRequest(why, param=f"{param}.{wrong_field(error)}", code=code) from None
        case {"type": kind}:
            raise unsupported(f"A part of type {kind!r}", f"{param}.type")
    raise unsupported("A part without a type", f"{param}.type")


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
