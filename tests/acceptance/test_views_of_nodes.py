"""What every node shows of a run that another one owns: the same as the owner."""

import asyncio
from typing import Any

import pytest

from tests.acceptance.test_several_nodes import SHARED, Node, nodes
from tests.requirements import requirement
from tests.support.compare import Compare
from tests.support.http import Frame, Response
from tests.support.native import Native
from tests.support.upstream import Delta, Done, Finish, Gate, Headers, ReasoningDelta, Role, Upstream
from tests.support.waiting import LONG

PEERS = pytest.mark.parametrize("settings", [{}, SHARED], ids=["store", "peers"])
"""Nodes that read a run of another one in the store, and nodes that follow its owner."""
ANSWER = [Headers(), Role(), ReasoningDelta("why "), Delta("one "), Delta("two "), Gate("go"), Delta("three"), Finish()]


async def snapshot(node: Node, run_id: str) -> Response:
    response = await node.client.get(f"/api/runs/{run_id}/events?after=snapshot")
    assert 200 == response.status, await response.text()
    return response


async def opened(node: Node, run_id: str) -> tuple[Response, Frame]:
    """Ask a node for a snapshot; the stream, and its first event."""
    response = await snapshot(node, run_id)
    first = await response.next_event()
    assert first is not None
    return response, first


def said(frames: list[Frame]) -> list[tuple[str | None, str | None, str]]:
    return [(frame.id, frame.event, frame.json().get("text", "")) for frame in frames]


@requirement("nodes.snapshot", "nodes.follow")
@PEERS
async def test_a_snapshot_at_any_node_is_that_of_the_owner_and_nothing_comes_twice(settings):
    """At another node its text was empty, so that a reader lost all that had been said before it came."""
    async with Upstream([*ANSWER, Done()]) as up, nodes(up, count=3, **settings) as every:
        api = Native(every[0].client)
        run = await api.start(await api.new_session(), "hello", "up/a")
        (await api.shown(run, "two ")).close()
        async with asyncio.timeout(LONG):
            readers = [await opened(node, run) for node in every]
            up.open("go")
            rests = [await reader.all_events() for reader, _ in readers]
            afterwards = [await (await snapshot(node, run)).all_events() for node in every]

    live = [first.json() for _, first in readers]
    assert [("snapshot", "one two ", "why ")] * 3 == [(each["type"], each["text"], each["reasoning"]) for each in live]
    assert 1 == len({each["seq"] for each in live})
    assert [said(rests[0])] * 3 == [said(rest) for rest in rests]
    assert "three" == "".join(text for _, event, text in said(rests[0]) if event == "text.delta")
    assert "run.settled" == rests[0][-1].event
    for frames in afterwards:
        assert ["snapshot", "run.settled"] == [frame.event for frame in frames]
        assert ("one two three", "why ") == (frames[0].json()["text"], frames[0].json()["reasoning"])
        assert int(str(frames[0].id)) + 1 == int(str(frames[1].id))


@requirement("nodes.snapshot", "nodes.work")
@PEERS
async def test_a_running_pane_has_its_text_at_every_node(settings):
    """Whoever opened a comparison through another node saw empty panes until they had settled."""

    async def panes(node: Node, comparison: str) -> list[tuple[Any, Any]]:
        shown = await Compare(node.client).get(comparison)
        return [(pane["text"], pane["reasoning"]) for pane in shown["panes"]]

    async with Upstream([*ANSWER, Done()]) as up, nodes(up, count=3, **settings) as every:
        watched = await Compare(every[0].client).begin(["up/a", "up/b"])
        await watched.said(0, "two ")
        await watched.said(1, "two ")
        seen = [await panes(node, watched.comparison["id"]) for node in every]
        up.open("go")
        await watched.end()

    assert [[("one two ", "why ")] * 2] * 3 == seen


@requirement("nodes.snapshot", "nodes.unstored")
async def test_the_snapshot_of_a_run_that_is_not_stored_is_whole_at_every_node():
    """Its own node sends the text, the reasoning and the seq; the last delta came a second time after them."""
    async with Upstream([*ANSWER, Done()]) as up, nodes(up, count=3, **SHARED) as every:
        body = {"model": "up/a", "messages": [{"role": "user", "content": "hello"}], "stream": True}
        stream = await every[0].client.post("/v1/chat/completions", body)
        run = dict(stream.headers)["x-run-id"]
        async with asyncio.timeout(LONG):
            while "two " not in (await Native(every[0].client).run(run))["text"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            readers = [await opened(node, run) for node in every]
            up.open("go")
            rests = [await reader.all_events() for reader, _ in readers]
            await stream.all_events()

    assert [("one two ", "why ")] * 3 == [(first.json()["text"], first.json()["reasoning"]) for _, first in readers]
    assert [said(rests[0])] * 3 == [said(rest) for rest in rests]


@requirement("nodes.follow", "resp.resume")
@PEERS
async def test_a_response_that_is_read_at_another_node_to_its_end_is_that_of_the_owner_byte_for_byte(settings):
    """Its last event had no time of completion for a reader who was there at the end."""
    async with Upstream([*ANSWER, Done()]) as up, nodes(up, count=2, **settings) as (one, two):
        body = {"model": "up/a", "input": "hello", "background": True}
        response = (await (await one.client.post("/v1/responses", body)).json())["id"]
        path = f"/v1/responses/{response}?stream=true"
        (await Native(one.client).shown(response.replace("resp_", "run_"), "two ")).close()
        live = [await node.client.get(path) for node in (one, two)]
        firsts = [await reader.next_event() for reader in live]
        up.open("go")
        async with asyncio.timeout(LONG):
            owner, other = [[first, *await reader.all_events()] for first, reader in zip(firsts, live, strict=True)]
            again = await (await two.client.get(path)).all_events()

    assert owner[-1].json()["response"]["completed_at"]
    assert [frame.data for frame in owner] == [frame.data for frame in other]
    assert [frame.data for frame in owner] == [frame.data for frame in again]
