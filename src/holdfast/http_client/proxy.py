"""Which proxy leads to a host: by its URL, or by `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`."""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

__all__ = ["Proxy", "authority", "choose_proxy", "is_exempt", "parse_proxy", "proxy_from_environment", "shown_proxy"]

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Proxy:
    """An HTTP proxy. With `is_tls` the connection to the proxy itself is encrypted."""

    host: str
    port: int
    is_tls: bool = False
    authorization: str = field(default="", repr=False)
    """The value of `Proxy-Authorization`; empty if the proxy's URL has no user."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """What must not be shown: the password, and the user with the password as they are sent."""

    @property
    def name(self) -> str:
        """The proxy for people: host and port."""
        return authority(self.host, self.port)


def authority(host: str, port: int) -> str:
    """Return `host:port`, as ASCII; an IPv6 address stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host.encode('idna').decode()}:{port}"


def parse_proxy(url: str) -> Proxy:
    """Return the proxy that a URL names. Raises `ValueError`, whose message does not repeat a password."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or _PORTS.get(parts.scheme, 0)
        is_sound = _is_host(parts.hostname) and parts.path in ("", "/") and not parts.query and not parts.fragment
    except ValueError:
        raise ValueError(f"the proxy {shown_proxy(url)!r} is not a URL") from None
    if parts.scheme not in _PORTS or not is_sound:
        raise ValueError(f"a proxy must be http://host:port or https://host:port, unlike {shown_proxy(url)!r}")
    token, secrets = _credentials(parts)
    return Proxy(parts.hostname or "", port, parts.scheme == "https", f"Basic {token}" if token else "", secrets)


def shown_proxy(url: str) -> str:
    """Return the URL of a proxy for people: without user and password."""
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"  # up to the last @: a password may hold any character


def _is_host(name: str | None) -> bool:
    try:
        return bool(name and name.encode("idna"))
    except UnicodeError:
        return False


def _credentials(parts: SplitResult) -> tuple[str, tuple[str, ...]]:
    """Return user and password as they are sent, and all forms of them that must not be shown."""
    if parts.username is None:
        return "", ()
    user, password = unquote(parts.username), unquote(parts.password or "")
    token = base64.b64encode(f"{user}:{password}".encode()).decode()
    return token, tuple(secret for secret in (password, parts.password or "", token) if secret)


def choose_proxy(url: str, proxy: str | None, environ: Mapping[str, str]) -> Proxy | None:
    """Return the proxy that leads to a URL: the given one, none if it is empty, the environment's if it is None."""
    if proxy is None:
        return proxy_from_environment(url, environ)
    return parse_proxy(proxy.strip()) if proxy.strip() else None


def proxy_from_environment(url: str, environ: Mapping[str, str]) -> Proxy | None:
    """Return the proxy that the environment names for a URL.

    This machine is never reached through a proxy. The first variable that is set counts; if it is empty there is no
    proxy. Raises `ValueError` for a proxy that cannot be used.
    """
    parts = urlsplit(url)
    host = _plain_host(parts.hostname or "")
    no_proxy = environ.get("no_proxy", environ.get("NO_PROXY", ""))
    if _is_this_machine(host) or is_exempt(host, parts.port or _PORTS.get(parts.scheme, 0), no_proxy):
        return None
    for name in (f"{parts.scheme}_proxy", "all_proxy"):
        for variable in (name, name.upper()):
            if variable in environ:
                return _of_variable(variable, environ[variable].strip())
    return None


def _of_variable(variable: str, value: str) -> Proxy | None:
    try:
        return parse_proxy(value) if value else None
    except ValueError as error:
        raise ValueError(f"{error} ({variable} in the environment)") from None


def is_exempt(host: str, port: int, no_proxy: str) -> bool:
    """Return whether `NO_PROXY` names a host.

    Its entries are separated by commas or spaces: `*` for every host; a name, which stands for its subdomains too, with
    or without a leading dot; an address; a network as `10.0.0.0/8`. A name or address may have a port.
    """
    return any(_matches(entry, _plain_host(host), port) for entry in re.split(r"[,\s]+", no_proxy) if entry)


def _matches(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    name, entry_port = _split_port(entry)
    if entry_port is not None and entry_port != port:
        return False
    address = _address(host)
    if address is not None:
        network = _network(name)
        return network is not None and address.version == network.version and address in network
    name = _plain_host(name.removeprefix("*").lstrip("."))
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _split_port(entry: str) -> tuple[str, int | None]:
    """Return an entry without its port. An IPv6 address with a port stands in brackets."""
    found = re.fullmatch(r"\[(.*)\](?::(\d+))?|([^:]*):(\d+)", entry)
    if found is None:
        return entry, None
    name, port = found[1] or found[3] or "", found[2] or found[4]
    return name, None if port is None else int(port)


def _plain_host(host: str) -> str:
    """Return a host as it is compared: lower case, ASCII, without the dot of the root."""
    try:
        host = host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        pass  # a name that cannot be resolved either
    return host.lower().rstrip(".")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, ipaddress.IPv6Address) else address


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return None


def _is_this_machine(host: str) -> bool:
    address = _address(host)
    if address is not None:
        return address.is_loopback or address.is_unspecified
    return host == "localhost" or host.endswith(".localhost")
