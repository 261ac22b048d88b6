"""A push service, and a browser that subscribes to it and reads what it gets: on its own code, not on the server's."""

import asyncio
import base64
import json
from typing import Any, NamedTuple

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.support.waiting import LONG

POINT = serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def bytes_of(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Pushed(NamedTuple):
    """A message as its browser has read it."""

    device: str
    message: dict[str, Any]
    headers: dict[str, str]
    claims: dict[str, Any]
    """Of the signature, which was checked."""


class PushService:
    """Takes messages at `/push/<name of a browser>`, and answers with the status that the test has set."""

    def __init__(self) -> None:
        self.statuses: dict[str, list[int]] = {}
        self.arrived: asyncio.Queue[Pushed] = asyncio.Queue()
        self.answers = asyncio.Event()
        """Whether it answers. What it has taken in, it has taken in anyway."""
        self.answers.set()
        self._browsers: dict[str, tuple[ec.EllipticCurvePrivateKey, bytes]] = {}
        self.app = Starlette(routes=[Route("/push/{name}", self._take, methods=["POST"])])

    def subscription(self, url: str, name: str) -> dict[str, Any]:
        """What a browser says of its subscription."""
        key, auth = ec.generate_private_key(ec.SECP256R1()), name.encode().ljust(16, b"-")[:16]
        self._browsers[name] = key, auth
        public = key.public_key().public_bytes(*POINT)
        return {"endpoint": f"{url}/push/{name}", "keys": {"p256dh": b64(public), "auth": b64(auth)}, "name": name}

    async def next(self) -> Pushed:
        async with asyncio.timeout(LONG):
            return await self.arrived.get()

    async def _take(self, request: Request) -> Response:
        name = request.path_params["name"]
        claims = _claims(request.headers["authorization"])
        pushed = Pushed(name, self._read(name, await request.body()), dict(request.headers), claims)
        self.arrived.put_nowait(pushed)
        await self.answers.wait()
        statuses = self.statuses.get(name, [201])
        return Response(status_code=statuses.pop(0) if len(statuses) > 1 else statuses[0])

    def _read(self, name: str, body: bytes) -> dict[str, Any]:
        key, auth = self._browsers[name]
        salt, size, sender, sealed = body[:16], body[20], body[21 : 21 + body[20]], body[21 + body[20] :]
        assert 65 == size
        shared = key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender))
        own = key.public_key().public_bytes(*POINT)
        secret = HKDF(hashes.SHA256(), 32, auth, b"WebPush: info\x00" + own + sender).derive(shared)
        cipher = HKDF(hashes.SHA256(), 16, salt, b"Content-Encoding: aes128gcm\x00").derive(secret)
        nonce = HKDF(hashes.SHA256(), 12, salt, b"Content-Encoding: nonce\x00").derive(secret)
        padded = AESGCM(cipher).decrypt(nonce, sealed, None)
        return json.loads(padded.rstrip(b"\x00")[:-1])


def _claims(authorization: str) -> dict[str, Any]:
    """Check a signature as a push service does."""
    kind, _, given = authorization.partition(" ")
    assert "vapid" == kind
    fields = dict(each.strip().split("=", 1) for each in given.split(","))
    head, claims, signature = fields["t"].split(".")
    raw = bytes_of(signature)
    key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), bytes_of(fields["k"]))
    both = int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big")
    key.verify(encode_dss_signature(*both), f"{head}.{claims}".encode(), ec.ECDSA(hashes.SHA256()))
    assert {"typ": "JWT", "alg": "ES256"} == json.loads(bytes_of(head))
    return {**json.loads(bytes_of(claims)), "key": fields["k"]}
