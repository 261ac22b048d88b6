"""Folders, tags, the archive, and several chats at once."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.acceptance.test_safety import bearer, two_owners
from tests.acceptance.test_session_list import cursor, until, watch
from tests.requirements import requirement
from tests.support.agents import serving
from tests.support.native import Native
from tests.support.upstream import Delta, Gate, Headers, Role, Upstream
from tests.support.waiting import LONG


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory) -> AsyncIterator[Any]:
    async with Upstream() as up, serving(up, tmp_path_factory.mktemp("filing")) as served:
        yield served


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def titles(api: Native, query: str = "") -> list[str]:
    return [session["title"] for session in (await api.get(f"/api/sessions?{query}"))["sessions"]]


async def post(api: Native, path: str, body: dict[str, Any], status: int = 200) -> Any:
    response = await api.client.post(path, body)
    assert status == response.status, await response.text()
    return await response.json()


@requirement("hist.filing")
async def test_a_chat_is_found_by_its_folder_and_its_tags(world):
    """A list of a year is useless without an order of one's own."""
    api = world.api
    tides = await api.new_session(title="Tides", folder=" Work \n notes ", tags=["sea", "sea", "maps"])
    await api.new_session(title="Soup")
    changed = await (await api.client.request("PATCH", f"/api/sessions/{tides}", json={"tags": ["sea"]})).json()

    assert ("Work notes", ["sea"], False) == (changed["folder"], changed["tags"], changed["archived"])
    assert ["Tides"] == await titles(api, "folder=Work%20notes")
    assert ["Tides"] == await titles(api, "tag=sea")
    assert "Tides" not in await titles(api, "folder=")
    labels = await api.get("/api/labels")
    assert {"name": "Work notes", "sessions": 1} in labels["folders"]
    assert {"name": "sea", "sessions": 1} in labels["tags"]
    assert "maps" not in [tag["name"] for tag in labels["tags"]]


@requirement("hist.filing")
async def test_an_archived_chat_is_out_of_the_list_and_still_found_by_a_search(world):
    """What is put away is not lost."""
    api = world.api
    session_id = await api.new_session(title="Quarterly figures")
    await api.client.request("PATCH", f"/api/sessions/{session_id}", json={"archived": True})

    assert "Quarterly figures" not in await titles(api)
    assert ["Quarterly figures"] == await titles(api, "query=quarterly")
    assert [] == await titles(api, "query=quarterly&archived=false")
    assert "Quarterly figures" in await titles(api, "archived=true")
    assert "Quarterly figures" in await titles(api, "archived=any")


@requirement("hist.filing")
async def test_filing_is_no_change_of_the_conversation(world):
    """Two hundred old chats that are moved do not become those of today, and every tab hears of the move."""
    api = world.api
    session_id = await api.new_session(title="An old one")
    before = await api.session(session_id)
    reader = await watch(api, await cursor(api))
    await post(api, "/api/sessions/file", {"sessions": [session_id], "folder": "Old", "add_tags": ["kept"]})
    listed, _ = await until(reader, id=session_id, folder="Old", tags=["kept"])

    assert before["updated_at"] == listed["updated_at"]
    assert before["feed"] == (await api.session(session_id))["feed"]


@requirement("hist.bulk")
async def test_several_chats_are_filed_in_one_call_or_none_of_them(world):
    """A list that is half moved has to be looked through by hand."""
    api = world.api
    ids = [await api.new_session(title=f"Bulk {n}", tags=[f"t{n}"]) for n in range(3)]
    moved = await post(
        api, "/api/sessions/file", {"sessions": [*ids, "ses_none", ids[0]], "folder": "Bulk", "archived": True}
    )
    refused = await post(
        api, "/api/sessions/file", {"sessions": ids, "folder": "", "add_tags": [f"x{n}" for n in range(20)]}, 400
    )

    assert (sorted(ids), ["ses_none"]) == (sorted(moved["filed"]), moved["missing"])
    assert "tags" == refused["error"]["param"]
    assert 3 == len(await titles(api, "folder=Bulk&archived=true"))


