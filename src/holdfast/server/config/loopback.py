"""Addresses of this machine."""

from __future__ import annotations

import ipaddress
import re
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


_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::([0-9]{1,5}))?", re.ASCII)


@lru_cache(256)
def host_name(host: str) -> str:
    """Return the name in a Host header, in lower case and without its port; nothing if it is no such header."""
    match = _HOST.fullmatch(host.lower())
    if match is None or int(match[3] or 0) > 65535:
        return ""
    return match[1] or match[2]
