"""Links to sessions: what they show, live and fixed, what they hide, and how they end."""

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
import pytest_asyncio

from holdfast.server.features.sharing import shares
from tests.acceptance.test_several_nodes import nodes
from tests.requirements import requirement
from tests.support.http import Client, Frame, Incomplete, Response
from tests.support.native import Native
from tests.support.people import add_person, browser, first_admin
from tests.support.server import Server, provider
from tests.support.upstream import (
    Delta,
    Done,
    Finish,
    Gate,
    Headers,
    ReasoningDelta,
    Role,
    Upstream,
    calling,
)
from tests.support.waiting import LONG, SOON

pytestmark = pytest.mark.asyncio(loop_scope="module")

PIXEL = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n of one pixel").decode()


@dataclass
class World:
    """A server with two people. The cookies are those of their browsers."""

    up: Upstream
    server: Server
    ada: str
    bob: str


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with Upstream() as up:
        data = tmp_path_factory.mktemp("sharing")
        async with Server(data, [provider(up.base_url, models=None)], config="access_log = true\n") as server:
            ada = await first_admin(server)
            yield World(up, server, ada, await add_person(server, ada, "bob"))


def halves(gate: str) -> list[Any]:
    """An answer that waits in its middle."""
    return [Headers(), Role(), Delta("one "), Gate(gate), Delta("two"), Finish("stop"), Done()]


async def said(client: Client, text: str, answer: str, session: str | None = None, **fields: Any) -> str:
    """A session in which something was asked and answered."""
    api = Native(client)
    session = session or await api.new_session(**fields)
    await api.settled(await api.start(session, text, f"up/echo:{answer}"))
    return session


async def share(client: Client, session: str, **fields: Any) -> dict[str, Any]:
    response = await client.post(f"/api/sessions/{session}/shares", fields)
    assert 201 == response.status, await response.text()
    made: dict[str, Any] = await response.json()
    return made


async def link(client: Client, session: str, **fields: Any) -> str:
    return f"/api/shared/{(await share(client, session, **fields))['token']}"


async def view(client: Client, path: str) -> dict[str, Any]:
    shown: dict[str, Any] = await Native(client).get(path)
    return shown


async def watch(client: Client, path: str) -> Response:
    """The events of a link, from what it shows now."""
    response = await client.get(f"{path}/events?after={(await view(client, path))['cursor']}")
    assert 200 == response.status, await response.text()
    return response


async def until(reader: Response, text: str) -> list[Frame]:
    """Read until a text was shown."""
    frames: list[Frame] = []
    while text not in "".join(frame.json().get("text", "") for frame in frames if frame.event == "text.delta"):
        frame = await reader.next_event()
        assert frame is not None, f"ended after {frames}"
        frames.append(frame)
    return frames


async def until_event(reader: Response, event: str) -> list[Frame]:
    frames: list[Frame] = []
    while not frames or frames[-1].event != event:
        frame = await reader.next_event()
        assert frame is not None, f"ended after {frames}"
        frames.append(frame)
    return frames


async def has_ended(reader: Response) -> bool:
    """Wait until a stream ends, or is cut off."""
    try:
        async with asyncio.timeout(SOON):
            while await reader.next_event() is not None:
                pass
    except (Incomplete, ConnectionError):
        return True
    except TimeoutError:
        return False
    return True


@requirement("share.live")
async def test_a_stranger_with_a_link_sees_the_answer_grow(world: World):
    """No sign-in, no key: the link is enough, and what the model writes arrives before the answer is done."""
    world.up.models["live"] = halves("live")
    async with browser(world.server, world.ada) as ada, browser(world.server) as stranger:
        session = await said(ada, "First?", "yes")
        path = await link(ada, session, follow=True)
        before = await view(stranger, path)
        reader = await watch(stranger, path)
        run = await Native(ada).start(session, "And?", "up/live")
        await until(reader, "one ")
        during = await view(stranger, path)
        world.up.gates.open("live")
        frames = await until(reader, "two") + await until_event(reader, "run.settled")
        await Native(ada).settled(run)
        await until_event(reader, "shared.changed")
        after = await view(stranger, path)

    assert [("user", "First?"), ("assistant", "yes")] == [(it["role"], it["content"]) for it in before["messages"]]
    assert before["active_run"] is None
    assert during["active_run"]["model"] == "up/live"
    assert "And?" == during["messages"][-1]["content"]
    assert "one two" == frames[-1].json()["settlement"]["text"]
    assert "one two" == after["messages"][-1]["content"]


