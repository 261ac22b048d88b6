"""TLS between nodes: certificates that only a holder of the cluster key can make, and that only such a node accepts.

The key of a certificate authority is derived from the cluster key, so that every node has the same one without asking
anybody. At its start a node makes a key pair of its own, and signs its certificate with it. Each side of a connection
requires such a certificate of the other: whoever does not know the cluster key can neither ask nor answer, and what is
sent is encrypted and cannot be changed or sent again. The file for OpenSSL is encrypted, and deleted at once.
"""

from __future__ import annotations

import hashlib
import pathlib
import secrets
import ssl
import tempfile
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_AUTHORITY = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "holdfast cluster")])
_NODE = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "holdfast node")])
_FROM, _UNTIL = datetime(2020, 1, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC)
"""A certificate ends with its process, and a cluster key with its operator: clocks play no part."""
_SCRYPT = {"n": 2**14, "r": 8, "p": 1}
"""Makes each guess of a cluster key take a twentieth of a second, if someone records a certificate."""


class ClusterContexts(NamedTuple):
    """The two sides of TLS between nodes."""

    server: ssl.SSLContext
    client: ssl.SSLContext


@lru_cache(16)
def cluster_contexts(cluster_key: str) -> ClusterContexts:
    """Return the contexts of a node with this cluster key. Blocks, when they are made: once in a process."""
    secret = hashlib.scrypt(cluster_key.encode(), salt=b"holdfast: authority of a cluster", dklen=32, **_SCRYPT)
    authority, node = Ed25519PrivateKey.from_private_bytes(secret), Ed25519PrivateKey.generate()
    root = _signed(_AUTHORITY, authority.public_key(), authority)
    own = _signed(_NODE, node.public_key(), authority)
    contexts = ClusterContexts(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    for context in contexts:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # nodes have addresses that change; the cluster key is what counts
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=root.public_bytes(Encoding.PEM).decode())
        _load(context, own, node)
    contexts.server.num_tickets = 0  # a connection is not resumed
    return contexts


def _signed(subject: x509.Name, key: Ed25519PublicKey, authority: Ed25519PrivateKey) -> x509.Certificate:
    is_authority = subject is _AUTHORITY
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        x509.CertificateBuilder(_AUTHORITY, subject, key, x509.random_serial_number(), _FROM, _UNTIL)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
        .add_extension(_key_usage(signs=is_authority), critical=True)
    )
    if not is_authority:
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=True)
    return builder.sign(authority, None)


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _load(context: ssl.SSLContext, certificate: x509.Certificate, key: Ed25519PrivateKey) -> None:
    password = secrets.token_bytes(32).hex()
    sealed = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode()))
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "node.pem")
        file.write_bytes(sealed + certificate.public_bytes(Encoding.PEM))
        context.load_cert_chain(file, password=password)
