"""The fast path for chunks of plain text, which nearly all chunks are.

Most chunks of an answer are the same bytes around another string. Those bytes are stored, and of a chunk with the same
bytes only the string is decoded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from ...log.segment import needs_no_escape
from .chunks import decode_chunk

decode_text = msgspec.json.Decoder(str).decode


class PlainChunk:
    """The bytes before and after the text of a chunk that is visible text and nothing else.

    Whatever has the same bytes around one JSON string is the same chunk with another text. So the test is exact.
    """

    __slots__ = (
        "_between",
        "_closing",
        "_longest",
        "_pause",
        "_skipped",
        "after",
        "around",
        "before",
        "choice",
        "head",
        "opening",
        "start",
        "stop",
        "tail",
        "two",
        "was_useful",
    )

    _CONTENT = re.compile(rb'"content"\s*:\s*')
    _STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
    _LONGEST_PAUSE = 1024

    def __init__(self, longest: int) -> None:
        self.was_useful = False
        self._longest = longest
        self._pause = self._skipped = 0
        self.forget()

    def forget(self) -> None:
        """Recognise no chunk: no bytes start with one of no prefixes."""
        self.before: bytes | tuple[()] = ()
        self.after = self.opening = b""
        self.head = self.tail = b""
        """The bytes of a whole event before and after the JSON string."""
        self.around = 0
        """Their length together."""
        self.two = 0
        """The length from which a read may be two chunks, or one that is too large."""
        self.start = self.stop = self.choice = 0

    def learn(self, payload: bytes, choice: int) -> None:
        """Recognise chunks like this plain one.

        If that never helps (an upstream that pads each chunk with random letters) it is tried less and less often.
        """
        if self.was_useful:
            self.was_useful, self._pause, self._skipped = False, 0, 0
        elif self._skipped < self._pause:
            self._skipped += 1
            return
        self._pause, self._skipped = min(2 * self._pause + 1, self._LONGEST_PAUSE), 0
        contents = list(self._CONTENT.finditer(payload))
        string = self._STRING.match(payload, contents[0].end()) if len(contents) == 1 else None
        if string is not None and self._is_content(payload, string):
            self.before, self.after = payload[: string.start()], payload[string.end() :]
            self.start, self.stop = len(self.before), -len(self.after)
            self.choice = choice
            self.opening, self._closing = b'data: %b"' % self.before, b'"%b\n\n' % self.after
            self.head, self.tail = self.opening[:-1], self._closing[1:]
            self.around = len(self.head) + len(self.tail)
            self.two = min(2 * (len(self.opening) + len(self._closing)), self._longest)
            # These bytes were not validated: invalid UTF-8 becomes surrogates, which no text has.
            self._between = (self._closing + self.opening).decode("utf-8", "surrogateescape")

    def texts(self, data: bytes) -> tuple[Sequence[str], int]:
        """Return the texts of the chunks up to the last that is like this one, and the end of that; 0 if one is not.

        Between the same bytes the text is unescaped if it needs no JSON escaping.
        """
        start, end = len(self.opening), data.rfind(self._closing)
        if end < start or not data.startswith(self.opening):
            return (), 0
        try:
            inner = data[start:end].decode()
        except UnicodeDecodeError:
            return (), 0
        texts = inner.rsplit(self._between)  # split() would prepare its search again for each piece
        return (texts, end + len(self._closing)) if needs_no_escape("".join(texts)) else ((), 0)

    def _is_content(self, payload: bytes, string: re.Match[bytes]) -> bool:
        """Prove that the string is the content: with another string in its place, another content is read."""
        probe = decode_chunk(payload[: string.start()] + b'"\\u0000probe"' + payload[string.end() :])
        delta = probe.choices[0].delta if probe.choices else None
        return delta is not None and delta.content == "\0probe"
