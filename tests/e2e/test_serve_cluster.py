"""`make serve-cluster`: the script that it runs, killed node by node."""

import asyncio
import os
import re
import signal
import sys

from tests.e2e.test_nodes import until
from tests.e2e.test_serve_nodes import have_ended
from tests.requirements import requirement
from tests.support.http import Client
from tests.support.native import Native
from tests.support.ports import free_port
from tests.support.server import ROOT, Process, clean_environment
from tests.support.waiting import LONG

READY = re.compile(r"ready on (http://127\.0\.0\.1:\d+)")


@requirement("nodes.demonstration")
async def test_a_chat_is_read_and_continued_through_one_address_while_nodes_are_killed(tmp_path):
    """With the last node, too. Ctrl+C ends everything, PostgreSQL included."""
    command = [sys.executable, "-m", "scripts.serve_cluster", "--port", str(free_port()), "--data", str(tmp_path / "d")]
    env = clean_environment() | {"HOLDFAST_OFFLINE": "1"}
    cluster = Process(command, log=tmp_path / "log", env=env, cwd=ROOT)
    url = (await cluster.start(READY, LONG))[1]
    try:
        pids = [int(pid) for pid in re.findall(r"^Node \d: process (\d+)", cluster.log_text(), re.MULTILINE)]
        async with Client(url) as client:
            session = await Native(client).new_session()
        said = ["one"]
        await say(url, session, "one")
        for victim in pids[:2]:
            os.kill(victim, signal.SIGKILL)
            await have_ended({victim})
            read = [await texts(url, session) for _ in range(3)]  # each by a connection of its own
            assert [[text for text in said for _ in range(2)]] * 3 == read
            await say(url, session, f"after {victim}")
            said.append(f"after {victim}")
        await until(lambda: alive(url), lambda nodes: nodes == 1)
        os.kill(cluster.pid, signal.SIGINT)
        async with asyncio.timeout(LONG):
            code = await cluster._process.wait()
        await have_ended(set(pids))
    finally:
        await cluster.kill9()

    assert 3 == len(pids)
    assert 0 == code
    assert 2 == len(re.findall(r"has ended with -9\.", cluster.log_text()))


async def say(url: str, session: str, text: str) -> None:
    async with Client(url) as client:
        api = Native(client)
        settled = await api.settled(await api.start(session, text, "scripted/echo"))

    assert "completed" == settled["outcome"]


async def texts(url: str, session: str) -> list[str]:
    """What a chat holds: each message, and its echo."""
    async with Client(url) as client:
        return [text for _, text in await Native(client).transcript(session)]


async def alive(url: str) -> int:
    async with Client(url) as client:
        return sum(node["alive"] for node in (await Native(client).get("/api/nodes"))["nodes"])
