"""Changes of the list of sessions are pushed: which chat runs, needs its user, was renamed, came or went."""

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest

from holdfast.sessions.changes import MOST, ChangedSessions
from holdfast.wires import shapes
from tests.acceptance.test_feed_types import fits
from tests.acceptance.test_safety import bearer, two_owners
from tests.requirements import requirement
from tests.support.agents import serving
from tests.support.http import Response
from tests.support.native import Native
from tests.support.upstream import Delta, Gate, Headers, Role, Upstream, answer, calling


@pytest.fixture
async def world(tmp_path) -> AsyncIterator[Any]:
    async with Upstream() as up, serving(up, tmp_path) as served:
        yield served


async def cursor(api: Native) -> str:
    return str((await api.get("/api/sessions"))["feed"])


async def watch(api: Native, after: str) -> Response:
    response = await api.client.get(f"/api/events?list={after}")
    assert 200 == response.status
    return response


async def until(reader: Response, **wanted: Any) -> tuple[dict[str, Any], str]:
    """The first session whose line of the list says all of this, and the id of that frame."""
    while (frame := await reader.next_event()) is not None:
        told = frame.json()
        if told["type"] == "session.listed" and wanted.items() <= told["session"].items():
            assert fits(told, shapes.SessionListedJson)
            return told["session"], frame.id or ""
    raise AssertionError(f"the stream ended without {wanted}")


@requirement("sub.session-list")
@pytest.mark.parametrize("number", ["9" * 16, "9" * 5000, "-1", "٣", ""])
async def test_a_cursor_that_is_none_of_ours_says_that_the_list_has_changed(world, number):
    """Python refuses to read a number of 5,000 digits, which ended the stream."""
    node = (await cursor(world.api)).rpartition(":")[0]
    reader = await watch(world.api, quote(f"{node}:{number}"))

    frame = await reader.next_event()

    assert frame is not None
    assert "sessions.changed" == frame.json()["type"]


@requirement("sub.session-list")
async def test_a_list_hears_of_a_run_that_starts_and_settles_in_a_chat_that_is_not_open(world):
    """A page need not ask every few seconds, and no dot stays after the end."""
    reader = await watch(world.api, await cursor(world.api))
    session_id = await world.api.new_session()
    world.up.enqueue([Headers(), Role(), Delta("so far"), Gate("end")])
    run_id = await world.api.start(session_id, "A question", "up/m")
    running, _ = await until(reader, id=session_id, active_run=run_id)
    world.up.open("end")
    ended, _ = await until(reader, id=session_id, active_run=None)

    assert "A question" == running["title"] == ended["title"]
    assert (await world.api.get("/api/sessions"))["sessions"] == [ended]


@requirement("sub.session-list")
async def test_a_list_hears_that_an_agent_needs_its_user_and_no_longer_does(world):
    """A run that waits for hours looks like one that works, unless the list can tell."""
    world.up.enqueue(calling(("publish", {"text": "it"})), answer("Done."))
    reader = await watch(world.api, await cursor(world.api))
    session_id, run_id = await world.start()
    await until(reader, id=session_id, needs_approval=True)
    asked = await world.until(run_id, "approval.requested")
    path = f"/api/runs/{run_id}/approvals/{asked['id']}"
    assert 200 == (await world.api.client.post(path, {"decision": "allow", "scope": "once"})).status

    await until(reader, id=session_id, active_run=run_id, needs_approval=False)


