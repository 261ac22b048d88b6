"""Names and e-mail addresses of accounts: their rules, and the form in which they are compared."""

from __future__ import annotations

import re
import unicodedata

from .....errors import BadRequest

ACCOUNT_NAME_RULE = "1 to 64 letters, digits or any of . _ -"
_ACCOUNT_NAME = re.compile(r"[\w.-]{1,64}")
_EMAIL = re.compile(r"[^@\s<>\"]{1,64}@[^@\s<>\"]{1,185}")

_CYRILLIC = dict(zip("авекмнорстухіјѕһԁԛԝӏ", "abekmhopctyxijshdqwl", strict=True))
_GREEK = dict(zip("αβεζηικμνορτυχω", "abezhikmnoptyxw", strict=True))
_LOOK_ALIKE = str.maketrans({**_CYRILLIC, **_GREEK, "ı": "i", "ɑ": "a", "ɡ": "g"})
"""Letters that look like a Latin one, small or capital."""


def folded(name: str) -> str:
    """Return the form in which names are compared: without case and width, and with look-alike letters unified.

    So no account can get a name that looks like another one.
    """
    plain = unicodedata.normalize("NFKC", name.strip()).casefold()
    return unicodedata.normalize("NFKC", plain).translate(_LOOK_ALIKE)


def check_names(name: str, email: str) -> None:
    """Refuse an invalid name or e-mail address."""
    if not _ACCOUNT_NAME.fullmatch(name) or unicodedata.normalize("NFKC", name) != name:
        raise BadRequest(f"A name has {ACCOUNT_NAME_RULE}.", param="name", code="bad_name")
    if email and not (_EMAIL.fullmatch(email) and email.isprintable()):
        raise BadRequest(f"{email!r} is not an e-mail address.", param="email", code="bad_email")
