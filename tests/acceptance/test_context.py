"""The context of a session: how full the model's window is, and a summary that makes room and can be undone."""

from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from holdfast.server.config.settings import ProviderSettings
from tests.acceptance.test_safety import World, bearer, two_owners
from tests.requirements import requirement
from tests.support.agents import serving
from tests.support.native import Native
from tests.support.upstream import Recorded, Script, Status, Upstream, answer, calling

pytestmark = pytest.mark.asyncio(loop_scope="module")

SUMMARY = "They spoke of ships."
WINDOW = 4000
TOO_LONG = "This model's maximum context length is 4000 tokens."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with Upstream() as up:
        up.described["windowed"] = {"context_length": WINDOW}
        up.models["windowed"] = answer("Aye.")
        server = two_owners(tmp_path_factory.mktemp("context"), up)
        async with server, server.client(**bearer("alice")) as alice, server.client(**bearer("bob")) as bob:
            async with server.client() as stranger:
                yield World(server, up, Native(alice), Native(bob), stranger, {})


def asked(world: World) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = world.up.requests[-1].body["messages"]
    return messages


async def compact(api: Native, session: str, **body: Any) -> dict[str, Any]:
    """Compact a session; the settlement of the run that did it."""
    run = await api._succeed(await api.client.post(f"/api/sessions/{session}/compact", body))
    return await api.settled(run["id"])


async def chat(api: Native, *texts: str, model: str = "up/echo:Aye.") -> str:
    session = await api.new_session(model=model)
    for text in texts:
        await api.settled(await api.start(session, text, model))
    return session


@requirement("hist.compaction")
async def test_a_summary_stands_for_what_was_before_it_and_everything_stays_readable(world: World):
    """The model is asked with the summary; the person still reads every word, and may correct the summary."""
    session = await chat(world.alice, "About ships", "About the sea")
    settled = await compact(world.alice, session, model=f"up/echo:{SUMMARY}")
    await world.alice.settled(await world.alice.start(session, "And now?", "up/echo:Aye."))
    shown = (await world.alice.session(session))["messages"]
    now = asked(world)
    summary = next(message for before, message in pairwise(shown) if before.get("compacts"))
    await world.alice._succeed(
        await world.alice.client.post(
            f"/api/sessions/{session}/messages/{summary['id']}/edit", {"text": "They spoke of boats."}
        )
    )
    await world.alice.settled(await world.alice.start(session, "Again?", "up/echo:Aye."))

    assert ("completed", SUMMARY) == (settled["outcome"], settled["text"])
    assert ["About ships", "Aye.", "About the sea", "Aye."] == [each["content"] for each in shown[:4]]
    assert [
        {"role": "user", "content": f"Summary of the conversation so far:\n\n{SUMMARY}\n\nAnd now?"},
    ] == now
    assert [
        {"role": "user", "content": "Summary of the conversation so far:\n\nThey spoke of boats.\n\nAgain?"}
    ] == asked(world)


@requirement("hist.compaction")
async def test_a_compaction_is_undone_with_what_was_said_since(world: World):
    """A bad summary costs nothing: the messages are back, and the later ones follow them."""
    session = await chat(world.alice, "About ships")
    await compact(world.alice, session, model=f"up/echo:{SUMMARY}")
    await world.alice.settled(await world.alice.start(session, "And now?", "up/echo:Aye."))
    shown = (await world.alice.session(session))["messages"]
    summary = next(message for before, message in pairwise(shown) if before.get("compacts"))
    undo = {"message_id": summary["id"]}
    await world.alice._succeed(await world.alice.client.post(f"/api/sessions/{session}/compact/undo", undo))
    await world.alice.settled(await world.alice.start(session, "Again?", "up/echo:Aye."))

    assert ["About ships", "Aye.", "And now?", "Aye.", "Again?"] == [each["content"] for each in asked(world)]


@requirement("hist.compaction")
async def test_a_summary_that_broke_off_stands_for_nothing(world: World):
    """Half a summary would lose what the rest of it says."""
    session = await chat(world.alice, "About ships")
    settled = await compact(world.alice, session, model="up/end:cut")
    await world.alice.settled(await world.alice.start(session, "And now?", "up/echo:Aye."))

    assert "completed" != settled["outcome"]
    assert ["About ships", "Aye.", "And now?"] == [each["content"] for each in asked(world)]


