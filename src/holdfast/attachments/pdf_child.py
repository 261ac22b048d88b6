"""The child process that reads a PDF: its text by pages, or its pages as pictures. It gets no secret, and has limits.

It runs without the packages of the server: `pypdfium2` is found in the folder that is its first argument. The PDF comes
by standard input, and one JSON object goes to standard output.
"""

from __future__ import annotations

import base64
import importlib
import json
import struct
import sys
import zlib
from typing import Any

LONGEST_SIDE = 1568
"""Pixels of the longer side of a page's picture: models look at no more."""
PASSWORD = 4
"""PDFium's error for a document that is encrypted."""


def read_pdf(data: bytes, how: str, most_pages: int, most_bytes: int) -> dict[str, Any]:
    """Return the number of pages, and texts or pictures of the pages; or the reason why there are none."""
    pdfium = importlib.import_module("pypdfium2")
    try:
        document = pdfium.PdfDocument(data)
        count = len(document)
    except pdfium.PdfiumError as error:
        return {"why": "encrypted" if getattr(error, "err_code", None) == PASSWORD else "damaged"}
    if count == 0:
        return {"why": "damaged"}
    if count > most_pages:
        return {"why": "pages", "pages": count}
    read, left, pages = (_text if how == "text" else _picture), most_bytes, []
    for number in range(count):
        try:
            page = document[number]
            pages.append(read(page))
            page.close()
        except pdfium.PdfiumError:
            pages.append("")  # a damaged page: the others are readable
        left -= len(pages[-1])
        if left < 0:
            return {"why": "long", "pages": count}
    return {"pages": count, "read": pages} if any(pages) or how == "text" else {"why": "damaged"}


def _text(page: Any) -> str:
    text = page.get_textpage()
    try:
        return str(text.get_text_bounded()).replace("\r\n", "\n").replace("\0", "").replace("\ufffe", "-").strip()
    finally:
        text.close()


def _picture(page: Any) -> str:
    scale = LONGEST_SIDE / max(*page.get_size(), 1.0)
    bitmap = page.render(scale=scale, rev_byteorder=True)
    try:
        rows = memoryview(bytes(bitmap.buffer))
        channels = bitmap.n_channels
        return base64.b64encode(png(rows, bitmap.width, bitmap.height, bitmap.stride, channels)).decode("ascii")
    finally:
        bitmap.close()


def png(rows: memoryview, width: int, height: int, stride: int, channels: int) -> bytes:
    """Return pixels in rows of `stride` bytes as a PNG. Channels are 1 (grey), 3 (RGB) or 4 (RGBA)."""
    kind = {1: 0, 3: 2, 4: 6}[channels]
    lines = b"".join(b"\0" + bytes(rows[y * stride : y * stride + width * channels]) for y in range(height))
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines, 6)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in parts
    )


def read_standard_input(packages: str, how: str, most_pages: str, most_bytes: str) -> None:
    """Read the PDF of standard input."""
    sys.path.append(packages)
    try:
        result = read_pdf(sys.stdin.buffer.read(), how, int(most_pages), int(most_bytes))
    except MemoryError:
        result = {"why": "limits"}
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    read_standard_input(*sys.argv[1:])
