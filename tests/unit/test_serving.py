"""How the server takes connections in."""

import asyncio
import contextlib
import socket

import pytest

from holdfast.server.config.settings import Settings
from holdfast.server.kit.http.uvicorn_server import copies, listen

uvloop = pytest.importorskip("uvloop")

CROWD = 64


async def turns_for_a_crowd(listening: socket.socket) -> int:
    """Count the turns of the loop in which as many are accepted as have come before the first."""
    accepted: list[asyncio.Protocol] = []

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.append(self)

    loop, turns = asyncio.get_running_loop(), 0
    servers = [await loop.create_server(Accepted, sock=each) for each in copies(listening)]
    with contextlib.ExitStack() as crowd:
        for _ in range(CROWD):
            client = crowd.enter_context(socket.socket())
            client.connect(listening.getsockname())
        while len(accepted) < CROWD:
            await asyncio.sleep(0)
            turns += 1
    for server in servers:
        server.close()
    return turns


def test_a_crowd_is_taken_in_within_few_turns_of_the_loop():
    """uvloop accepts one connection in a turn, and a turn takes 0.1 s where a thousand streams speak."""
    with listen(Settings(host="127.0.0.1", port=0)) as listening:
        listening.listen(CROWD)

        turns = uvloop.run(turns_for_a_crowd(listening))

    assert turns < CROWD / 4
