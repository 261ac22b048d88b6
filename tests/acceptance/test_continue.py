"""An answer that was cut off can be continued: in the same message if the model can, else in a new turn."""

import pytest

from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.support.native import Native
from tests.support.served import NO_HOME, Served
from tests.support.upstream import Delta, Done, Finish, Hang, Headers, Role, Upstream, answer


@pytest.fixture
async def world(tmp_path):
    """One upstream under two names: as one that goes on with its own words, and as one that cannot."""
    async with Upstream() as up:
        settings = Settings(
            data=str(tmp_path),
            providers=(
                ProviderSettings("prefills", base_url=up.base_url, models=("m",), prefills=True),
                ProviderSettings("plain", base_url=up.base_url, models=("m",)),
            ),
        )
        async with Served(create_app(settings, MemoryStore(), NO_HOME)) as served, served.client() as client:
            yield up, Native(client)


async def cut_off(up, api, model: str) -> tuple[str, str]:
    """A session whose last answer was stopped after a few words; its id and that of the answer."""
    up.enqueue([Headers(), Role(), Delta("Once upon "), Hang()])
    session_id = await api.new_session()
    run_id = await api.start(session_id, "A story", model)
    await api.shown(run_id, "Once upon ")
    stopped = await api.stop(run_id)
    return session_id, stopped["message_id"]


async def go_on(api, session_id: str, message_id: str, model: str):
    return await api.client.post(f"/api/sessions/{session_id}/continue", {"message_id": message_id, "model": model})


async def test_a_model_that_can_goes_on_in_the_same_message(world):
    """Nobody wants an answer in two pieces; the model is shown its own words last, and nothing is said twice."""
    up, api = world
    session_id, message_id = await cut_off(up, api, "prefills/m")
    up.enqueue(answer("a time."))
    run = await (await go_on(api, session_id, message_id, "prefills/m")).json()
    settlement = await api.settled(run["id"])

    assert message_id == run["message_id"]
    assert ("completed", "Once upon a time.") == (settlement["outcome"], settlement["text"])
    assert [("user", "A story"), ("assistant", "Once upon a time.")] == await api.transcript(session_id)
    assert {"role": "assistant", "content": "Once upon "} == up.requests[-1].body["messages"][-1]


async def test_without_a_model_the_one_that_wrote_the_message_goes_on(world):
    """Not that of the chat, which would end the message and begin another one."""
    up, api = world
    session_id, message_id = await cut_off(up, api, "prefills/m")
    await api.client.request("PATCH", f"/api/sessions/{session_id}", json={"model": "plain/m"})
    up.enqueue(answer(" and on."))
    response = await api.client.post(f"/api/sessions/{session_id}/continue", {"message_id": message_id})
    await api.settled((await response.json())["id"])
    messages = (await api.session(session_id))["messages"]

    assert [("user", None), ("assistant", "prefills/m")] == [(each["role"], each["model"]) for each in messages]


async def test_another_model_does_not_go_on_in_a_message_that_it_did_not_write(world):
    """A message names one model, and that one has written all of it."""
    up, api = world
    session_id, message_id = await cut_off(up, api, "plain/m")
    up.enqueue(answer("a time."))
    run = await (await go_on(api, session_id, message_id, "prefills/m")).json()
    await api.settled(run["id"])
    messages = (await api.session(session_id))["messages"]

    assert message_id != run["message_id"]
    assert ["plain/m", "prefills/m"] == [message["model"] for message in messages if message["role"] == "assistant"]


async def test_stopping_the_rest_keeps_all_that_was_said(world):
    """The message holds what was there and what came since, once."""
    up, api = world
    session_id, message_id = await cut_off(up, api, "prefills/m")
    up.enqueue([Headers(), Role(), Delta("a "), Hang()])
    run = await (await go_on(api, session_id, message_id, "prefills/m")).json()
    await api.shown(run["id"], "Once upon a ")
    await api.stop(run["id"])

    assert [("user", "A story"), ("partial", "Once upon a ")] == await api.transcript(session_id)


async def test_a_model_that_cannot_is_asked_in_a_turn_of_its_own_and_that_is_said(world):
    """A model that answers its own words instead of going on would garble the message."""
    up, api = world
    session_id, message_id = await cut_off(up, api, "plain/m")
    up.enqueue(answer("a time."))
    run = await (await go_on(api, session_id, message_id, "plain/m")).json()
    frames = await api.replay(run["id"])
    said = await api.transcript(session_id)

    assert ["new_turn"] == [frame.json()["code"] for frame in frames if frame.event == "notice"]
    assert [("user", "A story"), ("partial", "Once upon ")] == said[:2]
    assert ["user", "assistant"] == [who for who, _ in said[2:]]
    assert "a time." == said[-1][1]
    messages = (await api.get(f"/api/sessions/{session_id}"))["messages"]
    assert [None, None, True, None] == [each.get("automatic") for each in messages]


async def test_only_the_last_answer_and_only_a_partial_one_can_be_continued(world):
    """There is nothing to add to a whole answer, and an older one has been answered since."""
    up, api = world
    session_id, message_id = await cut_off(up, api, "prefills/m")
    up.enqueue([Headers(), Role(), Delta("Whole."), Finish(), Done()])
    run_id = await api.start(session_id, "Another", "prefills/m")
    await api.settled(run_id)
    whole = (await api.run(run_id))["message_id"]
    older, complete = [await go_on(api, session_id, id, "prefills/m") for id in (message_id, whole)]

    assert (409, "stale_view") == (older.status, (await older.json())["error"]["code"])
    assert (409, "conflict") == (complete.status, (await complete.json())["error"]["code"])
    assert 2 == len(up.requests)


async def test_an_export_that_is_imported_again_puts_no_words_into_the_users_mouth(world):
    """The turn that asked for the rest is the server's, also after a move to another server."""
    up, api = world
    session_id, message_id = await cut_off(up, api, "plain/m")
    up.enqueue(answer("a time."))
    run = await (await go_on(api, session_id, message_id, "plain/m")).json()
    await api.settled(run["id"])
    exported = await api.get(f"/api/sessions/{session_id}?files=inline")
    imported = await (await api.client.post("/api/sessions/import", exported)).json()
    messages = (await api.session(imported["id"]))["messages"]

    assert [None, None, True, None] == [each.get("automatic") for each in messages]
