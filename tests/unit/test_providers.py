"""Which provider answers for a model's name."""

import pytest

from holdfast.errors import ModelNotFound
from holdfast.events import Finish
from holdfast.upstreams import Providers
from tests.requirements import requirement


class Offering:
    """A provider that offers some models; `asked` ones are known to the upstream only."""

    def __init__(self, name, models=None, asked=(), demo=False):
        self.name = name
        self.models = None if models is None else tuple(models)
        self._asked = list(asked)
        self.closed = False
        self.demo = demo
        self.think = True

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

    assert (up, "m") == (await providers.find("up/m"))[:2]
    assert (up, "org/m") == (await providers.find("up/org/m"))[:2]


async def test_a_bare_name_is_found_where_one_provider_offers_it():
    """People type what they see in a model's card."""
    up = Offering("up", asked=["m", "org/m"])
    providers = Providers([Offering("other", ["n"]), up])

    assert (up, "m") == (await providers.find("m"))[:2]
    assert (up, "org/m") == (await providers.find("org/m"))[:2]


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


@requirement("model.bare-name")
@pytest.mark.parametrize(
    "scripted", [Offering("scripted", asked=["m", "echo"], demo=True), Offering("s", ["m"], demo=True)]
)
@pytest.mark.parametrize("real", [Offering("up", ["m"]), Offering("up", asked=["m"]), Offering("up")])
async def test_a_bare_name_that_a_demo_provider_has_too_goes_to_the_real_one(scripted, real):
    """A prompt that is meant for a model must not be echoed by a script."""
    for order in ([scripted, real], [real, scripted]):
        assert (real, "m") == (await Providers(order).find("m"))[:2]


@requirement("model.bare-name")
async def test_no_bare_name_leads_to_a_demo_provider_beside_a_real_one():
    """Its models are there by their full names only; without a real provider by both."""
    scripted, real = Offering("scripted", asked=["echo"], demo=True), Offering("up", ["m"])

    with pytest.raises(ModelNotFound):
        await Providers([real, scripted]).find("echo")
    assert (scripted, "echo") == (await Providers([real, scripted]).find("scripted/echo"))[:2]
    assert (scripted, "echo") == (await Providers([scripted]).find("echo"))[:2]


@requirement("model.bare-name")
async def test_a_name_that_nobody_knows_does_not_lead_to_a_demo_provider():
    """Scripts list what they have: nothing hidden can be meant."""
    with pytest.raises(ModelNotFound, match=r"Unknown model 'openai/gpt-5-mini'\."):
        await Providers([Offering("scripted", asked=["echo"], demo=True)]).find("openai/gpt-5-mini")


@requirement("model.bare-name")
async def test_a_name_with_a_provider_that_is_not_there_is_not_sent_to_another_one():
    """A slip in the provider's name must not send the prompt elsewhere; a sole provider may have names with a slash."""
    up = Offering("up")

    with pytest.raises(ModelNotFound):
        await Providers([up, Offering("scripted", asked=["echo"], demo=True)]).find("nowhere/model")
    assert (up, "org/model") == (await Providers([up]).find("org/model"))[:2]


@requirement("model.bare-name")
@pytest.mark.parametrize("real", [Offering("up", ["m"]), Offering("up", asked=["m"])])
async def test_an_added_provider_answers_for_bare_names_that_no_real_one_has(real):
    """An agent is asked by its bare name, unless a model is called the same."""
    agents, providers = Offering("agent", ["m", "helper"]), Providers([real])
    providers.set_added([agents])

    assert (agents, "helper") == (await providers.find("helper"))[:2]
    assert (real, "m") == (await providers.find("m"))[:2]
    assert (agents, "m") == (await providers.find("agent/m"))[:2]


@pytest.mark.parametrize("asked", ["nosuch/model", "model", "gpt", "x"])
async def test_names_that_are_unlike_are_no_suggestion(asked):
    """A wrong guess sends people the wrong way."""
    known = [Offering("anth", ["miderr", "claude-sonnet-5"]), Offering("s", ["echo"], demo=True)]

    with pytest.raises(ModelNotFound, match=r"GET /v1/models lists"):
        await Providers(known).find(asked)


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

    assert (up, "hidden") == (await Providers([up, Offering("other", ["m"])]).find("up/hidden"))[:2]
    assert (up, "hidden") == (await Providers([up]).find("hidden"))[:2]
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
