"""The model of a request that names none."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import ModelNotFound
from ...upstreams import FoundModel, Provider, Providers, first_of, is_away
from .live_settings import Configured


class DefaultModel:
    """Chooses the default model: the first of these that exists.

    1. the model that the settings name as the default
    2. the first model of a provider that was set up, by a settings file, a key in the environment or the UI
    3. the agent, if there is exactly one
    4. the first model of a server that was found on this machine, unless the server needs a key: then other
       users rely on the choice, and any user of the machine could have started it
    5. the first model of a demo provider

    A choice that was used stays until the settings change, so that a server that is discovered later does not silently
    replace it. While its upstream is not reachable, the next model of the same rank or below is used.
    """

    def __init__(self, configured: Configured) -> None:
        self._configured = configured
        self._in_use = ""
        self._version = configured.version

    async def name(self, providers: Providers, wanted: str) -> str | None:
        """Return the default model among these providers; None if they have no model.

        `wanted` is the default of the settings, if the caller may use it.
        """
        if wanted:
            return wanted
        for candidates in self._ranks(providers):
            if candidates:
                return await (self._chosen(candidates) if providers.is_whole else first_of(candidates))
        return None

    async def use(self, providers: Providers, wanted: str) -> FoundModel:
        """Return the default model for a run that is about to start, or raise the reason why there is none."""
        if wanted:
            return await providers.find(wanted)
        name = await self.name(providers, wanted)
        if name is None:
            raise ModelNotFound(_why_none(self._ranks(providers)[0]))
        if providers.is_whole:
            self._in_use = name
        return await providers.find(name)

    def _ranks(self, providers: Providers) -> tuple[Sequence[Provider], ...]:
        """Return the groups of providers, in order: the default is chosen from the first that is not empty."""
        found = self._configured.found_names()
        set_up = [provider for provider in providers.real if provider.name not in found]
        agents = [provider for provider in providers.added if len(provider.models or ()) == 1]
        local = [provider for provider in providers.real if provider.name in found and not self._configured.has_keys()]
        demo = [provider for provider in providers.own if provider.demo]
        return set_up, agents, [*local, *demo]

    async def _chosen(self, candidates: Sequence[Provider]) -> str | None:
        if self._version != self._configured.version:
            self._in_use, self._version = "", self._configured.version
        prefix = self._in_use.partition("/")[0]
        if any(provider.name == prefix and not is_away(provider) for provider in candidates):
            return self._in_use
        return await first_of(candidates)


def _why_none(set_up: Sequence[Provider]) -> str:
    if not set_up:
        return "No model is available. Add a provider to holdfast.toml, or set OPENAI_API_KEY."
    names = ", ".join(provider.name for provider in set_up)
    return (
        f"The request names no model, and no provider that was set up lists one now ({names}). Name a model in the "
        "request, or set default_model."
    )
