"""The addresses of a host."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, cast

__all__ = ["Address", "Resolve", "resolve"]

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
