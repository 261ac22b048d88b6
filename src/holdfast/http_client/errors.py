"""What can go wrong with a request before it is answered, and during the response.

NotThere            no connection could be made; nothing was sent to the server
  . ProxyFailed     the proxy on the way could not be used
Broken              the connection ended before the response did
  . NotHTTP         what came is not HTTP, or more than is read
"""

from __future__ import annotations

import os
import socket
import ssl

__all__ = ["ONLY_HTTP2", "Broken", "NotHTTP", "NotThere", "ProxyFailed", "why_no_connection", "why_tls_ended"]

_CA_ADVICE = "set ca_file, or the variable SSL_CERT_FILE, to a file with the certificate of its CA"
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")
_CERT_ADVICE = "it requires a client certificate: set cert"
ONLY_HTTP2 = "HTTP/2 alone, which is not supported: put a reverse proxy that speaks HTTP/1.1 in front of it"
"""What a server speaks that knows no HTTP/1.1, and what to do."""


class Broken(Exception):
    """The connection ended before the response did. `__cause__` is the reason, if the system named one."""

    def __init__(self, message: str = "the connection ended before the response did") -> None:
        super().__init__(message)


class NotHTTP(Broken):
    """The response is not HTTP, or exceeds a limit. The message names what came instead."""

    def __init__(self, what: str = "something that is not HTTP") -> None:
        super().__init__(what)


class NotThere(Exception):
    """No connection could be made. The message says why, and `__cause__` is the system's error.

    The host is not in the message: not every reader may know it.
    """


class ProxyFailed(NotThere):
    """The proxy could not be reached, or refused. The message names it; its password is never there.

    `status` is what the proxy answered; 0 if it did not answer with HTTP.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_final(self) -> bool:
        """Whether another try cannot succeed before somebody changes the settings of the proxy or of its client."""
        return 400 <= self.status < 500 and self.status not in (408, 429)


def why_no_connection(error: BaseException, within: float) -> str:
    """Return in words why no connection could be made in `within` seconds."""
    match error:
        case TimeoutError():
            return f"nothing was there within {within:g} s"
        case socket.gaierror() | UnicodeError():
            return "its name could not be resolved"
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted ({error.verify_message}): {_advice_for(error)}"
        case ssl.SSLError():
            return why_tls_ended(error)
        case OSError(errno=int(number)):
            return os.strerror(number).lower()
        case _:
            return "the connection failed"


def why_tls_ended(error: ssl.SSLError) -> str:
    """Return in words why the peer or OpenSSL ended TLS."""
    reason = (error.reason or "").upper()
    if "NO_APPLICATION_PROTOCOL" in reason:
        return f"it speaks {ONLY_HTTP2}"
    if reason in _NOT_TLS:
        return "it does not speak TLS"
    if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason:
        return f"TLS failed ({_plain(reason)}): {_CERT_ADVICE}"
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        return f"TLS failed ({_plain(reason)}): it does not accept the client certificate"
    return f"TLS failed ({_plain(reason)})" if reason else "TLS failed"


def _advice_for(error: ssl.SSLCertVerificationError) -> str:
    hostname_mismatch, ip_mismatch, expired, not_yet_valid = 62, 64, 10, 9  # OpenSSL's X509_V_ERR_ numbers
    if error.verify_code in (hostname_mismatch, ip_mismatch):
        return "the address must have the name that the certificate is for"
    if error.verify_code in (expired, not_yet_valid):
        return "its operator has to renew it, or the clock of this machine is wrong"
    return _CA_ADVICE


def _plain(reason: str) -> str:
    return reason.lower().replace("_", " ")
