"""Compressed responses. None is requested (`Accept-Encoding: identity`), but some gateways compress all the same.

gzip and deflate are decoded as they arrive, 64 kB at a time, so that a small body that expands to a large one reaches
the limits of its decoder before it fills the memory. One read may expand to 4 MiB: more would block the event loop.
Other encodings (br, zstd) are refused, with an error that names them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from ...errors import ProviderBroke, ProviderError
from ...events import Yielded
from .decoder import ResponseDecoder

__all__ = ["InflatingDecoder", "can_be_inflated", "encoding_of", "inflated"]

_PIECE = 64 * 1024
_MAX_FROM_A_READ = 4 * 1024 * 1024
_GZIP_OR_ZLIB, _RAW = 47, -15  # zlib's `wbits`
_DEFLATE = 8  # the lower half of the first byte of a zlib stream: the method


def encoding_of(header: str) -> str:
    """Return the encoding of a body, from its `Content-Encoding`; empty if it is not compressed."""
    encoding = header.strip().lower().removeprefix("x-")
    return "" if encoding == "identity" else encoding


def can_be_inflated(encoding: str) -> bool:
    """Return whether an encoding can be decoded."""
    return encoding in ("", "gzip", "deflate")


class _Inflater:
    """Decompresses one body."""

    def __init__(self) -> None:
        self._stream: Any = None  # zlib does not name its type

    @property
    def has_ended(self) -> bool:
        return self._stream is not None and bool(self._stream.eof)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the decoded data in pieces. Raises `zlib.error`."""
        if self._stream is None:
            has_header = data[:2] == b"\x1f\x8b" or (data[0] & 0x0F) == _DEFLATE
            self._stream = zlib.decompressobj(_GZIP_OR_ZLIB if has_header else _RAW)
        while data and not self._stream.eof:
            before = self._stream.copy()
            try:
                piece = self._stream.decompress(data, _PIECE)
            except zlib.error:
                yield _readable_part(before, data)
                raise
            data = self._stream.unconsumed_tail
            if piece:
                yield piece


def _readable_part(stream: Any, data: bytes) -> bytes:
    """Return the readable part of faulty data: zlib returns none of it."""
    readable = bytearray()
    try:
        for at in range(len(data)):
            readable += stream.decompress(data[at : at + 1], _PIECE)
    except zlib.error:
        pass  # the faulty byte
    return bytes(readable)


def inflated(body: bytes, encoding: str, limit: int) -> bytes:
    """Return up to `limit` decoded bytes of a body; empty if it cannot be decoded."""
    if not encoding or not body:
        return body
    plain = bytearray()
    try:
        for piece in _Inflater().feed(body):
            plain += piece
            if len(plain) >= limit:
                break
    except zlib.error:
        return b""
    return bytes(plain[:limit])


class InflatingDecoder:
    """Decompresses a response for the decoder of its dialect."""

    def __init__(self, decoder: ResponseDecoder, name: str) -> None:
        self._decoder = decoder
        self._name = name
        self._inflater = _Inflater()

    @property
    def over(self) -> bool:
        """The attribute of the dialect's decoder."""
        return self._decoder.over

    @property
    def finished(self) -> bool:
        """The attribute of the dialect's decoder."""
        return self._decoder.finished

    @property
    def error(self) -> ProviderError | None:
        """The attribute of the dialect's decoder."""
        return self._decoder.error

    @error.setter
    def error(self, error: ProviderError | None) -> None:
        self._decoder.error = error

    def feed(self, data: bytes) -> list[Sequence[Yielded]]:
        """Return the events that one more read completes."""
        events: list[Sequence[Yielded]] = []
        room = _MAX_FROM_A_READ
        try:
            for piece in self._inflater.feed(data) if data else ():
                events += self._decoder.feed(piece)
                room -= len(piece)
                if self.over:
                    break
                if room < 0:
                    events.append(
                        self._broken(f"a compressed answer that expands to over {_MAX_FROM_A_READ} bytes at once")
                    )
                    break
        except zlib.error:
            events.append(self._broken("a compressed answer that cannot be decompressed"))
        return events

    def _broken(self, what: str) -> list[Yielded]:
        """End the answer as one that was cut off, with the reason."""
        last = self._decoder.end(cut=True)
        if self.error is not None:
            self.error = ProviderBroke(f"{self._name} sent {what}.")
        return last

    def end(self, *, cut: bool = False) -> list[Yielded]:
        """Return the last events. A body without the end of its compression was cut off."""
        return self._decoder.end(cut=cut or not self._inflater.has_ended)
