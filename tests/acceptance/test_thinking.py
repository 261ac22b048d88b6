"""Thinking between tags is told from the answer, whoever answers: every dialect, agents, panes."""

from contextlib import asynccontextmanager

import pytest

from holdfast.events import AnswerBegins, StepFinished, StepStarted
from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings, SettingsError
from holdfast.store.memory import MemoryStore
from tests.acceptance.surfaces import SURFACES, World
from tests.contract.test_anthropic import STOP, ending, start
from tests.contract.test_anthropic import text as block
from tests.requirements import requirement
from tests.support.compare import Compare
from tests.support.native import Native
from tests.support.served import NO_HOME, Served
from tests.support.upstream import Raw, Upstream, answer

TAGGED = "<think>I wonder.</think>\n\nThe answer is 42."
OUTCOME = ("completed", "The answer is 42.", "I wonder.")


async def thinking(request):
    for letter in TAGGED:
        yield letter


async def meaning_it(request):
    yield AnswerBegins(think=False)
    yield TAGGED


@pytest.fixture
async def up():
    async with Upstream() as upstream:
        yield upstream


@asynccontextmanager
async def serving(tmp_path, *providers, agent_think=None, **agents):
    scripted = ProviderSettings("s", dialect="scripted")
    settings = Settings(data=str(tmp_path), providers=(*providers, scripted), agent_think=agent_think or {})
    app = create_app(settings, MemoryStore(), NO_HOME, agents={"own": thinking, **agents})
    async with Served(app) as served, served.client() as client:
        yield Native(client)


def openai(up, **more):
    return ProviderSettings("up", base_url=up.base_url, models=("m",), **more)


def anthropic(up, **more):
    return ProviderSettings("up", dialect="anthropic", base_url=up.base_url.removesuffix("/v1"), models=("m",), **more)


def said(up, dialect):
    pieces = [TAGGED[:5], TAGGED[5:20], TAGGED[20:]]
    up.script = answer(*pieces) if dialect == "openai" else [Raw(start() + block(*pieces) + ending() + STOP)]


async def settled(api, model, input="Hi"):
    """How an answer of a session ended, and what its next model was shown."""
    session_id = await api.new_session()
    run_id = await api.start(session_id, input, model)
    events = [frame.json() for frame in await api.replay(run_id)]
    settlement = events[-1]["settlement"]
    reasoning = "".join(event["text"] for event in events if event["type"] == "reasoning.delta")
    return session_id, (settlement["outcome"], settlement["text"], reasoning)


@requirement("think.every-source")
@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
async def test_what_an_upstream_leaves_in_its_text_is_reasoning(tmp_path, up, dialect):
    """Servers of open models leave the tags in the text, whichever dialect they speak."""
    said(up, dialect)
    async with serving(tmp_path, {"openai": openai, "anthropic": anthropic}[dialect](up)) as api:
        _, told = await settled(api, "up/m")

    assert OUTCOME == told


@requirement("think.switch")
@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
async def test_a_provider_whose_models_mean_the_tags_keeps_them(tmp_path, up, dialect):
    """`think = false` in its table."""
    said(up, dialect)
    async with serving(tmp_path, {"openai": openai, "anthropic": anthropic}[dialect](up, think=False)) as api:
        _, told = await settled(api, "up/m")

    assert ("completed", TAGGED, "") == told


@requirement("think.every-source")
async def test_a_scripted_model_thinks_as_others_do(tmp_path):
    """It plays a model in demos and tests: what it says takes the road of all others."""
    async with serving(tmp_path) as api:
        _, told = await settled(api, "s/echo", TAGGED)

    assert OUTCOME == told


@requirement("think.every-source")
async def test_a_published_agents_thinking_is_apart_on_every_surface(tmp_path):
    """A generator of strings knows nothing of our events; its answer is what its clients are shown."""
    async with serving(tmp_path) as api:
        world = World(None, None, api.client)  # type: ignore[arg-type]
        told = {name: await surface(world, "agent/own") for name, surface in SURFACES.items()}

    assert dict.fromkeys(SURFACES, OUTCOME[:2]) == {name: (each.outcome, each.text) for name, each in told.items()}
    assert "I wonder." == told["chat-stream"].reasoning == told["chat-object"].reasoning


@requirement("think.every-source")
async def test_the_next_model_is_not_shown_what_an_agent_thought(tmp_path, up):
    """What was thought is no part of the conversation."""
    up.script = answer("Fine.")
    async with serving(tmp_path, openai(up)) as api:
        session_id, told = await settled(api, "agent/own")
        await api.settled(await api.start(session_id, "And now?", "up/m"))

    assert OUTCOME == told
    assert ["Hi", "The answer is 42.", "And now?"] == [each["content"] for each in up.requests[0].body["messages"]]


@requirement("think.switch")
async def test_a_published_agent_that_means_the_tags_keeps_them(tmp_path):
    """One that writes templates says so with its first word."""
    async with serving(tmp_path, meaning=meaning_it) as api:
        _, told = await settled(api, "agent/meaning")

    assert ("completed", TAGGED, "") == told


@requirement("think.switch")
async def test_the_settings_may_say_that_a_published_agent_means_the_tags(tmp_path):
    """Who publishes an agent has not always written it."""
    async with serving(tmp_path, agent_think={"own": False}) as api:
        _, told = await settled(api, "agent/own")

    assert ("completed", TAGGED, "") == told


async def counting(request):
    yield AnswerBegins(think=False)
    yield [StepStarted(1), TAGGED, StepFinished(1, 0.0)]


async def test_saying_that_the_tags_are_meant_begins_no_step(tmp_path):
    """An agent that counts its steps itself says so later, with its first one."""
    async with serving(tmp_path, counting=counting) as api:
        run_id = await api.start(await api.new_session(), "Hi", "agent/counting")
        events = [frame.json() for frame in await api.replay(run_id)]

    assert [1] == [event["step"] for event in events if event["type"] == "step.started"]
    assert TAGGED == events[-1]["settlement"]["text"]


async def test_an_agent_that_is_not_published_cannot_mean_its_tags(tmp_path):
    """A name with a mistake in it would leave the agent as it is, and nobody would know why."""
    with pytest.raises(SettingsError, match="agent_think names 'owm', which is not a published agent"):
        async with serving(tmp_path, agent_think={"owm": False}):
            pass


@requirement("think.every-source")
@pytest.mark.parametrize("blind", [False, True])
async def test_panes_of_a_comparison_show_answers_without_thinking(tmp_path, up, blind):
    """Two models are compared by what they say; and tags could tell which is which."""
    said(up, "openai")
    async with serving(tmp_path, openai(up)) as api:
        begin = await Compare(api.client).begin(["up/m", "s/echo"], prompt=TAGGED, blind=blind)
        kept = await begin.end()

    assert [OUTCOME[1]] * 2 == [pane["text"] for pane in kept["panes"]]
    assert [OUTCOME[2]] * 2 == [pane["reasoning"] for pane in kept["panes"]]
