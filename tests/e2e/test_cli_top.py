"""`holdfast top` at a terminal and in a pipe, with a real server."""

import asyncio
import os
import termios
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from tests.e2e.test_cli import Shell, Terminal
from tests.requirements import requirement
from tests.support.ports import free_port
from tests.support.server import Server
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")

HI = {"model": "scripted/echo", "messages": [{"role": "user", "content": "Hi"}]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory):
    async with Server(tmp_path_factory.mktemp("server"), config="metrics = true\n") as server:
        async with server.client() as client:
            assert 200 == (await client.post("/v1/chat/completions", HI)).status
            assert 406 == (await client.post("/v1/chat/completions", HI | {"model": "scripted/fail:x"})).status
        yield server


@pytest.fixture
def shell(tmp_path):
    return Shell(tmp_path, {})


@requirement("ops.top")
async def test_in_a_pipe_it_prints_one_interval_and_ends(shell, server):
    """A script, or a report of an incident, wants text."""
    gone = f"http://127.0.0.1:{free_port()}"
    shown = await shell("top", "--interval", "0.2", "--url", server.url, "--url", gone)
    rows = [line.split() for line in shown.out.splitlines()]

    assert (0, "") == (shown.code, shown.err)
    assert ["NODE", server.url, gone] == [row[0] for row in rows[:3]]
    assert "Could not connect" in shown.out
    assert ["scripted/echo", "scripted/other"] == sorted(row[0] for row in rows if row and "scripted/" in row[0])
    assert ["upstream_error", "scripted", "0", "1"] in rows
    assert "\x1b" not in shown.out


@requirement("ops.top")
async def test_at_a_terminal_it_is_drawn_again_fits_the_window_and_ends_with_q(shell, server):
    """Somebody watches it during an incident, and makes the window larger."""
    async with Terminal(shell, "top", "--interval", "60", "--url", server.url) as terminal:
        await terminal.shows("q: quit")
        await terminal.shows("scripted/echo")
        before = terminal.screen
        screen = os.open(terminal.name, os.O_RDWR | os.O_NOCTTY)
        termios.tcsetwinsize(screen, (40, 180))
        os.close(screen)
        await terminal.shows("REFUSED/S")
        terminal.type("q")
        code = await terminal.ended()

    assert 0 == code
    assert "REFUSED/S" not in before, "80 columns have no room for it"
    assert terminal.screen.rstrip().endswith("\x1b[?1049l"), "the first screen is back"


@requirement("ops.top")
async def test_without_metrics_it_shows_the_last_minute(shell, tmp_path):
    """Nobody sets up metrics to look at a server for the first time; the status page shows these figures, too."""
    async with Server(tmp_path / "data") as server:
        async with server.client() as client:
            assert 200 == (await client.post("/v1/chat/completions", HI)).status
            assert 406 == (await client.post("/v1/chat/completions", HI | {"model": "scripted/fail:x"})).status
        shown = await shell("top", "--interval", "0.2", "--url", server.url)
        rows = await listed(shell, server)

    assert (0, "") == (shown.code, shown.err)
    assert "metrics = true would show more" in shown.out
    assert [("1", "alive", "2", "1")] == [(row[0], row[1], row[5], row[6]) for row in rows]
    assert ["upstream_error", "1"] in [line.split() for line in shown.out.splitlines()]


async def test_an_interrupt_leaves_the_terminal_as_it_was(shell, server):
    """Ctrl-C is what most people type."""
    async with Terminal(shell, "top", "--interval", "60", "--url", server.url) as terminal:
        await terminal.shows("q: quit")
        terminal.type("\x03")
        code = await terminal.ended()

    assert 0 == code
    assert terminal.screen.rstrip().endswith("\x1b[?1049l")


@requirement("ops.top")
async def test_it_lists_every_server_of_the_store_even_if_it_was_given_one(shell, postgres, tmp_path):
    """A server that is not asked, or cannot be reached from here, has told the others how it fares."""
    env = {"HOLDFAST_STORE": postgres.url(await postgres.new_database()), "HOLDFAST_CLUSTER_KEY": "k" * 32}
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    async with AsyncExitStack() as stack:
        one, two = [
            await stack.enter_async_context(
                Server(tmp_path / address, config="metrics = true\n", env=env | {"HOLDFAST_NODE_ADDRESS": address})
            )
            for address in addresses
        ]
        async with two.client() as client:
            assert 200 == (await client.post("/v1/chat/completions", HI)).status
            async with asyncio.timeout(LONG):  # the next renewal of the lease tells it to the other
                while "1" not in {row[5] for row in await listed(shell, one)}:
                    pass
        rows = await listed(shell, one)

    assert {"alive"} == {row[1] for row in rows}
    assert {*addresses} == {row[-1] for row in rows}


async def listed(shell, server):
    """The rows of the nodes of the store."""
    shown = await shell("top", "--interval", "0.2", "--url", server.url)
    assert (0, "") == (shown.code, shown.err)
    lines = [line.split() for line in shown.out.splitlines()]
    first = next(at for at, line in enumerate(lines) if line[:2] == ["OF", "STORE"])
    return lines[first + 1 : lines.index([], first)]
