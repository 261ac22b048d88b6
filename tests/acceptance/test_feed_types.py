"""What the page reads from the server has the types that the page is compiled with."""

from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from holdfast.compare import shapes as comparisons
from holdfast.wires import shapes
from tests.requirements import requirement
from tests.support.agents import serving
from tests.support.compare import Compare
from tests.support.upstream import Delta, Gate, Headers, Role, Upstream, answer

ENTRIES = {name: shape for shape in get_args(shapes.FeedEntryJson) for name in get_args(get_type_hints(shape)["type"])}
"""The type of a feed entry by the name it has in its `type` field."""


@pytest.fixture
async def world(tmp_path):
    async with Upstream() as up, serving(up, tmp_path) as served:
        yield served


def fits(said: Any, shape: Any) -> bool:
    """Whether JSON has the declared fields, each of its declared type, and no others."""
    return bool(said == msgspec.convert(said, shape))


async def entries(world, session_id: str, last: int) -> list[dict[str, Any]]:
    """The entries of a session's feed up to a number."""
    feed = await world.api.client.get(f"/api/sessions/{session_id}/events")
    found: list[dict[str, Any]] = []
    try:
        while not found or found[-1]["n"] < last:
            frame = await feed.next_event()
            assert frame is not None
            found += [frame.json()] if "n" in frame.json() else []
    finally:
        feed.close()
    return found


async def busy_session(world) -> str:
    """A session in which everything has happened that a feed can tell."""
    api = world.api
    session_id = await api.new_session(title="Waves")
    world.up.enqueue([Headers(), Role(), Delta("Some words "), Gate("never")])
    first = await api.start(session_id, "One", "up/m")
    (await api.shown(first, "Some words ")).close()
    waiting = await api.start(session_id, "Two", "up/m", if_busy="queue")
    path = f"/api/sessions/{session_id}"
    assert 200 == (await api.client.request("PATCH", f"{path}/queue/1", json={"input": "Three"})).status
    assert fits(await api.session(session_id), shapes.OpenSessionJson)
    world.up.enqueue(answer("Second."))
    await api.stop(first)
    await api.settled(waiting)
    await api.client.request("PATCH", path, json={"title": "Tides", "pinned": True, "params": {"top_p": 1}})
    return session_id


@requirement("ui.build")
async def test_every_entry_of_a_feed_has_its_declared_type(world):
    """The page narrows an entry by its `type`: a field that is missing would be read all the same."""
    session_id = await busy_session(world)
    view = await world.api.session(session_id)
    found = await entries(world, session_id, int(view["feed"]))

    assert {*ENTRIES} - {"message.changed"} == {entry["type"] for entry in found}
    assert [] == [entry for entry in found if not fits(entry, ENTRIES[entry["type"]])]


async def test_sessions_runs_and_comparisons_have_their_declared_types(world):
    """Dictionaries made by hand: a type checker sees their keys, this sees their values as JSON."""
    api = world.api
    session_id = await busy_session(world)
    world.up.enqueue(answer("Left."))
    world.up.enqueue(answer("Right."))
    compare = Compare(api.client)
    kept = await compare.whole(["up/m", "up/next"])
    voted = await compare.vote(kept, 0)
    listed = (await api.get("/api/comparisons"))["data"]
    sessions = (await api.get("/api/sessions"))["sessions"]
    runs = (await api.get("/api/runs"))["runs"]

    assert fits(await api.session(session_id), shapes.OpenSessionJson)
    assert fits(sessions, list[shapes.ListedSessionJson])
    assert fits(runs, list[shapes.ListedRunJson])
    assert fits(await api.get(f"/api/runs/{runs[0]['id']}"), shapes.RunJson)
    assert fits(voted, comparisons.ComparisonJson)
    assert fits(listed, list[comparisons.ListedComparisonJson])
