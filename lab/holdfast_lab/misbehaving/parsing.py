"""HTTP/1.1 from bytes: headers, chunked bodies, whole requests. Strict, because servers are judged by it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self


class HeaderMap(Mapping[str, str]):
    """Headers by name in any case; a name that came twice has its values joined, and all stand in `pairs`."""

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self.pairs = list(pairs)
        self._values: dict[str, str] = {}
        for name, value in self.pairs:
            key = name.lower()
            self._values[key] = f"{self._values[key]}, {value}" if key in self._values else value

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"HeaderMap({self._values!r})"

    @classmethod
    def parse(cls, lines: Iterable[bytes]) -> Self:
        pairs = []
        for line in lines:
            name, colon, value = line.decode("latin-1").partition(":")
            if not colon or not name or name != name.strip():
                raise ValueError(f"not a header line: {line!r}")
            pairs.append((name, value.strip()))
        return cls(pairs)


class ChunkDecoder:
    """Takes the bytes of a chunked body as they come, gives the content; strict, because servers are judged by it."""

    def __init__(self) -> None:
        self.done = False
        self._buffer = bytearray()
        self._state: Literal["size", "data", "data-end", "trailer"] = "size"
        self._left = 0

    @property
    def rest(self) -> bytes:
        """What came after the end of the body."""
        return bytes(self._buffer)

    def feed(self, data: bytes) -> bytes:
        self._buffer += data
        content = bytearray()
        while not self.done and (self._take_data(content) if self._state == "data" else self._take_line()):
            pass
        return bytes(content)

    def _take_data(self, content: bytearray) -> bool:
        taken = self._buffer[: self._left]
        del self._buffer[: len(taken)]
        content += taken
        self._left -= len(taken)
        if self._left == 0:
            self._state = "data-end"
        return self._left == 0

    def _take_line(self) -> bool:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            return False
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        if self._state == "size":
            self._left = self._size(line)
            self._state = "data" if self._left else "trailer"
        elif self._state == "data-end":
            if line:
                raise ValueError(f"a chunk is longer than it said: {line[:40]!r}")
            self._state = "size"
        elif not line:
            self.done = True
        return True

    @staticmethod
    def _size(line: bytes) -> int:
        digits = line.partition(b";")[0].strip()
        if not re.fullmatch(rb"[0-9a-fA-F]{1,15}", digits):
            raise ValueError(f"not a chunk size: {line[:40]!r}")
        return int(digits, 16)


@dataclass(frozen=True)
class ParsedRequest:
    method: str
    path: str
    version: str
    headers: HeaderMap
    body: bytes = b""


class RequestParser:
    """Bytes in, whole requests out."""

    def __init__(self) -> None:
        self.wants_continue = False
        self._buffer = bytearray()
        self._head: ParsedRequest | None = None
        self._chunks: ChunkDecoder | None = None
        self._body = bytearray()
        self._length = 0

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def take(self) -> ParsedRequest | None:
        """The next request, if all of it is here."""
        if self._head is None:
            self._read_head()
        if self._head is None or not self._read_body():
            return None
        request = replace(self._head, body=bytes(self._body))
        self._head, self._chunks = None, None
        self._body.clear()
        return request

    def _read_head(self) -> None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        request_line, *lines = bytes(self._buffer[:end]).split(b"\r\n")
        del self._buffer[: end + 4]
        method, path, version = request_line.decode("latin-1").split(" ")
        headers = HeaderMap.parse(lines)
        self._head = ParsedRequest(method, path, version, headers)
        self._chunks = ChunkDecoder() if headers.get("transfer-encoding", "").lower() == "chunked" else None
        self._length = int(headers.get("content-length", "0"))
        self.wants_continue = headers.get("expect", "").lower() == "100-continue"

    def _read_body(self) -> bool:
        if self._chunks is None:
            if len(self._buffer) < self._length:
                return False
            self._body += self._buffer[: self._length]
            del self._buffer[: self._length]
            return True
        self._body += self._chunks.feed(bytes(self._buffer))
        self._buffer.clear()
        if self._chunks.done:
            self._buffer += self._chunks.rest
        return self._chunks.done
