"""Form data with files: passed on to an upstream with its one field `model`, or read as the request of a chat.

The upstream has another parser. Input that two parsers could read differently is refused: otherwise a caller could show
us one model, and the upstream another.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from ....attachments.kinds import inline_url
from ....errors import BadRequest

_BOUNDARY = re.compile(
    r"""multipart/form-data\s*;\s*boundary=(?:"([\w'()+,./:=?-]{1,70})"|([\w'+.-]{1,70}))\s*""",
    re.IGNORECASE | re.ASCII,
)
_DISPOSITION = re.compile(
    rb"""content-disposition\s*:\s*form-data((?:\s*;\s*[\w*-]+=(?:"(?:[^"\\]|\\.)*"|[^;\s"]+))*)\s*""", re.IGNORECASE
)
_PARAMETER = re.compile(rb"""([\w*-]+)=(?:"((?:[^"\\]|\\.)*)"|([^;\s"]+))""")
_ODD = re.compile(rb"^[ \t]|[\r\n\0]")
"""Header lines that continue the one before, or that another parser would split."""
_LONGEST_MODEL = 300


FORM = "multipart/form-data"
_FILES = (b"files", b"files[]", b"file")
_AS_TEXT = frozenset({"message", "model", "session_id", "user"})
"""Fields of a chat that are text, whatever they look like. The others are JSON, as in a request that is JSON."""


class Field(NamedTuple):
    """A part of a form."""

    head: bytes
    content: bytes
    name: bytes
    filename: str | None
    """The name of its file; None if it is none."""


class FormData:
    """A form with exactly one field `model`."""

    def __init__(self, content_type: str, body: bytes) -> None:
        self._delimiter = b"\r\n--" + _boundary(content_type)
        self._fields = _fields(self._delimiter, body)
        named = [number for number, field in enumerate(self._fields) if field.name == b"model"]
        if len(named) != 1:
            raise BadRequest("The form has no field model, or more than one.", param="model")
        self._number = named[0]
        self.text_size = sum(len(field.content) for field in self._fields if field.filename is None)
        """The bytes of all fields but files, which have no tokens."""
        self.model = self._fields[self._number].content[:_LONGEST_MODEL].decode("utf-8", "replace")

    def with_model(self, model: str) -> bytes:
        """Return the form with another model."""
        parts = [(field.head, field.content) for field in self._fields]
        parts[self._number] = parts[self._number][0], model.encode()
        joined = b"".join(b"%b\r\n%b\r\n\r\n%b" % (self._delimiter, head, content) for head, content in parts)
        return joined[2:] + self._delimiter + b"--\r\n"


def chat_in(content_type: str, body: bytes) -> bytes:
    """Return a chat that was sent as a form as the JSON of the same request.

    `message` is the question, or `messages` has all of them as JSON. `files` go with the last one.
    """
    fields = _fields(b"\r\n--" + _boundary(content_type), body)
    said = [field for field in fields if field.name not in _FILES]
    names = [field.name.decode("utf-8", "replace") for field in said]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadRequest(f"The form has the field {twice[:80]} more than once.", param=twice[:80])
    request = {name: _value(name, field.content) for name, field in zip(names, said, strict=True)}
    files = [_file(field) for field in fields if field.name in _FILES]
    match request:
        case {"message": _, "messages": _}:
            raise BadRequest("Send the question in message, or as the last of messages, and not both.", param="message")
        case {"message": question, **rest}:
            request = {**rest, "messages": _with_files([{"role": "user", "content": question}], files)}
        case {"messages": messages, **rest}:
            request = {**rest, "messages": _with_files(messages, files)}
    return msgspec.json.encode(request)


def _value(name: str, content: bytes) -> Any:
    text = content.decode("utf-8", "replace")
    if name in _AS_TEXT:
        return text
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text


def _file(field: Field) -> dict[str, Any]:
    data = inline_url("application/octet-stream", field.content)
    return {"type": "file", "file": {"filename": field.filename or "file", "file_data": data}}


def _with_files(messages: Any, files: list[dict[str, Any]]) -> Any:
    if not files:
        return messages
    match messages:
        case [*before, {"role": "user", "content": str(text)} as last]:
            return [*before, {**last, "content": [*files, {"type": "text", "text": text}]}]
        case [*before, {"role": "user", "content": list(parts)} as last]:
            return [*before, {**last, "content": [*files, *parts]}]
    raise BadRequest("Files go with a question: send it in message, or as the last of messages.", param="message")


def _fields(delimiter: bytes, body: bytes) -> list[Field]:
    before, *parts, end = (b"\r\n" + body).split(delimiter)
    if before or end not in (b"--", b"--\r\n"):
        raise _bad("it does not begin and end with its boundary")
    return [_field(part) for part in parts]


def _boundary(content_type: str) -> bytes:
    if (found := _BOUNDARY.fullmatch(content_type)) is None:
        raise _bad("its Content-Type has no boundary, or more than that")
    return (found[1] or found[2]).encode("latin-1")


def _field(part: bytes) -> Field:
    """Return a part. Every header is on one line, and one of them has the name, once."""
    head, blank, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
    if not blank or not part.startswith(b"\r\n"):
        raise _bad("a part has no headers")
    lines = head.split(b"\r\n")
    found = [_DISPOSITION.fullmatch(line) for line in lines if line.lower().startswith(b"content-disposition")]
    if len(found) != 1 or found[0] is None or any(_ODD.search(line) for line in lines):
        raise _bad("a part has not exactly one valid Content-Disposition")
    given = [(key.lower(), quoted or plain) for key, quoted, plain in _PARAMETER.findall(found[0][1])]
    names: list[bytes] = [value for key, value in given if key in (b"name", b"name*")]
    if len(names) != 1 or b"\\" in names[0] or b"name*" in dict(given):
        raise _bad("a part has no name, or more than one")
    files = [value for key, value in given if key in (b"filename", b"filename*")]
    return Field(head, content, names[0], files[0].decode("utf-8", "replace") if files else None)


def _bad(reason: str) -> BadRequest:
    return BadRequest(f"The form cannot be read: {reason}.")
