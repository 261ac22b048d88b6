"""Pictures of messages: kept once, fetched as files by their owner alone, and shown to models as they were sent."""

import base64
import hashlib
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

import pytest
import pytest_asyncio

from tests.acceptance.test_safety import World, bearer, two_owners
from tests.requirements import requirement
from tests.support.http import Response
from tests.support.native import Native
from tests.support.upstream import Upstream

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = "up/echo:A cat."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with Upstream() as up, two_owners(tmp_path_factory.mktemp("pictures"), up) as server:
        async with server.client(**bearer("alice")) as alice, server.client(**bearer("bob")) as bob:
            async with server.client() as stranger:
                yield World(server, up, Native(alice), Native(bob), stranger, {})


def a_picture(name: str) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + name.encode() * 40


def data_url(data: bytes, type: str = "image/png") -> str:
    return f"data:{type};base64,{base64.b64encode(data).decode()}"


def reference(data: bytes) -> str:
    return f"holdfast-file:{hashlib.sha256(data).hexdigest()}"


def looks_at(url: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}]


async def asked(api: Native, url: str) -> str:
    """A session with a question about a picture, and the answer."""
    session = await api.new_session()
    await api.settled(await api.start(session, looks_at(url), MODEL))
    return session


async def fetched(api: Native, session_id: str, data: bytes) -> Response:
    return await api.client.get(f"/api/sessions/{session_id}/files/{hashlib.sha256(data).hexdigest()}")


def files_kept(world: World, data: bytes) -> int:
    with closing(sqlite3.connect(f"file:{world.server.data / 'holdfast.db'}?mode=ro", uri=True)) as db:
        asked = (hashlib.sha256(data).hexdigest(),)
        return int(db.execute("SELECT count(*) FROM files WHERE sha256 = ?", asked).fetchone()[0])


@requirement("hist.pictures")
async def test_a_session_refers_to_its_pictures_and_the_model_is_shown_them(world: World):
    """A session that is opened again carries no picture; the model gets what the client sent, in each turn."""
    data = a_picture("cat")
    session = await asked(world.alice, data_url(data))
    await world.alice.settled(await world.alice.start(session, "And its colour?", MODEL))

    opened = await world.alice.session(session)
    assert looks_at(reference(data)) == opened["messages"][0]["content"]
    assert looks_at(data_url(data)) == world.up.requests[-1].body["messages"][0]["content"]
    feed = await world.alice.client.get(f"/api/sessions/{session}/events")
    assert looks_at(reference(data)) == (await feed.next_event()).json()["message"]["content"]
    feed.leave()


@requirement("hist.pictures", "safe.pictures")
async def test_a_picture_is_a_file_that_a_browser_keeps_and_takes_for_nothing_else(world: World):
    """Under its hash it never changes. Opened as a page of its own it can run nothing."""
    data = a_picture("file")
    response = await fetched(world.alice, await asked(world.alice, data_url(data)), data)

    assert (200, "image/png", data) == (response.status, response.headers["content-type"], await response.body())
    assert "private, max-age=31536000, immutable" == response.headers["cache-control"]
    assert "authorization" in response.headers["vary"].lower()
    assert "nosniff" == response.headers["x-content-type-options"]
    assert "default-src 'none'; sandbox" == response.headers["content-security-policy"]
    assert "same-origin" == response.headers["cross-origin-resource-policy"]


@requirement("safe.pictures")
@pytest.mark.one_server("it reads the SQLite file")
async def test_a_hash_is_no_key_to_anothers_picture(world: World):
    """Someone who has, or guesses, the same hash learns nothing: from no file, no message, no import, no prompt."""
    data = a_picture("secret")
    session = await asked(world.alice, data_url(data))
    bobs = await world.bob.new_session()
    before = world.stored()
    guess = looks_at(reference(data))
    post = world.bob.client.post
    chat = {"model": MODEL, "messages": [{"role": "user", "content": guess}], "session_id": "new"}

    assert [404, 404] == [(await fetched(world.bob, one, data)).status for one in (session, bobs)]
    assert 401 == (await fetched(Native(world.stranger), session, data)).status
    refused = [
        await post(f"/api/sessions/{bobs}/runs", {"input": guess, "model": MODEL}),
        await post("/api/sessions/import", {"messages": [{"role": "user", "content": guess}]}),
        await post("/api/comparisons", {"models": [MODEL], "prompt": guess}),
        await post("/api/batches", {"models": [MODEL], "prompts": [{"prompt": guess}]}),
        await post("/v1/chat/completions", chat),
    ]
    assert [400] * 5 == [response.status for response in refused]
    assert before == world.stored()


@requirement("hist.pictures")
@pytest.mark.one_server("it reads the SQLite file")
async def test_a_picture_is_kept_once_and_goes_with_the_last_session_that_has_it(world: World):
    """Two people send the same photo, and one of them forks the chat: the disk has it once, until nobody has it."""
    data = a_picture("shared")
    one, two = await asked(world.alice, data_url(data)), await asked(world.bob, data_url(data))
    last = (await world.alice.session(one))["head_id"]
    fork = await (await world.alice.client.post(f"/api/sessions/{one}/fork", {"message_id": last})).json()

    kept = [files_kept(world, data)]
    for api, session in ((world.alice, one), (world.bob, two), (world.alice, fork["id"])):
        assert 200 == (await fetched(api, session, data)).status
        await api.client.request("DELETE", f"/api/sessions/{session}")
        kept.append(files_kept(world, data))
    assert [1, 1, 1, 0] == kept


@requirement("hist.pictures")
async def test_an_export_holds_its_pictures_and_an_import_keeps_them(world: World):
    """A file on somebody's disk must not need the server that wrote it."""
    data = a_picture("exported")
    session = await asked(world.alice, data_url(data))
    exported = await world.alice.get(f"/api/sessions/{session}?files=inline")
    imported = await (await world.bob.client.post("/api/sessions/import", exported)).json()

    assert looks_at(data_url(data)) == exported["messages"][0]["content"]
    assert looks_at(reference(data)) == (await world.bob.session(imported["id"]))["messages"][0]["content"]
    assert data == await (await fetched(world.bob, imported["id"], data)).body()
    assert 400 == (await world.alice.client.get(f"/api/sessions/{session}?files=all")).status


@requirement("hist.pictures")
async def test_an_edited_message_keeps_its_picture_by_its_reference(world: World):
    """What the session has need not be sent again, and the model is shown it as before."""
    data = a_picture("edited")
    session = await asked(world.alice, data_url(data))
    message = (await world.alice.session(session))["messages"][0]
    edit = {"message_id": message["id"], "input": message["content"], "model": MODEL}
    run = await (await world.alice.client.post(f"/api/sessions/{session}/edit", edit)).json()
    await world.alice.settled(run["id"])

    assert looks_at(data_url(data)) == world.up.requests[-1].body["messages"][0]["content"]


@requirement("safe.pictures")
async def test_a_drawing_with_scripts_is_never_served(world: World):
    """SVG can hold scripts. It stays in its message, as text, and goes to the model as it came."""
    drawing = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
    session = await asked(world.alice, data_url(drawing, "image/svg+xml"))

    assert (
        looks_at(data_url(drawing, "image/svg+xml")) == (await world.alice.session(session))["messages"][0]["content"]
    )
    assert 404 == (await fetched(world.alice, session, drawing)).status
