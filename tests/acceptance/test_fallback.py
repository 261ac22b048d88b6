"""A model that cannot answer is stood in for by another, before the first word only, and never in silence."""

import json

import pytest

from holdfast.events import Completed, Notice, Text
from holdfast.history import answer_message
from holdfast.log.log import Log
from holdfast.log.segment import segment_of
from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings, SettingsError
from holdfast.store.memory import MemoryStore
from tests.support.native import Native
from tests.support.served import NO_HOME, Served
from tests.support.upstream import (
    ENDINGS,
    ODDITIES,
    Cut,
    Delta,
    Finish,
    Hang,
    Headers,
    ReasoningDelta,
    Role,
    Status,
    Upstream,
    answer,
)

CHAIN = {"up/m": "other/m", "other/m": "third/m"}
ROUND = {"up/m": "other/m", "other/m": "up/m"}


class World:
    """Three upstreams, and a server that has all of them."""

    def __init__(self, ups, client):
        self.up, self.other, self.third = ups
        self.client = client
        self.api = Native(client)

    async def ask(self, model="up/m"):
        """Ask in a session; the events, the run and the last message."""
        session_id = await self.api.new_session()
        run_id = await self.api.start(session_id, "Hello", model)
        frames = await self.api.replay(run_id)
        messages = (await self.api.session(session_id))["messages"]
        return [frame.json() for frame in frames], await self.api.run(run_id), messages[-1]

    def asked(self):
        return [len(up.requests) for up in (self.up, self.other, self.third)]


@pytest.fixture
def fallbacks():
    return CHAIN


@pytest.fixture
async def world(tmp_path, fallbacks):
    async with Upstream() as up, Upstream() as other, Upstream() as third:
        named = {"up": up, "other": other, "third": third}
        providers = [
            ProviderSettings(name, base_url=each.base_url, models=("m",), prefills=True) for name, each in named.items()
        ]
        settings = Settings(
            data=str(tmp_path),
            providers=tuple(providers),
            fallbacks=fallbacks,
            on_break={"*": "settle"},
            retry_patience=0.0,
            drain=0.0,
        )
        async with Served(create_app(settings, MemoryStore(), NO_HOME)) as served, served.client() as client:
            yield World((up, other, third), client)


def notices(events):
    return [event for event in events if event["type"] == "notice"]


async def test_the_model_that_really_answered_is_named_everywhere(world):
    """Whoever reads the answer, now or in a year, must not take it for another model's."""
    world.up.refuse()
    world.other.script = answer("From the other.")
    events, run, message = await world.ask()
    (notice,) = notices(events)

    assert ("fallback", "other/m") == (notice["code"], notice["model"])
    assert "up/m could not answer (up could not be reached" in notice["message"]
    assert "other/m answers instead." in notice["message"]
    assert "up/m" == run["model"]
    assert ("completed", "other/m") == (run["settlement"]["outcome"], run["settlement"]["answered_by"])
    assert ("From the other.", "other/m") == (message["content"], message["model"])


async def test_a_model_that_answers_is_not_stood_in_for(world):
    """And then nothing is said of another one."""
    events, run, message = await world.ask()

    assert [] == notices(events)
    assert (None, "up/m") == (run["settlement"]["answered_by"], message["model"])
    assert [1, 0, 0] == world.asked()


@pytest.mark.parametrize(
    "script",
    [
        [Status(401)],
        [Status(403)],
        [Status(429)],
        [Status(500)],
        [Status(503)],
        [Cut()],
        ENDINGS["json-error-200"],
        ODDITIES["nothing-at-all"],
        [Headers(), Role(), Cut()],
    ],
    ids=["401", "403", "429", "500", "503", "cut", "error with 200", "nothing", "only its role"],
)
async def test_whatever_is_wrong_with_the_upstream_the_other_is_asked(world, script):
    """As long as it has not said a word."""
    world.up.script = script
    _, run, message = await world.ask()

    assert ("completed", "other/m") == (run["settlement"]["outcome"], run["settlement"]["answered_by"])
    assert "other/m" == message["model"]


@pytest.mark.parametrize("status", [400, 404, 413, 422])
async def test_a_request_that_is_refused_for_what_it_says_is_not_passed_on(world, status):
    """The other would refuse it too, or answer what was not asked; the caller can mend it."""
    world.up.script = [Status(status)]
    events, run, _ = await world.ask()

    assert [] == notices(events)
    assert "failed" == run["settlement"]["outcome"]
    assert [1, 0, 0] == world.asked()


@pytest.mark.parametrize(
    "said", [Delta("Once "), ReasoningDelta("Hm. "), ReasoningDelta("Hm. ", "reasoning")], ids=["text", "one", "two"]
)
async def test_after_the_first_word_nobody_else_goes_on_where_that_is_not_wanted(world, said):
    """Half an answer of one model and half of another is an answer of neither, unless its seam is told (test_legs)."""
    world.up.script = [Headers(), Role(), said, Cut()]
    _, run, _ = await world.ask()

    assert ("failed", None) == (run["settlement"]["outcome"], run["settlement"]["answered_by"])
    assert [1, 0, 0] == world.asked()


