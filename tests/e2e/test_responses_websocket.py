"""The WebSocket mode of `/v1/responses`, with OpenAI's own client: turns, lanes, endings, leaving, keys."""

import asyncio
import json
import time
from typing import Any

import pydantic
import pytest
import pytest_asyncio
from openai import AsyncOpenAI
from openai.types.responses import ResponsesServerEvent
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from holdfast.server.features.accounts.made_keys import new_key
from holdfast.server.features.responses.websocket import MOST_LANES, MOST_UNANSWERED
from holdfast.store.sqlite.beside import SqliteBeside
from tests.e2e.clients import BEGIN, KEY, setting
from tests.requirements import requirement
from tests.support.http import Client
from tests.support.upstream import TEXT, Cut, Delta, Done, Finish, Gate, Hang, Headers, Role, Status
from tests.support.waiting import LONG, SOON

pytestmark = pytest.mark.asyncio(loop_scope="module")

LAST = ("response.completed", "response.incomplete", "response.failed", "error")
EVENT = pydantic.TypeAdapter(ResponsesServerEvent)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory):
    async with setting(tmp_path_factory.mktemp("responses-websocket")) as here:
        here.up.models |= {
            "gated": [Headers(), Role(), Delta("one "), Gate("socket"), Delta("two"), Finish(), Done()],
            **{name: [*BEGIN, Hang()] for name in ("left", "kept", "stopped", "waits", "many")},
            "cut": [*BEGIN, Cut()],
            "away": [Status(503)],
        }
        yield here


@pytest_asyncio.fixture(loop_scope="module")
async def client(here):
    async with AsyncOpenAI(base_url=here.base_url, api_key=KEY, timeout=LONG) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def socket(client):
    async with client.responses.connect() as socket:
        yield socket


async def turn(socket: Any, **asked: Any) -> list[dict[str, Any]]:
    """Send one request with the SDK, and read its messages up to the last. Each is valid by the SDK's types."""
    await socket.response.create(**{"model": "up/end:completed", "store": False, **asked})
    return await read(socket)


async def read(socket: Any) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    async with asyncio.timeout(LONG):
        while not messages or messages[-1]["type"] not in LAST:
            event = await socket.recv()
            messages.append(event.to_dict())
    for message in messages:
        inner = {"response": {**message["response"], "error": None}} if "response" in message else {}
        EVENT.validate_python({**message, **inner})  # our error codes are more than its short list
    return messages


