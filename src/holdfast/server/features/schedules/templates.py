"""The prompt of a trigger: a template that is filled with what a call has sent. Pure.

What is filled in is text, and is not read as a template again. The model cannot tell it from the words of the owner.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ....errors import BadRequest

_PLACE = re.compile(r"\{\{\s*([\w.-]{1,200})\s*\}\}")
LARGEST_PAYLOAD = 100_000
"""Maximum size of the body of a call, in bytes."""


def filled_template(template: str, payload: bytes) -> str:
    """Return the prompt. `{{body}}` is the whole body; `{{a.b}}` is a field of a JSON body, or nothing."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        raise BadRequest("The body of a call is text or JSON, in UTF-8.") from None
    body = _json(payload)
    prompt = _PLACE.sub(lambda found: text if found[1] == "body" else _field(body, found[1]), template)
    if not prompt.strip():
        raise BadRequest("The prompt of the trigger is empty with this body.")
    if len(prompt) > 10 * LARGEST_PAYLOAD:
        raise BadRequest("The prompt of the trigger is too long with this body.", status=413, code="body_too_large")
    return prompt


def _json(payload: bytes) -> Any:
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return None


def _field(body: Any, path: str) -> str:
    """Return a field as text: nothing if it is not there, JSON if it is no text."""
    for name in path.split("."):
        if isinstance(body, dict):
            body = body.get(name)
        elif isinstance(body, list) and name.isascii() and name.isdigit() and int(name[:9]) < len(body):
            body = body[int(name[:9])]
        else:
            return ""
    if body is None:
        return ""
    return body if isinstance(body, str) else msgspec.json.encode(body).decode()
