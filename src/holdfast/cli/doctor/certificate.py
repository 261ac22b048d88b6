"""The server's certificate: whether it can be used, and until when. Loaded only if there is one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from ...errors import HoldfastError
from ...server.config.settings import Settings
from ...server.kit.http.tls import is_exposed, tls_of
from .check import Check

SOON = timedelta(days=14)
"""The time before its end in which a certificate should have been renewed."""


def check_certificate(settings: Settings) -> Iterator[Check]:
    """Check that certificate and key fit, that the certificate is valid, and that the key is private."""
    try:
        tls_of(settings)
        cert, key = Path(settings.tls_cert).expanduser(), Path(settings.tls_key or settings.tls_cert).expanduser()
        first = x509.load_pem_x509_certificates(cert.read_bytes())[0]
        exposed = is_exposed(key)
    except (HoldfastError, OSError, ValueError) as error:
        yield Check("bad", f"certificate: {error}", "The server does not start with it.")
        return
    yield _validity(cert, first, datetime.now(UTC))
    if exposed:
        advice = f"Run chmod o= {key}, and replace the key if others use this machine."
        yield Check("bad", f"every user of this machine can read or change the private key {key}", advice)


def _validity(path: Path, certificate: x509.Certificate, now: datetime) -> Check:
    end = certificate.not_valid_after_utc
    until = f"{end:%Y-%m-%d %H:%M} UTC"
    if now < certificate.not_valid_before_utc:
        begin = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        return Check("bad", f"the certificate {path} is not valid before {begin}", "Check the clock of this machine.")
    if now >= end:
        return Check("bad", f"the certificate {path} has expired on {until}", "Renew it: clients refuse it.")
    if end - now < SOON:
        return Check("note", f"the certificate {path} expires on {until}", "Renew it; the server uses it at once.")
    return Check("ok", f"certificate {path}, valid until {until}")
