"""One run, one `kill -9`, and what its client, its session and the model see afterwards.

`tests/faults/test_kill9.py` does the same at random moments with a hundred runs.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest_asyncio

from tests.requirements import requirement
from tests.support.http import Client, Frame, Response
from tests.support.native import Native
from tests.support.server import Server, provider
from tests.support.upstream import Delta, Hang, Headers, ReasoningDelta, Role, Upstream

HALF = [Headers(), Role(), ReasoningDelta("I wonder. "), Delta("Half "), Delta("an answer"), Hang()]


class World(NamedTuple):
    server: Server
    up: Upstream
    client: Client
    api: Native

    async def crash(self) -> None:
        await self.server.kill9()
        await self.server.restart()


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url, models=None)]) as server:
        up.models["half"] = HALF
        async with server.client() as client:
            yield World(server, up, client, Native(client))


async def _read(response: Response, until: str) -> list[Frame]:
    frames: list[Frame] = []
    while not frames or until not in frames[-1].data:
        frame = await response.next_event()
        assert frame is not None, "the stream ended"
        frames.append(frame)
    return frames


def _chat(**more: Any) -> dict[str, Any]:
    return {"model": "up/half", "messages": [{"role": "user", "content": "Hello"}], **more}


@requirement("crash.kill9", "crash.resume")
async def test_a_reader_that_comes_back_gets_the_rest_and_how_it_ended(world: World):
    """Its cursor is all that a client needs: the server was gone, and nothing of what it had said is."""
    session = await world.api.new_session()
    run = await world.api.start(session, "Hello", "up/half")
    reader = await world.api.events(run)
    seen = await _read(reader, "an answer")

    await world.crash()
    rest = await world.api.replay(run, after=int(seen[-2].id))
    settlement = rest[-1].json()["settlement"]

    assert [frame.data for frame in seen[-1:]] == [frame.data for frame in rest[:1]]
    assert [str(n) for n in range(1, len(seen) + 2)] == [frame.id for frame in (*seen[:-1], *rest)]
    assert ("interrupted", True, "Half an answer") == tuple(settlement[name] for name in ("outcome", "partial", "text"))
    assert "server_died" == settlement["error"]["code"]


@requirement("crash.kill9", "hist.search-hit")
async def test_a_search_finds_what_was_stored_just_before_the_crash(world: World):
    """Words are indexed after the messages that have them were stored, so a crash comes in between."""
    session = await world.api.new_session()
    run = await world.api.start(session, "Where is the barnacle?", "up/half")
    await world.api.shown(run, "an answer")

    await world.crash()
    await world.api.settled(run)
    asked = (await world.api.get("/api/sessions?query=barnacle"))["sessions"]
    answered = (await world.api.get("/api/sessions?query=half%20answer"))["sessions"]

    assert [session] == [found["id"] for found in asked] == [found["id"] for found in answered]


@requirement("crash.kill9")
async def test_history_has_the_partial_once_marked_and_the_model_is_shown_it(world: World):
    """The conversation goes on where it broke off: with what was said, and without a word about the crash."""
    session = await world.api.new_session()
    run = await world.api.start(session, "Hello", "up/half")
    await world.api.shown(run, "an answer")

    await world.crash()
    await world.api.settled(run)
    messages = (await world.api.session(session))["messages"]
    await world.api.settled(await world.api.start(session, "Go on.", "up/echo:Gladly."))

    assert ["Hello", "Half an answer"] == [message["content"] for message in messages]
    marked = tuple(messages[1][name] for name in ("run_id", "partial", "outcome", "reasoning"))
    assert (run, True, "interrupted", "I wonder. ") == marked
    assert [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Half an answer"},
        {"role": "user", "content": "Go on."},
    ] == world.up.requests[-1].body["messages"]


@requirement("crash.kill9")
async def test_a_run_that_had_said_nothing_leaves_the_users_message_alone(world: World):
    """There is nothing to mark as partial; what the user said is not lost with the answer that never came."""
    session = await world.api.new_session()
    run = await world.api.start(session, "Hello", "up/silent")
    await world.up.next_request()

    await world.crash()
    settlement = await world.api.settled(run)

    assert ("interrupted", False, "") == tuple(settlement[name] for name in ("outcome", "partial", "text"))
    assert [("user", "Hello")] == await world.api.transcript(session)


@requirement("crash.resume", "crash.kill9")
async def test_a_background_completion_is_streamed_on_from_the_frames_that_were_seen(world: World):
    """Chunks are rendered the same after the crash as before: so a count of frames is a cursor."""
    stream = await world.client.post("/v1/chat/completions", _chat(background=True, stream=True))
    seen = await _read(stream, "an answer")
    completion = seen[0].json()["id"]

    await world.crash()
    path = f"/v1/chat/completions/{completion}"
    rest = await (await world.client.get(f"{path}?stream=true&starting_after={len(seen)}")).all_events()
    whole = await (await world.client.get(f"{path}?stream=true")).all_events()
    finished = await world.client.get(path)

    assert [frame.data for frame in (*seen, *rest)] == [frame.data for frame in whole]
    last = rest[-3].json()
    assert last["error"] == rest[-2].json()["error"]
    assert ("error", "interrupted", "[DONE]") == (
        last["choices"][0]["finish_reason"],
        last["holdfast"]["outcome"],
        rest[-1].data,
    )
    assert "server_died" == last["error"]["code"]
    assert 406 == finished.status
    assert "Half an answer" == (await finished.json())["holdfast"]["partial"]["choices"][0]["message"]["content"]


@requirement("crash.kill9")
async def test_an_attached_run_in_a_session_keeps_what_its_client_saw(world: World):
    """The client died with the server, as far as anybody knows; its words are in the session all the same."""
    session = await world.api.new_session()
    stream = await world.client.post("/v1/chat/completions", _chat(stream=True, session_id=session))
    await _read(stream, "an answer")

    await world.crash()
    settlement = await world.api.settled(stream.headers["x-run-id"])

    assert "interrupted" == settlement["outcome"]
    assert [("user", "Hello"), ("partial", "Half an answer")] == await world.api.transcript(session)


@requirement("crash.kill9")
async def test_a_completion_that_nobody_asked_to_keep_is_gone_and_says_so(world: World):
    """Without a session, a key or `background` nothing was promised; then 404 is the truth, and not an empty answer."""
    stream = await world.client.post("/v1/chat/completions", _chat(stream=True))
    seen = await _read(stream, "an answer")

    await world.crash()
    asked = await world.client.get(f"/v1/chat/completions/{seen[0].json()['id']}")

    assert 404 == asked.status


@requirement("crash.kill9")
async def test_the_feed_goes_on_across_the_crash(world: World):
    """A tab that was open has seen half of an answer; it sees that this was all, and what follows."""
    session = await world.api.new_session()
    feed = await world.client.get(f"/api/sessions/{session}/events")
    run = await world.api.start(session, "Hello", "up/half")
    seen = await _read(feed, "an answer")

    await world.crash()
    again = await world.client.get(f"/api/sessions/{session}/events", headers={"Last-Event-ID": seen[-1].id})
    rest = await _read(again, "run.settled")

    assert ["message.added", "run.settled"] == [frame.event for frame in rest]
    assert ("Half an answer", True) == tuple(rest[0].json()["message"][name] for name in ("content", "partial"))
    assert (run, "interrupted") == (rest[1].json()["run_id"], rest[1].json()["settlement"]["outcome"])