@requirement("share.live")
async def test_a_spectator_resumes_after_the_last_event_that_was_seen(world: World):
    """A lost connection costs a reader of a link nothing, and repeats nothing."""
    world.up.models["resumed"] = halves("resumed")
    async with browser(world.server, world.ada) as ada, browser(world.server) as stranger:
        session = await Native(ada).new_session()
        run = await Native(ada).start(session, "Go", "up/resumed")
        await Native(ada).shown(run, "one ")
        path = await link(ada, session)
        reader = await watch(stranger, path)
        last = (await until(reader, "one "))[-1]
        reader.leave()
        assert last.id is not None
        again = await stranger.get(f"{path}/events", headers={"last-event-id": last.id})
        world.up.gates.open("resumed")
        frames = await again.all_events()

    texts = "".join(frame.json().get("text", "") for frame in frames if frame.event == "text.delta")
    assert "two" == texts
    assert {"run.settled", "shared.changed"} <= {frame.event for frame in frames}


@requirement("share.fixed")
async def test_a_fixed_link_ends_with_the_answer_that_was_being_written(world: World):
    """A link to a live run: its answer grows, then the link never changes again."""
    world.up.models["fixed"] = halves("fixed")
    async with browser(world.server, world.ada) as ada, browser(world.server) as stranger:
        session = await Native(ada).new_session(title="Before")
        run = await Native(ada).start(session, "Go", "up/fixed")
        await Native(ada).shown(run, "one ")
        path = await link(ada, session)
        reader = await watch(stranger, path)
        await until(reader, "one ")
        world.up.gates.open("fixed")
        await reader.all_events()  # it ends by itself
        await said(ada, "Later?", "secret", session)
        await ada.request("PATCH", f"/api/sessions/{session}", json={"title": "After"})
        shown = await view(stranger, path)
        more = await stranger.get(f"{path}/events?after={shown['cursor']}")

    assert ["Go", "one two"] == [message["content"] for message in shown["messages"]]
    assert ("Before", 204) == (shown["title"], more.status)


@requirement("share.fixed")
async def test_a_fixed_link_ends_with_an_answer_of_which_nothing_came(world: World):
    """A run that says nothing leaves no message. The stream waited for one, for ever."""
    world.up.models["wordless"] = [Headers(), Role(), Gate("wordless"), Done()]
    async with browser(world.server, world.ada) as ada, browser(world.server) as stranger:
        session = await Native(ada).new_session()
        run = await Native(ada).start(session, "Go", "up/wordless")
        reader = await watch(stranger, await link(ada, session))
        await reader.next_event()
        await Native(ada).stop(run)
        frames = await reader.all_events()

    assert ["run.settled", "shared.changed"] == [frame.event for frame in frames]


@requirement("share.run")
async def test_a_link_to_a_run_shows_its_chat_up_to_its_answer(world: World):
    """While it runs, and after its end; what is said later is not shown. Only its owner makes one."""
    world.up.models["run-link"] = halves("run-link")
    async with browser(world.server, world.ada) as ada, browser(world.server, world.bob) as bob:
        session = await said(ada, "First?", "yes")
        run = await Native(ada).start(session, "And?", "up/run-link")
        await Native(ada).shown(run, "one ")
        made = await ada.post(f"/api/runs/{run}/shares", {"include": ["names"]})
        refused = [await bob.post(f"/api/runs/{id}/shares", {}) for id in (run, "run_missing")]
        live = f"/api/shared/{(await made.json())['token']}"
        reader = await watch(bob, live)
        await until(reader, "one ")
        world.up.gates.open("run-link")
        await until(reader, "two")
        await Native(ada).settled(run)
        await said(ada, "Later", "later", session)
        ended = await ada.post(f"/api/runs/{run}/shares", {})
        views = [await view(bob, path) for path in (live, f"/api/shared/{(await ended.json())['token']}")]

    assert [201, 201] == [made.status, ended.status]
    assert [404, 404] == [answer.status for answer in refused]
    assert [["First?", "yes", "And?", "one two"]] * 2 == [
        [message["content"] for message in shown["messages"]] for shown in views
    ]
    assert ["ada", None] == [shown["owner"] for shown in views]