def raw(here: Any, key: str | None = KEY, **more: Any) -> connect:
    """A connection of another library, for what the SDK does not send."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    url = here.base_url.replace("http:", "ws:") + "/responses"
    return connect(url, additional_headers=headers | more.pop("headers", {}), proxy=None, **more)


@requirement("resp.websocket")
async def test_a_turn_is_the_stream_of_a_response(socket):
    """The same events in the same order with the same numbers as over HTTP: a client has one reader for both."""
    messages = await turn(socket, input="Hi")

    assert list(range(len(messages))) == [message["sequence_number"] for message in messages]
    assert ["response.created", "response.in_progress"] == [message["type"] for message in messages[:2]]
    assert TEXT == "".join(each["delta"] for each in messages if each["type"] == "response.output_text.delta")
    assert ("completed", TEXT) == (
        messages[-1]["response"]["status"],
        messages[-1]["response"]["output"][0]["content"][0]["text"],
    )


@requirement("resp.websocket")
async def test_a_connection_continues_what_is_not_stored(here, socket):
    """Agents send only what is new. Another connection, and the same one after a failure, do not have it."""
    first = (await turn(socket, input="Hi"))[-1]["response"]["id"]
    second = (await turn(socket, input="And?", previous_response_id=first, model="up/echo:two"))[-1]["response"]["id"]
    shown = here.up.requests[-1].body["messages"]
    async with AsyncOpenAI(base_url=here.base_url, api_key=KEY) as client, client.responses.connect() as other:
        elsewhere = await turn(other, input="And?", previous_response_id=second)
    output = [{"type": "function_call_output", "call_id": "call_of_nobody", "output": "3"}]
    orphan = await turn(socket, input=output, previous_response_id=second)
    forgotten = await turn(socket, input="And?", previous_response_id=second)

    assert ["Hi", TEXT, "And?"] == [message["content"] for message in shown]
    assert (404, "previous_response_not_found") == (elsewhere[-1]["status"], elsewhere[-1]["error"]["code"])
    assert (400, "input") == (orphan[-1]["status"], orphan[-1]["error"]["param"])
    assert "previous_response_not_found" == forgotten[-1]["error"]["code"]


@requirement("resp.websocket", "resp.chain")
async def test_a_stored_response_is_followed_on_any_connection_and_over_http(here, client, socket):
    """One that follows what only a connection has keeps that with it."""
    local = (await turn(socket, input="Hi"))[-1]["response"]["id"]
    stored = (await turn(socket, input="Two?", previous_response_id=local, model="up/echo:two", store=True))[-1]
    async with client.responses.connect() as other:
        await turn(other, input="Three?", previous_response_id=stored["response"]["id"], model="up/echo:three")
    over_socket = here.up.requests[-1].body["messages"]
    await client.responses.create(
        input="Three?", previous_response_id=stored["response"]["id"], model="up/echo:three", store=False
    )

    assert ["Hi", TEXT, "Two?", "two", "Three?"] == [message["content"] for message in over_socket]
    assert over_socket == here.up.requests[-1].body["messages"]


@requirement("resp.websocket")
async def test_a_request_can_be_prepared_without_an_answer(here, socket):
    """Coding agents send their tools and instructions ahead: no model is asked."""
    asked = here.calls("end:completed")
    ready = (await turn(socket, input="Hi", generate=False))[-1]["response"]
    assert asked == here.calls("end:completed")
    await turn(socket, input="Now.", previous_response_id=ready["id"], model="up/echo:now")

    assert ("completed", []) == (ready["status"], ready["output"])
    assert ["Hi", "Now."] == [message["content"] for message in here.up.requests[-1].body["messages"]]


@requirement("resp.websocket", "truth.clients-see-failure")
async def test_every_ending_is_one_last_message(client, socket):
    """There is no end of a stream here: a client that waits for more would wait for ever, one that saw two would
    take the second for its next answer."""
    early = await turn(socket, input="Hi", model="up/away")
    broken = await turn(socket, input="Hi", model="up/cut")
    cut_short = await turn(socket, input="Hi", model="up/end:length")
    await socket.response.create(model="up/stopped", input="Hi", store=True)
    created = await socket.recv()
    await client.responses.cancel(created.response.id)
    stopped = await read(socket)
    after = await turn(socket, input="Hi")

    assert (["error"], 502) == ([each["type"] for each in early], early[-1]["status"])
    assert ("response.failed", "failed") == (broken[-1]["type"], broken[-1]["response"]["status"])
    assert "response.incomplete" == cut_short[-1]["type"]
    assert ("error", "response_cancelled") == (stopped[-1]["type"], stopped[-1]["error"]["code"])
    assert "response.created" == after[0]["type"]


@requirement("resp.websocket", "gone.attached", "gone.detached")
async def test_leaving_stops_a_response_unless_it_is_to_be_stored(here, client):
    """As over HTTP: nobody reads it, and somebody pays for it."""
    for model, store in (("left", None), ("kept", True)):
        async with client.responses.connect() as socket:
            await socket.response.create(model=f"up/{model}", input="Hi", **({"store": True} if store else {}))
            created = await socket.recv()
            while (await socket.recv()).type != "response.output_text.delta":
                pass
        if not store:
            async with asyncio.timeout(SOON):
                await next(each for each in here.up.requests if each.model == "left").wait_closed()

    going_on = await client.responses.retrieve(created.response.id)
    cancelled = await client.responses.cancel(created.response.id)
    assert ("in_progress", "cancelled") == (going_on.status, cancelled.status)


@requirement("resp.websocket")
async def test_lanes_are_answered_side_by_side_and_each_in_its_order(here, client):
    """`stream_id` names a lane. A lane may continue what was said on another one."""
    async with client.responses.connect() as socket:
        await socket.response.create(model="up/gated", input="Hi", store=False, stream_id="slow")
        await socket.response.create(model="up/echo:after", input="Hi", store=False, stream_id="slow")
        quick = await turn(socket, input="Hi", stream_id="quick")
        while "response.completed" != quick[-1]["type"] or "quick" != quick[-1]["stream_id"]:
            quick += await read(socket)
        here.up.open("socket")
        slow = [*(await read(socket)), *(await read(socket))]
        forked = await turn(socket, input="And?", previous_response_id=quick[-1]["response"]["id"], stream_id="new")

    done = [each["response"] for each in slow if each["type"] == "response.completed"]
    assert {"slow"} == {each["stream_id"] for each in slow}
    assert ["one two", "after"] == [each["output"][0]["content"][0]["text"] for each in done]
    assert ("response.completed", "new") == (forked[-1]["type"], forked[-1]["stream_id"])


@requirement("resp.websocket")
async def test_lanes_and_unanswered_requests_are_limited(here, client):
    """Each holds memory, and each unanswered one a run."""
    async with client.responses.connect() as socket:
        for number in range(MOST_LANES):
            await turn(socket, input="Hi", model="up/echo:x", stream_id=f"lane {number}")
        one_more = await turn(socket, input="Hi", stream_id="one more")
    async with client.responses.connect() as socket:
        for _ in range(MOST_UNANSWERED):
            await socket.response.create(model="up/many", input="Hi", store=False)
        await socket.response.create(model="up/many", input="Hi", store=False)
        async with asyncio.timeout(LONG):
            while (refused := await socket.recv()).type != "error":
                pass

    assert "websocket_stream_limit_reached" == one_more[-1]["error"]["code"]
    assert (429, "websocket_response_limit_reached") == (refused.status, refused.error.code)


@requirement("resp.websocket", "wire.no-silent-drop")
@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"background": True}, "background"),
        ({"stream": False}, "stream"),
        ({"truncation": "auto"}, "truncation"),
        ({"tools": [{"type": "computer"}]}, "tools[0].type"),
        ({"generate": "no"}, "generate"),
        ({"type": "response.change"}, "type"),
        ({"stream_id": "a\nb"}, "stream_id"),
    ],
    ids=str,
)
async def test_a_field_that_cannot_be_honoured_is_refused_and_the_connection_stays(here, asked, param):
    """The same rules as over HTTP, and those of the mode itself."""
    async with raw(here) as socket:
        await socket.send(json.dumps({"type": "response.create", "model": "up/echo:x", "input": "Hi", **asked}))
        refused = json.loads(await socket.recv())
        await socket.send(json.dumps({"type": "response.create", "model": "up/echo:x", "input": "Hi"}))
        then = json.loads(await socket.recv())

    assert ("error", 400, param) == (refused["type"], refused["status"], refused["error"]["param"])
    assert "response.created" == then["type"]


@requirement("resp.websocket", "safe.key")
async def test_the_handshake_is_a_request_with_a_key_like_any_other(here):
    """Browsers open WebSockets to every address without asking it, so the origin counts too."""
    statuses = []
    for key, headers in ((None, {}), ("wrong", {}), (KEY, {"origin": "https://elsewhere.example"})):
        with pytest.raises(InvalidStatus) as refused:
            async with raw(here, key, headers=headers):
                pass
        statuses.append(refused.value.response.status_code)

    assert [401, 401, 403] == statuses


@requirement("resp.websocket")
async def test_a_connection_ends_with_the_server_and_says_so(tmp_path):
    """With 1001: clients connect again. What was being said is settled, and the last message says how."""
    async with setting(tmp_path) as here:
        here.up.models["left"] = [*BEGIN, Hang()]
        async with raw(here) as socket:
            await socket.send(json.dumps({"type": "response.create", "model": "up/left", "input": "Hi"}))
            await socket.recv()
            ending = asyncio.create_task(here.server.terminate())
            messages = await until_closed(socket)
            await ending

    assert (1001, "error", "response_cancelled") == (
        socket.close_code,
        json.loads(messages[-1])["type"],
        json.loads(messages[-1])["error"]["code"],
    )


async def until_closed(socket: ClientConnection) -> list[Any]:
    messages: list[Any] = []
    async with asyncio.timeout(LONG):
        try:
            while True:
                messages.append(await socket.recv())
        except ConnectionClosed:
            return messages


@requirement("resp.websocket", "safe.revoked")
async def test_revoking_a_key_stops_its_responses_and_closes_the_connection(here):
    """A connection lasts an hour: without this, so would a key that was stolen."""
    made = new_key("mallory")
    await asyncio.to_thread(lambda: SqliteBeside(here.server.data).add(made.record))
    async with asyncio.timeout(LONG), here.server.client(authorization=f"Bearer {made.key}") as http:
        while (await http.get("/api/me")).status != 200:  # noqa: ASYNC110 - it polls
            await asyncio.sleep(0.1)
    async with raw(here, made.key) as socket:
        await socket.send(json.dumps({"type": "response.create", "model": "up/waits", "input": "Hi", "store": False}))
        while "delta" not in json.loads(await socket.recv()):
            pass
        await asyncio.to_thread(lambda: SqliteBeside(here.server.data).revoke(made.record.id, time.time()))
        messages = await until_closed(socket)

    async with asyncio.timeout(SOON):
        await next(each for each in here.up.requests if each.model == "waits").wait_closed()
    assert (1008, "unauthorized") == (socket.close_code, json.loads(messages[-1])["error"]["code"])


@requirement("resp.websocket")
async def test_the_list_is_still_there(here):
    """The same path without an upgrade."""
    async with Client(here.server.url, headers={"authorization": f"Bearer {KEY}"}) as http:
        listed = await http.get("/v1/responses")

    assert (200, "list") == (listed.status, (await listed.json())["object"])
