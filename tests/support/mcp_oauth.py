"""An MCP server that wants tokens, and the authorization server that grants them: sound, or wrong in one way."""

import base64
import hashlib
import secrets
from typing import Any
from urllib.parse import parse_qs, urlencode

from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send


class OauthLab:
    """Both servers at one address. Set `url` before use; `described` and `protected` change what they say."""

    def __init__(self) -> None:
        self.url = ""
        self.lasts = 3600
        """Seconds for which the next tokens are valid."""
        self.described: dict[str, Any] = {}
        self.protected: dict[str, Any] = {}
        self.metadata = ""
        """Where it says that its description is."""
        self.granted: list[str] = []
        """Every secret that was given to a client."""
        self.refreshes: list[str] = []
        self.revoked: list[str] = []
        self.asked: list[str] = []
        self.client = ""
        """The only client that gets tokens, and how it has to prove that: `client_secret_basic id:secret`."""
        self._valid: set[str] = set()
        self._refresh: set[str] = set()
        self._codes: dict[str, dict[str, str]] = {}
        tools = MCPServer("desk", log_level="ERROR")

        @tools.tool()
        async def look() -> str:
            """Look at the desk."""
            return "a lamp"

        self._mcp = tools.streamable_http_app()
        self._oauth = Starlette(
            routes=[
                Route("/.well-known/oauth-protected-resource/mcp", self._protected),
                Route("/.well-known/oauth-authorization-server", self._described),
                Route("/register", self._register, methods=["POST"]),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
                Route("/revoke", self._revoke, methods=["POST"]),
            ]
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._mcp(scope, receive, send)
            return
        path = scope["path"]
        self.asked.append(path)
        if path != "/mcp":
            await self._oauth(scope, receive, send)
        elif Request(scope).headers.get("authorization", "").removeprefix("Bearer ") in self._valid:
            await self._mcp(scope, receive, send)
        else:
            where = self.metadata or f"{self.url}/.well-known/oauth-protected-resource/mcp"
            challenge = {"www-authenticate": f'Bearer resource_metadata="{where}", scope="desk"'}
            await Response(status_code=401, headers=challenge)(scope, receive, send)

    def end_tokens(self) -> None:
        """Refuse the access tokens that were granted so far."""
        self._valid.clear()

    def end_access(self) -> None:
        """Refuse all tokens that were granted so far, and refreshing them."""
        self._valid.clear()
        self._refresh.clear()

    async def _protected(self, request: Request) -> Response:
        own = {"resource": f"{self.url}/mcp", "authorization_servers": [self.url]}
        return JSONResponse({**own, **self.protected})

    async def _described(self, request: Request) -> Response:
        own = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "revocation_endpoint": f"{self.url}/revoke",
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }
        return JSONResponse({**own, **self.described})

    async def _register(self, request: Request) -> Response:
        wanted = await request.json()
        return JSONResponse({**wanted, "client_id": f"client-{secrets.token_hex(4)}"}, status_code=201)

    async def _authorize(self, request: Request) -> Response:
        """Allow it at once."""
        asked = dict(request.query_params)
        code = self._secret("code")
        self._codes[code] = asked
        answer = urlencode({"code": code, "state": asked["state"], "iss": self.url})
        return RedirectResponse(f"{asked['redirect_uri']}?{answer}", status_code=302)

    async def _token(self, request: Request) -> Response:
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        if not self._is_client(request, form):
            return JSONResponse({"error": "invalid_client"}, status_code=401)
        if form["grant_type"] == "refresh_token":
            token = form["refresh_token"]
            self.refreshes.append(token)
            if token not in self._refresh:
                return JSONResponse({"error": "invalid_grant"}, status_code=400)
            self._refresh.discard(token)
        elif not self._is_proven(form):
            return JSONResponse({"error": "invalid_grant"}, status_code=400)
        access, refresh = self._secret("access"), self._secret("refresh")
        self._valid.add(access)
        self._refresh.add(refresh)
        lasting = {"expires_in": self.lasts, "token_type": "Bearer"}
        return JSONResponse({"access_token": access, "refresh_token": refresh, **lasting})

    def _is_client(self, request: Request, form: dict[str, str]) -> bool:
        given = request.headers.get("authorization", "").removeprefix("Basic ")
        pair = f"client_secret_basic {base64.b64decode(given).decode()}" if given else ""
        if "client_secret" in form:
            pair += f"client_secret_post {form['client_id']}:{form['client_secret']}"
        return pair == self.client

    def _is_proven(self, form: dict[str, str]) -> bool:
        asked = self._codes.pop(form["code"], None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=")
        names = ("client_id", "redirect_uri", "resource")
        return (
            asked is not None
            and challenge.decode() == asked["code_challenge"]
            and asked["resource"] == f"{self.url}/mcp"
            and all(form[name] == asked[name] for name in names)
        )

    async def _revoke(self, request: Request) -> Response:
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        if not self._is_client(request, form):
            return JSONResponse({"error": "invalid_client"}, status_code=401)
        token = form["token"]
        self.revoked.append(token)
        self._valid.discard(token)
        self._refresh.discard(token)
        return Response()

    def _secret(self, kind: str) -> str:
        made = f"{kind}-{secrets.token_hex(12)}"
        self.granted.append(made)
        return made