@requirement("share.run")
async def test_a_run_without_a_session_cannot_be_shared(world: World):
    """It says why, and what to do. Nothing is stored."""
    async with browser(world.server, world.ada) as ada:
        before = await shared_by(ada)
        body = {"model": "up/echo:x", "background": True, "messages": [{"role": "user", "content": "Hi"}]}
        started = await (await ada.post("/v1/chat/completions", body)).json()
        run = str(started["id"]).replace("chatcmpl-", "run_")
        refused = await ada.post(f"/api/runs/{run}/shares", {})
        bad = await ada.post(f"/api/runs/{run}/shares", {"follow": True})
        after = await shared_by(ada)

    assert (409, "no_session") == (refused.status, (await refused.json())["error"]["code"])
    assert 400 == bad.status
    assert after <= before, "those of other tests may have ended meanwhile"


async def shared_by(client: Client) -> set[str]:
    return {each["id"] for each in (await Native(client).get("/api/shares"))["shares"]}


@requirement("share.fixed")
async def test_a_link_shows_one_branch_only(world: World):
    """What was edited away, and what comes on another branch later, is nobody else's business."""
    async with browser(world.server, world.ada) as ada, browser(world.server) as stranger:
        session = await said(ada, "My password is hunter2", "ok")
        first = (await Native(ada).session(session))["messages"]
        edit = {"message_id": first[0]["id"], "input": "Hello", "model": "up/echo:hi"}
        run = await (await ada.post(f"/api/sessions/{session}/edit", edit)).json()
        await Native(ada).settled(run["id"])
        following, fixed = await link(ada, session, follow=True), await link(ada, session)
        replay = await stranger.get(f"{following}/events?after=0")
        changed = await replay.next_event()
        replay.leave()
        shown = [str(await view(stranger, path)) for path in (following, fixed)]

    assert changed is not None
    assert {"type": "shared.changed"} == changed.json()
    assert not any("hunter2" in text for text in shown)
    assert all("Hello" in text for text in shown)


@requirement("share.chosen")
async def test_a_link_shows_only_what_its_owner_chose(world: World):
    """Reasoning, tools, the system prompt and names are off until someone turns them on; costs are never shown."""
    world.up.models["deep"] = [
        Headers(),
        Role(),
        ReasoningDelta("I was told to sell."),
        Delta("Buy it."),
        Finish("stop"),
        Done(),
    ]
    world.up.models["calls"] = calling(("look", {"where": "the vault"}))
    async with browser(world.server, world.ada) as ada, browser(world.server) as stranger:
        session = await Native(ada).new_session(system="You sell cars.")
        for model in ("deep", "calls"):
            await Native(ada).settled(await Native(ada).start(session, f"To {model}", f"up/{model}"))
        bare = await view(stranger, await link(ada, session))
        full = await view(stranger, await link(ada, session, include=["tools", "reasoning", "system", "names"]))

    hidden = ("I was told to sell.", "the vault", "You sell cars.", "ada")
    assert [] == [words for words in hidden if words in str(bare)]
    assert [] == [words for words in hidden if words not in str(full)]
    assert (None, "ada", "ada") == (bare["owner"], full["owner"], full["messages"][0]["author"])
    for secret in ("figures", "siblings", session, "cost", "params"):
        assert secret not in str(bare)
        assert secret not in str(full)


