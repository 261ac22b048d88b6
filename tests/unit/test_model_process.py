"""The built-in model's process, played by a server of a few lines: when a request is repeated, and when not."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from holdfast.errors import ProviderBroke
from holdfast.upstreams.local.process import ModelProcess, ProcessGone
from tests.requirements import requirement


class Dead:
    """The lifeline of a process that has ended."""

    pid = 0
    is_cut = True

    async def ended(self) -> str:
        return "signal 9, Killed"

    def say(self, line: bytes) -> None:
        raise AssertionError("nobody is there")

    def kill(self) -> None:
        raise AssertionError("nobody is there")


@asynccontextmanager
async def dying() -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that reads a request and ends without an answer, and what it has read."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
    finally:
        server.close()


@requirement("truth.asked-once")
async def test_a_process_that_dies_while_it_works_on_a_request_is_not_replaced_for_that_request():
    """A prompt that kills one process would kill the next one too, in silence and at the price of its work."""
    async with dying() as (address, asked):
        with pytest.raises(ProviderBroke, match=r"ended before it answered \(signal 9, Killed\)") as broke:
            await ModelProcess(Dead(), address, "key").ask(b"{}")

    assert not isinstance(broke.value, ProcessGone)
    assert 1 == len(asked)


async def test_a_process_that_had_ended_before_it_was_asked_may_be_replaced():
    """Nobody has read the request: `ProcessGone` is what the provider takes as leave to start another one."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        process = ModelProcess(Dead(), f"http://127.0.0.1:{bound.getsockname()[1]}", "key")
        with pytest.raises(ProcessGone):
            await process.ask(b"{}")
