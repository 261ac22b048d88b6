"""QR codes, for apps that read a link with a camera. Loaded when the first one is shown."""

from __future__ import annotations

import segno


def qr_rows(text: str) -> list[str]:
    """Return the rows of a QR code, one character for each square: 1 is dark. The page draws it."""
    return ["".join("1" if square else "0" for square in row) for row in segno.make(text, error="m").matrix]
