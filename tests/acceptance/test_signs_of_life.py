"""Signs of life: of an upstream that works without a word, and of the server to a client that waits."""

import json
import time
from typing import Any

import pytest

from tests.requirements import requirement
from tests.support.server import Server, provider
from tests.support.upstream import Delta, Done, Finish, Gate, Hang, Headers, Pause, Raw, Role, Step, Upstream
from tests.support.waiting import SOON

QUIET: dict[str, bytes] = {
    "a comment": b": OPENROUTER PROCESSING\n\n",
    "an empty delta": b'data: {"choices":[{"index":0,"delta":{"content":""},"finish_reason":null}]}\n\n',
    "an event of another kind": b"event: keepalive\ndata: {}\n\n",
}
END: list[Step] = [Delta("At last."), Finish("stop"), Done()]
MESSAGES = [{"role": "user", "content": "Hi"}]


async def asked(client: Any, path: str, **more: Any) -> Any:
    said = {"input": "Hi"} if path == "responses" else {"messages": MESSAGES, "max_tokens": 9}
    return await client.post(f"/v1/{path}", {"model": "up/m", **said, **more})


@requirement("truth.stall")
@pytest.mark.parametrize("sign", QUIET)
async def test_an_upstream_that_sends_signs_of_life_is_not_given_up(tmp_path, sign):
    """A large model reads a long prompt for minutes; what is between it and us says meanwhile that it works."""
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url)], config="idle_limit = 2.0") as server:
        up.models["m"] = [Headers(), Role(), *([Raw(QUIET[sign]), Pause(0.25)] * 12), *END]
        async with server.client() as client:
            body = await (await asked(client, "chat/completions")).json()

    assert "At last." == body["choices"][0]["message"]["content"]


@requirement("truth.stall", "truth.deadline")
async def test_an_upstream_that_only_trickles_ends_by_the_deadline(tmp_path):
    """It sends bytes, so it is not silent, and nobody says that it was; but it must end."""
    config = "idle_limit = 2.5\ndeadline = 3.0"
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url)], config=config) as server:
        up.models["m"] = [Headers(), Role(), Delta("So far"), *([Raw(b"d"), Pause(0.1)] * 600)]
        async with server.client() as client:
            body = await (await asked(client, "chat/completions")).json()

    assert "deadline_exceeded" == body["error"]["code"]


@requirement("start.early-failure-status")
async def test_the_head_of_a_stream_does_not_wait_for_the_upstream(tmp_path):
    """Proxies and clients give up on a server that sends no head; they wait on a stream that has begun."""
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url)]) as server, server.client() as client:
        up.models["m"] = [Gate("answers"), Headers(), Role(), *END]
        began = time.monotonic()
        response = await asked(client, "chat/completions", stream=True)
        await response.head()
        waited = time.monotonic() - began
        up.open("answers")
        frames = await response.all_events()

    assert (200, "[DONE]") == (response.status, frames[-1].data)
    assert waited < SOON  # 5 s, and a busy machine


HEARTBEATS = {"messages": "ping", "responses": "response.in_progress"}


@requirement("wire.heartbeat")
@pytest.mark.parametrize("path", HEARTBEATS)
async def test_a_heartbeat_is_an_event_of_the_dialect(tmp_path, path):
    """Codex and others count events, not comments: a comment does not keep them waiting."""
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url)], config="heartbeat = 0.1") as server:
        up.models["m"] = [Headers(), Role(), Delta("So far"), Hang()]
        async with server.client() as client:
            response = await asked(client, path, stream=True)
            seen, beats = [], 0
            async for frame in response.events(comments=False):
                seen.append(frame.json())
                said_text = any("So far" in str(each.get("delta")) for each in seen)
                beats += said_text and frame.event == HEARTBEATS[path]
                if beats == 3:
                    response.leave()
                    break
    numbers = [each["sequence_number"] for each in seen if "sequence_number" in each]

    assert 3 == beats
    assert sorted(numbers) == numbers
    assert len({*numbers}) == len(numbers) - (3 if path == "responses" else 0), "a heartbeat takes no number"


BEGINNINGS = {"messages": "message_start", "responses": "response.created"}


@requirement("wire.heartbeat", "wire.anthropic")
@pytest.mark.parametrize("path", BEGINNINGS)
async def test_a_stream_begins_with_its_first_heartbeat_and_begins_once(tmp_path, path):
    """While a model reads a long prompt there is no event of the upstream, and comments keep nobody waiting."""
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url)], config="heartbeat = 0.1") as server:
        up.models["m"] = [Gate("answers"), Headers(), Role(), *END]
        async with server.client() as client:
            response = await asked(client, path, stream=True)
            kinds, text = [], ""
            async for frame in response.events(comments=False):
                kinds.append(frame.event)
                text += frame.data
                if kinds.count(HEARTBEATS[path]) == 3:
                    up.open("answers")

    assert BEGINNINGS[path] == kinds[0]
    assert 1 == kinds.count(BEGINNINGS[path])
    assert kinds[-1] in ("message_stop", "response.completed")
    assert "At last." in text


@requirement("wire.heartbeat")
@pytest.mark.parametrize("path", ["chat", "generate"])
async def test_a_heartbeat_of_ollamas_api_is_a_piece_without_text(tmp_path, path):
    """Its lines of JSON have no comments: a proxy cut a stream that was silent for a minute."""
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url)], config="heartbeat = 0.1") as server:
        up.models["m"] = [Headers(), Role(), Delta("So far"), Gate("answers"), *END]
        async with server.client() as client:
            said = {"messages": MESSAGES} if path == "chat" else {"prompt": "Hi"}
            response = await client.post(f"/api/{path}", {"model": "up/m", **said})
            pieces = []
            async for line in response.lines():
                told = json.loads(line)
                pieces.append(told["message"]["content"] if path == "chat" else told["response"])
                if pieces.count("") == 3:
                    up.open("answers")

    assert ["So far", "", "", ""] == pieces[:4]
    assert ("So farAt last.", True) == ("".join(pieces), told["done"])
