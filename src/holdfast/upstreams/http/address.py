"""The address of an upstream: base URL, query and headers of its requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit, urlunsplit

__all__ = ["UpstreamAddress", "key_in", "origin_of", "request_headers", "secrets_of"]

_SECRET_NAMES = ("auth", "key", "token", "secret", "cookie", "sig", "password")


class UpstreamAddress:
    """A base URL, checked once. Each request has the query of the base URL and the `query` of the settings."""

    def __init__(self, base_url: str, query: Mapping[str, str] | None = None) -> None:
        parts = urlsplit(base_url.strip())
        if not base_url:
            raise ValueError("base_url is not set")
        if parts.scheme not in ("http", "https") or not _is_host(parts.hostname):
            shown = _without_secrets(base_url)
            raise ValueError(f"base_url must begin with http:// or https:// and name a host, unlike {shown!r}")
        if parts.username is not None:
            raise ValueError("base_url must not hold a name or password: use api_key or headers")
        self._parts = parts
        self._query = "&".join(filter(None, [parts.query, urlencode(query or {})]))

    def of(self, path: str, query: str = "") -> str:
        """Return the URL of a path."""
        parts = self._parts
        query = "&".join(part for part in (self._query, query) if part)
        return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + path, query, ""))

    @property
    def is_versioned(self) -> bool:
        """Whether the base URL ends with `/v1`."""
        return self._parts.path.rstrip("/").endswith("/v1")

    def redirected(self, url: str, location: str) -> str | None:
        """Return the target of a redirect, if it is on the same origin."""
        target = urljoin(url, location)
        return target if location and origin_of(target) == origin_of(url) else None

    def query(self) -> list[tuple[str, str]]:
        """Return the fields of the query twice: decoded, and as written in the URL."""
        written = [part.partition("=")[::2] for part in self._query.split("&")]
        return [*parse_qsl(self._query), *written]


def origin_of(url: str) -> str:
    """Return the scheme, host and port of a URL, without a user and password; empty if it has none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not host.isascii() or not host.isprintable():
        return ""
    host = f"[{host}]" if ":" in host else host
    default_port = {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.scheme}://{host}" if port in (None, default_port) else f"{parts.scheme}://{host}:{port}"


def _without_secrets(url: str) -> str:
    """Return a URL without its query, user and password."""
    return re.sub(r"//[^/?#]*@", "//", url.partition("?")[0])


def _is_host(name: str | None) -> bool:
    try:
        return bool(name and name.encode("idna"))
    except UnicodeError:
        return False


def key_in(header: str, key: str | None) -> dict[str, str]:
    """Return the header with the API key, if there is one. Only `Authorization` has a scheme."""
    key = (key or "").strip()
    return {header: f"Bearer {key}" if header.lower() == "authorization" else key} if key else {}


def request_headers(key: Mapping[str, str], headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of each request; configured ones replace ours."""
    ours = {
        "User-Agent": "holdfast",
        "Accept": "text/event-stream, application/json",
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        **key,
    }
    given = {name.lower() for name in headers}
    merged = {name: value for name, value in ours.items() if name.lower() not in given} | dict(headers)
    for name, value in merged.items():
        if not value.isprintable():
            raise ValueError(f"the value of the header {name!r} holds a control character")
    return merged


def secrets_of(headers: Mapping[str, str], url: UpstreamAddress) -> tuple[str, ...]:
    """Return what must never be shown: keys in headers and in the URL's query."""
    fields = [*headers.items(), *url.query()]
    secrets = [value for name, value in fields if _may_be_secret(name.lower())]
    return tuple(value.removeprefix("Bearer ").strip() for value in secrets)


def _may_be_secret(name: str) -> bool:
    return name == "code" or any(part in name for part in _SECRET_NAMES)  # Azure's functions call their key `code`
