"""The provider of AWS Bedrock's Converse API, with a Bedrock API key or with AWS request signatures.

AWS's own SDK is not needed: the framing of the stream and the signature are two small modules.
"""

from __future__ import annotations

import re
from urllib.parse import quote

import msgspec

from ...errors import ProviderRefused
from ...events import Outlet
from .. import ChatRequest
from ..http.provider import HTTPProvider, upstream_of
from ..http.upstream import Asked, encode_body
from ..kinds import ProviderKind, ProviderSetup
from .decoder import ConverseDecoder
from .request import body_with
from .signing import AwsCredentials, signed_headers

__all__ = ["Bedrock"]

BASE_URL = "https://bedrock-runtime.us-east-1.amazonaws.com"
_REGION = re.compile(r"bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.")


class BedrockOptions(msgspec.Struct, frozen=True):
    """The `options` of a provider of this dialect."""

    region: str = ""
    """The region of the signature, if the host of `base_url` does not contain it."""


class Bedrock(HTTPProvider):
    """Speaks the Converse API to one upstream. `base_url` is what comes before `/model`.

    A Bedrock API key is sent as it is. Without one, each request is signed with the credentials in `AWS_ACCESS_KEY_ID`,
    `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`. The models have to be configured: another host lists them.

    Costs one HTTP session, and for each stream one connection.
    """

    sees = True
    reads_pdf = True

    def __init__(self, setup: ProviderSetup) -> None:
        super().__init__(
            upstream_of(setup, "Authorization"),
            models=setup.models or (),
            prefills=bool(setup.prefills),
            think=bool(setup.think),
            models_timeout=setup.models_timeout,
            models_fresh=setup.models_fresh,
            unlisted=setup.unlisted,
        )
        self.tools = setup.tools is not False
        options: BedrockOptions = setup.options or BedrockOptions()
        match = _REGION.search(setup.base_url)
        self._region = options.region or (match[1] if match else "")
        self._credentials = None if setup.api_key else _credentials(setup)
        if self._credentials is not None and not self._region:
            raise ValueError("options.region is not set, and the host of base_url does not tell the region")
        if self._credentials is not None:
            self.upstream.secrets += (self._credentials.secret, self._credentials.token)

    async def answer(self, request: ChatRequest, out: Outlet) -> None:
        """Emit the events of each read together. Raise a `ProviderError` if the answer is incomplete."""
        decoder = ConverseDecoder(self.name, secrets=self.upstream.secrets)
        await self.upstream.answer(request, self._ask, decoder, out)

    async def _ask(self, request: ChatRequest) -> Asked:
        try:
            body = encode_body(body_with(request))
        except ProviderRefused as refused:
            return refused
        path = f"/model/{quote(request.model, safe='')}/converse-stream"
        return await self.upstream.ask(path, body, self._signature(path, body))

    def _signature(self, path: str, body: bytes) -> dict[str, str]:
        if self._credentials is None:
            return {}
        return signed_headers(self.upstream.url_of(path), body, self._credentials, self._region, "bedrock")

    def efforts(self, model: str) -> tuple[str, ...]:
        """Return the values of `reasoning_effort` that a model takes."""
        return ()  # each model takes it in a way of its own

    async def look_up(self) -> list[str] | None:
        """Return no models: another host lists them."""
        return []

    async def answers(self) -> bool:
        """Return True: there is no free request that could check the upstream."""
        return True


def _credentials(setup: ProviderSetup) -> AwsCredentials:
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    id, secret, token = (setup.environ.get(name, "") for name in names)
    if not id or not secret:
        raise ValueError("there is no API key, and AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set")
    return AwsCredentials(id, secret, token)


KIND = ProviderKind(make=Bedrock, options=BedrockOptions, base_url=BASE_URL)
