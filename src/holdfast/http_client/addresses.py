"""The addresses of a host."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, cast

__all__ = ["Address", "Resolve", "has_no_public_address", "resolve", "resolve_public"]

Address: TypeAlias = tuple[
    int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[str, int] | tuple[str, int, int, int]
]
"""One result of `getaddrinfo`."""

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[Address]]]


async def resolve(host: str, port: int) -> Sequence[Address]:
    """Return the addresses of a host. A numeric address needs no thread."""
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        ip = None
    if ip is None or "%" in host:
        return cast(
            Sequence[Address], await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
    if ip.version == 4:
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]
    return [(socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port, 0, 0))]


async def resolve_public(host: str, port: int) -> Sequence[Address]:
    """Return the addresses of a host that are not in a network of one's own. Raises `OSError` if there is none.

    For addresses that people give: the connection goes to what was checked here, whatever the name means later.
    """
    found = [address for address in await resolve(host, port) if _is_public(address[4][0])]
    if not found:
        raise OSError(f"{host} has no public address")
    return found


async def has_no_public_address(host: str, port: int) -> bool:
    """Return whether a host has only addresses in networks of one's own. False for a host that is not found."""
    try:
        found = await resolve(host, port)
    except OSError:
        return False
    return not any(_is_public(address[4][0]) for address in found)


_UNICAST = ipaddress.ip_network("2000::/3")
"""The public part of IPv6. What stands outside of it leads to a network of one's own, or to any address of IPv4."""


def _is_public(address: str) -> bool:
    ip = ipaddress.ip_address(address.partition("%")[0])
    inner = getattr(ip, "sixtofour", None) or ip
    return ip.is_global and inner.is_global and not inner.is_multicast and (ip.version == 4 or ip in _UNICAST)
