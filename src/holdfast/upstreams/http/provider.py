"""The base of all providers over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..efforts import openai_efforts
from ..facts import ModelFacts, facts_in
from ..kinds import ProviderSetup
from ..profiles import Unlisted
from .address import key_in
from .catalogue import Catalogue, model_names
from .upstream import HTTPUpstream

__all__ = ["HTTPProvider", "upstream_of"]

_OPENAI = "https://api.openai.com/"


class HTTPProvider:
    """One upstream, and the models that it offers. A dialect subclasses it, and implements `answer` and `look_up`.

    If no models are configured, they are requested from the upstream, with a timeout of `models_timeout` seconds, and
    again after `models_fresh` seconds.
    """

    sees: bool | None = None
    """Whether its models take pictures, if that is the same for all."""
    reads_pdf = False
    """Whether its API takes a PDF itself: OpenAI's own does, and other servers of its dialects do not."""
    is_local = False
    """True if it runs on a machine of the operator, which reads long prompts slowly."""

    def __init__(
        self,
        upstream: HTTPUpstream,
        *,
        models: Sequence[str] | None,
        prefills: bool,
        think: bool,
        models_timeout: float,
        models_fresh: float,
        unlisted: Unlisted = "refuse",
    ) -> None:
        self.name = upstream.name
        self.models = None if models is None else tuple(models)
        self.prefills = prefills
        self.think = think
        self.demo = False
        self.upstream = upstream
        self._unlisted = unlisted
        self._catalogue = Catalogue(self.look_up, models_timeout, models_fresh)
        self._facts: dict[str, ModelFacts] = {}
        self._is_openais = upstream.url_of("").startswith(_OPENAI)

    async def look_up(self) -> list[str] | None:
        """Request the models of the upstream; None if it returned no list."""
        raise NotImplementedError

    async def list_models(self) -> list[str]:
        """Return the configured models, or the cached list of the upstream; empty if there is none yet."""
        return list(self.models) if self.models is not None else await self._catalogue.names()

    def listed(self, page: Any) -> list[str] | None:
        """Return the ids in a list of models, and note what it says of them; None if there is no list."""
        names = model_names(page)
        self._facts |= {} if names is None else facts_in(page)
        return names

    async def facts(self, model: str) -> ModelFacts:
        """Return what is known of a model: what the upstream's list says, and what holds for the dialect."""
        if self.models is None and model not in self._facts:
            await self._catalogue.names()
        found = self._facts.get(model) or self._facts.get(f"models/{model}") or ModelFacts()
        sees = self.sees if found.sees is None else found.sees
        return ModelFacts(window=found.window, sees=sees, reads_pdf=self.reads_pdf or self._is_openais)

    def efforts(self, model: str) -> tuple[str, ...]:
        """Return the values of `reasoning_effort` that a model takes: by its name, or as the upstream's list says."""
        found = self._facts.get(model)
        return openai_efforts(model) or (found.efforts if found else ())

    async def has(self, model: str) -> bool | None:
        """Return whether the upstream lists a model; None if unknown."""
        if self._unlisted == "pass":
            return None
        return await self._catalogue.has(lambda names: self.is_among(model, names))

    def is_among(self, model: str, names: Sequence[str]) -> bool:
        """Return whether a list has a model, or another name of it. Ollama's tag `:latest` may be left out."""
        return model in names or f"{model}:latest" in names

    async def answers(self) -> bool:
        """Return whether the last request for models had a response, even one without a list."""
        await self._catalogue.names()
        return bool(self.upstream.answered)

    @property
    def is_away(self) -> bool:
        """Whether the last request for models had no response."""
        return self.upstream.answered is False

    def why_not(self) -> str | None:
        """Return why the last request for models failed, in a sentence; None if it did not."""
        return self.upstream.trouble or None

    async def close(self) -> None:
        """End the open streams, and close the connections."""
        await self._catalogue.close()
        await self.upstream.close()


def upstream_of(setup: ProviderSetup, key_header: str) -> HTTPUpstream:
    """Return the upstream of a provider; `key_header` is the header in which its dialect expects the API key."""
    return HTTPUpstream(
        setup.name,
        setup.base_url,
        key=key_in(setup.key_header or key_header, setup.api_key),
        headers=setup.headers,
        query=setup.query,
        connect_timeout=setup.connect_timeout,
        linger=setup.linger,
        route=setup.route,
    )