@requirement("sub.session-list")
async def test_a_list_hears_of_titles_forks_imports_and_deletions(world):
    """Whatever changes a list does so for every device that shows it."""
    reader = await watch(world.api, await cursor(world.api))
    session_id = await world.api.new_session(title="Waves")
    path = f"/api/sessions/{session_id}"
    await until(reader, id=session_id, title="Waves")
    await world.api.client.request("PATCH", path, json={"title": "Tides", "pinned": True})
    await until(reader, id=session_id, title="Tides", pinned=True)
    told = {"title": "Brought along", "messages": [{"role": "user", "content": "Hi"}]}
    assert 201 == (await world.api.client.post("/api/sessions/import", told)).status
    imported, _ = await until(reader, title="Brought along")
    message = (await world.api.session(imported["id"]))["messages"][0]["id"]
    await world.api.client.post(f"/api/sessions/{imported['id']}/fork", {"message_id": message, "title": "Forked"})
    await until(reader, title="Forked")
    await world.api.client.request("DELETE", path)
    gone = await reader.next_event()

    assert gone is not None
    assert {"type": "session.deleted", "session_id": session_id} == gone.json()


@requirement("sub.session-list")
async def test_after_a_lost_connection_a_list_hears_of_all_that_changed_meanwhile(world):
    """A laptop that slept shows what is true as soon as it is back, each session once."""
    reader = await watch(world.api, await cursor(world.api))
    first, second = await world.api.new_session(title="First"), await world.api.new_session(title="Second")
    _, seen = await until(reader, id=first)
    reader.leave("rst")
    for title in ("Once", "Twice"):
        await world.api.client.request("PATCH", f"/api/sessions/{second}", json={"title": title})
    again = await watch(world.api, seen.removeprefix("list@"))
    frame = await again.next_event()

    assert frame is not None
    assert (second, "Twice") == (frame.json()["session"]["id"], frame.json()["session"]["title"])


@requirement("sub.session-list")
@pytest.mark.parametrize("stale", ["", "0", "eng_other:3", "eng_other:", "x" * 300, "%D9%A3:%D9%A3"])
async def test_a_cursor_of_another_process_gets_the_word_to_load_the_list_again(world, stale):
    """What changed while the server was down is remembered nowhere: a guess would leave a wrong dot for ever."""
    reader = await watch(world.api, stale)
    frame = await reader.next_event()
    session_id = await world.api.new_session()

    assert frame is not None
    assert {"type": "sessions.changed"} == frame.json()
    await until(reader, id=session_id)


@requirement("sub.session-list", "safe.owner-404")
@pytest.mark.one_server("a cursor of the list counts the changes that its node has seen")
async def test_one_owner_never_hears_of_the_sessions_of_another(tmp_path):
    """A title can be a secret, and so can the moment in which somebody works."""
    async with Upstream() as up, two_owners(tmp_path, up) as server:
        async with server.client(**bearer("alice")) as hers, server.client(**bearer("bob")) as his:
            reader = await watch(Native(his), await cursor(Native(his)))
            secret = await Native(hers).new_session(title="A secret")
            await Native(hers).settled(await Native(hers).start(secret, "Hi", "up/echo:Another secret."))
            own = await Native(his).new_session(title="Mine")
            first = await reader.next_event()
            foreign = await watch(Native(his), await cursor(Native(hers)))
            second = await foreign.next_event()

    assert first is not None
    assert own == first.json()["session"]["id"]
    assert second is not None
    assert {"type": "sessions.changed"} == second.json()


@requirement("sub.session-list")
def test_a_reader_who_is_too_far_behind_is_told_to_load_the_list():
    """The memory for changes is bounded for each owner; what was forgotten is known to be forgotten."""
    changes = ChangedSessions("eng_1")
    start = changes.cursor("alice")
    changes.note("alice", "ses_0")
    behind = changes.cursor("alice")
    for n in range(MOST):
        changes.note("alice", f"ses_{n}")

    assert changes.after("alice", start) == [f"ses_{n}" for n in range(MOST)]
    changes.note("alice", "ses_new")
    assert changes.after("alice", start) is None
    assert changes.after("alice", behind) is None
    assert ["ses_new"] == changes.after("alice", f"eng_1:{MOST + 1}")
    assert changes.after("alice", f"eng_1:{MOST + 9}") is None
