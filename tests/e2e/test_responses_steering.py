"""`response.steer` on the WebSocket of `/v1/responses`, with OpenAI's own client: accepted, applied, returned."""

import asyncio
import json
from typing import Any

import pydantic
import pytest
import pytest_asyncio
from openai import AsyncOpenAI
from openai.types.beta import BetaResponsesServerEvent

from tests.e2e.clients import KEY, setting
from tests.requirements import requirement
from tests.support.upstream import Cut, Delta, Done, Finish, Gate, Headers, Recorded, Role, Script, Status, calling
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")

EVENT = pydantic.TypeAdapter(BetaResponsesServerEvent)
STEERED = ("response.steer.accepted", "response.steer.failed", "response.steer.pending")


def gated(gate: str, *end: Any) -> Script:
    """An answer that waits in its middle: there it is steered."""
    return [Headers(), Role(), Delta("one "), Gate(gate), *(end or (Delta("two"), Finish(), Done()))]


def steered(gate: str, then: Script | None = None) -> Any:
    """The first answer waits at a gate. The second says what it was asked last."""

    def say(request: Recorded) -> Script:
        said = request.body["messages"]
        if len(said) < 3:
            return gated(gate)
        return then or [Headers(), Role(), Delta(f"Now: {said[-1]['content']}"), Finish(), Done()]

    return say


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory):
    async with setting(tmp_path_factory.mktemp("steering")) as here:
        yield here


@pytest_asyncio.fixture(loop_scope="module")
async def socket(here):
    async with AsyncOpenAI(base_url=here.base_url, api_key=KEY, timeout=LONG) as client:
        async with client.beta.responses.connect() as socket:
            yield socket


async def read(socket: Any, *kinds: str) -> list[dict[str, Any]]:
    """Read up to a message of one of these types. Those about steering are valid by the SDK's types."""
    messages: list[dict[str, Any]] = []
    async with asyncio.timeout(LONG):
        while not messages or messages[-1]["type"] not in kinds:
            messages.append(json.loads(await socket.recv_bytes()))
            if messages[-1]["type"] in STEERED and messages[-1].get("error", {}).get("code") != "invalid_input":
                EVENT.validate_python(messages[-1])
    return messages


async def begin(socket: Any, model: str, **asked: Any) -> str:
    """Ask, and return the id of the response when its first words are there."""
    await socket.response.create(**{"model": f"up/{model}", "input": "Count.", "store": False, **asked})
    created = await read(socket, "response.output_text.delta")
    return str(created[0]["response"]["id"])


@requirement("resp.steer")
async def test_input_for_a_response_is_answered_by_its_successor(here, socket):
    """In the order in which it was sent, with the settings of the response, and without another request."""
    here.up.models["counts"] = steered("counts")
    first = await begin(socket, "counts", instructions="Be brief.", stream_id="lane")
    await socket.response.steer(previous_response_id=first, input="In French.")
    accepted = (await read(socket, *STEERED))[-1]
    more = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Loud."}]}]
    await socket.response.steer(previous_response_id=first, input=more)
    again = (await read(socket, *STEERED))[-1]
    here.up.open("counts")
    ended = (await read(socket, "response.completed"))[-1]
    successor = await read(socket, "response.completed")
    shown = here.up.requests[-1].body["messages"]

    assert ["response.steer.accepted"] * 2 == [accepted["type"], again["type"]]
    assert (first, "lane") == (accepted["steer"]["previous_response_id"], accepted["stream_id"])
    assert accepted["steer"]["id"] != again["steer"]["id"]
    assert first == ended["response"]["id"]
    assert ("response.created", first) == (successor[0]["type"], successor[0]["response"]["previous_response_id"])
    assert "Now: Loud." == successor[-1]["response"]["output"][0]["content"][0]["text"]
    assert ["Be brief.", "Count.", "one two", "In French.", "Loud."] == [message["content"] for message in shown]


@requirement("resp.steer")
async def test_input_that_cannot_be_accepted_is_returned(here, socket):
    """With the code that the dialect has for it: a client may send it with its next request."""
    here.up.models["refuses"] = gated("refuses")
    first = await begin(socket, "refuses")
    said: list[Any] = [{"role": "assistant", "content": "I say so."}]
    wrong: list[tuple[str, Any]] = [("resp_unknown", "Hi"), (first, said), (first, []), (first, "")]
    found = []
    for target, given in wrong:
        await socket.response.steer(previous_response_id=target, input=given)
        found.append((await read(socket, *STEERED))[-1])
    here.up.open("refuses")
    await read(socket, "response.completed")

    assert ["response_not_found", *["invalid_input"] * 3] == [each["error"]["code"] for each in found]
    assert [given for _, given in wrong] == [each["steer"]["input"] for each in found]


@requirement("resp.steer")
async def test_a_response_of_a_conversation_is_not_steered(here, socket):
    """As with OpenAI: two writers would disagree about the order of its items."""
    here.up.models["talks"] = gated("talks")
    async with AsyncOpenAI(base_url=here.base_url, api_key=KEY) as client:
        conversation = (await client.conversations.create()).id
    first = await begin(socket, "talks", conversation=conversation)
    await socket.response.steer(previous_response_id=first, input="Hi")
    refused = (await read(socket, *STEERED))[-1]
    here.up.open("talks")
    await read(socket, "response.completed")

    assert "steering_not_supported" == refused["error"]["code"]


@requirement("resp.steer")
@pytest.mark.parametrize("ending", ["calls", "breaks"])
async def test_input_without_a_successor_is_returned_under_its_id(here, socket, ending):
    """A response that waits for a tool, and one that failed, have no successor: nothing is lost in silence."""
    ends = {"calls": calling(("add", {"a": 1}))[2:], "breaks": [Cut()]}
    here.up.models[ending] = gated(ending, *ends[ending])
    tools: Any = [{"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": False}]
    first = await begin(socket, ending, tools=tools)
    await socket.response.steer(previous_response_id=first, input="In French.")
    accepted = (await read(socket, *STEERED))[-1]
    here.up.open(ending)
    ended = (await read(socket, "response.completed", "response.failed"))[-1]
    returned = (await read(socket, *STEERED))[-1]

    assert ("completed" if ending == "calls" else "failed") == ended["response"]["status"]
    assert ("response.steer.failed", "response_not_active") == (returned["type"], returned["error"]["code"])
    assert {**accepted["steer"], "input": "In French."} == returned["steer"]


@requirement("resp.steer")
async def test_input_is_returned_if_the_successor_cannot_be_created(here, socket):
    """The model is away when the successor starts: the client gets its input back, and the connection works on."""
    here.up.models["leaves"] = steered("leaves", [Status(400)])
    first = await begin(socket, "leaves")
    await socket.response.steer(previous_response_id=first, input="In French.")
    here.up.open("leaves")
    await read(socket, "response.completed")
    returned = (await read(socket, "response.steer.failed"))[-1]
    await socket.response.create(model="up/end:completed", input="Hi", store=False)

    assert ("successor_creation_failed", "In French.") == (returned["error"]["code"], returned["steer"]["input"])
    assert "completed" == (await read(socket, "response.completed"))[-1]["response"]["status"]
