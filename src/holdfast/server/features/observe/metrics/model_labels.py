"""The labels `provider` and `model`. Names come from users, so only models that are offered become labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .....ids import ModelName, full_name
from .....upstreams import Providers

OTHER = "other"
MOST_MODELS = 200
"""Maximum number of models that become labels, of all providers together. A service may offer hundreds."""


class ModelLabel(NamedTuple):
    """A provider and a model, as labels."""

    provider: str
    model: str


_UNKNOWN = ModelLabel(OTHER, OTHER)


class ModelLabels:
    """The labels of models, by their full names."""

    def __init__(self, providers: Providers | None = None) -> None:
        self._providers = providers
        self._labels: dict[ModelName, ModelLabel] = {}
        self._names: frozenset[str] = frozenset()
        self._used: set[ModelLabel] = set()
        if providers is not None:
            self._take({provider.name: provider.models or () for provider in providers.all})

    async def look(self) -> None:
        """Read the lists of models of the upstreams. The providers cache them."""
        if (providers := self._providers) is not None:
            self._take({provider.name: await provider.list_models() for provider in providers.all})

    def _take(self, listed: Mapping[str, Iterable[str]]) -> None:
        offered = [ModelLabel(provider, model) for provider, models in listed.items() for model in models]
        self._labels = {full_name(*label): label for label in offered}
        self._names = frozenset(listed)

    def of(self, name: ModelName) -> ModelLabel:
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