@requirement("share.chosen")
async def test_a_spectator_of_a_live_run_sees_no_reasoning_unless_it_was_chosen(world: World):
    """The stream hides what the view hides."""
    script = [Headers(), Role(), ReasoningDelta("psst"), Delta("one "), Gate("quiet"), Finish("stop"), Done()]
    world.up.models["quiet"] = script
    async with browser(world.server, world.ada) as ada, browser(world.server) as stranger:
        session = await Native(ada).new_session()
        run = await Native(ada).start(session, "Go", "up/quiet")
        await Native(ada).shown(run, "one ")
        bare = await until(await watch(stranger, await link(ada, session)), "one ")
        full = await until(await watch(stranger, await link(ada, session, include=["reasoning"])), "one ")
        world.up.gates.open("quiet")

    assert {"run.started", "text.delta"} == {frame.event for frame in bare}
    assert "psst" == next(frame for frame in full if frame.event == "reasoning.delta").json()["text"]


@requirement("share.chosen")
async def test_pictures_of_a_link_are_those_of_its_messages(world: World):
    """A picture that was shared is loaded through the link; one that came later is not there."""
    picture: list[dict[str, Any]] = [
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": {"url": PIXEL}},
    ]
    async with browser(world.server, world.ada) as ada, browser(world.server) as stranger:
        session = await said(ada, "Hello", "hi")
        early = await link(ada, session)
        await Native(ada).settled(await Native(ada).start(session, picture, "up/echo:nice"))
        late = await link(ada, session)
        shown = (await view(stranger, late))["messages"][2]["content"]
        sha256 = shown[1]["image_url"]["url"].partition(":")[2]
        found, missing = [(await stranger.get(f"{path}/files/{sha256}")).status for path in (late, early)]

    assert (200, 404) == (found, missing)


@requirement("share.read-only")
async def test_a_link_is_for_reading_and_for_nothing_else(world: World):
    """Whoever has only a link can send nothing, stop nothing, and reach nothing beside it."""
    async with browser(world.server, world.ada) as ada, browser(world.server) as stranger:
        session = await said(ada, "Hello", "hi")
        path = await link(ada, session, follow=True)
        refused = [
            (await stranger.request(method, place, json={"input": "x", "group": ""})).status
            for method, place in (
                ("POST", path),
                ("DELETE", path),
                ("POST", f"{path}/runs"),
                ("POST", f"/api/sessions/{session}/runs"),
                ("GET", f"/api/sessions/{session}"),
                ("GET", f"/api/sessions/{session}/events"),
                ("GET", "/api/shares"),
            )
        ]

    assert [405, 405, 404, 401, 401, 401, 401] == refused


@requirement("share.read-only")
async def test_only_the_owner_makes_lists_and_revokes_links(world: World):
    """For others the session, and its links, do not exist. An admin sees and revokes every link."""
    async with browser(world.server, world.ada) as ada, browser(world.server, world.bob) as bob:
        session = await said(bob, "Hello", "hi")
        made = await share(bob, session)
        others = [
            (await ada.post(f"/api/sessions/{session}/shares", {})).status,
            (await ada.get(f"/api/sessions/{session}/shares")).status,
            (await ada.request("DELETE", f"/api/shares/{made['id']}")).status,
            (await bob.get("/api/admin/shares")).status,
        ]
        listed = await Native(bob).get(f"/api/sessions/{session}/shares")
        everything = await Native(ada).get("/api/admin/shares")
        mine = await Native(ada).get("/api/shares")
        gone = (await ada.request("DELETE", f"/api/admin/shares/{made['id']}")).status
        after = await Native(bob).get("/api/shares")

    assert [404, 404, 404, 403] == others
    assert [made["id"]] == [it["id"] for it in listed["shares"]]
    assert "token" not in listed["shares"][0]
    assert ["bob"] == [it["person"] for it in everything["shares"] if it["id"] == made["id"]]
    assert made["id"] not in [it["id"] for it in mine["shares"]]
    assert (204, []) == (gone, [it for it in after["shares"] if it["id"] == made["id"]])


