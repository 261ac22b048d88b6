"""Form data with files that is passed on to an upstream: its parts, and its one field `model`.

The upstream has another parser. Input that two parsers could read differently is refused: otherwise a caller could show
us one model, and the upstream another.
"""

from __future__ import annotations

import re

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


class FormData:
    """A form with exactly one field `model`."""

    def __init__(self, content_type: str, body: bytes) -> None:
        self._delimiter = b"\r\n--" + _boundary(content_type)
        before, *parts, end = (b"\r\n" + body).split(self._delimiter)
        if before or end not in (b"--", b"--\r\n"):
            raise _bad("it does not begin and end with its boundary")
        self._parts = [_split(part) for part in parts]
        named = [number for number, (head, _) in enumerate(self._parts) if _name(head) == b"model"]
        if len(named) != 1:
            raise BadRequest("The form has no field model, or more than one.", param="model")
        self._number = named[0]
        self.text_size = sum(len(content) for head, content in self._parts if b"filename" not in head.lower())
        """The bytes of all fields but files, which have no tokens."""
        self.model = self._parts[self._number][1][:_LONGEST_MODEL].decode("utf-8", "replace")

    def with_model(self, model: str) -> bytes:
        """Return the form with another model."""
        parts = [*self._parts]
        parts[self._number] = parts[self._number][0], model.encode()
        joined = b"".join(b"%b\r\n%b\r\n\r\n%b" % (self._delimiter, head, content) for head, content in parts)
        return joined[2:] + self._delimiter + b"--\r\n"


def _boundary(content_type: str) -> bytes:
    if (found := _BOUNDARY.fullmatch(content_type)) is None:
        raise _bad("its Content-Type has no boundary, or more than that")
    return (found[1] or found[2]).encode("latin-1")


def _split(part: bytes) -> tuple[bytes, bytes]:
    """Return the headers of a part, and its content."""
    head, blank, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
    if not blank or not part.startswith(b"\r\n"):
        raise _bad("a part has no headers")
    return head, content


def _name(head: bytes) -> bytes:
    """Return the name of a part's field. Every header is on one line, and one of them has the name, once."""
    lines = head.split(b"\r\n")
    found = [_DISPOSITION.fullmatch(line) for line in lines if line.lower().startswith(b"content-disposition")]
    if len(found) != 1 or found[0] is None or any(_ODD.search(line) for line in lines):
        raise _bad("a part has not exactly one valid Content-Disposition")
    given = [(key.lower(), quoted or plain) for key, quoted, plain in _PARAMETER.findall(found[0][1])]
    names: list[bytes] = [value for key, value in given if key in (b"name", b"name*")]
    if len(names) != 1 or b"\\" in names[0] or b"name*" in dict(given):
        raise _bad("a part has no name, or more than one")
    return names[0]


def _bad(reason: str) -> BadRequest:
    return BadRequest(f"The form cannot be passed on: {reason}.")
