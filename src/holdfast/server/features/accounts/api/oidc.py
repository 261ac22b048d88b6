"""`/api/oidc`: signing in with the identity provider of the settings, by redirects of the browser."""

from __future__ import annotations

import hmac
import logging
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from .....access import ANYONE
from .....asgi.client import HEADERS
from .....errors import HoldfastError, NotFound
from .....store.documents import Stored
from ....config.settings import Settings
from ....kit.feature import Endpoint, Feature
from ....kit.http.errors import PRIVATE, Json
from ...audit.audit import Audit
from ..oidc.attempt import Attempt, NotSignedIn, attempt_cookie, attempt_in, local_path
from ..people.accounts import Account
from ..people.identities import Identities
from ..people.people import People
from .sign_in import SigningIn

if TYPE_CHECKING:
    from ..oidc.provider import OidcProvider  # needs an extra

logger = logging.getLogger(__name__)


class OidcApi(Feature):
    """Sign-in with an identity provider."""

    def __init__(
        self, signing_in: SigningIn, people: People, audit: Audit, settings: Settings, oidc: OidcProvider | None
    ) -> None:
        self._signing_in, self._people, self._audit, self._settings = signing_in, people, audit, settings
        self._oidc = oidc

    @Endpoint(
        "GET",
        "/api/oidc/start",
        who=ANYONE,
        query={"next": "the page of this server to show afterwards"},
        answers={303: "to the provider", 404: "no identity provider is set"},
    )
    async def start_oidc(self, request: Request) -> ASGIApp:
        """Redirect the browser to the provider."""
        provider = self._provider()
        attempt = Attempt.new(request.query_params.get("next", "/"))
        try:
            url = await provider.start_url(attempt, self._redirect())
        except HoldfastError as error:
            return self._failed(request, error)
        return _to(url, attempt_cookie(attempt, secure=self._signing_in.is_secure(request)))

    @Endpoint(
        "GET",
        "/api/oidc/callback",
        who=ANYONE,
        query={"code": "of the provider", "state": "of the attempt", "iss": "the provider", "error": "of the provider"},
        answers={303: "to the page, signed in, or to the sign-in page", 404: "no identity provider is set"},
    )
    async def callback(self, request: Request) -> ASGIApp:
        """Sign in the person whom the provider has recognised, and redirect the browser to the requested page."""
        provider, secure = self._provider(), self._signing_in.is_secure(request)
        attempt = attempt_in(request.scope[HEADERS].get(b"cookie", b""), secure=secure) or Attempt("", "", "", "/")

        async def recognised() -> Json:
            account = await self._recognised(provider, request, attempt)
            return await self._signing_in.begin(request, account, stay=False, by="provider")

        try:
            given = await self._audit.noted(request, "sign_in", recognised)
        except HoldfastError as error:
            return self._failed(request, error)
        return _to(local_path(attempt.next), *given.headers.getlist("set-cookie"), attempt_cookie(None, secure=secure))

    async def _recognised(self, provider: OidcProvider, request: Request, attempt: Attempt) -> Stored[Account]:
        """Return the account of the person in the provider's response. The state is checked before anything else."""
        given = request.query_params
        if not attempt.state:
            raise NotSignedIn("This browser has not begun to sign in, or too long ago.")
        if not hmac.compare_digest(given.get("state", "").encode(), attempt.state.encode()):
            raise NotSignedIn("The answer is not for this browser's attempt to sign in.")
        await provider.check_issuer(given.get("iss"))
        if "error" in given or not given.get("code"):
            raise NotSignedIn(f"The provider has refused: {given.get('error', 'no code')[:100]!r}.")
        identity = await provider.identity(given["code"], attempt, self._redirect())
        await self._people.secrets.use("oidc_nonce", attempt.nonce)
        return await Identities(self._people, provider.settings).account_of(identity)

    def _provider(self) -> OidcProvider:
        if self._oidc is None:
            raise NotFound("This server has no identity provider.")
        return self._oidc

    def _redirect(self) -> str:
        """Return the redirect URL for the provider. It comes from the settings: a Host header can be forged."""
        return f"{self._settings.public_url.rstrip('/')}/api/oidc/callback"

    def _failed(self, request: Request, error: HoldfastError) -> ASGIApp:
        """Redirect the browser to the sign-in page, which shows the error. The details are logged."""
        logger.warning("sign-in with the identity provider failed: %s", error)
        return _to(f"/?sign_in_error={error.code}", attempt_cookie(None, secure=self._signing_in.is_secure(request)))


def _to(url: str, *cookies: str) -> Response:
    response = Response(status_code=303, headers={**PRIVATE, "location": url, "referrer-policy": "no-referrer"})
    for each in cookies:
        response.headers.append("set-cookie", each)
    return response
