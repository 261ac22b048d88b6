"""Answers with a name: an upstream that writes them to their end, and what is asked of it before and after a crash."""

import asyncio
from contextlib import aclosing
from functools import partial
from typing import Any

import pytest

from holdfast.engine.core import Core
from holdfast.errors import AnswerLost, ProviderRefused
from holdfast.events import Failed, Finish, Reasoning, Stopped, Text
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.server.live.provider_factory import make_provider
from holdfast.upstreams import Attaching, ChatRequest, Provider
from tests.requirements import requirement
from tests.support import outlets
from tests.support.native import Native
from tests.support.server import Server
from tests.support.server import provider as entry
from tests.support.upstream import (
    ENDINGS,
    REASONING,
    TEXT,
    Delta,
    Done,
    Gate,
    Headers,
    Raw,
    Role,
    Status,
    Upstream,
    answer,
    frame,
    text_chunk,
)
from tests.support.waiting import LONG

NAME = "run_1"
HALF = [Headers(), Role(), Delta("Once upon "), Gate(), Delta("a time.")]


@pytest.fixture
async def up():
    async with Upstream() as up:
        up.named = {}
        yield up


@pytest.fixture
async def llama(up):
    provider = made(up)
    yield provider
    await provider.close()


def made(up: Upstream, profile: str | None = "llamacpp", **fields: Any) -> Provider:
    described = ProviderSettings("llamacpp", profile=profile, base_url=fields.pop("base_url", up.base_url), **fields)
    return make_provider(described, Settings(), {})


def named(name: str = NAME, **params: Any) -> ChatRequest:
    return ChatRequest(model="m", messages=[{"role": "user", "content": "Hi"}], params=params, name=name)


async def attached(provider: Provider, **seen: str) -> list[Any]:
    assert isinstance(provider, Attaching)
    return [event async for events in outlets.attach(provider, NAME, **seen) for event in events]


def text(events: list[Any], kind: type = Text) -> str:
    return "".join(event.text for event in events if isinstance(event, kind))


async def dropped(up: Upstream) -> str:
    """The name of the next answer that the upstream is told to drop."""
    async with asyncio.timeout(LONG):
        return await up.dropped.get()


# going on


async def test_what_was_seen_is_taken_off(up, llama):
    """Wherever the killed server stopped reading: inside a delta, inside the reasoning, after all of it."""
    up.named = {NAME: ENDINGS["think"]}

    for seen in range(len(TEXT) + 1):
        rest = await attached(llama, text=TEXT[:seen], reasoning=REASONING)
        assert (TEXT[seen:], "") == (text(rest), text(rest, Reasoning))
        assert Finish("stop") in rest
    rest = await attached(llama, reasoning=REASONING[:3])
    assert (TEXT, REASONING[3:]) == (text(rest), text(rest, Reasoning))
    assert up.dropped.empty()


async def test_it_is_asked_from_the_beginning_with_the_key(up):
    """Half an answer's bytes could not be read: a character or an event may be cut."""
    up.named = {NAME: answer("whole")}
    provider = made(up, api_key="sk-test-1")
    await attached(provider)
    await provider.close()

    [asked] = up.others
    assert ("GET", f"/v1/stream?conv_id={NAME}&from=0") == (asked.method, asked.path)
    assert "Bearer sk-test-1" == asked.headers["authorization"]
    assert [] == up.requests


async def test_a_base_url_without_a_version_finds_the_answers_too(up):
    """llama-server takes `/chat/completions` with and without `/v1`, the answers with a name only with it."""
    up.named = {NAME: answer("whole")}
    provider = made(up, base_url=f"http://127.0.0.1:{up.port}")
    rest = await attached(provider)
    await provider.close()

    assert "whole" == text(rest)


@pytest.mark.parametrize("named_answers", [{}, None], ids=["unknown", "older version"])
async def test_an_answer_that_is_not_there_is_lost(up, llama, named_answers):
    """Too old, forgotten at a restart of its own, or a version that has never heard of names."""
    up.named = named_answers

    with pytest.raises(AnswerLost, match="no such answer"):
        await attached(llama, text="Once")


async def test_an_upstream_that_is_away_has_lost_the_answer(up, llama):
    """The run was cut off by the end of its server, and is told so: it is not the upstream that failed it."""
    up.refuse()

    with pytest.raises(AnswerLost, match="could not be reached"):
        await attached(llama, text="Once")


@pytest.mark.parametrize("seen", ["Zebras never", "Once upon a time. And then"])
async def test_another_answer_under_the_name_is_lost_and_not_guessed_at(up, llama, seen):
    """A word too many or another one would be a lie."""
    up.named = {NAME: answer("Once upon ", "a time.")}

    with pytest.raises(AnswerLost):
        await attached(llama, text=seen)


async def test_an_upstream_that_breaks_while_it_goes_on_has_broken(up, llama):
    """And what it said until then counts."""
    up.named = {NAME: ENDINGS["cut"]}
    async with Core() as engine:
        settlement = await (await engine.start(partial(llama.attach, NAME, text=TEXT[:2]))).settled()

    assert isinstance(settlement, Failed)
    assert ("upstream_broke", TEXT[2:]) == (settlement.error.code, settlement.text)


# dropping


@pytest.mark.parametrize("script", [HALF, [Headers(), Gate("never")], [Gate("never")]], ids=["half", "none", "silent"])
async def test_stop_drops_the_answer_since_it_would_go_on_without_a_reader(up, llama, script):
    """In the middle, before the first word, and before there is an answer at all."""
    up.script = script
    async with Core() as engine:
        run = await engine.start(partial(llama.answer, named()))
        asked = await up.next_request()
        settlement = (await run.stop()).settlement

    assert isinstance(settlement, Stopped)
    assert NAME == asked.headers["x-conversation-id"]
    assert NAME == await dropped(up)


