"""Connections to addresses that people or the servers of others give: a network of one's own must be allowed."""

from __future__ import annotations

from collections.abc import Mapping

from .addresses import resolve, resolve_public
from .pool import Connections
from .route import route_to

__all__ = ["connections_to_given"]


def connections_to_given(url: str, environ: Mapping[str, str], *, is_private_allowed: bool) -> Connections:
    """Return the connections to an address. What a name means is checked when it is dialed. Raises `ValueError`."""
    route = route_to(url, environ=environ)
    is_checked = route.proxy is None and not is_private_allowed  # a proxy has rules of its own
    return Connections(url, route=route, keep=0, resolve=resolve_public if is_checked else resolve)
