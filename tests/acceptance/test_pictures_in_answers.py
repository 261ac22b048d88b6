"""Pictures in answers: numbered and replayed like text, kept as files by hash, and told on every API."""

import base64
from typing import Any

import pytest

from tests.acceptance.test_pictures import a_picture, data_url, fetched, files_kept, reference
from tests.acceptance.test_pictures import world as world
from tests.acceptance.test_safety import World
from tests.requirements import requirement
from tests.support.upstream import Chunk, Cut, Done, Finish, Headers, Role

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKED = [{"role": "user", "content": "Draw a cat."}]


def draws(world: World, *urls: str, text: str = "", model: str = "draws", breaks: bool = False) -> str:
    """A model that answers with pictures."""
    said = [{"content": text}] if text else []
    deltas = [*said, *({"images": [{"type": "image_url", "image_url": {"url": url}}]} for url in urls)]
    chunks = [Chunk({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}) for delta in deltas]
    world.up.models[model] = [Headers(), Role(), *chunks, *([Cut()] if breaks else [Finish("stop"), Done()])]
    return f"up/{model}"


def part(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


@requirement("files.answers")
async def test_an_answer_of_only_a_picture_is_an_answer_and_replayed(world: World):
    """It failed: a model that draws could not be used."""
    picture = data_url(a_picture("drawn"))
    session = await world.alice.new_session()
    run = await world.alice.start(session, "Draw a cat.", draws(world, picture))
    events = [frame.json() for frame in await world.alice.replay(run)]

    assert ("completed", "") == (events[-1]["settlement"]["outcome"], events[-1]["settlement"]["text"])
    assert [picture] == [event["url"] for event in events if event["type"] == "picture"]
    assert list(range(1, len(events) + 1)) == [event["seq"] for event in events]


@requirement("files.answers")
@pytest.mark.one_server("it reads the SQLite file")
async def test_a_picture_is_a_file_of_the_chat_and_goes_with_it(world: World):
    """The message refers to it by its hash. The type is that of the bytes, whatever the upstream calls it."""
    data = a_picture("kept")
    session = await world.alice.new_session()
    model = draws(world, data_url(data, "image/jpg"), text="Here.")
    await world.alice.settled(await world.alice.start(session, "Draw a cat.", model))

    assert [{"type": "text", "text": "Here."}, part(reference(data))] == (await world.alice.session(session))[
        "messages"
    ][1]["content"]
    response = await fetched(world.alice, session, data)
    assert (200, "image/png", data) == (response.status, response.headers["content-type"], await response.body())
    assert 404 == (await fetched(world.bob, session, data)).status

    await world.alice.client.request("DELETE", f"/api/sessions/{session}")
    assert 0 == files_kept(world, data)


@requirement("files.answers")
async def test_the_model_sees_its_picture_again_with_the_next_question(world: World):
    """Models take pictures from people only: one in an assistant's message is refused."""
    picture = data_url(a_picture("again"))
    session = await world.alice.new_session()
    await world.alice.settled(await world.alice.start(session, "Draw a cat.", draws(world, picture, text="Here.")))
    await world.alice.settled(await world.alice.start(session, "Now red.", "up/echo:Red."))

    assert [
        *ASKED,
        {"role": "assistant", "content": "Here."},
        {"role": "user", "content": [part(picture), {"type": "text", "text": "Now red."}]},
    ] == world.up.requests[-1].body["messages"]


@requirement("files.answers")
@pytest.mark.parametrize("stream", [False, True])
async def test_every_api_has_the_picture_in_its_own_manner(world: World, stream: bool):
    """No client reads one shape for all."""
    data = a_picture("everywhere")
    url, encoded = data_url(data), base64.b64encode(data).decode()
    model, post = draws(world, url, text="Here."), world.alice.client.post
    chat = {"model": model, "messages": ASKED, "stream": stream}
    asked: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": chat,
        "/v1/messages": {**chat, "max_tokens": 9},
        "/api/chat": chat,
        "/v1/responses": {"model": model, "input": "Draw a cat.", "stream": stream},
    }
    answers = {path: await (await post(path, json=body)).text() for path, body in asked.items()}

    assert f'"images":[{{"type":"image_url","image_url":{{"url":"{url}"}}}}]' in answers["/v1/chat/completions"]
    source = f'{{"type":"base64","media_type":"image/png","data":"{encoded}"}}'
    assert f'{{"type":"image","source":{source}}}' in answers["/v1/messages"]
    assert f'"images":["{encoded}"]' in answers["/api/chat"]
    assert '"type":"image_generation_call","status":"completed"' in answers["/v1/responses"]
    assert f'"result":"{encoded}"' in answers["/v1/responses"]


