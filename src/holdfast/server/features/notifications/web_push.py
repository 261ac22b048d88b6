"""Web Push: messages that only one browser can read (RFC 8291), signed by this server (RFC 8292). Pure functions.

On cryptography, which the server has anyway: the packages for it bring another HTTP client or another validation.
"""

from __future__ import annotations

import base64
import os
import struct
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

LARGEST = 3000
"""Maximum size of a message in bytes. Every push service takes 4096 encrypted ones."""
_RECORD = 4096
_VALID = 12 * 3600
"""Seconds for which a signature is valid. Push services refuse more than a day."""


class BrowserKeys(NamedTuple):
    """The keys of a subscription: the browser's public key, and a secret that it shares with this server."""

    public: bytes
    auth: bytes


def browser_keys(public: str, auth: str) -> BrowserKeys:
    """Read the keys of a subscription, as browsers write them. Raises `ValueError` if they are none."""
    keys = BrowserKeys(_bytes(public), _bytes(auth))
    if len(keys.auth) != 16:
        raise ValueError("auth has 16 bytes")
    ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), keys.public)
    return keys


def encrypted(
    message: bytes, browser: BrowserKeys, *, own: ec.EllipticCurvePrivateKey | None = None, salt: bytes | None = None
) -> bytes:
    """Encrypt a message for a browser, by `aes128gcm` in one record. Each message has a key and a salt of its own."""
    own, salt = own or ec.generate_private_key(ec.SECP256R1()), salt or os.urandom(16)
    theirs = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), browser.public)
    public = public_of(own)
    shared = own.exchange(ec.ECDH(), theirs)
    input_key = _derived(shared, browser.auth, b"WebPush: info\0" + browser.public + public, 32)
    key = _derived(input_key, salt, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derived(input_key, salt, b"Content-Encoding: nonce\0", 12)
    head = salt + struct.pack(">IB", _RECORD, len(public)) + public
    return head + AESGCM(key).encrypt(nonce, message + b"\x02", None)


def signed(endpoint: str, key: ec.EllipticCurvePrivateKey, contact: str, now: float) -> str:
    """Return the `Authorization` of a message to a push service: who sends it, proved by this server's key."""
    parts = urlsplit(endpoint)
    claims = {"aud": f"{parts.scheme}://{parts.netloc}", "exp": int(now) + _VALID, "sub": contact}
    token = ".".join(_text(msgspec.json.encode(part)) for part in ({"typ": "JWT", "alg": "ES256"}, claims))
    r, s = decode_dss_signature(key.sign(token.encode(), ec.ECDSA(hashes.SHA256())))
    signature = _text(r.to_bytes(32, "big") + s.to_bytes(32, "big"))
    return f"vapid t={token}.{signature}, k={_text(public_of(key))}"


def new_signing_key() -> ec.EllipticCurvePrivateKey:
    """Return a new key of this server."""
    return ec.generate_private_key(ec.SECP256R1())


def stored_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the bytes of a key, which are secret."""
    return key.private_numbers().private_value.to_bytes(32, "big")


def key_from(stored: bytes) -> ec.EllipticCurvePrivateKey:
    """Return a key from its bytes."""
    return ec.derive_private_key(int.from_bytes(stored, "big"), ec.SECP256R1())


def shown_public_key(key: ec.EllipticCurvePrivateKey) -> str:
    """Return the public key as browsers take it."""
    return _text(public_of(key))


def public_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the public key as an uncompressed point."""
    point = serialization.PublicFormat.UncompressedPoint
    return key.public_key().public_bytes(serialization.Encoding.X962, point)


def _derived(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(hashes.SHA256(), length, salt, info).derive(secret)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), altchars=b"-_", validate=True)
