"""TLS on the server's port: its certificate, which may be renewed while the server runs."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import stat
from pathlib import Path

from ...config.settings import Settings, SettingsError

logger = logging.getLogger(__name__)

LOOK_EVERY = 2.0
"""Seconds between two looks at the files of the certificate."""
HANDSHAKE = 10.0
"""Seconds that a client has for its handshake. Until then the connection is not counted."""
STRICT = ("strict-transport-security", "max-age=31536000")
"""The header by which a browser uses TLS alone for this name, for a year."""


class Tls:
    """The certificate of a server. Each handshake uses the newest; open connections keep theirs.

    A renewed certificate gets a context of its own: no handshake sees a new certificate with an old key.
    """

    def __init__(self, cert: Path, key: Path) -> None:
        """`SettingsError` if the files cannot be used. Blocks on the disk."""
        self._cert, self._key = cert, key
        self._in_use = self._refused = self._seen()
        self._newest = self.context = _context(cert, key)
        self.context.sni_callback = self._choose  # OpenSSL calls it in each handshake, also without a name

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = self._newest

    async def look(self) -> None:
        """Take in renewed files, if they are complete. Until they are, the certificate in use stays."""
        await asyncio.to_thread(self.reload)

    def reload(self) -> None:
        """Do the same. Blocks on the disk."""
        seen = self._seen()
        if seen == self._in_use:
            return
        try:
            self._newest = _context(self._cert, self._key)
        except SettingsError as error:
            self._warn(seen, error)
            return
        self._in_use = seen
        logger.info("the certificate %s was renewed", self._cert)

    def _warn(self, seen: tuple[object, ...], error: SettingsError) -> None:
        """Log an error once for each change: certbot and others replace one file after the other."""
        if seen != self._refused:
            logger.error("the changed certificate is not used, and the one before stays: %s", error)
        self._refused = seen

    def _seen(self) -> tuple[object, ...]:
        """Return what differs after any change of the files, also if a link leads to others."""
        return tuple(_state(path) for path in (self._cert, self._key))


def tls_of(settings: Settings) -> Tls | None:
    """Return the certificate of the settings; None if they have none. `SettingsError` if it cannot be used."""
    if not settings.tls_cert:
        return None
    cert = Path(settings.tls_cert).expanduser()
    return Tls(cert, Path(settings.tls_key).expanduser() if settings.tls_key else cert)


def is_exposed(key: Path) -> bool:
    """Return whether every user of this machine can read or change the private key."""
    return os.name == "posix" and bool(key.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH))


def _state(path: Path) -> object:
    try:
        about = path.stat()
    except OSError as error:
        return error.errno
    return about.st_ino, about.st_mtime_ns, about.st_size


def _context(cert: Path, key: Path) -> ssl.SSLContext:
    """Return a context for TLS 1.2 and newer, with the ciphers that Python recommends."""
    _read(cert, "tls_cert")
    if b"ENCRYPTED" in _read(key, "tls_key"):
        raise SettingsError(
            f"The private key in {key} (`tls_key`) has a password. Write one without: openssl pkey -in {key} -out KEY"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(cert, key)
    except ssl.SSLError as error:
        raise SettingsError(_why(error, cert, key)) from None
    return context


def _read(path: Path, setting: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path} (`{setting}`) cannot be read: {error.strerror}.") from None


def _why(error: ssl.SSLError, cert: Path, key: Path) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"The private key in {key} (`tls_key`) does not belong to the certificate in {cert} (`tls_cert`)."
    if key == cert:
        return f"{cert} (`tls_cert`) must have a certificate and its private key, in PEM. Or set `tls_key` too."
    return f"{cert} (`tls_cert`) must have a certificate, and {key} (`tls_key`) its private key, both in PEM."
