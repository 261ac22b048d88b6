"""Addresses of this machine."""

from __future__ import annotations

import ipaddress
from functools import lru_cache


@lru_cache(256)
def is_loopback(host: str) -> bool:
    """Return whether an address can only be reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
