"""Sessions that a group reads or writes together."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from holdfast.server.app import create_app
from holdfast.server.config.settings import Settings
from holdfast.server.features.sharing import shares
from holdfast.server.features.sharing.shares import Shares
from holdfast.store.memory import MemoryStore
from tests.acceptance.test_sharing import halves, has_ended, said
from tests.requirements import requirement
from tests.support.http import Client
from tests.support.native import Native
from tests.support.people import PASSWORD, add_person, browser, cookie_of, first_admin
from tests.support.served import NO_HOME, Served
from tests.support.server import Server, provider
from tests.support.upstream import Upstream

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class World:
    """A server with a group of three: Ada, Bob and a guest. Eve is in no group."""

    up: Upstream
    server: Server
    group: str
    ada: str
    bob: str
    guest: str
    eve: str


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with Upstream() as up:
        data = tmp_path_factory.mktemp("groups")
        async with Server(data, [provider(up.base_url, models=None)]) as server:
            root = await first_admin(server, "root")
            async with browser(server, root) as admin:
                group = (await (await admin.post("/api/admin/groups", {"name": "team"})).json())["id"]
            people = {
                name: await add_person(server, root, name, groups=groups, role=role)
                for name, groups, role in (
                    ("ada", [group], "member"),
                    ("bob", [group], "member"),
                    ("guest", [group], "guest"),
                    ("eve", [], "member"),
                )
            }
            yield World(up, server, group, **people)


async def give(client: Client, session: str, group: str, may: str = "read") -> dict[str, Any]:
    """Share a session with a group."""
    response = await client.post(f"/api/sessions/{session}/shares", {"group": group, "may": may})
    assert 201 == response.status, await response.text()
    made: dict[str, Any] = await response.json()
    return made


@requirement("share.group")
async def test_a_group_reads_a_shared_session_and_its_live_answer(world: World):
    """A colleague and a guest open it, find it in a list of its own, and see the answer grow. Others find nothing."""
    world.up.models["team"] = halves("team")
    async with (
        browser(world.server, world.ada) as ada,
        browser(world.server, world.bob) as bob,
        browser(world.server, world.guest) as guest,
        browser(world.server, world.eve) as eve,
    ):
        session = await said(ada, "Hello", "hi", title="Plans")
        path = f"/api/sessions/{session}"
        before = [(await client.get(path)).status for client in (bob, guest, eve)]
        await give(ada, session, world.group)
        run = await Native(ada).start(session, "Go", "up/team")
        readers = [await Native(client).shown(run, "one ") for client in (bob, guest)]
        feed = await bob.get(f"{path}/events")
        shared = await Native(guest).session(session)
        listed = await Native(guest).get("/api/shared-sessions")
        own = await Native(guest).get("/api/sessions")
        world.up.gates.open("team")
        ends = [(await reader.all_events())[-1].json()["settlement"]["text"] for reader in readers]
        strange = [(await eve.get(at)).status for at in (path, f"{path}/events", f"/api/runs/{run}")]
        nothing = await Native(eve).get("/api/shared-sessions")

    assert [404, 404, 404] == before == strange
    assert ["one two", "one two"] == ends
    assert {"owner": "ada", "may": "read"} == shared["shared"]
    assert ["ada"] == [it["shared"]["owner"] for it in listed["sessions"] if it["id"] == session]
    assert ([], []) == (own["sessions"], nothing["sessions"])
    assert 200 == feed.status


@requirement("share.group")
async def test_a_group_writes_together_and_messages_carry_names(world: World):
    """Who asked what is seen by everyone, and no model is told."""
    async with browser(world.server, world.ada) as ada, browser(world.server, world.bob) as bob:
        session = await said(ada, "From Ada", "one")
        refused = await Native(bob).send(session, "No", "up/echo:x")
        await give(ada, session, world.group)
        read_only = await Native(bob).send(session, "No", "up/echo:x")
        await give(ada, session, world.group, "write")
        await said(bob, "From Bob", "two", session)
        messages = (await Native(ada).session(session))["messages"]
        world.up.models["waits"] = halves("waits")
        run = await Native(ada).start(session, "Long", "up/waits")
        stopped = (await Native(bob).stop(run))["settlement"]
        world.up.gates.open("waits")

    assert (404, 404) == (refused.status, read_only.status)
    assert ["ada", None, "bob", None] == [message.get("author") for message in messages]
    assert ("stopped", "user") == (stopped["outcome"], stopped["by"])
    sent = str([request.body for request in world.up.requests])
    assert "From Bob" in sent
    assert "author" not in sent


@requirement("share.group-limits")
async def test_a_writer_does_not_own_the_session(world: World):
    """Renaming, deleting, sharing and approving stay with the owner, and so does everything that acts for the owner."""
    async with (
        browser(world.server, world.ada) as ada,
        browser(world.server, world.bob) as bob,
        browser(world.server, world.guest) as guest,
    ):
        session = await said(ada, "Hello", "hi")
        made = await give(ada, session, world.group, "write")
        path = f"/api/sessions/{session}"
        thumb = f"{path}/messages/{(await Native(ada).session(session))['head_id']}/thumb"
        assert 200 == (await ada.request("PUT", thumb, json={"vote": "up"})).status
        refused = [
            (await bob.request("PUT", thumb, json={"vote": "down"})).status,
            (await bob.request("DELETE", thumb)).status,
            (await bob.request("PATCH", path, json={"title": "Mine"})).status,
            (await bob.request("DELETE", path)).status,
            (await bob.post(f"{path}/shares", {})).status,
            (await bob.get(f"{path}/shares")).status,
            (await bob.request("DELETE", f"/api/shares/{made['id']}")).status,
            (await bob.post(f"{path}/fork", {})).status,
        ]
        agent = await Native(bob).send(session, "Go", "up/echo:x", kind="agent")
        by_guest = await Native(guest).send(session, "Hi", "up/echo:x")
        kept = await Native(ada).session(session)
        votes = (await Native(ada).get("/api/thumbs"))["thumbs"]

    assert [404] * 8 == refused
    assert ["up"] == [each["vote"] for each in votes]
    assert (403, "owner_only") == (agent.status, (await agent.json())["error"]["code"])
    assert 403 == by_guest.status
    assert 2 == len(kept["messages"])


@requirement("share.group-limits")
async def test_a_writer_does_not_change_what_waits_for_the_owners_agent(world: World):
    """Its tools would do for the owner what another person has written."""
    world.up.models["busy"] = halves("busy")
    async with browser(world.server, world.ada) as ada, browser(world.server, world.bob) as bob:
        session = await said(ada, "Hello", "hi")
        await give(ada, session, world.group, "write")
        running = await Native(ada).start(session, "Go", "up/busy")
        waiting = await Native(ada).start(session, "Tidy up", "up/echo:x", kind="agent", if_busy="queue")
        path = f"/api/sessions/{session}/queue/{waiting}"
        refused = await bob.request("PATCH", path, json={"input": "Delete everything"})
        kept = await (await ada.get(path)).text()
        dropped = await bob.request("DELETE", path)
        world.up.gates.open("busy")
        await Native(ada).settled(running)

    assert (403, "owner_only") == (refused.status, (await refused.json())["error"]["code"])
    assert "Tidy up" in kept
    assert 204 == dropped.status


@requirement("share.group-limits")
async def test_a_guest_brings_in_no_chats(world: World):
    """A guest reads what is shared, and has no chats of their own, from an archive either."""
    async with browser(world.server, world.guest) as guest:
        refused = [await guest.post(path, {}) for path in ("/api/sessions/import", "/api/account/import")]

    assert [403, 403] == [response.status for response in refused]


@requirement("share.group-limits")
async def test_a_person_shares_only_with_their_own_groups(world: World):
    """No one pushes chats at people they have nothing to do with."""
    async with browser(world.server, world.eve) as eve:
        session = await said(eve, "Hello", "hi")
        groups = (await Native(eve).get(f"/api/sessions/{session}/shares"))["groups"]
        refused = await eve.post(f"/api/sessions/{session}/shares", {"group": world.group})
        whole = await eve.post(f"/api/sessions/{session}/shares", {"group": world.group, "follow": True})

    assert ([], 404, 400) == (groups, refused.status, whole.status)


@requirement("share.group-ends")
async def test_the_end_of_a_share_ends_open_streams(world: World):
    """The feed, the events of a run and the shared connection of several tabs: all of them."""
    world.up.models["ending"] = halves("ending")
    async with browser(world.server, world.ada) as ada, browser(world.server, world.bob) as bob:
        session = await Native(ada).new_session()
        made = await give(ada, session, world.group)
        run = await Native(ada).start(session, "Go", "up/ending")
        streams = [
            await Native(bob).shown(run, "one "),
            await bob.get(f"/api/sessions/{session}/events"),
            await bob.get(f"/api/events?session={session}"),
        ]
        assert 204 == (await ada.request("DELETE", f"/api/shares/{made['id']}")).status
        ends = [await has_ended(stream) for stream in streams]
        gone = await bob.get(f"/api/events?session={session}")
        told = await gone.next_event()
        world.up.gates.open("ending")
        settled = await Native(ada).settled(run)

    assert [True, True, True] == ends
    assert told is not None
    assert "session.deleted" == told.event
    assert "completed" == settled["outcome"]


@requirement("share.group-ends")
@pytest.mark.parametrize("how", ["left", "deleted"])
async def test_leaving_the_group_ends_access_on_every_node(how: str):
    """The admin is at one node, the reader at the other; a deleted group has no members."""
    medium = MemoryStore()
    apps = [create_app(Settings(), medium, NO_HOME) for _ in range(2)]
    async with (
        Served(apps[0]) as one,
        Served(apps[1]) as two,
        Client(one.url, {"origin": one.url}) as here,
        Client(two.url, {"origin": two.url}) as there,
    ):
        root = {"cookie": cookie_of(await here.post("/api/first-admin", {"name": "root", "password": PASSWORD}))}
        group = await added(here, root, "/api/admin/groups", {"name": "g"})
        bob = await added(here, root, "/api/admin/people", {"name": "bob", "password": PASSWORD, "groups": [group]})
        me = (await (await here.get("/api/me", headers=root)).json())["account"]
        await here.request("PATCH", f"/api/admin/people/{me}", json={"groups": [group]}, headers=root)
        session = await added(here, root, "/api/sessions", {})
        await added(here, root, f"/api/sessions/{session}/shares", {"group": group})
        reader = {"cookie": cookie_of(await there.post("/api/sign-in", {"name": "bob", "password": PASSWORD}))}
        feed = await there.get(f"/api/sessions/{session}/events", headers=reader)
        if how == "left":
            await here.request("PATCH", f"/api/admin/people/{bob}", json={"groups": []}, headers=root)
        else:
            await here.request("DELETE", f"/api/admin/groups/{group}", headers=root)
        is_over = await has_ended(feed)
        after = await there.get(f"/api/sessions/{session}", headers=reader)

    assert (200, True, 404) == (feed.status, is_over, after.status)


@requirement("share.disabled")
async def test_what_a_disabled_person_shares_is_gone_on_every_node_until_they_are_enabled():
    """An admin at one node disables the owner; the readers of a link and of a group share are at the other."""
    medium = MemoryStore()
    apps = [create_app(Settings(), medium, NO_HOME) for _ in range(2)]
    async with (
        Served(apps[0]) as one,
        Served(apps[1]) as two,
        Client(one.url, {"origin": one.url}) as here,
        Client(two.url, {"origin": two.url}) as there,
    ):
        root = {"cookie": cookie_of(await here.post("/api/first-admin", {"name": "root", "password": PASSWORD}))}
        group = await added(here, root, "/api/admin/groups", {"name": "g"})
        person = {"password": PASSWORD, "groups": [group]}
        ann, _ = [await added(here, root, "/api/admin/people", {"name": name, **person}) for name in ("ann", "bob")]
        owner = {"cookie": cookie_of(await here.post("/api/sign-in", {"name": "ann", "password": PASSWORD}))}
        reader = {"cookie": cookie_of(await there.post("/api/sign-in", {"name": "bob", "password": PASSWORD}))}
        session = await added(here, owner, "/api/sessions", {})
        await added(here, owner, f"/api/sessions/{session}/shares", {"group": group})
        made = await here.post(f"/api/sessions/{session}/shares", {"follow": True}, headers=owner)
        link = f"/api/shared/{(await made.json())['token']}"
        streams = [
            await there.get(f"/api/sessions/{session}/events", headers=reader),
            await there.get(f"{link}/events?after=1"),
        ]

        async def seen() -> list[Any]:
            listed = await (await there.get("/api/shared-sessions", headers=reader)).json()
            answers = [await there.get(f"/api/sessions/{session}", headers=reader), await there.get(link)]
            return [len(listed["sessions"]), *(answer.status for answer in answers)]

        before = await seen()
        await here.request("PATCH", f"/api/admin/people/{ann}", json={"disabled": True}, headers=root)
        ends = [await has_ended(stream) for stream in streams]
        while_disabled = await seen()
        as_never_was = [await (await there.get(path)).json() for path in (link, "/api/shared/" + "A" * 43)]
        await here.request("PATCH", f"/api/admin/people/{ann}", json={"disabled": False}, headers=root)
        after = await seen()

    assert [1, 200, 200] == before == after
    assert [200, 200] == [stream.status for stream in streams]
    assert [True, True] == ends
    assert [0, 404, 404] == while_disabled
    assert as_never_was[0] == as_never_was[1]


@requirement("share.limits")
async def test_sessions_shared_with_groups_count_for_the_limit_of_shares(monkeypatch: pytest.MonkeyPatch):
    """Otherwise one person could fill the index of a group. Changing a share is no new one."""
    monkeypatch.setattr(shares, "MOST_SHARES", 1)
    shared, share = Shares(MemoryStore()), shares.Share(session_id="one", group="g")
    await shared.add_group("ada", share)
    await shared.add_group("ada", shares.Share(session_id="one", group="g", may="write"))

    with pytest.raises(shares.TooManyShares):
        await shared.add_group("ada", shares.Share(session_id="two", group="g"))
    with pytest.raises(shares.TooManyShares):
        await shared.add_link("ada", shares.Share(session_id="two"))
    assert ["one"] == [found.body.session_id async for found in shared.with_groups(["g"], 9)]


async def added(client: Client, headers: dict[str, str], path: str, body: dict[str, Any]) -> str:
    """Make something, and return its id."""
    response = await client.post(path, body, headers=headers)
    assert 201 == response.status, await response.text()
    return str((await response.json())["id"])
