"""What an answer costs, and about how many tokens it is."""

import pytest

from holdfast.events import Usage
from holdfast.pricing import Price, cost, tokens_in

PRICE = Price(input=1.0, output=4.0)


@pytest.mark.parametrize(("characters", "tokens"), [(0, 0), (1, 1), (4, 1), (5, 2), (4000, 1000)])
def test_four_characters_are_a_token(characters, tokens):
    """Rounded up: the shortest answer is not free."""
    assert tokens == tokens_in(characters)


@pytest.mark.parametrize(
    ("price", "expected"),
    [(None, None), (PRICE, 6.0), (Price(input=1.0, output=4.0, cached_input=0.5), 5.5), (Price(), 0.0)],
    ids=["no price", "cached input costs the same", "cached input costs less", "free"],
)
def test_the_cost_of_an_answer(price, expected):
    """Prices are for a million tokens. A model without a price has no cost, rather than none at all."""
    usage = Usage(2_000_000, 1_000_000, cached_tokens=1_000_000)

    assert expected == cost(price, usage)