@requirement("share.ends")
async def test_revoking_a_link_ends_its_open_streams_and_nothing_else(world: World):
    """Within a second for whoever reads now; another link to the same session stays."""
    world.up.models["revoked"] = halves("revoked")
    async with browser(world.server, world.ada) as ada, browser(world.server) as stranger:
        session = await Native(ada).new_session()
        run = await Native(ada).start(session, "Go", "up/revoked")
        await Native(ada).shown(run, "one ")
        one, other = await share(ada, session), await link(ada, session)
        path = f"/api/shared/{one['token']}"
        leaving, staying = await watch(stranger, path), await watch(stranger, other)
        await until(leaving, "one ")
        await until(staying, "one ")
        assert 204 == (await ada.request("DELETE", f"/api/shares/{one['id']}")).status
        is_over = await has_ended(leaving)
        again = await stranger.get(path)
        world.up.gates.open("revoked")
        rest = await until(staying, "two")
        settled = await Native(ada).settled(run)

    assert is_over
    assert 404 == again.status
    assert rest
    assert "completed" == settled["outcome"]


@requirement("share.ends")
async def test_a_link_ends_after_some_days_unless_no_end_was_chosen(world: World):
    """What was shared once and forgotten does not stay open for ever."""
    async with browser(world.server, world.ada) as ada:
        session = await said(ada, "Hello", "hi")
        made = [await share(ada, session, **fields) for fields in ({}, {"expires_in": 60}, {"expires_in": None})]
    days = [
        None if it["expires_at"] is None else (moment(it["expires_at"]) - moment(it["created_at"])).total_seconds()
        for it in made
    ]

    assert [30 * 86400, 60, None] == [None if each is None else round(each) for each in days]


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


@requirement("share.ends")
async def test_wrong_revoked_expired_and_malformed_links_look_the_same(world: World):
    """One answer for all of them, so that no guess learns anything."""
    async with browser(world.server, world.ada) as ada, browser(world.server) as stranger:
        session = await said(ada, "Hello", "hi")
        revoked, expiring = await share(ada, session), await share(ada, session, expires_in=1)
        assert 204 == (await ada.request("DELETE", f"/api/shares/{revoked['id']}")).status
        path = f"/api/shared/{expiring['token']}"
        async with asyncio.timeout(LONG):
            while 200 == (await stranger.get(path)).status:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        answers = [
            (response.status, (await response.json())["error"])
            for token in (revoked["token"], expiring["token"], "A" * 43, "x", "%00", revoked["id"])
            for place in ("", "/events", "/files/" + "0" * 64)
            for response in [await stranger.get(f"/api/shared/{token}{place}")]
        ]

    assert answers[0][0] == 404
    assert "link_not_found" == answers[0][1]["code"]
    assert all(answer == answers[0] for answer in answers)


@requirement("share.ends")
async def test_an_expiring_link_and_a_deleted_session_end_open_streams(world: World):
    """Time and the delete button both count as the end of a link."""
    async with browser(world.server, world.ada) as ada, browser(world.server) as stranger:
        session = await said(ada, "Hello", "hi")
        lasting = await share(ada, session, follow=True)
        short = await watch(stranger, await link(ada, session, follow=True, expires_in=4))
        long = await watch(stranger, f"/api/shared/{lasting['token']}")
        assert await has_ended(short)
        assert 204 == (await ada.request("DELETE", f"/api/sessions/{session}")).status
        is_over = await has_ended(long)
        left = [it["id"] for it in (await Native(ada).get("/api/shares"))["shares"]]
        gone = (await stranger.get(f"/api/shared/{lasting['token']}")).status

    assert is_over
    assert lasting["id"] not in left
    assert 404 == gone


@requirement("share.ends")
async def test_a_link_for_people_with_an_account_asks_for_a_sign_in(world: World):
    """Any person of the server may read it; a stranger is asked to sign in; an ended sign-in ends the stream."""
    async with browser(world.server, world.ada) as ada, browser(world.server) as stranger:
        session = await said(ada, "Hello", "hi")
        path = await link(ada, session, follow=True, sign_in=True)
        asked = await stranger.get(path)
        cookie = await add_person(world.server, world.ada, "dora", role="guest")
        async with browser(world.server, cookie) as dora:
            reader = await watch(dora, path)
            assert 204 == (await dora.post("/api/sign-out", {})).status
            is_over = await has_ended(reader)
            async with asyncio.timeout(LONG):
                while (after := (await dora.get(path)).status) == 200:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)  # another node than that of the stream

    assert (401, "link_needs_sign_in") == (asked.status, (await asked.json())["error"]["code"])
    assert (True, 401) == (is_over, after)


