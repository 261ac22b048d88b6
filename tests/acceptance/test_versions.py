"""A person changes an answer or leaves a message out: on another branch, marked, and open to be taken back."""

import pytest

from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.agents import serving
from tests.support.native import Native
from tests.support.served import NO_HOME, Served
from tests.support.upstream import Delta, Hang, Headers, Role, Upstream, answer, calling


class World:
    def __init__(self, up, client):
        self.up, self.client, self.api = up, client, Native(client)

    async def told(self, *turns):
        """A chat with questions and their answers; its id and its messages."""
        session_id = await self.api.new_session()
        for said, answered in turns:
            self.up.enqueue(answer(answered))
            await self.api.settled(await self.api.start(session_id, said, "up/m"))
        return session_id, (await self.api.session(session_id))["messages"]

    async def edit(self, session_id, message_id, text):
        return await self.client.post(f"/api/sessions/{session_id}/messages/{message_id}/edit", {"text": text})

    async def delete(self, session_id, message_id):
        return await self.client.request("DELETE", f"/api/sessions/{session_id}/messages/{message_id}")

    async def show(self, session_id, head_id):
        await self.client.request("PATCH", f"/api/sessions/{session_id}", json={"head_id": head_id})

    async def shown_to_the_model(self, session_id):
        """What the upstream is sent with the next message."""
        self.up.enqueue(answer("Yes."))
        await self.api.settled(await self.api.start(session_id, "Next?", "up/m"))
        return [(said["role"], said["content"]) for said in self.up.requests[-1].body["messages"][:-1]]


@pytest.fixture
async def world(tmp_path):
    async with Upstream() as up:
        settings = Settings(
            data=str(tmp_path), providers=(ProviderSettings("up", base_url=up.base_url, models=("m",), prefills=True),)
        )
        async with Served(create_app(settings, MemoryStore(), NO_HOME)) as served, served.client() as client:
            yield World(up, client)


@requirement("versions.edit")
async def test_an_edited_answer_is_a_version_of_its_own_that_models_see(world):
    """The model's own words stay, as the version before; the new ones have no run and no figures of one."""
    session_id, (_, said) = await world.told(("Who?", "Ann did it."))
    response = await world.edit(session_id, said["id"], "Bob did it.")
    edited = (await response.json())["message"]
    shown = (await world.api.session(session_id))["messages"][-1]

    assert 201 == response.status
    assert (True, "Bob did it.", None, "up/m") == tuple(
        shown[name] for name in ("edited", "content", "run_id", "model")
    )
    assert "figures" not in shown
    assert [said["id"], edited["id"]] == shown["siblings"]
    assert [("user", "Who?"), ("assistant", "Bob did it.")] == await world.shown_to_the_model(session_id)
    await world.show(session_id, said["id"])
    assert said["content"] == (await world.api.session(session_id))["messages"][1]["content"]


@requirement("versions.edit")
async def test_a_cut_off_answer_stays_cut_off_and_marked_when_it_is_continued(world):
    """An edit completes nothing, and what a model adds does not undo that a person has written."""
    session_id = await world.api.new_session()
    world.up.enqueue([Headers(), Role(), Delta("Once upon"), Hang()], answer(" a bear."))
    run_id = await world.api.start(session_id, "A story", "up/m")
    await world.api.shown(run_id, "Once upon")
    message_id = (await world.api.stop(run_id))["message_id"]
    edited = (await (await world.edit(session_id, message_id, "Twice upon")).json())["message"]
    run = await world.client.post(f"/api/sessions/{session_id}/continue", {"message_id": edited["id"]})
    await world.api.settled((await run.json())["id"])
    shown = (await world.api.session(session_id))["messages"][-1]

    assert (True, "stopped") == (edited["partial"], edited["outcome"])
    assert ("Twice upon a bear.", True, "completed") == (shown["content"], shown["edited"], shown["outcome"])


@requirement("versions.edit")
async def test_of_an_agents_answer_the_last_text_is_edited(tmp_path):
    """Its calls and their results are records, which nobody changes."""
    async with Upstream() as up, serving(up, tmp_path) as agents:
        up.enqueue(calling(("add", {"a": 1, "b": 2})), answer("It is 4."))
        session_id, run_id = await agents.start("Add")
        await agents.api.settled(run_id)
        world = World(up, agents.api.client)
        message = (await agents.api.session(session_id))["messages"][-1]
        await world.edit(session_id, message["id"], "It is 3.")
        shown = await agents.next_turn(session_id)

    assert ["3", "It is 3."] == [each["content"] for each in shown if each["role"] in ("tool", "assistant")][-2:]


@requirement("versions.edit")
async def test_an_edit_that_cannot_be_is_refused(world):
    """A user's message is edited by sending it again; an empty answer is no answer."""
    session_id, (asked, said) = await world.told(("Who?", "Ann."))
    refused = [await world.edit(session_id, *which) for which in ((asked["id"], "x"), (said["id"], " "), ("no", "x"))]
    await world.edit(session_id, said["id"], "Bob.")
    stale = await world.edit(session_id, said["id"], "Eve.")

    assert [400, 400, 404, 409] == [response.status for response in [*refused, stale]]


