"""A server of several ends for an upgrade: what it works on is drained, handed over, or settled."""

import asyncio
import signal

from tests.contract.test_attach import HALF
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.ports import free_port
from tests.support.server import Server, provider
from tests.support.upstream import Upstream, answer
from tests.support.waiting import LONG


@requirement("nodes.drain", "crash.goes-on")
async def test_another_server_goes_on_with_an_answer_when_one_is_asked_to_end(postgres, tmp_path):
    """llama-server keeps the answer, and is not told to stop. The reader misses no word, and repeats none."""
    env = {"HOLDFAST_STORE": postgres.url(await postgres.new_database()), "HOLDFAST_CLUSTER_KEY": "k" * 32}
    addresses = [{"HOLDFAST_NODE_ADDRESS": f"127.0.0.1:{free_port()}"} for _ in range(2)]
    async with Upstream(HALF) as up:
        up.named = {}
        described = [provider(up.base_url, "llamacpp", profile="llamacpp")]
        one = Server(tmp_path / "one", described, config="drain = 0.5", env=env | addresses[0])
        two = Server(tmp_path / "two", described, env=env | addresses[1])
        async with one, two, one.client() as first, two.client() as second:
            here, there = Native(first), Native(second)
            run = await here.start(await here.new_session(), "Hi", "llamacpp/m")
            reader = await there.shown(run, "upon ")
            up.named[run] = answer("Once upon ", "a time.")
            one.send_signal(signal.SIGTERM)
            async with asyncio.timeout(LONG):
                rest = await reader.all_events()
            settled = (await there.run(run))["settlement"]

    assert ("completed", "Once upon a time.") == (settled["outcome"], settled["text"])
    assert "a time." == "".join(frame.json()["text"] for frame in rest if frame.event == "text.delta")
    assert 1 == len(up.requests)
    assert up.dropped.empty()
