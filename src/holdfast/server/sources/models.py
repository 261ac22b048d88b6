"""The models and agents that a caller may use, and the default among them."""

from __future__ import annotations

from ...access import Access
from ...upstreams import Providers
from ..config.settings import AGENT
from ..live.default_model import DefaultModel
from ..live.live_settings import Configured
from ..starting.starting import AskedModel
from .agents import AgentSources


class AllowedModels:
    """Looks up the model of a request, among those that its caller may use."""

    def __init__(self, configured: Configured, agents: AgentSources) -> None:
        self._configured = configured
        self._agents = agents
        self._default = DefaultModel(configured)

    def providers(self, caller: Access) -> Providers:
        """Return the providers that a caller may use. Every model of a request is looked up in them."""
        return self._agents.providers_for(caller)

    async def find(self, caller: Access, named: str | None) -> AskedModel:
        """Return the model of a run: the one that is named, or the default.

        The answer repeats what the client wrote, but the full name of an agent and of the default.
        """
        providers = self.providers(caller)
        if not named:
            return AskedModel(await self._default.use(providers, await self.set_default(caller)), "")
        found = await providers.find(named)
        return AskedModel(found, "" if found.provider.name == AGENT else named)

    async def default(self, caller: Access) -> str | None:
        """Return the default model of a caller; None if there is no model."""
        return await self._default.name(self.providers(caller), await self.set_default(caller))

    async def set_default(self, caller: Access) -> str:
        """Return the default model of the settings; empty if there is none, or if the caller may not use it."""
        named = self._configured.default_model
        return named if named and await self._agents.may_default(named, caller) else ""