async def test_the_other_may_have_one_of_its_own(world):
    """Each step is told, and the last one counts."""
    world.up.refuse()
    world.other.script = [Status(500)]
    events, run, message = await world.ask()

    assert ["other/m", "third/m"] == [notice["model"] for notice in notices(events)]
    assert ("third/m", "third/m") == (run["settlement"]["answered_by"], message["model"])


@pytest.mark.parametrize("fallbacks", [ROUND, {"up/m": "up/m"}], ids=["a ring", "itself"])
async def test_nobody_is_asked_twice(world, fallbacks):
    """Settings that lead in a circle end with the last error, not never."""
    world.up.script = world.other.script = [Status(500)]
    _, run, _ = await world.ask()

    assert ("failed", "upstream_error") == (run["settlement"]["outcome"], run["settlement"]["error"]["code"])
    assert [1, len(set(fallbacks)) - 1, 0] == world.asked()


async def test_a_bare_name_has_the_same_fallback(tmp_path):
    """`m` and `up/m` are one model where only one provider can be meant."""
    async with Upstream([Status(500)]) as up, Upstream() as other:
        settings = Settings(
            data=str(tmp_path),
            providers=(
                ProviderSettings("up", base_url=up.base_url, models=("m",)),
                ProviderSettings("other", base_url=other.base_url, models=("n",)),
            ),
            fallbacks={"up/m": "other/n"},
            retry_patience=0.0,
        )
        async with Served(create_app(settings, MemoryStore(), NO_HOME)) as served, served.client() as client:
            api = Native(client)
            run_id = await api.start(await api.new_session(), "Hello", "m")

            assert "other/n" == (await api.settled(run_id))["answered_by"]


async def test_a_stop_reaches_whoever_answers(world):
    """The run is one, whoever works on it, and its partial is that model's."""
    world.up.refuse()
    world.other.script = [Headers(), Role(), Delta("Once upon "), Hang()]
    session_id = await world.api.new_session()
    run_id = await world.api.start(session_id, "Hello", "up/m")
    await world.api.shown(run_id, "Once upon ")
    stopped = await world.api.stop(run_id)
    message = (await world.api.session(session_id))["messages"][-1]

    assert ("stopped", "other/m") == (stopped["settlement"]["outcome"], stopped["settlement"]["answered_by"])
    assert ("Once upon ", "other/m", True) == (message["content"], message["model"], message["partial"])
    await world.other.requests[0].wait_closed()


async def test_a_cut_off_answer_is_not_gone_on_with_by_another_model(world):
    """The message would be two models' and could name only one."""
    world.up.script = [Headers(), Role(), Delta("Once upon "), Finish("length")]
    session_id = await world.api.new_session()
    await world.api.settled(await world.api.start(session_id, "Hello", "up/m"))
    message = (await world.api.session(session_id))["messages"][-1]
    world.up.script = [Status(500)]
    body = {"message_id": message["id"], "model": "up/m"}
    run = await (await world.client.post(f"/api/sessions/{session_id}/continue", body)).json()
    settlement = await world.api.settled(run["id"])

    assert ("failed", "Once upon ") == (settlement["outcome"], settlement["text"])
    assert [2, 0, 0] == world.asked()


async def test_the_openai_dialect_names_it_beside_the_model_that_was_asked(world):
    """Clients check that `model` is the one they asked; the truth stands where ours always stands."""
    world.up.refuse()
    body = {"model": "up/m", "messages": [{"role": "user", "content": "Hello"}]}
    whole = await (await world.client.post("/v1/chat/completions", body)).json()
    streamed = await (await world.client.post("/v1/chat/completions", {**body, "stream": True})).all_events()
    chunks = [json.loads(frame.data) for frame in streamed if frame.data != "[DONE]"]

    assert ("up/m", "stop") == (whole["model"], whole["choices"][0]["finish_reason"])
    assert "other/m" == whole["holdfast"]["answered_by"]
    assert {"up/m"} == {chunk["model"] for chunk in chunks}
    assert ["other/m"] == [chunk["holdfast"]["answered_by"] for chunk in chunks if "holdfast" in chunk]


def test_what_a_killed_server_leaves_names_the_model_that_answered():
    """The name is in the log, so that whoever settles the run finds it there."""
    log = Log("run_1")
    log.append(segment_of([Notice("fallback", "other/m answers instead.", "other/m"), Text("Once")]))
    log.publish(2)
    completed = Completed(text=log.text)
    message = answer_message(log, completed, id="msg_1", parent_id=None, run_id="run_1", model="up/m", at=0.0)

    assert message is not None
    assert "other/m" == message.model


@pytest.mark.parametrize("fallbacks", [{"up/m": "nobody/m"}, {"m": "up/m"}, {"up/m": "up"}])
def test_a_fallback_that_could_never_answer_is_refused_at_the_start(fallbacks, tmp_path):
    """Else nobody would know before the day it is needed."""
    providers = (ProviderSettings("up", base_url="http://127.0.0.1:9/v1"),)

    with pytest.raises(SettingsError, match="In fallbacks"):
        create_app(Settings(data=str(tmp_path), providers=providers, fallbacks=fallbacks), MemoryStore(), NO_HOME)
