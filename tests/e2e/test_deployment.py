"""What the guides tell people to put around Holdfast, tried with the real program: nginx in front."""

import time
from collections.abc import AsyncIterator

import pytest

from tests.support.http import Client
from tests.support.native import Native
from tests.support.proxies import nginx
from tests.support.server import Server, provider
from tests.support.upstream import Delta, Done, Finish, Gate, Hang, Headers, Role, Upstream
from tests.support.waiting import SOON

NAME = "chat.example.com"


@pytest.fixture
async def up():
    async with Upstream() as up:
        up.models |= {
            "gated": [Headers(), Role(), Delta("one "), Gate(), Delta("two"), Finish(), Done()],
            "hanging": [Headers(), Role(), Delta("so far"), Hang()],
            "silent": [Hang()],
        }
        yield up


@pytest.fixture
async def proxied(up, tmp_path) -> AsyncIterator[Client]:
    """A client that reaches a server with a key only by nginx, under the name that the guide gives it."""
    config = f'allowed_hosts = ["{NAME}"]'
    env = {"HOLDFAST_API_KEY": "alice"}
    async with Server(tmp_path, [provider(up.base_url, models=None)], config=config, env=env) as server:
        async with nginx(tmp_path, server.port) as url:
            async with Client(url, {"host": NAME, "authorization": "Bearer alice"}) as client:
                yield client


def completion(model: str, **more: object) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": "Hi"}], **more}


async def test_nginx_as_the_guide_has_it_passes_each_word_on_at_once(proxied, up):
    """The second word is not said before the first has arrived: a proxy that buffers would wait for ever."""
    native = Native(proxied)
    run_id = await native.start(await native.new_session(), "Hi", "up/gated")
    reader = await native.shown(run_id, "one ")
    openai = await proxied.post("/v1/chat/completions", completion("up/gated", stream=True))
    while "one " not in (await openai.next_event()).data:
        pass
    up.open()
    events, chunks = await reader.all_events(), await openai.all_events()

    assert "run.settled" == events[-1].event
    assert "completed" == (await native.run(run_id))["settlement"]["outcome"]
    assert "[DONE]" == chunks[-1].data


@pytest.mark.parametrize(("model", "stream"), [("up/hanging", True), ("up/silent", True), ("up/silent", False)])
async def test_who_leaves_nginx_stops_the_run_and_its_upstream(proxied, up, model, stream):
    """Streaming or not, while the model talks or is silent: nobody pays for what nobody reads."""
    response = await proxied.send("POST", "/v1/chat/completions", json=completion(model, stream=stream))
    asked = await up.next_request()
    if model == "up/hanging":
        await response.next_event()
    began = time.monotonic()
    response.close()

    assert await asked.wait_closed() - began < SOON
    assert "client" == asked.closed_by


async def test_stop_goes_through_nginx_while_the_answer_streams(proxied, up):
    """The partial is kept and the reader is told how it ended."""
    api = Native(proxied)
    run_id = await api.start(await api.new_session(), "Hi", "up/hanging")
    reader = await api.shown(run_id, "so far")
    stopped = await api.stop(run_id)
    last = (await reader.all_events())[-1]

    assert ("stopped", "so far") == (stopped["settlement"]["outcome"], stopped["settlement"]["text"])
    assert stopped["settlement"] == last.json()["settlement"]
    assert "client" == up.requests[-1].closed_by


async def test_nginx_passes_the_name_and_the_key_on(proxied):
    """Host and key are checked behind the proxy as they are without one."""
    other_name = await proxied.get("/api/me", headers={"host": "evil.example"})
    no_key = await proxied.get("/api/me", headers={"authorization": None})
    known = await proxied.get("/api/me")

    assert (403, "host_not_allowed") == (other_name.status, (await other_name.json())["error"]["code"])
    assert (401, "unauthorized") == (no_key.status, (await no_key.json())["error"]["code"])
    assert 200 == known.status
