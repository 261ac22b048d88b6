"""All connections of one server: their number, and the timer that ends those that are too slow."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections import Counter
from typing import Protocol

import msgspec

from ....errors import HoldfastError

logger = logging.getLogger(__name__)

LOGGED_EVERY = 60.0
"""Seconds between two log lines about refused connections."""
LOOKED_EVERY = 1.0
"""Interval of the timer, in seconds, at most."""


class TooManyConnections(HoldfastError):
    """There is no room for another connection."""

    code = "too_many_connections"
    status = 503
    retry_after = 1.0


class ConnectionLimits(msgspec.Struct, frozen=True):
    """Limits for every client, with a key or without. 0 means no limit."""

    head_timeout: float = 30.0
    """Seconds for the head of a request to arrive."""
    body_timeout: float = 30.0
    """Seconds within which some of a request's body must arrive."""
    connections: int = 10_000
    """Open connections."""
    for_each_address: int = 1_000
    """Open connections of one address. Loopback is not limited: a reverse proxy comes from there."""


class Timed(Protocol):
    """A connection with a deadline."""

    due: float
    """The time (`loop.time`) at which `overdue` is called."""

    def overdue(self) -> None:
        """End the connection: its deadline has passed."""
        ...


OFFER = "holdfast.upgrade"
"""The key of a request's scope that is set if the client offers to switch to WebSocket, and to nothing else."""


class Upgraded(Protocol):
    """What receives the bytes of a connection after an upgrade."""

    def received(self, data: bytes) -> bool:
        """Handle received bytes. True if a message is incomplete."""
        ...

    def too_slow(self) -> None:
        """End the connection: a message does not arrive in time."""
        ...


class OpenConnections:
    """Counts the connections, and calls `overdue` of those whose deadline has passed.

    One timer serves all of them, and runs at most once a second. A connection copies `head_due` or `body_due` to its
    `due`: a request costs no timer, and a timeout is exact to about two seconds.
    """

    def __init__(self, limits: ConnectionLimits | None = None) -> None:
        self._limits = limits = limits or ConnectionLimits()
        self._pause = min(LOOKED_EVERY, *(limit / 8 for limit in (limits.head_timeout, limits.body_timeout) if limit))
        self._timer: asyncio.TimerHandle | None = None
        self._networks: dict[Timed, str | None] = {}
        self._counts: Counter[str] = Counter()
        self._refused = 0
        self._logged_at = float("-inf")
        self.now = 0.0
        """The time of the last timer call."""
        self.head_due = self.body_due = float("inf")
        """Deadlines for a head, and for the next part of a body, that are waited for from now on."""

    def add(self, connection: Timed, address: str | None) -> None:
        """Count a connection. Raise `TooManyConnections` if there is no room for it."""
        if self._timer is None:
            self._look()
        network = network_of(address) if self._limits.for_each_address and address else None
        self._check(network)
        self._networks[connection] = network
        if network is not None:
            self._counts[network] += 1

    def remove(self, connection: Timed) -> None:
        """Remove a connection, if it was counted."""
        network = self._networks.pop(connection, None)
        if network is not None:
            self._counts[network] -= 1
            if not self._counts[network]:
                del self._counts[network]
        if not self._networks and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self, network: str | None) -> None:
        limits = self._limits
        if limits.connections and len(self._networks) >= limits.connections:
            self._refuse(f"This server has reached its limit of {limits.connections} connections (max_connections).")
        if network is not None and self._counts[network] >= limits.for_each_address:
            self._refuse(
                f"{network} has {limits.for_each_address} connections to this server, which is the limit "
                "(max_connections_per_address)."
            )

    def _refuse(self, message: str) -> None:
        """Raise the error. It is logged at intervals, however many connections are refused."""
        self._refused += 1
        if self.now - self._logged_at >= LOGGED_EVERY:
            logger.warning("refused a connection (%d since the last such line): %s", self._refused, message)
            self._refused, self._logged_at = 0, self.now
        raise TooManyConnections(message)

    def _look(self) -> None:
        """Update the time, and end the connections that are overdue."""
        loop, limits = asyncio.get_running_loop(), self._limits
        self._timer = loop.call_later(self._pause, self._look)
        self.now = now = loop.time()
        # Counted from within the next interval: a limit is never shorter than it was set.
        self.head_due = now + self._pause + (limits.head_timeout or float("inf"))
        self.body_due = now + self._pause + (limits.body_timeout or float("inf"))
        for connection in [each for each in self._networks if each.due <= now]:
            connection.overdue()


def network_of(address: str) -> str | None:
    """Return what counts as one address: an IPv4 address, or the /64 network of an IPv6 address. None for loopback.

    One user of IPv6 usually has a whole /64.
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        found = found.ipv4_mapped or found
    if found.is_loopback:
        return None
    return str(found) if found.version == 4 else str(ipaddress.ip_network((found, 64), strict=False))