@requirement("hist.compaction")
async def test_there_is_a_way_on_after_a_message_that_was_too_long(world: World):
    """The whole chat is too long to be summarised as well: it is sent in less and less, and then the message again."""

    def small(request: Recorded) -> Script:
        size = len(str(request.body["messages"]))
        too_long = {"error": {"message": TOO_LONG, "type": "invalid"}}
        return [Status(400, too_long)] if size > WINDOW else answer(SUMMARY)

    world.up.models["small"] = small
    session = await chat(world.alice, "a " * 3000, "b " * 3000)
    failed = await world.alice.settled(await world.alice.start(session, "And now?", "up/small"))
    head = (await world.alice.session(session))["messages"][-1]
    settled = await compact(world.alice, session, model="up/small", message_id=head["parent_id"])
    await world.alice.settled(await world.alice.start(session, "And now?", "up/small"))

    assert ("failed", "context_length_exceeded") == (failed["outcome"], failed["error"]["code"])
    assert "And now?" == head["content"]
    assert ("completed", SUMMARY) == (settled["outcome"], settled["text"])
    assert f"Summary of the conversation so far:\n\n{SUMMARY}\n\nAnd now?" == asked(world)[-1]["content"]


@requirement("hist.compaction")
async def test_what_cannot_be_compacted_is_refused_with_words(world: World):
    """An empty chat, one of a question alone, and one that begins with its summary."""
    empty, fresh = await world.alice.new_session(), await chat(world.alice, "About ships")
    await compact(world.alice, fresh, model=f"up/echo:{SUMMARY}")
    post = world.alice.client.post
    refused = [await post(f"/api/sessions/{session}/compact", {}) for session in (empty, fresh)]
    others = await world.bob.client.post(f"/api/sessions/{fresh}/compact", {})
    unknown = await post(f"/api/sessions/{fresh}/compact/undo", {"message_id": "msg_unknown"})

    assert [409, 409] == [response.status for response in refused]
    assert ["nothing_to_compact"] * 2 == [(await response.json())["error"]["code"] for response in refused]
    assert (404, 404) == (others.status, unknown.status)


@requirement("hist.context")
async def test_a_session_says_how_much_of_the_window_it_fills(world: World):
    """The upstream counts, and its list says how much the model holds; a window that nobody knows is no number."""
    session = await chat(world.alice, "About ships", model="up/windowed")
    context = await world.alice.get(f"/api/sessions/{session}/context")
    other = await world.alice.get(f"/api/sessions/{await chat(world.alice, 'Hello')}/context")

    assert {"tokens": 4, "source": "provider", "window": WINDOW, "model": "up/windowed"} == context
    assert other["window"] is None


@requirement("hist.compaction")
async def test_a_chat_with_an_agent_is_summed_up_by_its_model_without_tools(tmp_path: Path):
    """Its tools could act on a request to sum up, and what is too long could not be sent in less."""
    async with Upstream() as up:
        up.described["m"] = {"context_length": WINDOW}
        listing = {"providers": (ProviderSettings("up", base_url=up.base_url),)}
        async with serving(up, tmp_path, settings=listing) as world:
            up.enqueue(calling(("add", {"a": 1, "b": 2})), answer("3."))
            up.enqueue([Status(400, {"error": {"message": TOO_LONG}})], answer(SUMMARY), answer("Ships."))
            session = await world.api.new_session(model="agent/helper")
            await world.api.settled(await world.api.start(session, "Add.", "agent/helper"))
            context = await world.api.get(f"/api/sessions/{session}/context")
            settled = await compact(world.api, session)
            summed = up.requests[-1].body
            await world.api.settled(await world.api.start(session, "Of what?", "agent/helper"))

            assert (WINDOW, "agent/helper") == (context["window"], context["model"])
            assert ("completed", SUMMARY) == (settled["outcome"], settled["text"])
            assert "tools" not in summed
            assert SUMMARY in str(up.requests[-1].body["messages"])
            assert ["add"] == [tool["function"]["name"] for tool in up.requests[-1].body["tools"]][:1]
