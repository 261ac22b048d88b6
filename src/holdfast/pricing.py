"""The prices of models, what an answer costs by them, and an estimate of tokens that no provider has counted."""

from __future__ import annotations

import msgspec

from .events import Usage


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The price of a model for a million tokens, in the operator's currency."""

    input: float = 0.0
    output: float = 0.0
    cached_input: float | None = None
    """The price of input that the provider read from its prompt cache; None for the same as `input`."""


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
