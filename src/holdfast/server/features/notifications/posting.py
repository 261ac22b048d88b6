"""The requests of webhooks and push messages: to addresses of the operator, and to those that people give."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from ....errors import BadRequest
from ....http_client.addresses import resolve_public
from ....http_client.errors import Broken, NotThere
from ....http_client.given import connections_to_given
from ....http_client.pool import Connections
from ....http_client.request import head_of
from ....http_client.route import route_to

logger = logging.getLogger(__name__)

TIMEOUT = 15.0
"""Timeout of one request, in seconds."""
AT_ONCE = 16
"""Maximum number of concurrent requests."""


def is_sound(url: str) -> bool:
    """Return whether a URL is an http or https address without a user name."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and url.isprintable()
        head_of("POST", url, {})  # raises for an invalid host name
    except ValueError:
        return False
    return sound and "@" not in parts.netloc and " " not in url


class AddressRefused(BadRequest):
    """A person has given an address that the server does not send to."""

    code = "address_refused"

    def __init__(self, param: str, why: str) -> None:
        super().__init__(f"Holdfast does not send to this address. {why}", param=param)


class Posting:
    """Sends single requests. Redirects are not followed: they could lead anywhere."""

    def __init__(self, environ: Mapping[str, str], now: Callable[[], float], *, is_private_allowed: bool) -> None:
        self._environ, self.now = environ, now
        self.is_private_allowed = is_private_allowed
        """Whether addresses that people give may be in the own network."""
        self._room = asyncio.Semaphore(AT_ONCE)

    async def check(self, url: str, param: str) -> None:
        """Refuse an address that a person may not give."""
        if not is_sound(url):
            raise BadRequest(f"`{param}` must be an https address without a user name.", param=param)
        if self.is_private_allowed:
            return
        parts = urlsplit(url)
        if parts.scheme != "https":
            raise AddressRefused(param, "It must begin with https://.")
        if route_to(url, environ=self._environ).proxy is None:
            try:
                await resolve_public(parts.hostname or "", parts.port or 443)
            except OSError as error:
                raise AddressRefused(param, f"{error}.") from None

    def to_operators(self, url: str) -> Connections:
        """Return the connections to an address of the settings. Raises `ValueError`."""
        return Connections(url, route=route_to(url, environ=self._environ), keep=0)

    def to_persons(self, url: str) -> Connections:
        """Return the connections to an address that a person has given."""
        return connections_to_given(url, self._environ, is_private_allowed=self.is_private_allowed)

    async def post(self, connections: Connections, url: str, headers: Mapping[str, str], body: bytes) -> int | None:
        """Send a request, and return the status of the answer; None if there was none."""
        sent = {**headers, "User-Agent": "holdfast", "Connection": "close"}
        try:
            async with self._room, asyncio.timeout(TIMEOUT):
                reply = await connections.send(head_of("POST", url, sent, len(body)), body)
                reply.close()
                return reply.status
        except (Broken, NotThere, TimeoutError) as error:
            logger.warning("%s: no answer, retrying: %r", urlsplit(url).netloc, error.__cause__ or error)
            return None
