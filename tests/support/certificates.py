"""A certificate authority for tests of TLS."""

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DAY = timedelta(days=1)


class Authority:
    """A CA whose certificate is in the file `path`, and which writes certificates with their keys beside it."""

    def __init__(self, folder: Path, name: str = "Test CA") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        made = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.path = folder / "ca.pem"
        self.path.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def issue(self, *names: str, expired: bool = False, days: int = 1, password: bytes = b"") -> Path:
        """Write a certificate for names or addresses, and its key in the same file."""
        key = ec.generate_private_key(ec.SECP256R1())
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        made = (
            _builder(_name(names[0]), self._name, key, expired=expired, days=days)
            .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(authority, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        hidden = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)
        path = self._folder / f"{names[0].replace(':', '_')}-{made.serial_number}.pem"
        path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
        return path

    def server_context(self, *names: str, wants_client: bool = False) -> ssl.SSLContext:
        """What a server with these names speaks TLS with. `wants_client` requires a certificate of this authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.issue(*names))
        if wants_client:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.path)
        return context


def split(path: Path) -> tuple[Path, Path]:
    """Write the certificate and the key of a file into a file each."""
    text = path.read_text()
    at = text.index("-----BEGIN PRIVATE KEY")
    certificate, key = path.with_suffix(".crt"), path.with_suffix(".key")
    certificate.write_text(text[:at])
    key.write_text(text[at:])
    return certificate, key


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, expired: bool = False, days: int = 1
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    begin, end = (now - 3 * DAY, now - DAY) if expired else (now - DAY, now + days * DAY)
    serial = x509.random_serial_number()
    return x509.CertificateBuilder(issuer, subject, key.public_key(), serial, begin, end)


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
