"""Parts of a prompt, for dialects into which they are rendered."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

from ..errors import Unsupported
from ..prompt import (
    AnyTurn,
    AssistantTurn,
    Call,
    Content,
    Format,
    Opaque,
    Part,
    ResultTurn,
    TextPart,
    UserTurn,
)

__all__ = [
    "InlineData",
    "arguments_object",
    "assistant_text",
    "called_names",
    "calls_of",
    "content_parts",
    "inline_data",
    "pictures_after_results",
    "plain_text",
    "refuse_part",
    "schema_of",
    "speaker_first",
    "thoughts_of",
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


def content_parts(content: Content) -> tuple[Part, ...]:
    """Return a turn's content as parts."""
    if isinstance(content, Opaque):
        raise Unsupported("A message's content must be a string or a list of parts.", "messages")
    return (TextPart(content),) if isinstance(content, str) else content or ()


def speaker_first(turn: UserTurn) -> tuple[Part, ...]:
    """Return the parts of a user's turn. If it has a name, a text with the name comes first."""
    parts = content_parts("" if turn.content is None else turn.content)
    return (TextPart(f"{turn.name}:"), *parts) if turn.name else parts


def refuse_part(part: Part, who: str) -> NoReturn:
    """Raise `Unsupported` for a part that a dialect does not have there."""
    raise Unsupported(f"{who} takes no part of the type {part.kind!r} here.", "messages")


def plain_text(content: Content, who: str) -> str:
    """Return content that must be text, such as that of a system message. Its parts become paragraphs."""
    if isinstance(content, str):
        return content
    texts = [part.text if isinstance(part, TextPart) else refuse_part(part, who) for part in content_parts(content)]
    return "\n\n".join(filter(None, texts))


def assistant_text(turn: AssistantTurn, who: str) -> str:
    """Return the text and the refusal of an assistant's turn."""
    return "\n\n".join(filter(None, [plain_text(turn.content, who), turn.refusal]))


def thoughts_of(turn: AssistantTurn, *kinds: str) -> list[dict[str, Any]]:
    """Return the reasoning of a turn that is in the shape of one dialect, by its types."""
    return [thought for thought in turn.thoughts if thought.get("type") in kinds]


def calls_of(turn: AssistantTurn) -> Sequence[Call]:
    """Return the calls of functions. Raises `Unsupported` if there are others."""
    calls = [call for call in turn.calls if isinstance(call, Call) and call.kind == "function"]
    if len(calls) < len(turn.calls):
        raise Unsupported("A tool call must be a call of a function.", "messages")
    return calls


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


def called_names(turns: Iterable[AnyTurn]) -> dict[str, str]:
    """Return the name of each call's function by the call's id: a result has only the id."""
    answers = (turn for turn in turns if isinstance(turn, AssistantTurn))
    return {call.id: call.name for turn in answers for call in turn.calls if isinstance(call, Call) and call.id}


def schema_of(form: Format | Opaque | None, who: str) -> dict[str, Any] | None:
    """Return the JSON schema for an answer: empty for any JSON object, None for text."""
    if isinstance(form, Opaque):
        kinds = "text, json_object or json_schema"
        raise Unsupported(f"{who} takes a response_format of the type {kinds}.", "response_format")
    if form is None or form.kind == "text":
        return None
    return form.schema


def pictures_after_results(turns: Sequence[AnyTurn]) -> list[AnyTurn]:
    """Move parts of results that are not text into a user's turn after them: OpenAI accepts only text there."""
    moved: list[AnyTurn] = []
    pictures: tuple[Part, ...] = ()
    for turn in turns:
        if isinstance(turn, ResultTurn) and isinstance(turn.content, tuple):
            others = tuple(part for part in turn.content if not (isinstance(part, TextPart) and part.kind == "text"))
            texts = [part.text for part in turn.content if isinstance(part, TextPart) and part.kind == "text"]
            texts = ["\n\n".join(texts), "(What else it returned follows in the next message.)" if others else ""]
            turn = ResultTurn(turn.call_id, "\n\n".join(filter(None, texts)), turn.extra)
            pictures += others
        elif not isinstance(turn, ResultTurn) and pictures:
            moved.append(UserTurn(pictures))
            pictures = ()
        moved.append(turn)
    return [*moved, UserTurn(pictures)] if pictures else moved
