"""Compression of API responses for clients that accept gzip.

Python's standard library has no zstd before 3.14, and every client that takes zstd takes gzip too. Event streams are
never compressed: a compressor delays text.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import Protocol

from starlette.types import Receive, Scope, Send

from ...asgi.client import Header
from .offload import Offload

SMALLEST = 1400
"""Minimum size of a compressed body, in bytes: a smaller one fits into one packet."""
_AT_ONCE = 16 * 1024  # bytes that are compressed on the event loop: less than a millisecond
_LEVEL = 5
_GZIP = 16 + zlib.MAX_WBITS


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


def takes_gzip(accepted: str) -> bool:
    """Return whether an Accept-Encoding header names gzip, and does not refuse it."""
    for coding in accepted.split(","):
        name, _, weight = coding.strip().partition(";")
        if name.strip().lower() == "gzip":
            return weight.replace(" ", "").lower() not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


class Compressed:
    """A response that is compressed while it is sent. Large pieces are compressed in a thread."""

    def __init__(self, response: Compressible, offload: Offload) -> None:
        self._response = response
        self._offload = offload

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        headers = [header for header in self._response.raw_headers if header[0] != b"content-length"]
        headers += [(b"content-encoding", b"gzip"), (b"vary", b"accept-encoding")]
        await send({"type": "http.response.start", "status": self._response.status_code, "headers": headers})
        async for piece in self._pieces():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pieces(self) -> AsyncIterator[bytes]:
        """Yield the compressed body. The compressor buffers, so a piece may yield nothing."""
        packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        for piece in self._response.pieces():
            pack = partial(packer.compress, piece)
            if packed := pack() if len(piece) <= _AT_ONCE else await self._offload.run(pack):
                yield packed
        yield packer.flush()
