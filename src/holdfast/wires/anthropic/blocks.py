"""The blocks of content in requests to Anthropic's Messages API, each read once into a type of its own.

Fields that are not read here are ignored. What has no type is an `OtherBlock`: an upstream of Anthropic's dialect gets
it as it was sent, and for any other it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import msgspec

from ...errors import BadRequest

_Fields: TypeAlias = dict[str, Any]


class TextBlock(msgspec.Struct, frozen=True):
    """A text."""

    text: str
    cache_control: Any = None

    why: ClassVar[str] = "A text block has a text."


class _Base64(msgspec.Struct, frozen=True, tag="base64"):
    media_type: str
    data: str

    @property
    def url(self) -> str:
        return f"data:{self.media_type};base64,{self.data}"


class _Url(msgspec.Struct, frozen=True, tag="url"):
    url: Annotated[str, msgspec.Meta(min_length=1)]


class ImageBlock(msgspec.Struct, frozen=True):
    """A picture."""

    source: _Base64 | _Url
    cache_control: Any = None

    why: ClassVar[str] = "An image's source is base64 with a media_type, or a url."


class _PlainText(msgspec.Struct, frozen=True, tag="text"):
    data: str


class DocumentBlock(msgspec.Struct, frozen=True):
    """A document: its text, or a PDF."""

    source: _PlainText | _Base64
    title: Any = None
    context: Any = None

    why: ClassVar[str] = "A document's source is text or base64. Others need one of Anthropic's own models."

    @property
    def texts(self) -> list[Any]:
        """What it says, with its heading."""
        return [self.title, self.context, *([self.source.data] if isinstance(self.source, _PlainText) else [])]

    @property
    def file(self) -> dict[str, Any] | None:
        """The file in OpenAI's shape, which is read as any other; None for a text."""
        if isinstance(self.source, _PlainText):
            return None
        name = self.title if isinstance(self.title, str) and self.title else "document"
        return {"type": "file", "file": {"filename": name, "file_data": self.source.url}}


class SearchResult(msgspec.Struct, frozen=True):
    """What a search of the client has found."""

    content: list[TextBlock] | None = None
    title: Any = None
    source: Any = None

    why: ClassVar[str] = "A search_result block has text blocks as content."

    @property
    def texts(self) -> list[Any]:
        """What it says, with its heading."""
        return [self.title, self.source, *(block.text for block in self.content or ())]


class ToolUse(msgspec.Struct, frozen=True):
    """A call of a tool."""

    id: str
    name: str
    input: Any = {}
    cache_control: Any = None

    why: ClassVar[str] = "A tool_use block has an id and a name."


class ResultBlock(msgspec.Struct, frozen=True):
    """The result of a call."""

    tool_use_id: str
    content: str | list[_Fields] | None = None
    is_error: Any = None
    cache_control: Any = None

    why: ClassVar[str] = "A tool_result block has a tool_use_id, and text or blocks as content."


class Thinking(msgspec.Struct, frozen=True):
    """Reasoning, as it was sent."""

    sent: _Fields

    @property
    def is_signed(self) -> bool:
        """Whether Anthropic has signed or encrypted it. Reasoning of another model is not, and Anthropic refuses it."""
        match self.sent:
            case {"type": "thinking", "signature": seal} | {"type": "redacted_thinking", "data": seal}:
                return bool(seal)
        return False


class OtherBlock(msgspec.Struct, frozen=True):
    """A block of another kind, as it was sent."""

    sent: _Fields


_Read = TextBlock | ImageBlock | DocumentBlock | SearchResult | ToolUse | ResultBlock
AnyBlock: TypeAlias = _Read | Thinking | OtherBlock
BlockPlace: TypeAlias = Literal["user", "assistant", "system", "result"]
"""Where a block is: in a turn, or in the result of a call."""

_EVERYWHERE: Mapping[str, type[_Read]] = {"text": TextBlock, "image": ImageBlock}
_BY_PLACE: Mapping[BlockPlace, Mapping[str, type[_Read]]] = {
    "user": {"tool_result": ResultBlock},
    "system": {"tool_result": ResultBlock},
    "assistant": {"tool_use": ToolUse},
    "result": {},
}
_IN_WORDS: Mapping[str, type[_Read]] = {"document": DocumentBlock, "search_result": SearchResult}
"""Blocks that other models than Anthropic's get as text."""


def read_blocks(content: str | list[_Fields], place: BlockPlace, where: str, *, native: bool) -> list[AnyBlock]:
    """Read content. `native` means that the upstream speaks this dialect, and knows pictures of more kinds."""
    if isinstance(content, str):
        return [TextBlock(content)]
    kinds = {**_EVERYWHERE, **_BY_PLACE[place], **({} if native else _IN_WORDS)}
    return [_read(block, kinds, place, where, native) for block in content]


def _read(fields: _Fields, kinds: Mapping[str, type[_Read]], place: BlockPlace, where: str, native: bool) -> AnyBlock:
    match fields:
        case {"type": "thinking" | "redacted_thinking"} if place == "assistant":
            return Thinking(fields)
        case {"type": str(name)} if name in kinds:
            try:
                return msgspec.convert(fields, kinds[name])
            except msgspec.ValidationError:
                if not (native and name == "image"):
                    raise BadRequest(kinds[name].why, param=where) from None
        case {"type": str(name)} if not native:
            raise BadRequest(f"A block of type {name!r} cannot be sent here.", param=where)
        case {"type": str()}:
            pass
        case _:
            raise BadRequest("A block is an object with a type.", param=where)
    return OtherBlock(fields)


def is_unsigned(block: Any) -> bool:
    """Return whether a block is reasoning that Anthropic would refuse."""
    match block:
        case {"type": "thinking"}:
            return not Thinking(block).is_signed
    return False