@requirement("versions.delete")
async def test_a_message_is_left_out_of_the_chat_and_comes_back(world):
    """What follows stays in its order; nothing of the branch before is lost."""
    session_id, messages = await world.told(("One?", "1."), ("Two?", "2."))
    response = await world.delete(session_id, messages[1]["id"])
    answered = await response.json()
    without = await world.api.transcript(session_id)
    await world.show(session_id, answered["previous_head_id"])
    back = (await world.api.session(session_id))["messages"]
    await world.delete(session_id, messages[1]["id"])

    assert [("user", "One?"), ("user", "Two?"), ("assistant", "2.")] == without
    assert [message["id"] for message in messages] == [message["id"] for message in back]
    assert [("user", "One?\n\nTwo?"), ("assistant", "2.")] == await world.shown_to_the_model(session_id)


@requirement("versions.delete")
async def test_the_last_message_and_the_only_one_can_be_left_out(world):
    """Then the chat ends before it, or is empty, and goes on all the same."""
    session_id, (asked, said) = await world.told(("One?", "1."))
    await world.delete(session_id, said["id"])
    without_answer = await world.api.transcript(session_id)
    await world.delete(session_id, asked["id"])
    empty = await world.api.session(session_id)

    assert [("user", "One?")] == without_answer
    assert ([], None) == (empty["messages"], empty["head_id"])
    assert [] == await world.shown_to_the_model(session_id)


@requirement("versions.delete")
async def test_a_continued_answer_is_left_out_with_its_continuations(tmp_path):
    """The turn in which the server asked for the rest is nothing without what it continues."""
    async with Upstream() as up:
        settings = Settings(
            data=str(tmp_path), providers=(ProviderSettings("up", base_url=up.base_url, models=("m",)),)
        )
        async with Served(create_app(settings, MemoryStore(), NO_HOME)) as served, served.client() as client:
            world = World(up, client)
            session_id = await world.api.new_session()
            up.enqueue([Headers(), Role(), Delta("Once"), Hang()], answer(" upon a time."))
            run_id = await world.api.start(session_id, "A story", "up/m")
            await world.api.shown(run_id, "Once")
            message_id = (await world.api.stop(run_id))["message_id"]
            run = await client.post(f"/api/sessions/{session_id}/continue", {"message_id": message_id})
            await world.api.settled((await run.json())["id"])
            await world.delete(session_id, message_id)

            assert [("user", "A story")] == await world.api.transcript(session_id)


@requirement("versions.delete", "versions.edit")
async def test_while_a_response_is_running_nothing_is_edited_or_left_out(world):
    """It stands on the branch that would go away; the refusal says what to do."""
    session_id, (_, said) = await world.told(("One?", "1."))
    world.up.enqueue([Headers(), Role(), Delta("2"), Hang()])
    run_id = await world.api.start(session_id, "Two?", "up/m")
    await world.api.shown(run_id, "2")
    for response in (await world.delete(session_id, said["id"]), await world.edit(session_id, said["id"], "x")):
        error = (await response.json())["error"]
        assert (409, "session_busy") == (response.status, error["code"])
        assert "Wait for it, or stop it." in error["message"]

    await world.api.stop(run_id)
    assert 200 == (await world.delete(session_id, said["id"])).status


@requirement("versions.thumbs")
async def test_thumbs_count_for_their_models_and_go_with_their_chat(world):
    """A vote on one answer says something of its model, though nothing about another one."""
    session_id, (asked, said) = await world.told(("Who?", "Ann did it."))
    path = f"/api/sessions/{session_id}/messages/{said['id']}/thumb"
    first = await (await world.client.request("PUT", path, json={"vote": "up"})).json()
    await world.client.request("PUT", path, json={"vote": "down", "why": "It was Bob."})
    (row,) = (await world.api.get("/api/comparisons/scores"))["models"]
    (thumb,) = (await world.api.get(f"/api/thumbs?session_id={session_id}"))["thumbs"]
    of_user = await world.client.request("PUT", path.replace(said["id"], asked["id"]), json={"vote": "up"})
    too_long = await world.client.request("PUT", path, json={"vote": "up", "why": "x" * 2_001})
    of_others = (await world.api.get("/api/thumbs?session_id=other"))["thumbs"]

    assert ("up", "up/m") == (first["vote"], first["model"])
    assert ("down", "It was Bob.", said["run_id"]) == (thumb["vote"], thumb["why"], thumb["run_id"])
    assert ("up/m", 0, 1, None) == tuple(row[name] for name in ("model", "thumbs_up", "thumbs_down", "rating"))
    assert (400, 400, []) == (of_user.status, too_long.status, of_others)

    await world.client.request("DELETE", path)
    assert [] == (await world.api.get("/api/thumbs"))["thumbs"]
    await world.client.request("PUT", path, json={"vote": "up"})
    await world.client.request("DELETE", f"/api/sessions/{session_id}")
    assert [] == (await world.api.get("/api/thumbs"))["thumbs"]
