"""The digest of a request, by which one that is repeated with its Idempotency-Key is told from another."""

from __future__ import annotations

import hashlib

from starlette.requests import Request


def request_digest(request: Request, body: bytes) -> str:
    """Return the digest of path, query, session and body."""
    query = f"?{request.url.query}" if request.url.query else ""
    session = ",".join(request.headers.getlist("x-session-id"))
    place = f"{request.url.path}{query}\n{session}\n"
    return hashlib.sha256(place.encode() + body).hexdigest()
