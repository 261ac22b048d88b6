"""Clients that vanish without a word, and clients that stay and never read."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from holdfast.server.config.settings import Settings
from holdfast.server.kit.http.uvicorn_server import HALF_OPEN, listen
from tests.requirements import requirement
from tests.support.http import Client, Frame, Response
from tests.support.native import Native
from tests.support.server import Server, provider
from tests.support.upstream import Upstream
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")

SEND_TIMEOUT = 4.0


class World(NamedTuple):
    server: Server
    client: Client
    up: Upstream


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    config = f"send_timeout = {SEND_TIMEOUT}\nheartbeat = 0.5"
    async with Upstream() as up:
        data, providers = tmp_path_factory.mktemp("stalled"), [provider(up.base_url, models=None)]
        async with Server(data, providers, config=config) as server, server.client() as client:
            yield World(server, client, up)


@requirement("gone.attached")
@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="a socket option of Linux")
async def test_the_kernel_is_told_to_give_up_on_clients_that_have_vanished():
    """A laptop whose lid was closed sends no FIN: without this its runs would go on for a quarter of an hour."""
    with closing(listen(Settings(port=0))) as listening:
        listening.listen()
        with closing(socket.create_connection(listening.getsockname())), closing(listening.accept()[0]) as accepted:
            options = [sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) for sock in (listening, accepted)]

    assert [HALF_OPEN, HALF_OPEN] == options
    assert 0 < HALF_OPEN <= 30_000


async def _never_reading(client: Client, method: str, path: str, body: Any, **headers: str) -> Response:
    """Send a request and never read the answer, with as little room for it as the kernel allows."""
    response = await client.send(method, path, json=body, headers=headers, receive_buffer=2048)
    response.stop_reading()
    return response


def _endless(**more: Any) -> dict[str, Any]:
    return {"model": "up/end:endless", "messages": [{"role": "user", "content": "Hi"}], **more}


@requirement("gone.attached", "sub.slow-reader-bounded")
@pytest.mark.parametrize("surface", ["chat completions", "a session's run"])
async def test_a_client_that_never_reads_is_cut_off_and_its_attached_run_stopped(world: World, surface: str):
    """Nobody hears the answer, and somebody pays for it; the upstream must not be kept busy by a dead pipe."""
    world.up.forget()
    api = Native(world.client)
    session = await api.new_session()
    began = time.monotonic()

    if surface == "chat completions":
        await _never_reading(world.client, "POST", "/v1/chat/completions", _endless(stream=True, session_id=session))
    else:
        body = {"input": "Hi", "model": "up/end:endless", "lifetime": "attached"}
        path = f"/api/sessions/{session}/runs"
        await _never_reading(world.client, "POST", path, body, accept="text/event-stream")
    asked = await world.up.next_request()
    closed_at = await asked.wait_closed(LONG)
    (run,) = (await api.get(f"/api/runs?session_id={session}"))["runs"]
    settlement = await api.settled(run["id"])

    assert "client" == asked.closed_by
    assert closed_at - began > SEND_TIMEOUT
    assert ("stopped", "disconnect", True) == tuple(settlement[name] for name in ("outcome", "by", "partial"))


@requirement("sub.slow-reader-bounded")
async def test_a_reader_that_was_cut_off_can_come_back_for_the_rest(world: World):
    """It may only have slept: what it has not seen is still there, from the very next event."""
    api = Native(world.client)
    run = await api.start(await api.new_session(), "Hi", "up/tokens:30000:0")
    await api.settled(run)

    stalled = await world.client.send("GET", f"/api/runs/{run}/events", receive_buffer=2048)
    seen = [await stalled.next_event()]
    await _until_given_up(stalled)
    seen += await _until_it_breaks_off(stalled)
    rest = await api.replay(run, after=int(seen[-1].id))

    assert [str(n) for n in range(1, 30_004)] == [frame.id for frame in (*seen, *rest)]
    assert "run.settled" == rest[-1].event


async def _until_it_breaks_off(reader: Response) -> list[Frame]:
    """What was on its way when the connection was cut."""
    frames: list[Frame] = []
    try:
        while frame := await reader.next_event():
            frames.append(frame)
    except ConnectionError:
        return frames
    raise AssertionError("the stream came to its proper end: it was not cut off")


async def _until_given_up(reader: Response) -> None:
    """Wait until the server has closed its side of a connection. The kernel still holds what it was given before."""
    async with asyncio.timeout(LONG):
        while _is_somebodys(reader.port):  # noqa: ASYNC110 - in another process
            await asyncio.sleep(0.05)


def _is_somebodys(client_port: int) -> bool:
    """Whether a process has the server's side of a connection, as the kernel lists it: without one it has no inode."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[2].endswith(f":{client_port:04X}") and row[9] != "0" for row in rows)


@requirement("sub.slow-reader-bounded")
async def test_a_slow_reader_that_does_read_is_left_alone(world: World):
    """Slow is no fault: only who takes nothing at all for the whole time is cut off."""
    api = Native(world.client)
    run = await api.start(await api.new_session(), "Hi", "up/tokens:10000:0")
    await api.settled(run)
    slow = await world.client.send("GET", f"/api/runs/{run}/events", receive_buffer=16384)

    frames = [await slow.next_event()]
    pauses = [SEND_TIMEOUT / 4] * 8  # twice the time-out in all
    while (frame := await slow.next_event()) is not None:
        frames.append(frame)
        if pauses and len(frames) % 500 == 0:
            await asyncio.sleep(pauses.pop())

    assert [str(n) for n in range(1, 10_004)] == [frame.id for frame in frames]
    assert [] == pauses