@requirement("hist.bulk")
async def test_a_running_response_is_stopped_when_its_chat_is_deleted_with_others(world):
    """The answer of one call says what became of each."""
    api = world.api
    world.up.enqueue([Headers(), Role(), Delta("so far"), Gate("never")])
    busy, idle = await api.new_session(), await api.new_session()
    await api.shown(await api.start(busy, "A question", "up/m"), "so far")
    told = await post(api, "/api/sessions/delete", {"sessions": [busy, idle, "ses_none", idle]})

    assert {"deleted": [busy, idle], "missing": ["ses_none"], "failed": []} == told
    for session_id in (busy, idle):
        assert 404 == (await api.client.get(f"/api/sessions/{session_id}")).status


@requirement("hist.filing")
@pytest.mark.parametrize("kind", ["folder", "tag"])
async def test_a_folder_and_a_tag_can_be_renamed_and_removed(world, kind):
    """The chats stay, archived ones too."""
    api = world.api
    mine = {"folder": "Before"} if kind == "folder" else {"tags": ["Before"]}
    ids = [await api.new_session(title=f"Named {kind} {n}", **mine) for n in range(2)]
    await post(api, "/api/sessions/file", {"sessions": ids[:1], "archived": True})
    renamed = await post(api, "/api/labels/rename", {"kind": kind, "name": "Before", "to": "After"})
    found = await titles(api, f"{kind}=After&archived=any")
    removed = await post(api, "/api/labels/rename", {"kind": kind, "name": "After"})

    assert ({"sessions": 2}, {"sessions": 2}) == (renamed, removed)
    assert 2 == len(found)
    assert [] == await titles(api, f"{kind}=After&archived=any")
    kept = await api.session(ids[0])
    assert ("", []) == (kept["folder"], kept["tags"])


@requirement("hist.filing")
@pytest.mark.parametrize("kind", ["folder", "tag"])
async def test_a_name_that_is_stored_as_the_old_one_renames_nothing(world, kind):
    """A space at its end is not kept, so it is the same name: no chat may lose it, and the call must end."""
    api = world.api
    mine = {"folder": "Same"} if kind == "folder" else {"tags": ["Same"]}
    session_id = await api.new_session(**mine)
    async with asyncio.timeout(LONG):
        renamed = await post(api, "/api/labels/rename", {"kind": kind, "name": "Same", "to": " Same "})
    kept = await api.session(session_id)

    assert {"sessions": 0} == renamed
    assert mine == {name: kept[name] for name in mine}


@requirement("hist.filing")
@pytest.mark.parametrize(
    "fields",
    [
        {"folder": "x" * 65},
        {"folder": "turned \u202e around"},
        {"folder": "a\x00b"},
        {"tags": ["y" * 41]},
        {"tags": [f"t{n}" for n in range(21)]},
        {"tags": ["a\ud800b"]},
        {"tags": "sea"},
        {"archived": "yes"},
    ],
)
async def test_a_bad_name_is_refused_and_nothing_is_changed(world, fields):
    """A name is shown beside others: it must not be able to change how they look."""
    api = world.api
    session_id = await api.new_session(title="Stays")
    response = await api.client.request("PATCH", f"/api/sessions/{session_id}", json={"title": "Gone", **fields})

    assert 400 == response.status
    kept = await api.session(session_id)
    assert ("Stays", "", []) == (kept["title"], kept["folder"], kept["tags"])


@requirement("hist.filing", "safe.owner-404")
async def test_nobody_files_or_deletes_the_chats_of_another(tmp_path):
    """An id is no right."""
    async with Upstream() as up, two_owners(tmp_path, up) as server:
        async with server.client(**bearer("alice")) as hers, server.client(**bearer("bob")) as his:
            alice, bob = Native(hers), Native(his)
            session_id = await alice.new_session(title="Hers", folder="Diary", tags=["secret"])
            filed = await post(bob, "/api/sessions/file", {"sessions": [session_id], "folder": "Mine"})
            deleted = await post(bob, "/api/sessions/delete", {"sessions": [session_id]})
            renamed = await post(bob, "/api/labels/rename", {"kind": "folder", "name": "Diary", "to": "Mine"})
            labels = await bob.get("/api/labels")
            kept = await alice.session(session_id)

    assert {"filed": [], "missing": [session_id]} == filed
    assert [session_id] == deleted["missing"]
    assert {"sessions": 0} == renamed
    assert {"folders": [], "tags": [], "archived": 0} == labels
    assert "Diary" == kept["folder"]
