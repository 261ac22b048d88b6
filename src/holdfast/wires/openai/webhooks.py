"""Payload and signature of webhooks: by the Standard Webhooks specification, with OpenAI's event names."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets

import msgspec

from ...events import Settlement
from . import responses as openai_responses

SECRET = "whsec_"
"""The prefix of a secret in base64."""


def new_secret() -> str:
    """Return a new secret for signatures."""
    return SECRET + base64.b64encode(secrets.token_bytes(32)).decode()


def event_id(run: str) -> str:
    """Return the event id of a run. A repeated delivery has the same id."""
    return "evt_" + run.removeprefix("run_")


def event_type(settled: Settlement) -> str:
    """Return the event type of a settlement."""
    return f"response.{openai_responses.status(settled)}"


def payload(run: str, settled: Settlement, at: float) -> bytes:
    """Return the payload: the id of the response and its outcome, without its text."""
    fields = {
        "object": "event",
        "id": event_id(run),
        "type": event_type(settled),
        "created_at": int(at),
        "data": {"id": openai_responses.response_id(run)},
    }
    return msgspec.json.encode(fields)


def key_of(secret: str) -> bytes:
    """Return the bytes of a secret. Raises ValueError for invalid base64."""
    if not secret.startswith(SECRET):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(SECRET), validate=True)
    except binascii.Error:
        raise ValueError("what follows whsec_ is not base64") from None


def headers(key: bytes, id: str, at: int, body: bytes) -> dict[str, str]:
    """Return the headers with the signature and the time."""
    return {
        "Content-Type": "application/json",
        "webhook-id": id,
        "webhook-timestamp": str(at),
        "webhook-signature": _signature(key, id, at, body),
    }


def is_signed(key: bytes, id: str, at: int, body: bytes, signatures: str) -> bool:
    """Return whether one of the signatures in a header is right. A sender that changes its secret sends two."""
    right = _signature(key, id, at, body).encode()
    return any(hmac.compare_digest(right, each.encode("utf-8", "replace")) for each in signatures.split(" "))


def _signature(key: bytes, id: str, at: int, body: bytes) -> str:
    signed = hmac.new(key, b"%b.%d.%b" % (id.encode(), at, body), hashlib.sha256).digest()
    return f"v1,{base64.b64encode(signed).decode()}"
