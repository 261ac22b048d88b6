"""Compression of API responses, with zstd or gzip: what the client accepts.

zstd costs a fifth of gzip's time and makes a long session a sixth smaller. Event streams are never compressed: a
compressor delays text.
"""

from __future__ import annotations

import importlib
import sys
import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import Literal, Protocol

from starlette.types import Receive, Scope, Send

from ....asgi.client import Header
from .offload import Offload

SMALLEST = 1400
"""Minimum size of a compressed body, in bytes: a smaller one fits into one packet."""
_AT_ONCE = 16 * 1024  # bytes that are compressed on the event loop: less than a millisecond
_GZIP_LEVEL, _ZSTD_LEVEL = 5, 3
_GZIP = 16 + zlib.MAX_WBITS
_ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"

Coding = Literal["zstd", "gzip"]


class Compressible(Protocol):
    """A response whose body can be compressed."""

    status_code: int

    @property
    def raw_headers(self) -> Sequence[Header]:
        """The headers of the response without compression."""
        ...

    def pieces(self) -> Iterator[bytes]:
        """Yield the body."""
        ...


def takes(coding: Coding, accepted: str) -> bool:
    """Return whether an Accept-Encoding header names a coding, and does not refuse it."""
    for item in accepted.split(","):
        name, _, weight = item.strip().partition(";")
        if name.strip().lower() == coding:
            return weight.replace(" ", "").lower() not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def coding_for(accepted: str) -> Coding | None:
    """Return the coding of a response; None if the client accepts neither."""
    codings: tuple[Coding, ...] = ("zstd", "gzip")
    return next((coding for coding in codings if takes(coding, accepted)), None)


class Compressed:
    """A response that is compressed while it is sent. Large pieces are compressed in a thread."""

    def __init__(self, response: Compressible, coding: Coding, offload: Offload) -> None:
        self._response = response
        self._coding = coding
        self._offload = offload

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        headers = [header for header in self._response.raw_headers if header[0] != b"content-length"]
        headers += [(b"content-encoding", self._coding.encode()), (b"vary", b"accept-encoding")]
        await send({"type": "http.response.start", "status": self._response.status_code, "headers": headers})
        async for piece in self._pieces():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pieces(self) -> AsyncIterator[bytes]:
        """Yield the compressed body. The compressor buffers, so a piece may yield nothing."""
        packer = _packer(self._coding)
        for piece in self._response.pieces():
            pack = partial(packer.compress, piece)
            if packed := pack() if len(piece) <= _AT_ONCE else await self._offload.run(pack):
                yield packed
        yield packer.flush()


class _Packer(Protocol):
    """A compressor of one body."""

    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


def _packer(coding: Coding) -> _Packer:
    if coding == "zstd":
        packer: _Packer = importlib.import_module(_ZSTD).ZstdCompressor(_ZSTD_LEVEL)
        return packer
    return zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP)
