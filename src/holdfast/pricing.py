"""The prices of models, what an answer costs by them, and an estimate of tokens that no provider has counted."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .events import Usage
from .ids import ModelName


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The price of a model for a million tokens, in the operator's currency. One of 0 is free."""

    input: float = 0.0
    output: float = 0.0
    cached_input: float | None = None
    """The price of input that the provider read from its prompt cache; None for the same as `input`."""
    call: float | None = None
    """The price of one call that is passed on, such as a picture or speech, besides its tokens; None if not known."""

    @property
    def is_of_calls(self) -> bool:
        """Whether it tells what a call without a count of tokens costs."""
        return self.call is not None or not (self.input or self.output)


class Prices:
    """The prices of models and agents. A price of `provider/*` is for all models of a provider that have none."""

    def __init__(self, prices: Mapping[str, Price], agents: Mapping[str, ModelName] | None = None) -> None:
        """`prices` are those of the settings. `agents` are the models of agents: each has the price of its model."""
        self._prices = dict(prices)
        self._agents = dict(agents or {})

    def know(self, agents: Mapping[str, ModelName]) -> None:
        """Set the models of agents. One that is left out keeps its price: its last runs may still go on."""
        self._agents |= agents

    def of(self, model: ModelName | None) -> Price | None:
        """Return the price of a model; None if it has none. A price of 0 is free."""
        if not self._prices or not model:
            return None
        prefix, _, name = model.partition("/")
        asked = self._agents.get(name) if prefix == "agent" else None
        return self._prices.get(model) or (self._listed(asked) if asked else None) or self._listed(model)

    def _listed(self, model: ModelName) -> Price | None:
        return self._prices.get(model) or self._prices.get(f"{model.partition('/')[0]}/*")


NO_PRICES = Prices({})


def cost(price: Price | None, usage: Usage) -> float | None:
    """Return the cost of an answer; None if its model has no price."""
    if price is None:
        return None
    cached = min(usage.cached_tokens, usage.input_tokens)
    for_cached = price.input if price.cached_input is None else price.cached_input
    input = (usage.input_tokens - cached) * price.input + cached * for_cached
    return (input + usage.output_tokens * price.output) / 1_000_000


def tokens_in(characters: int) -> int:
    """Return about how many tokens so many characters are: four to each, rounded up."""
    return -(-characters // 4)
