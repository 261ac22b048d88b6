"""Codes of an authenticator app: TOTP (RFC 6238), with SHA-1, six digits and 30 seconds, as every app has it."""

from __future__ import annotations

import hmac
import secrets
import struct
from base64 import b32decode, b32encode
from collections.abc import Iterator
from urllib.parse import quote, urlencode

STEP = 30.0
"""Seconds for which a code is shown."""
DIGITS = 6
LATE = 1
"""Number of steps by which the clock of the app may differ, in each direction."""
ISSUER = "Holdfast"


def new_totp_secret() -> str:
    """Return a new secret of 160 random bits, in base32."""
    return b32encode(secrets.token_bytes(20)).decode()


def totp_code(secret: str, step: int) -> str:
    """Return the code of a step: the number of periods since 1970."""
    digest = hmac.digest(b32decode(secret), struct.pack(">Q", step), "sha1")
    offset = digest[-1] & 0x0F
    number = struct.unpack(">I", digest[offset : offset + 4])[0] & 0x7FFF_FFFF
    return f"{number % 10**DIGITS:0{DIGITS}}"


def step_of(secret: str, code: str, now: float, after: int) -> int | None:
    """Return the step of a code that is valid now, and newer than the step `after`; None if there is none."""
    matching = (step for step in _steps(now) if hmac.compare_digest(totp_code(secret, step).encode(), code.encode()))
    return next((step for step in matching if step > after), None)


def _steps(now: float) -> Iterator[int]:
    current = int(now // STEP)
    yield from range(max(0, current - LATE), current + LATE + 1)


def totp_link(secret: str, account: str) -> str:
    """Return the link that an authenticator app reads from a QR code."""
    query = urlencode({"secret": secret, "issuer": ISSUER})
    return f"otpauth://totp/{quote(f'{ISSUER}:{account}')}?{query}"
