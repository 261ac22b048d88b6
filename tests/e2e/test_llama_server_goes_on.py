"""A llama-server of somebody else's, here the built-in model's own, and the runs that it goes on with."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from holdfast.upstreams.local.child import Order, Ready
from holdfast.upstreams.local.weights import fetch_now
from tests.requirements import requirement
from tests.support.http import Client
from tests.support.native import Native
from tests.support.programs import missing_for_the_built_in_model
from tests.support.server import UP_KEY, Server, provider
from tests.support.waiting import LONG, SOON

MISSING = missing_for_the_built_in_model()

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
    pytest.mark.asyncio(loop_scope="module"),
]

EXACT = {"temperature": 0, "seed": 1, "cache_prompt": False}
ENDLESS = {"max_tokens": 3000, "ignore_eos": True}


class LlamaServer:
    """llama.cpp's server in a process that Holdfast knows only by its address and key."""

    def __init__(self, address: str) -> None:
        self.address = address

    def as_provider(self, **more: Any) -> dict[str, Any]:
        return provider(f"{self.address}/v1", "llamacpp", ["smollm2"], profile="llamacpp", **more)

    async def working(self) -> int:
        """How many answers it works on, as it says itself."""
        async with Client(self.address, {"authorization": f"Bearer {UP_KEY}"}) as client:
            slots = await (await client.get("/slots")).json()
        return sum(slot["is_processing"] for slot in slots)

    async def seconds_until_idle(self) -> float:
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(LONG):
            while await self.working():
                pass
        return asyncio.get_running_loop().time() - began


@asynccontextmanager
async def llama_server(model: Path) -> AsyncIterator[LlamaServer]:
    order = Order(model=str(model), context=4096, slots=2, threads=1, batch=64, key=UP_KEY, parent=os.getpid())
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "holdfast.upstreams.local.child"],
        stdin=pipe,
        stdout=pipe,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(msgspec.json.encode(order) + b"\n")
        async with asyncio.timeout(LONG):
            ready = msgspec.json.decode(await process.stdout.readline(), type=Ready)
        assert ready.address, ready.error
        yield LlamaServer(ready.address)
    finally:
        process.stdin.close()
        await process.wait()


@pytest.fixture(scope="session")
def weights(request: pytest.FixtureRequest) -> Path:
    return fetch_now(request.config.cache.mkdir("holdfast-data") / "models")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def llama(weights: Path) -> AsyncIterator[LlamaServer]:
    async with llama_server(weights) as llama:
        yield llama


async def seen_of(api: Native, run_id: str, deltas: int) -> list[Any]:
    """The first events of a run, up to so many deltas."""
    reader, seen = await api.events(run_id), []
    while sum(frame.event == "text.delta" for frame in seen) < deltas:
        seen.append(await reader.next_event())
    return seen


@requirement("crash.goes-on")
async def test_a_killed_server_goes_on_with_the_answer_of_a_llama_server(llama, tmp_path):
    """Not a token is lost, told twice or computed again: the model wrote on while nobody listened."""
    params = {**EXACT, "max_tokens": 80, "ignore_eos": True}
    async with Server(tmp_path, [llama.as_provider(max_runs=1)]) as server, server.client() as client:
        api = Native(client)
        ask = ("Tell me a long story.", "llamacpp/smollm2")
        whole = await api.settled(await api.start(await api.new_session(), *ask, params=params))
        run_id = await api.start(await api.new_session(), *ask, params=params)
        seen = await seen_of(api, run_id, 5)
        await server.kill9()
        await server.restart()
        seen += await api.replay(run_id, after=int(seen[-1].id))
        settlement = (await api.run(run_id))["settlement"]

        told = "".join(frame.json()["text"] for frame in seen if frame.event == "text.delta")
        assert [str(seq) for seq in range(1, len(seen) + 1)] == [frame.id for frame in seen]
        assert "resumed" in [frame.json()["code"] for frame in seen if frame.event == "notice"]
        assert (whole["outcome"], whole["text"]) == (settlement["outcome"], settlement["text"])
        assert whole["text"] == told
        assert whole["usage"] == settlement["usage"]


@requirement("crash.goes-on")
async def test_stop_frees_a_llama_server_that_would_write_on_without_a_reader(llama, tmp_path):
    """Closing the connection no longer stops it: it has to be told, also after a restart."""
    async with Server(tmp_path, [llama.as_provider()]) as server, server.client() as client:
        api = Native(client)
        ask = ("Tell me a long story.", "llamacpp/smollm2")
        run_id = await api.start(await api.new_session(), *ask, params=ENDLESS)
        await seen_of(api, run_id, 2)
        stopped = await api.stop(run_id)
        idle = [await llama.seconds_until_idle()]

        run_id = await api.start(await api.new_session(), *ask, params=ENDLESS)
        await seen_of(api, run_id, 2)
        await server.kill9()
        worked_on = await llama.working()
        await server.restart()
        await seen_of(api, run_id, 10)
        stopped_after = await api.stop(run_id)
        idle.append(await llama.seconds_until_idle())

        assert 1 == worked_on
        assert ["stopped"] * 2 == [run["settlement"]["outcome"] for run in (stopped, stopped_after)]
        assert max(idle) < SOON, idle


async def test_the_deadline_frees_a_llama_server_too(llama, tmp_path):
    """It is told of it as of a stop."""
    async with Server(tmp_path, [llama.as_provider()], config="deadline = 3.0") as server, server.client() as client:
        api = Native(client)
        ask = ("Tell me a long story.", "llamacpp/smollm2")
        late = await api.settled(await api.start(await api.new_session(), *ask, params=ENDLESS))
        idle = await llama.seconds_until_idle()

    assert "deadline_exceeded" == late["error"]["code"]
    assert idle < SOON


async def test_stop_before_the_first_word_frees_a_llama_server_too(llama, tmp_path):
    """It reads the prompt, or has not even seen the request: what it is told first it may not understand yet."""
    async with Server(tmp_path, [llama.as_provider()]) as server, server.client() as client:
        api = Native(client)
        for number in range(4):
            prompt = f"{number} All work and no play. " * (150 if number % 2 else 1)
            run_id = await api.start(await api.new_session(), prompt, "llamacpp/smollm2", params=ENDLESS)
            await api.stop(run_id)
        await asyncio.sleep(1.0)  # a request that came late would begin by now, and write for half a minute

        assert await llama.seconds_until_idle() < SOON