@requirement("share.ends")
@requirement("share.live")
async def test_another_node_shows_a_link_live_and_ends_it():
    """The run, the owner and the spectator may be at three places; revoking reaches all of them."""
    async with Upstream() as up, nodes(up) as (one, two):
        up.models["a"] = halves("node")
        session = await Native(one.client).new_session()
        run = await Native(one.client).start(session, "Go", "up/a")
        await Native(one.client).shown(run, "one ")
        made = await share(one.client, session, follow=True)
        reader = await watch(two.client, f"/api/shared/{made['token']}")
        await until(reader, "one ")
        up.gates.open("node")
        await until(reader, "two")
        await until_event(reader, "shared.changed")
        assert 204 == (await one.client.request("DELETE", f"/api/shares/{made['id']}")).status
        is_over = await has_ended(reader)

    assert is_over


@requirement("share.token")
async def test_a_token_is_nowhere_but_in_its_link(world: World):
    """The log shows which paths were asked for, and the store which links there are: neither helps a thief."""
    async with browser(world.server, world.ada) as ada, browser(world.server) as stranger:
        session = await said(ada, "Hello", "hi")
        token = (await share(ada, session))["token"]
        for path in (f"/api/shared/{token}", f"/api/shared/{token}/events", f"/shared/{token}"):
            response = await stranger.get(path)
            await response.body()
            assert "noindex" in response.headers["x-robots-tag"]
            assert "no-referrer" == response.headers["referrer-policy"]
    log = world.server.log_text()
    stored = b"".join(file.read_bytes() for file in world.server.data.rglob("*") if file.is_file())

    assert "GET /api/shared/[redacted]/events 204" in log
    assert token not in log
    assert token.encode() not in stored


@requirement("share.limits")
async def test_a_link_has_a_bounded_number_of_readers(monkeypatch: pytest.MonkeyPatch):
    """A public link must not use up the server; who leaves makes room."""
    monkeypatch.setattr(shares, "MOST_SPECTATORS", 2)
    async with Upstream() as up, nodes(up) as (one, _):
        session = await said_here(one.client, up)
        path = await link(one.client, session, follow=True)
        first, _second = await watch(one.client, path), await watch(one.client, path)
        third = await one.client.get(f"{path}/events")
        first.leave()
        async with asyncio.timeout(LONG):
            while 429 == (again := await one.client.get(f"{path}/events")).status:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    assert (429, "too_many_spectators") == (third.status, (await third.json())["error"]["code"])
    assert "30" == third.headers["retry-after"]
    assert 200 == again.status


async def said_here(client: Client, up: Upstream) -> str:
    up.models["b"] = [Headers(), Role(), Delta("hi"), Finish("stop"), Done()]
    api = Native(client)
    session = await api.new_session()
    await api.settled(await api.start(session, "Hello", "up/b"))
    return session


@requirement("share.fixed")
async def test_bad_requests_for_a_link_are_refused_and_leave_nothing(world: World):
    """Each refusal names the field."""
    async with browser(world.server, world.ada) as ada:
        empty = await Native(ada).new_session()
        session = await said(ada, "Hello", "hi")
        bad = [
            (session, {"may": "write"}),
            (session, {"follow": True, "message_id": "msg_x"}),
            (session, {"message_id": "msg_x"}),
            (session, {"expires_in": 0}),
            (session, {"include": ["everything"]}),
            (session, {"group": "grp_x"}),
            (session, {"until": "x"}),
            (empty, {}),
        ]
        statuses = [(await ada.post(f"/api/sessions/{id}/shares", body)).status for id, body in bad]
        left = [await Native(ada).get(f"/api/sessions/{id}/shares") for id in (session, empty)]

    assert [400, 400, 404, 400, 400, 404, 400, 400] == statuses
    assert [[], []] == [it["shares"] for it in left]
