"""What a person has seen of a chat is one fact, whichever device they read it on, and each reader has their own."""

import pytest

from tests.acceptance.test_group_sessions import give, world
from tests.requirements import requirement
from tests.support.http import Client
from tests.support.native import Native
from tests.support.people import browser
from tests.support.upstream import Cut, Headers, answer

__all__ = ["world"]
pytestmark = pytest.mark.asyncio(loop_scope="module")


async def listed(client: Client, session: str) -> dict:
    sessions = (await Native(client).get("/api/sessions"))["sessions"]
    return next(each for each in sessions if each["id"] == session)


async def seen(client: Client, session: str, **changes) -> dict:
    response = await client.request("PUT", f"/api/sessions/{session}/seen", json=changes)
    assert 200 == response.status, await response.text()
    return await response.json()


@requirement("seen.cursor")
async def test_an_answer_is_unread_until_it_is_seen_on_any_device(world):
    """The second device hears that it was read on the first: by the list's feed, not by asking."""
    async with browser(world.server, world.ada) as laptop, browser(world.server, world.ada) as phone:
        api = Native(laptop)
        session = await api.new_session()
        world.up.enqueue(answer("Ready."))
        await api.settled(await api.start(session, "Go", "up/m"))
        cursor = (await api.get("/api/sessions"))["feed"]
        reader = await phone.get(f"/api/events?list={cursor}")
        before = await listed(phone, session)
        end = (await api.get(f"/api/sessions/{session}/seen"))["end"]
        after = await seen(laptop, session, seen=end)
        hears_of_it = False
        while not hears_of_it:  # what it knows already may be told again by another node
            told = (await reader.next_event()).json()
            hears_of_it = (
                told["type"] == "session.listed" and told["session"]["id"] == session and not told["session"]["unread"]
            )

        assert "completed" == before["unread"]
        assert {"seen": end, "told": 0, "end": end, "unread": None, "notify": None} == after
        assert None is (await listed(phone, session))["unread"]


@requirement("seen.cursor")
async def test_the_cursor_only_moves_forward_and_not_beyond_the_end(world):
    """A device that comes back late has an old number, and a wrong one must not hide what is still to come."""
    async with browser(world.server, world.ada) as client:
        api = Native(client)
        session = await api.new_session()
        world.up.enqueue(answer("One."), [Headers(), Cut()])
        await api.settled(await api.start(session, "Go", "up/m"))
        end = (await seen(client, session, seen=2**53))["seen"]
        assert end == (await seen(client, session, seen=1))["seen"] == (await seen(client, session))["end"]
        await api.settled(await api.start(session, "Again", "up/m"))

        assert "failed" == (await listed(client, session))["unread"]
        assert end == (await seen(client, session, notify="none"))["seen"]
        assert "none" == (await seen(client, session, seen=end))["notify"]
        assert None is (await seen(client, session, notify=None))["notify"]


@requirement("seen.cursor")
async def test_each_reader_of_a_shared_chat_has_a_cursor_of_their_own(world):
    """A guest who may only read has seen it; its owner has not. Who does not reach it is told nothing."""
    async with browser(world.server, world.ada) as ada, browser(world.server, world.guest) as guest:
        api = Native(ada)
        session = await api.new_session()
        await give(ada, session, world.group)
        world.up.enqueue(answer("Ready."))
        await api.settled(await api.start(session, "Go", "up/m"))
        await seen(guest, session, seen=2**53)

        assert None is (await Native(guest).get(f"/api/sessions/{session}/seen"))["unread"]
        assert "completed" == (await api.get(f"/api/sessions/{session}/seen"))["unread"]
        async with browser(world.server, world.eve) as eve:
            assert 404 == (await eve.get(f"/api/sessions/{session}/seen")).status
            assert 404 == (await eve.request("PUT", f"/api/sessions/{session}/seen", json={"seen": 1})).status


@requirement("seen.cursor")
@pytest.mark.parametrize("body", [{"seen": -1}, {"seen": 2**60}, {"seen": "1"}, {"notify": "some"}, {"sen": 1}, []])
async def test_what_is_no_cursor_is_refused(world, body):
    """A clear error, and nothing is noted."""
    async with browser(world.server, world.ada) as client:
        session = await Native(client).new_session()

        assert 400 == (await client.request("PUT", f"/api/sessions/{session}/seen", json=body)).status
        assert 0 == (await Native(client).get(f"/api/sessions/{session}/seen"))["seen"]
