"""The head of a request: its request line and headers."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import SplitResult, quote, urlsplit

__all__ = ["absolute_form", "head_of", "with_length"]

_TARGET = "/%:@!$&'()*+,;=~-._"  # characters that stay as they are in a path


def head_of(method: str, url: str, headers: Mapping[str, str], length: int | None = 0) -> bytes:
    """Return the head of a request; without its end if the `length` is added later.

    The caller has checked names and values.
    """
    parts = urlsplit(url)
    target = quote(parts.path or "/", safe=_TARGET) + (
        f"?{quote(parts.query, safe=_TARGET + '?')}" if parts.query else ""
    )
    given = {name.lower() for name in headers}
    lines = [f"{method} {target} HTTP/1.1", *([] if "host" in given else [f"Host: {_host(parts)}"])]
    lines += [f"{name}: {value}" for name, value in headers.items() if name.lower() != "content-length"]
    head = "\r\n".join([*lines, ""]).encode()
    return head if length is None else with_length(head, length, always=method == "POST")


def with_length(head: bytes, length: int, *, always: bool = True) -> bytes:
    """Return a head with its Content-Length and its end."""
    return b"%bContent-Length: %d\r\n\r\n" % (head, length) if length or always else head + b"\r\n"


def absolute_form(head: bytes, url: str, authorization: str = "") -> bytes:
    """Return the head for a proxy: the request line has the whole URL."""
    method, _, rest = head.partition(b" ")
    line, _, headers = rest.partition(b"\r\n")
    added = f"Proxy-Authorization: {authorization}\r\n" if authorization else ""
    return b"%b http://%b%b\r\n%b%b" % (method, _host(urlsplit(url)).encode(), line, added.encode(), headers)


def _host(parts: SplitResult) -> str:
    name = parts.hostname or ""
    name = f"[{name}]" if ":" in name else name.encode("idna").decode()
    return name if parts.port is None else f"{name}:{parts.port}"
