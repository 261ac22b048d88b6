"""The providers and models that one caller may use. All others are unknown to that caller."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase

from ..errors import ModelNotFound
from ..events import Outlet
from ..ids import ModelName, full_name
from . import ChatRequest, Explaining, FoundModel, Provider, Providers, Reporting, has_model
from .efforts import efforts_of
from .facts import ModelFacts, facts_of

Allows = Callable[[ModelName], bool]
"""Returns whether a model may be used."""
PatternLists = tuple[tuple[str, ...], ...]
"""Sets of patterns. The name of a model must match one of each."""


class AllowedProviders(Providers):
    """The providers with the models that a caller may use. Agents are not limited here."""

    is_whole = False

    def __init__(self, everything: Providers, allows: Allows, limits: PatternLists) -> None:
        self._allows = allows
        offering = [provider for provider in everything.own if _may_offer(provider, allows, limits)]
        super().__init__([_limited(provider, allows) for provider in offering])
        self.set_added(everything.added)
        self._originals = {provider.name: provider for provider in everything.all}
        self.aliases = {alias: model for alias, model in everything.aliases.items() if allows(ModelName(model))}

    async def find(self, model: str) -> FoundModel:
        """Return the model of a name. One that is not allowed is unknown."""
        found = await super().find(model)
        if found.provider not in self.added and not self._allows(found.name):
            raise ModelNotFound(await self._unknown(model))
        return FoundModel(self._originals[found.provider.name], found.model, found.name)


def _may_offer(provider: Provider, allows: Allows, limits: PatternLists) -> bool:
    """Return whether a model of a provider may be allowed. If not, no error may name the provider."""
    if provider.models is not None:
        return any(allows(full_name(provider.name, model)) for model in provider.models)
    return all(any(_is_of(provider.name, pattern) for pattern in limit) for limit in limits)


def _is_of(provider: str, pattern: str) -> bool:
    return "/" not in pattern or fnmatchcase(provider, pattern.partition("/")[0])


def _limited(provider: Provider, allows: Allows) -> Provider:
    return _ReportingSome(provider, allows) if isinstance(provider, Reporting) else _Some(provider, allows)


class _Some:
    """A provider with the allowed models only."""

    def __init__(self, provider: Provider, allows: Allows) -> None:
        self._provider = provider
        self._allows = allows
        self.name, self.prefills = provider.name, provider.prefills
        self.think, self.demo = provider.think, provider.demo
        self.models = None if provider.models is None else tuple(self._some(provider.models))

    def _some(self, models: list[str] | tuple[str, ...]) -> list[str]:
        return [model for model in models if self._allows(full_name(self.name, model))]

    async def answer(self, request: ChatRequest, out: Outlet) -> None:
        await self._provider.answer(request, out)

    async def has(self, model: str) -> bool | None:
        return await has_model(self._provider, model) if self._allows(full_name(self.name, model)) else False

    async def facts(self, model: str) -> ModelFacts:
        return await facts_of(self._provider, model)

    def efforts(self, model: str) -> tuple[str, ...]:
        return efforts_of(self._provider, model)

    async def list_models(self) -> list[str]:
        return self._some(await self._provider.list_models())

    async def close(self) -> None:
        await self._provider.close()


class _ReportingSome(_Some):
    """The same for a provider that knows whether its upstream can be reached."""

    async def answers(self) -> bool:
        assert isinstance(self._provider, Reporting)
        return await self._provider.answers()

    @property
    def is_away(self) -> bool:
        assert isinstance(self._provider, Reporting)
        return self._provider.is_away

    def why_not(self) -> str | None:
        return self._provider.why_not() if isinstance(self._provider, Explaining) else None
