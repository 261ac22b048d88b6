"""How an origin is reached: directly, through a proxy or a Unix socket, and which certificates TLS uses."""

from __future__ import annotations

import os
import pathlib
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from .proxy import Proxy, choose_proxy

T = TypeVar("T")

__all__ = ["DIRECT", "Route", "route_to", "tls_context"]


@dataclass(frozen=True)
class Route:
    """The way to an origin. The default is the direct one, with the CAs of the system."""

    proxy: Proxy | None = None
    tls: ssl.SSLContext | None = None
    """What TLS with the origin trusts and shows. None: the CAs of the system, and no client certificate."""
    socket_path: str = ""
    """A Unix socket that leads to the origin, whatever its name is."""


DIRECT = Route()


def route_to(
    url: str,
    *,
    proxy: str | None = None,
    ca_file: str = "",
    cert: str = "",
    cert_key: str = "",
    environ: Mapping[str, str] = os.environ,
) -> Route:
    """Return the way to a URL. Raises `ValueError` if a file or the proxy cannot be used.

    `proxy` is a proxy's URL, empty for none; None leaves it to the environment. `ca_file` has the only CAs that are
    trusted. `cert` is a client certificate, with its private key or with that in `cert_key`.
    """
    url = url.strip()
    chosen = choose_proxy(url, proxy, environ)
    if cert_key and not cert:
        raise ValueError("cert_key is set without cert")
    is_tls = url.lower().startswith("https:")
    if (ca_file or cert) and not is_tls:
        raise ValueError("ca_file and cert need a base_url that begins with https://")
    if not is_tls or not (ca_file or cert or environ.get("SSL_CERT_FILE")):
        return Route(chosen)
    return Route(chosen, tls_context(ca_file, cert, cert_key, environ))


def tls_context(
    ca_file: str = "", cert: str = "", cert_key: str = "", environ: Mapping[str, str] = os.environ
) -> ssl.SSLContext:
    """Return what TLS trusts and shows. Raises `ValueError` that names the file which cannot be used."""
    context = _trusting(ca_file)
    if not ca_file and (of_system := environ.get("SSL_CERT_FILE")):
        _load("SSL_CERT_FILE", of_system, context.load_verify_locations)  # OpenSSL ignores a file that it cannot read
    if cert:
        _show(context, cert, cert_key)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _trusting(ca_file: str) -> ssl.SSLContext:
    if not ca_file:
        return ssl.create_default_context()
    return _load("ca_file", ca_file, lambda path: ssl.create_default_context(cafile=path))


def _load(setting: str, path: str, load: Callable[[str], T]) -> T:
    """Load certificates from a file, or say which setting names the wrong one."""
    expanded = str(pathlib.Path(path).expanduser())
    try:
        return load(expanded)
    except ssl.SSLError:
        raise ValueError(f"{setting} {path} holds no certificate in PEM form") from None
    except OSError as error:
        raise ValueError(f"{setting} {path} cannot be read: {_words(error)}") from None


def _show(context: ssl.SSLContext, cert: str, cert_key: str) -> None:
    """Have a client certificate shown to servers that ask for one."""
    is_encrypted = False

    def password() -> str:
        nonlocal is_encrypted
        is_encrypted = True
        return ""  # without this function OpenSSL would ask on the terminal

    paths = [pathlib.Path(path).expanduser() for path in (cert, cert_key) if path]
    try:
        context.load_cert_chain(paths[0], paths[1] if cert_key else None, password)
    except OSError as error:  # an SSLError is one
        _check_readable("cert", paths[0])
        _check_readable("cert_key", paths[-1])
        what = f"{cert} and {cert_key}" if cert_key else cert
        raise ValueError(f"cert {what} cannot be used: {_why_unusable(error, is_encrypted)}") from None


def _check_readable(setting: str, path: pathlib.Path) -> None:
    """Say which of two files cannot be read: OpenSSL does not."""
    try:
        path.read_bytes()
    except OSError as error:
        raise ValueError(f"{setting} {path} cannot be read: {_words(error)}") from None


def _why_unusable(error: OSError, is_encrypted: bool) -> str:
    if is_encrypted:
        return "its private key is encrypted; give one without a password"
    if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
        return "the private key is not the one of the certificate"
    return "it must hold a certificate and its private key in PEM form, or cert_key must name the key"


def _words(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno else "it cannot be opened"
