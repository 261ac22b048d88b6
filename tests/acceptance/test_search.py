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
async def test_a_session_of_which_the_title_alone_was_found_has_no_hit(api: Native):
    """And a list that is no search has none either."""
    session = await imported(api, ["Nothing of it here."], title="Barnacles")

    assert {session["id"]: None} == await hits(api, "barnacles")
    assert {None} == {one["hit"] for one in (await api.get("/api/sessions"))["sessions"]}
