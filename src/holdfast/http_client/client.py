"""A simple client for one server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import IO
from urllib.parse import urlencode, urlsplit

from .connection import Reply
from .pool import Connections
from .request import head_of
from .route import DIRECT, Route

__all__ = ["Client"]

_HEADERS = {"User-Agent": "holdfast", "Accept-Encoding": "identity"}


class Client:
    """Requests to one server. `headers` are sent with each of them.

    Raises `ValueError` for an address that is not an http or https URL, and for a header that is more than a line.
    Costs a connection for each response in use.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        route: Route = DIRECT,
        connect_timeout: float = 10.0,
    ) -> None:
        self.url = _checked(url).rstrip("/")
        self._headers = {**_HEADERS, **(headers or {})}
        if not all(value.isprintable() for value in self._headers.values()):
            raise ValueError("a key holds a control character")
        self._connections = Connections(self.url, route=route, connect_timeout=connect_timeout)

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | IO[bytes] = b"",
        *,
        query: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send a request and return its response; the caller closes it. Raises `NotThere` or `Broken`."""
        url = f"{self.url}{path}?{urlencode(query)}" if query else f"{self.url}{path}"
        length = len(body) if isinstance(body, bytes) else os.fstat(body.fileno()).st_size
        head = head_of(method, url, {**self._headers, **(headers or {})}, length)
        return await self._connections.send(head, body, is_repeatable=method == "GET")

    def close(self) -> None:
        """Close the connections that are not in use."""
        self._connections.close()


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and url.isprintable()
        is_sound = is_sound and parts.username is None and " " not in url and not parts.query and not parts.fragment
        head_of("GET", url, {})  # raises for a name that cannot be written as ASCII
    except ValueError:
        is_sound = False
    if not is_sound:
        raise ValueError("an address must begin with http:// or https:// and name a host, without a user or a query")
    return url