@requirement("files.answers")
async def test_a_response_that_follows_sees_the_picture(world: World):
    """Also if the client sends its item back itself."""
    picture = data_url(a_picture("followed"))
    post = world.alice.client.post
    asked = {"model": draws(world, picture), "input": "Draw a cat."}
    first = await (await post("/v1/responses", json=asked)).json()
    more = {"model": "up/echo:Red.", "store": False}
    await post("/v1/responses", json={**more, "input": "Now red.", "previous_response_id": first["id"]})
    followed = world.up.requests[-1].body["messages"]
    again = [{"role": "user", "content": "Draw a cat."}, *first["output"], {"role": "user", "content": "Now red."}]
    await post("/v1/responses", json={**more, "input": again})

    assert [part(picture), {"type": "text", "text": "Now red."}] == followed[-1]["content"]
    assert followed == world.up.requests[-1].body["messages"]


@requirement("files.answers")
@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", data_url(b"<svg onload='alert(1)'/>", "image/svg+xml"), "data:image/png;base64,!"]
)
async def test_what_is_no_picture_is_left_out_and_said(world: World, url: str):
    """A drawing can run scripts: no page may show what an upstream calls a picture."""
    run = await world.alice.start(await world.alice.new_session(), "Draw.", draws(world, url, text="Here."))
    events = [frame.json() for frame in await world.alice.replay(run)]

    assert ["content_left_out"] == [event["code"] for event in events if event["type"] == "notice"]
    assert not [event for event in events if event["type"] == "picture"]


@requirement("files.answers")
async def test_a_fork_an_export_and_an_import_have_the_picture(world: World):
    """It is content like any other."""
    data = a_picture("moved")
    session = await world.alice.new_session()
    await world.alice.settled(await world.alice.start(session, "Draw.", draws(world, data_url(data))))
    last = (await world.alice.session(session))["head_id"]
    fork = await (await world.alice.client.post(f"/api/sessions/{session}/fork", {"message_id": last})).json()
    exported = await world.alice.get(f"/api/sessions/{session}?files=inline")
    brought = await (await world.bob.client.post("/api/sessions/import", exported)).json()

    assert data == await (await fetched(world.alice, fork["id"], data)).body()
    assert [part(data_url(data))] == exported["messages"][-1]["content"]
    assert data == await (await fetched(world.bob, brought["id"], data)).body()


@requirement("files.answers", "legs.joined")
async def test_an_answer_that_breaks_off_behind_a_picture_is_not_begun_again(world: World):
    """It would have the picture twice, and the second one would be paid for too."""
    session, picture = await world.alice.new_session(), data_url(a_picture("broken"))
    model, headers = draws(world, picture, breaks=True), {"holdfast-on-break": "continue"}
    run = await world.alice.start(session, "Draw a cat.", model, headers=headers)
    events = [frame.json() for frame in await world.alice.replay(run)]

    assert "failed" == events[-1]["settlement"]["outcome"]
    assert [picture] == [event["url"] for event in events if event["type"] == "picture"]


@requirement("files.answers", "fork.exact")
async def test_a_fork_behind_a_picture_is_refused_with_the_place_before_it(world: World):
    """No model goes on behind a picture, and one that is left out would be lost."""
    session = await world.alice.new_session()
    run = await world.alice.start(session, "Draw a cat.", draws(world, data_url(a_picture("forked")), text="Here."))
    events = [frame.json() for frame in await world.alice.replay(run)]
    (at,) = (event["seq"] for event in events if event["type"] == "picture")
    message = (await world.alice.session(session))["messages"][1]["id"]
    whole = await world.alice.client.post(f"/api/sessions/{session}/messages/{message}/fork", {})
    refused = await world.alice.client.post(f"/api/runs/{run}/fork", {"after": at})
    before = await world.alice.client.post(f"/api/runs/{run}/fork", {"after": at - 1, "model": "up/echo: it is."})

    assert "Fork the chat after it" in await whole.text()
    error = (await refused.json())["error"]
    assert (409, "cannot_fork") == (refused.status, error["code"])
    assert f"after event {at - 1}" in error["message"]
    assert "Here." in (await world.alice.settled((await before.json())["id"]))["text"]


@requirement("files.answers")
async def test_an_answer_with_pictures_that_broke_off_is_not_continued_and_says_why(world: World):
    """No model could go on in the middle of what it has drawn. What there is stays."""
    data = a_picture("half")
    session = await world.alice.new_session()
    settled = await world.alice.settled(
        await world.alice.start(session, "Draw.", draws(world, data_url(data), text="Here is", breaks=True))
    )
    opened = await world.alice.session(session)
    body = {"message_id": opened["head_id"]}
    refused = await world.alice.client.post(f"/api/sessions/{session}/continue", body)

    assert ("failed", "Here is") == (settled["outcome"], settled["text"])
    assert [{"type": "text", "text": "Here is"}, part(reference(data))] == opened["messages"][-1]["content"]
    assert (409, True) == (refused.status, "with pictures cannot be continued" in await refused.text())
