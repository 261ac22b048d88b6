"""A search names the message and the sentence, and costs little in a long session."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.requirements import requirement
from tests.support.native import Native
from tests.support.server import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Native]:
    async with Server(tmp_path_factory.mktemp("search")) as server:
        async with server.client() as client:
            yield Native(client)


async def imported(api: Native, texts: list[str], title: str = "Chat") -> dict[str, Any]:
    told = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    made = await (await api.client.post("/api/sessions/import", {"title": title, "messages": told})).json()
    return await api.session(made["id"])


async def hits(api: Native, query: str) -> dict[str, Any]:
    """What a search has found in each session: the id of the message, the sentence, and its words."""
    found = (await api.get(f"/api/sessions?query={query.replace(' ', '%20')}"))["sessions"]
    return {one["id"]: one["hit"] and (one["hit"]["message_id"], *told(one["hit"]["excerpt"])) for one in found}


def told(excerpt: list[dict[str, Any]]) -> tuple[str, list[str]]:
    return "".join(piece["text"] for piece in excerpt), [piece["text"] for piece in excerpt if piece["match"]]


@requirement("hist.search-hit")
async def test_a_search_names_the_message_and_shows_its_sentence(api: Native):
    """In a chat of 2,000 messages the title says little."""
    texts = [f"Message {n}. It speaks of thing{n}, and of nothing else. The end." for n in range(2000)]
    session = await imported(api, texts)

    expected = (session["messages"][1234]["id"], "It speaks of thing1234, and of nothing else.", ["thing1234"])
    assert {session["id"]: expected} == await hits(api, "thing1234")


@requirement("hist.search-hit")
async def test_several_words_are_found_in_the_message_that_has_them_all(api: Native):
    """Each of them is said before, elsewhere, by itself."""
    session = await imported(api, ["A lighthouse.", "A keeper.", "The keeper of the Lighthouse sleeps.", "Good night."])

    found = (session["messages"][2]["id"], "The keeper of the Lighthouse sleeps.", ["keeper", "Lighthouse"])
    assert {session["id"]: found} == await hits(api, "lighth keeper")


@requirement("hist.search-hit")
async def test_the_place_of_the_words_in_a_long_message_is_told(api: Native):
    """A page jumps to the words. The beginning of an answer of 100 kB would be the wrong place."""
    text = "".join(f"Chapter {n}: the gull and the whelk 🐚.\n\n" for n in range(3000))
    session = await imported(api, ["Tell me a long story.", text])

    (found,) = (await api.get("/api/sessions?query=chapter%202718"))["sessions"]
    assert (session["id"], session["messages"][1]["id"]) == (found["id"], found["hit"]["message_id"])
    assert text.index("Chapter 2718") == found["hit"]["offset"]
    assert ["Chapter", "2718"] == told(found["hit"]["excerpt"])[1]


@requirement("hist.search-hit")
async def test_a_session_of_which_the_title_alone_was_found_has_no_hit(api: Native):
    """And a list that is no search has none either."""
    session = await imported(api, ["Nothing of it here."], title="Barnacles")

    assert {session["id"]: None} == await hits(api, "barnacles")
    assert {None} == {one["hit"] for one in (await api.get("/api/sessions"))["sessions"]}


@requirement("hist.run-list")
async def test_runs_are_listed_with_their_question_and_chat_and_by_outcome(api: Native):
    """The beginnings of answers are alike. What was asked, and where, tells runs apart."""
    session = await api.new_session(title="Tides and moons")
    await api.settled(await api.start(session, "Why are there two tides a day?", "scripted/echo"))
    failed = await api.start(session, "And on other planets?", "scripted/fail:x")
    await api.settled(failed)
    alone = {"model": "scripted/echo", "messages": [{"role": "user", "content": "Without a chat"}], "background": True}
    made = await (await api.client.post("/v1/chat/completions", alone)).json()
    await api.settled(made["holdfast"]["run_id"])
    listed = (await api.get("/api/runs?limit=3"))["runs"]
    bad = (await api.get("/api/runs?outcome=failed"))["runs"]
    wrong = await api.client.get("/api/runs?outcome=fine")

    assert [
        ("Without a chat", None),
        ("And on other planets?", "Tides and moons"),
        ("Why are there two tides a day?", "Tides and moons"),
    ] == [(run["question"], run["session_title"]) for run in listed]
    assert [failed] == [run["id"] for run in bad]
    assert 400 == wrong.status


@requirement("hist.search-hit")
@pytest.mark.parametrize("query", ["q=barnacles", "search=barnacles", "limit=5&Query=x"])
async def test_an_unknown_parameter_is_refused_with_the_known_ones(api: Native, query: str):
    """An ignored filter returns everything, as if it had matched."""
    response = await api.client.get(f"/api/sessions?{query}")
    error = (await response.json())["error"]

    assert 400 == response.status
    assert "GET /api/sessions has: archived, before, folder, limit, prefix, query, tag." in error["message"]
    assert error["param"] in ("q", "search", "Query")


async def test_parameters_of_other_vendors_clients_are_left_alone(api: Native):
    """Their SDKs add what their own servers know."""
    for path in ("/v1/models?client=x", "/api/tags?client=x", "/api/version?client=x"):
        assert 200 == (await api.client.get(path)).status
