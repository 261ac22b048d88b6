"""Addresses of clients: behind a trusted proxy, the forwarded address; and the network that counts as one client."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterable, Sequence
from functools import lru_cache

from ....config.loopback import is_loopback

logger = logging.getLogger(__name__)

FORWARDED = b"x-forwarded-for"
_MOST_WARNINGS = 8
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class TrustedProxies:
    """The networks of the proxies that the operator trusts. Without any, no forwarded header counts."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        """Raises `ValueError` for text that is neither an address nor a network."""
        self._networks: tuple[Network, ...] = tuple(ipaddress.ip_network(each, strict=False) for each in networks)

    def __bool__(self) -> bool:
        """Return whether any proxy is trusted."""
        return bool(self._networks)

    def trusts(self, address: str) -> bool:
        """Return whether an address is that of a trusted proxy."""
        parsed = _parsed(address)
        return parsed is not None and any(parsed in network for network in self._networks)

    def hides_clients(self, address: str) -> bool:
        """Return whether many people may share an address: a proxy's, this machine's, or an unknown one."""
        return not address or is_loopback(address) or self.trusts(address)

    def client(self, peer: str, headers: Sequence[tuple[bytes, bytes]]) -> str:
        """Return the address of the client: the right-most in `X-Forwarded-For` that is no trusted proxy.

        Entries further to the left may be forged by the client.
        """
        if not self.trusts(peer):
            return peer
        hops = b",".join(value for name, value in headers if name == FORWARDED).decode("latin-1").split(",")
        nearest = peer
        for hop in reversed(hops):
            parsed = _parsed(hop.strip())
            if parsed is None:
                break
            nearest = str(parsed)
            if not self.trusts(nearest):
                break
        return nearest


class UntrustedForwarding:
    """Warns of addresses that forward requests of others and are not trusted: their clients count as one.

    Anyone can send the header, so that only the first few addresses are logged, each once.
    """

    def __init__(self) -> None:
        self._warned: set[str] = set()

    def seen(self, peer: str) -> None:
        """Note that an address that is not trusted has sent `X-Forwarded-For`."""
        place = place_of(peer)
        if place in self._warned or len(self._warned) >= _MOST_WARNINGS:
            return
        self._warned.add(place)
        logger.warning(
            "X-Forwarded-For from %s is ignored: it is not in proxy.addresses. If it is your reverse proxy, add it; "
            "until then all of its clients share one address, and wrong passwords are not counted for each client",
            place,
        )


@lru_cache(4096)
def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return a parsed address, an IPv4-mapped IPv6 address as IPv4. None if it is invalid."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return None
    return getattr(parsed, "ipv4_mapped", None) or parsed


def place_of(address: str) -> str:
    """Return the key under which an address is counted: an IPv4 address, or the /64 network of an IPv6 address."""
    parsed = _parsed(address)
    if parsed is None:
        return "an unknown address"
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(parsed), 64), strict=False))
    return str(parsed)
