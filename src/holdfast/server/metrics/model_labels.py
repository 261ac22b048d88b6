"""The labels `provider` and `model`. Names come from users, so only models that are offered become labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ...upstreams import Providers

OTHER = "other"
MOST_MODELS = 200
"""Maximum number of models that become labels, of all providers together. A service may offer hundreds."""


class ModelLabel(NamedTuple):
    """A provider and a model, as labels."""

    provider: str
    model: str


_UNKNOWN = ModelLabel(OTHER, OTHER)


class ModelLabels:
    """The labels of model names: `provider/model`, a bare name that only one provider has, or an alias."""

    def __init__(self, providers: Providers | None = None) -> None:
        self._providers = providers
        self._labels: dict[str, ModelLabel] = {}
        self._names: frozenset[str] = frozenset()
        self._used: set[ModelLabel] = set()
        if providers is not None:
            self._take({provider.name: provider.models or () for provider in providers.all}, providers.aliases)

    async def look(self) -> None:
        """Read the lists of models of the upstreams. The providers cache them."""
        if (providers := self._providers) is not None:
            all_providers = providers.all
            listed = {provider.name: await provider.list_models() for provider in all_providers}
            self._take(listed, providers.aliases)

    def _take(self, listed: Mapping[str, Iterable[str]], aliases: Mapping[str, str]) -> None:
        labels: dict[str, ModelLabel] = {}
        twice: set[str] = set()
        for provider, models in listed.items():
            for model in models:
                labels[f"{provider}/{model}"] = label = ModelLabel(provider, model)
                if model in labels:
                    twice.add(model)
                labels.setdefault(model, label)
        named = {alias: labels[model] for alias, model in aliases.items() if model in labels}
        self._labels = {name: label for name, label in labels.items() if name not in twice} | named
        self._names = frozenset(listed)

    def of(self, name: str) -> ModelLabel:
        """Return the labels of a model's name. A model that is not offered is `other`."""
        label = self._labels.get(name)
        if label is None:
            provider = name.partition("/")[0]
            return ModelLabel(provider, OTHER) if provider in self._names else _UNKNOWN
        if label not in self._used:
            if len(self._used) >= MOST_MODELS:
                return ModelLabel(label.provider, OTHER)
            self._used.add(label)
        return label
