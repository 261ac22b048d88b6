"""PDFs for tests, made by hand: with text, without, encrypted, huge, and hostile."""

import zlib
from collections.abc import Iterable, Sequence


def text_pdf(*pages: str) -> bytes:
    """A PDF with a text on each page; an empty text is a page with nothing to read."""
    return pdf([_shown(page) for page in pages])


def pdf(contents: Sequence[bytes], *, filter: bytes = b"", trailer: bytes = b"") -> bytes:
    """A PDF with these content streams, one for each page."""
    count = len(contents)
    kids = b" ".join(b"%d 0 R" % (4 + 2 * number) for number in range(count))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%b] /Count %d >>" % (kids, count),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, content in enumerate(contents):
        page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 200] /Contents %d 0 R %b >>"
        objects.append(page % (5 + 2 * number, b"/Resources << /Font << /F 3 0 R >> >>"))
        objects.append(b"<< /Length %d %b >>\nstream\n%b\nendstream" % (len(content), filter, content))
    return _file(objects, trailer)


def encrypted_pdf() -> bytes:
    """A PDF that opens with a password only."""
    noise = b"<" + b"41" * 32 + b">"
    encrypt = b"/Encrypt << /Filter /Standard /V 1 /R 2 /O %b /U %b /P -44 >> /ID [<00> <00>]" % (noise, noise)
    return pdf([_shown("secret")], trailer=encrypt)


def bomb_pdf(megabytes: int = 3000) -> bytes:
    """A PDF of a few kilobytes whose one page is gigabytes of text: compressed twice."""
    packer = zlib.compressobj(9)
    line = b"BT /F 12 Tf 10 100 Td (boom) Tj ET\n" * 30_000
    first = packer.compress(line) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(line) + packer.flush(zlib.Z_FULL_FLUSH)  # refers to nothing before it
    once = first + again * megabytes + packer.flush()
    return pdf([zlib.compress(once, 9)], filter=b"/Filter [/FlateDecode /FlateDecode]")


def _shown(text: str) -> bytes:
    escaped = text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)").encode("latin-1")
    return b"BT /F 12 Tf 10 100 Td (%b) Tj ET" % escaped if text else b"0 0 50 50 re f"


def _file(objects: Iterable[bytes], trailer: bytes) -> bytes:
    body, places = bytearray(b"%PDF-1.4\n"), []
    for number, each in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj\n%b\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    start = len(body)
    body += b"xref\n0 %d\n0000000000 65535 f \n%b" % (len(places) + 1, table)
    body += b"trailer\n<< /Size %d /Root 1 0 R %b >>\nstartxref\n%d\n%%%%EOF\n" % (len(places) + 1, trailer, start)
    return bytes(body)
