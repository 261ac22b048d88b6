"""What a model is asked, as types: the counterpart of `events.py` on the way in.

Upstreams render a `Prompt`. What the types have no field for is in `extra`, and what they cannot describe is `Opaque`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

_Fields: TypeAlias = dict[str, Any]


# Parts.


class Opaque(msgspec.Struct, frozen=True):
    """What no type here describes, as it was sent: only one dialect understands it, or none."""

    data: Any

    @property
    def kind(self) -> Any:
        """The type that it says it has."""
        match self.data:
            case {"type": kind}:
                return kind
        return None


class TextPart(msgspec.Struct, frozen=True):
    """A text, or the words of a refusal."""

    text: str
    kind: Literal["text", "refusal"] = "text"
    extra: _Fields = {}


class ImagePart(msgspec.Struct, frozen=True):
    """A picture by its URL, which may have the picture in it."""

    url: str
    more: _Fields | None = {}
    """What is sent beside the URL, as `detail`; None if the URL is sent without an object around it."""
    extra: _Fields = {}

    kind: ClassVar[str] = "image_url"


class FilePart(msgspec.Struct, frozen=True):
    """A file."""

    data: str = ""
    """A `data:` URL in base64; empty if the file is named in another way."""
    more: _Fields = {}
    extra: _Fields = {}

    kind: ClassVar[str] = "file"


class AudioPart(msgspec.Struct, frozen=True):
    """A recording in base64."""

    data: str
    format: str
    more: _Fields = {}
    extra: _Fields = {}

    kind: ClassVar[str] = "input_audio"


Part: TypeAlias = TextPart | ImagePart | FilePart | AudioPart | Opaque
Content: TypeAlias = str | tuple[Part, ...] | Opaque | None


def text_in(content: Content) -> str:
    """Return the text of a turn's content, with an empty line between its parts. Pictures have none."""
    match content:
        case str():
            return content
        case tuple():
            return "\n\n".join(text for part in content for text in _texts_of(part))
    return ""


def _texts_of(part: Part) -> tuple[str, ...]:
    match part:
        case TextPart(text, "text") | Opaque({"text": str(text)}):
            return (text,)
    return ()


# Turns.


class Call(msgspec.Struct, frozen=True):
    """A call of a tool in an answer."""

    id: str
    name: str
    arguments: Any = None
    """JSON as text, or an object; the text itself for a custom tool."""
    kind: Literal["function", "custom"] = "function"
    extra: _Fields = {}


class SystemTurn(msgspec.Struct, frozen=True):
    """Instructions. One that is `placed` stays where it is, if the upstream knows such a thing."""

    content: Content
    role: Literal["system", "developer"] = "system"
    placed: bool = False
    extra: _Fields = {}


class UserTurn(msgspec.Struct, frozen=True):
    """What a person says."""

    content: Content
    name: str = ""
    extra: _Fields = {}


class AssistantTurn(msgspec.Struct, frozen=True):
    """An earlier answer, or the beginning of one that is continued."""

    content: Content
    calls: tuple[Call | Opaque, ...] = ()
    refusal: str = ""
    thoughts: tuple[_Fields, ...] = ()
    """Blocks of reasoning before the calls, in the shape of the upstream that sent them."""
    reasoned: str = ""
    """The reasoning before the calls, if it is text alone."""
    extra: _Fields = {}


class ResultTurn(msgspec.Struct, frozen=True):
    """The result of a call."""

    call_id: str
    content: Content
    extra: _Fields = {}


AnyTurn: TypeAlias = SystemTurn | UserTurn | AssistantTurn | ResultTurn


def calls_in(turn: AnyTurn) -> list[Call]:
    """Return the calls of a turn that are valid."""
    return [call for call in turn.calls if isinstance(call, Call)] if isinstance(turn, AssistantTurn) else []


# Tools, and the rest.


class ToolSpec(msgspec.Struct, frozen=True):
    """A function that the model may call."""

    name: str
    description: str = ""
    parameters: _Fields = {}
    strict: bool = False
    more: _Fields = {}
    """Other fields of the function."""
    extra: _Fields = {}
    """Other fields beside the function."""


class ChosenTool(msgspec.Struct, frozen=True):
    """The choice of one function, which has to be called."""

    name: str


class Format(msgspec.Struct, frozen=True):
    """The format of the answer."""

    kind: Literal["text", "json_object", "json_schema"]
    described: _Fields = {}
    """The name of a JSON schema, the schema itself, and more about it."""

    @property
    def schema(self) -> _Fields:
        """The schema; empty for any JSON object."""
        schema: _Fields = self.described.get("schema", {})
        return schema


AnyTool: TypeAlias = ToolSpec | Opaque
ToolChoice: TypeAlias = Literal["auto", "none", "required"] | ChosenTool | Opaque | None


class Prompt(msgspec.Struct, frozen=True):
    """What a model is asked."""

    turns: tuple[AnyTurn, ...]
    tools: tuple[AnyTool, ...] = ()
    choice: ToolChoice = None
    format: Format | Opaque | None = None
    effort: str | None = None
    extra: _Fields = {}
    """All other parameters by OpenAI's names, or an upstream's own. Each dialect has a table of rules for them."""