async def test_an_answer_that_was_attached_to_can_be_dropped_as_well(up, llama):
    """The second server that reads it must be able to stop it too."""
    up.named = {NAME: HALF}
    rest = outlets.attach(llama, NAME, text="Once ")
    async with aclosing(rest):
        first = await anext(rest)

    assert "upon " == text(first)
    assert NAME == await dropped(up)


async def test_a_failure_drops_the_answer_too(up, llama):
    """The upstream may still write where only the connection has broken."""
    up.script = ENDINGS["cut"]
    async with Core() as engine:
        settlement = await (await engine.start(partial(llama.answer, named()))).settled()

    assert isinstance(settlement, Failed)
    assert NAME == await dropped(up)


async def test_an_answer_that_had_not_begun_is_dropped_again_a_little_later(up, llama):
    """The word that it is not wanted may overtake the request on its way."""
    up.script = [Gate("never")]
    async with Core() as engine:
        run = await engine.start(partial(llama.answer, named()))
        await up.next_request()
        await run.stop()

    assert [NAME] * 3 == [await dropped(up) for _ in range(3)]


async def test_closing_waits_until_the_upstream_has_been_told(up):
    """A server that ends must not leave a model at work."""
    provider = made(up)
    stream = outlets.answer(provider, named())
    up.script = HALF
    async with aclosing(stream):
        while "Once" not in text(await anext(stream)):
            pass
    await provider.close()

    assert NAME == up.dropped.get_nowait()


async def test_a_whole_answer_and_a_refused_one_are_left_alone(up, llama):
    """A successor may want the whole one, should its end not be saved yet; the other is not there."""
    await_all = [event async for events in outlets.answer(llama, named()) for event in events]
    up.script = [Status(400)]
    with pytest.raises(ProviderRefused):
        [event async for events in outlets.answer(llama, named()) for event in events]
    await llama.close()

    assert TEXT == text(await_all)
    assert up.dropped.empty()


async def test_usage_that_is_missing_after_the_finish_drops_nothing(up, llama):
    """It is whole without that."""
    up.script = [Headers(), Role(), Raw(frame(text_chunk("all", "stop"))), Gate("never"), Done()]
    events = [event async for events in outlets.answer(llama, named()) for event in events]
    await llama.close()

    assert "all" == text(events)
    assert up.dropped.empty()


@pytest.mark.parametrize(
    ("profile", "name", "fields"),
    [("openai", NAME, {}), (None, NAME, {}), ("llamacpp", "", {}), ("llamacpp", NAME, {"attaches": False})],
)
async def test_nobody_else_hears_of_names(up, profile, name, fields):
    """Where it is not known that an upstream stops when told, closing the connection has to stop it."""
    provider = made(up, profile, **fields)
    up.script = HALF
    stream = outlets.answer(provider, named(name))
    async with aclosing(stream):
        await anext(stream)
        await anext(stream)
    await provider.close()

    [asked] = up.requests
    await asked.wait_closed()
    assert "x-conversation-id" not in asked.headers
    assert up.dropped.empty()


async def test_in_turns_an_answer_can_be_attached_to_as_well(up):
    """A limit on answers at once must not cost a run its second chance."""
    up.named = {NAME: answer("Once upon ", "a time.")}
    provider = made(up, max_runs=1)
    rest = await attached(provider, text="Once upon a")
    await provider.close()
    other = made(up, "openai", max_runs=1)

    assert " time." == text(rest)
    assert isinstance(other, Attaching)
    assert not other.attaches
    await other.close()


# the server


@requirement("crash.goes-on")
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
async def test_a_killed_server_goes_on_with_what_it_can_find_and_says_so_where_it_cannot(up, tmp_path, known):
    """The text that was shown stays as it was in both cases."""
    up.named = {}
    up.script = HALF
    llamacpp = entry(up.base_url, "llamacpp", profile="llamacpp")
    async with Server(tmp_path, [llamacpp], config='[on_break]\n"*" = "settle"') as server, server.client() as client:
        api = Native(client)
        run_id = await api.start(await api.new_session(on_break="settle"), "Hi", "llamacpp/m")
        await api.shown(run_id, "upon ")
        if known:
            up.named[run_id] = answer("Once upon ", "a time.")
        await server.kill9()
        await server.restart()
        settlement = await api.settled(run_id)

    expected = ("completed", "Once upon a time.") if known else ("interrupted", "Once upon ")
    assert expected == (settlement["outcome"], settlement["text"])
    assert 1 == len(up.requests)


async def test_a_run_with_tools_has_no_name(up, tmp_path):
    """What was seen of a tool call cannot be taken off, so it is stopped by its connection, and never told twice."""
    up.script = HALF
    tools = [{"type": "function", "function": {"name": "f"}}]
    llamacpp = entry(up.base_url, "llamacpp", profile="llamacpp")
    async with Server(tmp_path, [llamacpp]) as server, server.client() as client:
        api = Native(client)
        run_id = await api.start(await api.new_session(), "Hi", "llamacpp/m", params={"tools": tools})
        await api.shown(run_id, "upon ")
        await server.kill9()
        await server.restart()
        settlement = await api.settled(run_id)

    assert "x-conversation-id" not in up.requests[0].headers
    assert "interrupted" == settlement["outcome"]
