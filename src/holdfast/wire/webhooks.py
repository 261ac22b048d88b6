"""What a webhook says and how it is signed: by the Standard Webhooks specification, in the words of OpenAI's events."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

import msgspec

from ..events import Settlement
from . import openai_responses

EVENTS = tuple(f"response.{word}" for word in ("completed", "incomplete", "failed", "cancelled"))
SECRET = "whsec_"
"""What a secret begins with where the rest of it is in base64."""


def event_id(run: str) -> str:
    """Return the id of the one event that a run has: whoever is told twice can see that by it."""
    return "evt_" + run.removeprefix("run_")


def event_type(settled: Settlement) -> str:
    """Return what an ending is called."""
    return f"response.{openai_responses.status(settled)}"


def payload(run: str, settled: Settlement, at: float) -> bytes:
    """Return what is sent: which response has ended and how, and nothing of what was said."""
    said = {
        "object": "event",
        "id": event_id(run),
        "type": event_type(settled),
        "created_at": int(at),
        "data": {"id": openai_responses.response_id(run)},
    }
    return msgspec.json.encode(said)


def key_of(secret: str) -> bytes:
    """Return the bytes of a secret. Raises ValueError where it promises base64 and is none."""
    if not secret.startswith(SECRET):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(SECRET), validate=True)
    except binascii.Error:
        raise ValueError("what follows whsec_ is not base64") from None


def headers(key: bytes, id: str, at: int, body: bytes) -> dict[str, str]:
    """Return the headers that prove who sent it, and when."""
    signed = hmac.new(key, b"%b.%d.%b" % (id.encode(), at, body), hashlib.sha256).digest()
    return {
        "Content-Type": "application/json",
        "webhook-id": id,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
    }
