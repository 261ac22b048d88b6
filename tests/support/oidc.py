"""An OpenID Connect provider that does as tests say: sound, or wrong in one way. It signs with joserfc."""

import base64
import hashlib
import secrets
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

CLIENT, SECRET = "holdfast-test", "a secret of the client"


class OidcLab:
    """A provider. `wrong` changes claims of the next tokens, `key` signs them, `shown` are the keys that it shows."""

    def __init__(self) -> None:
        self.url = ""
        self.wrong: dict[str, Any] = {}
        self.described: dict[str, Any] = {}
        """What its description says besides, or otherwise."""
        self.key: RSAKey | ECKey | OctKey = ECKey.generate_key("P-256", {"kid": "one"})
        self.shown: list[RSAKey | ECKey] = [self.key] if isinstance(self.key, ECKey) else []
        self.algorithm = "ES256"
        self.reads_of_keys = 0
        self._codes: dict[str, dict[str, Any]] = {}
        self.app = Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._description),
                Route("/keys", self._keys),
                Route("/token", self._token, methods=["POST"]),
            ]
        )

    def code_for(self, asked: Mapping[str, str], sub: str, **claims: Any) -> str:
        """Return the code of a person who has signed in, for what the browser was sent with."""
        code = secrets.token_urlsafe(8)
        self._codes[code] = {"asked": dict(asked), "claims": {"sub": sub, **claims}}
        return code

    async def _description(self, request: Request) -> Response:
        own = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize?tenant=1",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
        }
        return JSONResponse({**own, **self.described})

    async def _keys(self, request: Request) -> Response:
        self.reads_of_keys += 1
        return JSONResponse(KeySet(self.shown).as_dict(private=False))

    async def _token(self, request: Request) -> Response:
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        kept = self._codes.pop(form.get("code", ""), None)
        pair = base64.b64encode(f"{CLIENT}:a+secret+of+the+client".encode()).decode()
        if kept is None or request.headers.get("authorization") != f"Basic {pair}":
            return JSONResponse({"error": "invalid_grant"}, status_code=400)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        asked = kept["asked"]
        if (challenge, form["redirect_uri"]) != (asked["code_challenge"], asked["redirect_uri"]):
            return JSONResponse({"error": "invalid_grant"}, status_code=400)
        return JSONResponse({"access_token": "an-access-token", "id_token": self._id_token(kept), "expires_in": 60})

    def _id_token(self, kept: dict[str, Any]) -> str:
        now = int(time.time())
        claims = {"iss": self.url, "aud": CLIENT, "nonce": kept["asked"]["nonce"], "iat": now, "exp": now + 60}
        claims |= kept["claims"] | self.wrong
        given = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode({"alg": self.algorithm, "kid": self.key.kid}, given, self.key, algorithms=[self.algorithm])
