"""One run on every wire at once: started on any of them, watched on all, stopped on yet another, and told the same."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from tests.acceptance.surfaces import QUESTION, ag_ui_input
from tests.requirements import requirement
from tests.support.http import Client, Frame
from tests.support.server import Server, provider
from tests.support.upstream import TEXT, Delta, Gate, Hang, Headers, ReasoningDelta, Role, Upstream
from tests.support.waiting import LONG
from tests.wires import WIRES, Wire

pytestmark = pytest.mark.asyncio(loop_scope="module")

LAST = TEXT[-1]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up():
    async with Upstream() as up:
        yield up


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(up, tmp_path_factory):
    async with Server(tmp_path_factory.mktemp("wires"), [provider(up.base_url, models=None)]) as server:
        yield server


# Starting a run that outlives its client, on each wire.


async def start_native(client: Client, model: str) -> str:
    session = await (await client.post("/api/sessions", {})).json()
    response = await client.post(f"/api/sessions/{session['id']}/runs", {"input": QUESTION, "model": model})
    return response.headers["x-run-id"]


async def _post(client: Client, path: str, body: dict[str, Any]) -> str:
    response = await client.post(path, body)
    assert response.status in (200, 202), await response.text()
    return response.headers["x-run-id"]


async def start_chat(client: Client, model: str) -> str:
    messages = [{"role": "user", "content": QUESTION}]
    return await _post(client, "/v1/chat/completions", {"model": model, "messages": messages, "background": True})


async def start_response(client: Client, model: str) -> str:
    return await _post(client, "/v1/responses", {"model": model, "input": QUESTION, "background": True})


async def start_message(client: Client, model: str) -> str:
    messages = [{"role": "user", "content": QUESTION}]
    return await _post(client, "/v1/messages", {"model": model, "messages": messages, "background": True})


async def start_ag_ui(client: Client, model: str) -> str:
    props = {"model": model, "background": True}
    return await _post(client, "/ag-ui", ag_ui_input(f"thread of {model}", model, forwardedProps=props))


async def start_ai_sdk(client: Client, model: str) -> str:
    parts = [{"type": "text", "text": QUESTION}]
    messages = [{"id": "m1", "role": "user", "parts": parts}]
    body = {"id": f"chat of {model.replace('/', ' ')}", "model": model, "messages": messages}
    return await _post(client, "/api/chat", body)


STARTS: dict[str, Callable[[Client, str], Awaitable[str]]] = {
    "native": start_native,
    "chat completions": start_chat,
    "responses": start_response,
    "Anthropic's messages": start_message,
    "AG-UI": start_ag_ui,
    "the AI SDK": start_ai_sdk,
}
STOPS: dict[str, str] = dict.fromkeys(STARTS, "/api/runs/{run}/stop") | {
    "native": "/v1/responses/resp_{suffix}/cancel",
    "chat completions": "/v1/responses/resp_{suffix}/cancel",
    "responses": "/api/chat/{run}/stop",
    "Anthropic's messages": "/api/chat/{run}/stop",
}
"""A run is stopped on another wire than the one that it was started on."""


class Watcher:
    """Reads a run on one wire, and says when the last of the text has come."""

    def __init__(self, server: Server, wire: Wire) -> None:
        self._client = server.client()
        self.wire = wire
        self.frames: list[Frame] = []
        self.has_begun = asyncio.Event()
        self.has_seen_all = asyncio.Event()

    async def watch(self, run_id: str) -> None:
        async with self._client as client:
            response = await client.get(self.wire.watch(run_id))
            assert 200 == response.status, await response.text()
            async for frame in response.events(comments=False):
                self.frames.append(frame)
                self.has_begun.set()
                if LAST in frame.data:
                    self.has_seen_all.set()


@requirement("wire.watch-any", "wire.truth")
@pytest.mark.parametrize("started_on", STARTS)
async def test_a_run_is_watched_on_every_wire_and_stopped_on_another_and_all_are_told(server, up, started_on):
    """Nobody gets another word than the others, and nobody takes the half for the whole."""
    gate = f"gate {started_on}"
    model = f"gated {started_on}".replace(" ", "-")
    begin = [Headers(), Role(), ReasoningDelta("I wonder."), Delta(TEXT[:3])]
    up.models[model] = [*begin, Gate(gate), Delta(TEXT[3:]), Hang()]
    watchers = [Watcher(server, wire) for wire in WIRES]
    async with server.client() as client, asyncio.TaskGroup() as group, asyncio.timeout(LONG):
        run_id = await STARTS[started_on](client, f"up/{model}")
        for watcher in watchers:
            group.create_task(watcher.watch(run_id))
        await asyncio.gather(*(watcher.has_begun.wait() for watcher in watchers))
        up.open(gate)
        await asyncio.gather(*(watcher.has_seen_all.wait() for watcher in watchers))
        path = STOPS[started_on].format(run=run_id, suffix=run_id.removeprefix("run_"))
        stopped = await client.post(path)
        assert 200 == stopped.status, await stopped.text()
        settled = (await (await client.get(f"/api/runs/{run_id}")).json())["settlement"]

    told = {watcher.wire.name: watcher.wire.read(watcher.frames) for watcher in watchers}
    assert ("stopped", "user", TEXT) == (settled["outcome"], settled["by"], settled["text"])
    assert dict.fromkeys(told, (TEXT, "I wonder.", "stopped", False)) == {
        name: (reading.text, reading.reasoning, reading.outcome, reading.success) for name, reading in told.items()
    }


@requirement("wire.watch-any", "wire.deterministic")
@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_who_comes_after_the_end_gets_the_frames_that_a_live_reader_got(server, up, wire):
    """Live and replayed are one rendering."""
    model = f"replayed-{WIRES.index(wire)}"
    up.models[model] = [Headers(), Role(), Delta(TEXT[:3]), Gate(model), Delta(TEXT[3:]), Hang()]
    live, later = Watcher(server, wire), Watcher(server, wire)
    async with server.client() as client, asyncio.TaskGroup() as group, asyncio.timeout(LONG):
        run_id = await start_native(client, f"up/{model}")
        group.create_task(live.watch(run_id))
        await live.has_begun.wait()
        up.open(model)
        await live.has_seen_all.wait()
        await client.post(f"/api/runs/{run_id}/stop")
    await later.watch(run_id)

    assert [(frame.event, frame.data) for frame in live.frames] == [(frame.event, frame.data) for frame in later.frames]
