"""Which provider answers for a model's name."""

import pytest

from holdfast.errors import ModelNotFound
from holdfast.events import Finish
from holdfast.providers import Providers


class Offering:
    """A provider that offers some models; `asked` ones are known to the upstream only."""

    def __init__(self, name, models=None, asked=()):
        self.name = name
        self.models = None if models is None else tuple(models)
        self._asked = list(asked)
        self.closed = False

    async def stream(self, request):
        yield Finish("stop")

    async def list_models(self):
        return list(self.models) if self.models is not None else self._asked

    async def close(self):
        self.closed = True


async def test_a_name_with_its_provider_is_found():
    """`provider/model` says all there is to say; a model's own name may hold a slash."""
    up = Offering("up", ["m", "org/m"])
    providers = Providers([up, Offering("other", ["m"])])

    assert (up, "m") == await providers.find("up/m")
    assert (up, "org/m") == await providers.find("up/org/m")


async def test_a_bare_name_is_found_where_one_provider_offers_it():
    """People type what they see in a model's card."""
    up = Offering("up", asked=["m", "org/m"])
    providers = Providers([Offering("other", ["n"]), up])

    assert (up, "m") == await providers.find("m")
    assert (up, "org/m") == await providers.find("org/m")


async def test_an_ambiguous_name_is_refused_with_the_names_that_would_do():
    """To pick one silently would send a prompt to an upstream that the caller did not mean."""
    providers = Providers([Offering("one", ["m"]), Offering("two", ["m"])])

    with pytest.raises(ModelNotFound, match=r"Several providers offer 'm'\. Say which one: one/m, two/m\."):
        await providers.find("m")


@pytest.mark.parametrize(
    ("asked", "near"),
    [("gpt-5-mni", "up/gpt-5-mini"), ("other/gpt-5-mini", "up/gpt-5-mini"), ("up/gpt-5-mni", "up/gpt-5-mini")],
)
async def test_an_unknown_name_is_refused_with_near_ones(asked, near):
    """Most unknown names are slips of the finger, or lack the right provider."""
    providers = Providers([Offering("up", ["gpt-5-mini"]), Offering("other", ["llama"])])

    with pytest.raises(ModelNotFound) as caught:
        await providers.find(asked)

    assert near in str(caught.value)
    assert (404, "model_not_found", "model") == (caught.value.status, caught.value.code, caught.value.param)


@pytest.mark.parametrize("asked", ["QWEN3", "other/Qwen3", "up/qwen3"])
async def test_a_name_without_its_tag_or_in_other_letters_is_refused_with_the_whole_one(asked):
    """Local servers tag their models, and people leave the tag out."""
    providers = Providers([Offering("up", ["qwen3:8b-instruct-q4_K_M", "llama3"]), Offering("other", ["m"])])

    with pytest.raises(ModelNotFound, match=r"up/qwen3:8b-instruct-q4_K_M\?"):
        await providers.find(asked)


async def test_the_state_of_each_provider_is_told_and_a_dead_one_spoils_nothing():
    """One upstream that is down must not empty the list of the others."""
    states = await Providers([Offering("up", ["m"]), Offering("dead", asked=[])]).states()

    assert [("up", True, ["m"]), ("dead", False, [])] == [(state.name, state.ok, state.models) for state in states]


async def test_an_unknown_name_that_is_like_nothing_is_refused_with_a_way_to_look():
    """A guess that is far off is no help."""
    with pytest.raises(ModelNotFound, match="GET /v1/models"):
        await Providers([Offering("up", ["m"])]).find("zzzzzzzz")


async def test_a_provider_whose_models_are_not_listed_is_given_the_benefit_of_the_doubt():
    """Upstreams do not list all they have, so a name with such a provider is theirs to judge."""
    up = Offering("up")

    assert (up, "hidden") == await Providers([up, Offering("other", ["m"])]).find("up/hidden")
    assert (up, "hidden") == await Providers([up]).find("hidden")
    with pytest.raises(ModelNotFound):
        await Providers([up, Offering("other", ["m"])]).find("hidden")


@pytest.mark.parametrize("asked", ["", "/", "up/", "/m"])
async def test_half_a_name_is_no_name(asked):
    """It names neither a provider nor a model."""
    with pytest.raises(ModelNotFound):
        await Providers([Offering("up", ["m"]), Offering("other")]).find(asked)


async def test_all_names_are_listed_with_their_provider_and_all_providers_are_closed():
    """A list that leaves out the provider could not be used where names are ambiguous."""
    offering = [Offering("one", ["m"]), Offering("two", asked=["m", "n"])]
    providers = Providers(offering)

    assert ["one/m", "two/m", "two/n"] == await providers.names()
    await providers.close()
    assert all(provider.closed for provider in offering)
