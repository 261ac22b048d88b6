"""AWS Signature Version 4 of a request."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit

__all__ = ["AwsCredentials", "signed_headers"]

_ALGORITHM = "AWS4-HMAC-SHA256"


class AwsCredentials(NamedTuple):
    """An AWS access key: its id, its secret, and a session token if it is temporary."""

    id: str
    secret: str
    token: str = ""


def signed_headers(
    url: str,
    body: bytes,
    credentials: AwsCredentials,
    region: str,
    service: str,
    *,
    method: str = "POST",
    now: datetime | None = None,
) -> dict[str, str]:
    """Return the headers that sign a request. `now` is the time of the signature."""
    moment = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{moment[:8]}/{region}/{service}/aws4_request"
    parts = urlsplit(url)
    headers = {"host": parts.netloc, "x-amz-date": moment}
    if credentials.token:
        headers["x-amz-security-token"] = credentials.token
    names = ";".join(sorted(headers))
    canonical = _canonical(method, parts.path, parts.query, headers, names, body)
    text = "\n".join([_ALGORITHM, moment, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    signature = hmac.new(_key(credentials.secret, moment[:8], region, service), text.encode(), hashlib.sha256)
    authorization = (
        f"{_ALGORITHM} Credential={credentials.id}/{scope}, SignedHeaders={names}, Signature={signature.hexdigest()}"
    )
    return {name: value for name, value in headers.items() if name != "host"} | {"Authorization": authorization}


def _canonical(method: str, path: str, query: str, headers: Mapping[str, str], names: str, body: bytes) -> str:
    """Return the canonical request. The path is URL-encoded a second time, as all services but S3 require."""
    pairs = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in parse_qsl(query, True))
    lines = [f"{name}:{headers[name].strip()}" for name in sorted(headers)]
    return "\n".join(
        [
            method,
            quote(path or "/", safe="/-_.~"),
            "&".join(f"{name}={value}" for name, value in pairs),
            *lines,
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        ]
    )


def _key(secret: str, day: str, region: str, service: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key
