"""Titles that a model writes: after a response, when nobody needs the model, and never in place of a person's own."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.requirements import requirement
from tests.support.native import Native
from tests.support.server import Server, provider
from tests.support.upstream import Delta, Done, Finish, Gate, Headers, Recorded, Role, Script, Status, Upstream, answer
from tests.support.waiting import LONG

ASKED = "Why do barnacles hold fast to their rock?"
CONFIG = 'title_model = "up/titles"\n[prices]\n"up/titles" = { input = 1.0, output = 1.0 }'


@asynccontextmanager
async def serving(
    folder: Path, title: Script | Callable[[Recorded], Script], config: str = CONFIG
) -> AsyncIterator[tuple[Upstream, Server, Native]]:
    async with Upstream() as up:
        up.models["titles"] = title
        up.models["m"] = answer("Aye.")
        async with Server(folder, [provider(up.base_url, models=None)], config=config) as server:
            async with server.client() as client:
                yield up, server, Native(client)


async def chatted(api: Native, text: str = ASKED, model: str = "up/m") -> str:
    session = await api.new_session()
    await api.settled(await api.start(session, text, model))
    return session


async def has_title(api: Native, session: str, title: str) -> dict[str, Any]:
    """Wait until a session has a title, and return it."""
    async with asyncio.timeout(LONG):
        while True:
            found: dict[str, Any] = await api.session(session)
            if found["title"] == title:
                return found
            await asyncio.sleep(0.02)


async def use_of(api: Native, model: str) -> dict[str, Any]:
    """Wait until the usage has a model: it is counted a moment after a run."""
    async with asyncio.timeout(LONG):
        while True:
            for row in (await api.get("/api/usage"))["usage"]:
                if row["model"] == model:
                    return dict(row)
            await asyncio.sleep(0.02)


def until_open(gate: str) -> Script:
    """A response that says a little, and ends when a gate is opened."""
    return [Headers(), Role(), Delta("so far"), Gate(gate), Finish(), Done()]


def titles_in(up: Upstream) -> list[Recorded]:
    return [request for request in up.requests if request.model == "titles"]


@requirement("hist.titles")
async def test_a_model_titles_a_chat_after_its_first_response(tmp_path: Path):
    """From the message and the response, with a limit of tokens that leaves room for reasoning; its cost counts."""
    async with serving(tmp_path, answer('Title: **"How barnacles hold"**.\n\nIs that all right?')) as (up, _, api):
        session = await chatted(api)
        found = await has_title(api, session, "How barnacles hold")
        (asked,) = titles_in(up)
        runs = (await api.get("/api/runs"))["runs"]
        used = await use_of(api, "up/titles")
        await api.settled(await api.start(session, "And limpets?", "up/m"))

    prompt = asked.body["messages"][0]["content"]
    assert all(part in prompt for part in (f"user: {ASKED}", "assistant: Aye."))
    assert asked.body["max_tokens"] >= 1_000
    assert ["up/m"] == [run["model"] for run in runs]
    assert found["updated_at"] >= found["created_at"]
    assert used["cost"] > 0
    assert 1 == len(titles_in(up)), "a title is written once"


@requirement("hist.titles")
async def test_reasoning_is_no_part_of_a_title(tmp_path: Path):
    """Models that think aloud begin with pages of it."""
    async with serving(tmp_path, answer("<think>The person asks about animals.</think>\n\nBarnacles")) as (_, _, api):
        await has_title(api, await chatted(api), "Barnacles")


@requirement("hist.titles")
async def test_a_persons_own_title_stays(tmp_path: Path):
    """Also one that is written while the model still thinks about its own."""
    script = [Headers(), Role(), Gate("title"), *answer("Of the model")[2:]]
    async with serving(tmp_path, script) as (up, _, api):
        session = await chatted(api)
        await up.reached("title")
        await api.client.request("PATCH", f"/api/sessions/{session}", json={"title": "My own"})
        up.open("title")
        named = await api.new_session(title="Named")
        await api.settled(await api.start(named, ASKED, "up/m"))
        last = await chatted(api, "The last chat, whose title comes after all others")
        await has_title(api, last, "Of the model")
        titles = [(await api.session(each))["title"] for each in (session, named)]

    assert ["My own", "Named"] == titles


@requirement("hist.titles")
async def test_a_stopped_and_a_failed_response_get_no_title(tmp_path: Path):
    """Nothing is begun after a stop, and there is nothing to tell of an error."""
    async with serving(tmp_path, answer("Late")) as (up, _, api):
        up.models["broken"] = [Status(400, {"error": {"message": "no"}})]
        up.models["slow"] = until_open("never")
        session = await api.new_session()
        run = await api.start(session, ASKED, "up/slow")
        await api.shown(run, "so far")
        await api.stop(run)
        failed = await chatted(api, ASKED, "up/broken")
        last = await chatted(api, "A chat that ends well")
        await has_title(api, last, "Late")
        titles = {(await api.session(each))["title"] for each in (session, failed)}

    assert {ASKED} == titles
    assert 1 == len(titles_in(up))


@requirement("hist.titles")
async def test_a_title_waits_until_a_local_model_is_idle_and_gives_way(tmp_path: Path):
    """The model has one slot: a response that runs is not slowed, and one that begins gets the model at once."""
    script = [Headers(), Role(), Gate("title"), *answer("Whole")[2:]]
    async with serving(tmp_path, script) as (up, _, api):
        up.models["slow"] = until_open("answer")
        other = await api.new_session()
        busy = await api.start(other, "Something long", "up/slow")
        await api.shown(busy, "so far")
        session = await chatted(api)
        before = len(titles_in(up))
        up.open("answer")
        await up.reached("title")
        (first,) = titles_in(up)
        up.shut("answer")
        again = await api.start(other, "Something else", "up/slow")
        async with asyncio.timeout(LONG):
            await first.closed.wait()
        await api.shown(again, "so far")
        up.open("title")
        during = (await api.session(session))["title"]
        up.open("answer")
        await has_title(api, session, "Whole")

    assert (0, "client", ASKED) == (before, first.closed_by, during)


@requirement("hist.titles")
async def test_without_the_setting_no_model_is_asked(tmp_path: Path):
    """By default a title is the beginning of the first message. The page turns titles on and off at once."""
    async with serving(tmp_path, answer("Of the model"), config="") as (up, _, api):
        plain = await chatted(api)
        wrong = await api.client.request("PUT", "/api/settings", json={"title_model": "nowhere/m"})
        await api.client.request("PUT", "/api/settings", json={"title_model": "up/titles"})
        shown = await api.get("/api/settings")
        await has_title(api, await chatted(api), "Of the model")
        await api.client.request("PUT", "/api/settings", json={"title_model": None})
        off = await chatted(api, "Another question")
        titles = [(await api.session(each))["title"] for each in (plain, off)]

    assert [ASKED, "Another question"] == titles
    assert (404, "up/titles", "ui") == (wrong.status, shown["title_model"], shown["sources"]["title_model"])
    assert 1 == len(titles_in(up))


@requirement("hist.titles")
async def test_a_title_model_that_fails_leaves_the_chat_as_it_is(tmp_path: Path):
    """The second response is its last chance: a broken model is not asked for ever."""

    def title(request: Recorded) -> Script:  # by what is asked: a title may wait until after the last response
        return answer("Fresh") if "Another chat" in str(request.body) else [Status(400, {"error": {"message": "no"}})]

    async with serving(tmp_path, title) as (_, _, api):
        session = await chatted(api)
        for text in ("Two", "Three", "Four"):
            await api.settled(await api.start(session, text, "up/m"))
        await has_title(api, await chatted(api, "Another chat"), "Fresh")
        kept = (await api.session(session))["title"]

    assert ASKED == kept
