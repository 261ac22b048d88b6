"""A passkey without a browser: what a device and its browser answer to the options of the server."""

import hashlib
import json
import os
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from fido2 import cbor

_USED, _ADDED = 0x05, 0x45  # present and verified; with the data of a new credential


def in_base64(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def from_base64(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Device:
    """A device with one passkey, and the page at `origin` that uses it. `count` is the number of its signatures."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.count = 0
        self._id, self._key, self._person = os.urandom(16), ec.generate_private_key(ec.SECP256R1()), b""

    def added(self, options: dict[str, Any]) -> dict[str, Any]:
        """The answer to the options for a new passkey."""
        self._person = from_base64(options["user"]["id"])
        point = self._key.public_key().public_numbers()
        key = {1: 2, 3: -7, -1: 1, -2: point.x.to_bytes(32), -3: point.y.to_bytes(32)}
        credential = bytes(16) + struct.pack(">H", len(self._id)) + self._id + cbor.encode(key)
        data = self._data(options["rp"]["id"], _ADDED) + credential
        made = {"attestationObject": cbor.encode({"fmt": "none", "attStmt": {}, "authData": data})}
        return self._answer(made | {"clientDataJSON": self._said("webauthn.create", options)})

    def used(self, options: dict[str, Any]) -> dict[str, Any]:
        """The answer to the options of a sign-in, with the next count."""
        self.count += 1
        data, said = self._data(options["rpId"], _USED), self._said("webauthn.get", options)
        signature = self._key.sign(data + hashlib.sha256(said).digest(), ec.ECDSA(SHA256()))
        return self._answer(
            {"authenticatorData": data, "clientDataJSON": said, "signature": signature, "userHandle": self._person}
        )

    def _data(self, host: str, flags: int) -> bytes:
        return hashlib.sha256(host.encode()).digest() + struct.pack(">BI", flags, self.count)

    def _said(self, type: str, options: dict[str, Any]) -> bytes:
        return json.dumps({"type": type, "challenge": options["challenge"], "origin": self.origin}).encode()

    def _answer(self, response: dict[str, bytes]) -> dict[str, Any]:
        id, encoded = in_base64(self._id), {name: in_base64(value) for name, value in response.items()}
        return {"id": id, "rawId": id, "type": "public-key", "response": encoded}
