"""AG-UI's wire: threads that are sessions, what the model is shown, and how a stop is told to old and new clients."""

from typing import Any

import ag_ui.core
import pytest
import pytest_asyncio
from pydantic import TypeAdapter

from tests.requirements import requirement
from tests.support.native import Native
from tests.support.server import Server, provider
from tests.support.upstream import Delta, Hang, Headers, Role, ToolDelta, Upstream

pytestmark = pytest.mark.asyncio(loop_scope="module")

EVENT: TypeAdapter[ag_ui.core.Event] = TypeAdapter(ag_ui.core.Event)
TOOL = {"name": "add", "description": "Add two numbers.", "parameters": {"type": "object"}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up():
    async with Upstream() as up:
        up.models |= {
            "hanging": [Headers(), Role(), Delta("so far"), Hang()],
            "hanging-call": [
                *(Headers(), Role(), Delta("so far"), ToolDelta(id="call_1", name="add", arguments='{"a":')),
                Hang(),
            ],
        }
        yield up


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(up, tmp_path_factory):
    providers = [provider(up.base_url, models=None)]
    async with Server(tmp_path_factory.mktemp("ag-ui"), providers, config='default_model = "up/m"') as server:
        async with server.client() as client:
            yield client


def user(text: Any) -> dict[str, Any]:
    return {"id": f"u {text}", "role": "user", "content": text}


def asked(thread: str, messages: list[dict[str, Any]], model: str = "", **more: Any) -> dict[str, Any]:
    props = {"model": model, **more.pop("props", {})}
    named = {"threadId": thread, "runId": f"run of {thread}", "protocolVersion": "1.0"}
    return {**named, "messages": messages, "forwardedProps": props, **more}


async def events_of(response) -> list[dict[str, Any]]:
    assert 200 == response.status, await response.text()
    events = [frame.json() for frame in await response.all_events()]
    for event in events:
        EVENT.validate_python(event)
    return events


async def run(client, *args: Any, **more: Any) -> list[dict[str, Any]]:
    return await events_of(await client.post("/ag-ui", asked(*args, **more)))


def shown(up: Upstream, model: str) -> dict[str, Any]:
    (request,) = [request for request in up.requests if request.model == model]
    return request.body


@requirement("wire.ag-ui")
async def test_a_thread_is_a_session_and_its_history_is_sent_once(client, up):
    """The client sends all of its messages each time; the store has them already."""
    first = await run(client, "t1", [user("one")], "up/echo:first")
    answer = {"id": first[1]["messageId"], "role": "assistant", "content": "first"}
    second = await run(client, "t1", [user("one"), answer, user("two")], "up/echo:second")

    assert ("t1", "run of t1", "1.0") == tuple(first[0][name] for name in ("threadId", "runId", "protocolVersion"))
    assert {"type": "success"} == second[-1]["outcome"]
    assert [("user", "one"), ("assistant", "first"), ("user", "two")] == [
        (said["role"], said["content"]) for said in shown(up, "echo:second")["messages"]
    ]


@requirement("wire.ag-ui")
async def test_a_thread_that_is_new_here_begins_with_what_the_client_knows(client, up):
    """It may come from another server: what was said there is part of the conversation."""
    call = {"id": "call_9", "type": "function", "function": {"name": "add", "arguments": "{}"}, "metadata": {}}
    messages = [
        {"id": "s", "role": "system", "content": "Be brief."},
        user("one"),
        {"id": "r", "role": "reasoning", "content": "hm"},
        {"id": "a", "role": "assistant", "toolCalls": [call]},
        {"id": "t", "role": "tool", "toolCallId": "call_9", "content": "", "error": "no such number"},
        {"id": "b", "role": "assistant", "content": "I cannot."},
        user([{"type": "text", "text": "And"}, {"type": "text", "text": "now?"}]),
    ]
    context = [{"description": "The weather", "value": "rain"}]
    events = await run(client, "t2", messages, "up/echo:known", context=context, tools=[TOOL])

    body = shown(up, "echo:known")
    assert {"type": "success"} == events[-1]["outcome"]
    assert [
        ("system", "The weather:\nrain\n\nBe brief."),
        ("user", "one"),
        ("assistant", None),
        ("tool", "Error: no such number"),
        ("assistant", "I cannot."),
        ("user", "And\n\nnow?"),
    ] == [(said["role"], said["content"]) for said in body["messages"]]
    assert [{"type": "function", "function": TOOL}] == body["tools"]
    assert "metadata" not in body["messages"][2]["tool_calls"][0]


async def stopped(client, thread: str, model: str, **more: Any) -> list[dict[str, Any]]:
    response = await client.post("/ag-ui", asked(thread, [user("go")], model, **more))
    run_id = response.headers["x-run-id"]
    await Native(client).shown(run_id, "so far")
    await Native(client).stop(run_id)
    return await events_of(response)


@requirement("wire.ag-ui", "wire.truth")
async def test_a_stop_is_cancelled_for_who_knows_the_word_and_an_error_for_others(client):
    """A client from before protocol 1.0 does not know the outcome, leaves it out, and would show success."""
    new = await stopped(client, "t3", "up/hanging")
    old = await stopped(client, "t4", "up/hanging", protocolVersion=None)

    assert ("RUN_FINISHED", {"type": "cancelled"}) == (new[-1]["type"], new[-1]["outcome"])
    assert ("RUN_ERROR", "stopped_by_user") == (old[-1]["type"], old[-1]["code"])
    assert {"stopped"} == {events[-1]["metadata"]["holdfast"]["outcome"] for events in (new, old)}


@requirement("wire.ag-ui", "start.bad-input")
@pytest.mark.parametrize("version", ["9" * 5000, "1" * 20, "one", "", ".1", "\u0661"])
async def test_a_version_that_makes_no_sense_is_no_version(client, version):
    """It is only looked at when the run has been started: stumbling over it would leave the run to nobody."""
    events = await run(client, f"versions {len(version)} {version[:3]}", [user("Hi")], protocolVersion=version)

    assert ("RUN_FINISHED", "success") == (events[-1]["type"], events[-1]["outcome"]["type"])


@requirement("wire.ag-ui", "wire.truth")
async def test_a_call_that_was_half_written_is_never_closed(client):
    """`TOOL_CALL_END` says that the arguments are complete: an application would run the call."""
    response = await client.post("/ag-ui", asked("t5", [user("go")], "up/hanging-call"))
    run_id, seen = response.headers["x-run-id"], []
    async for frame in response.events(comments=False):
        seen.append(frame.json())
        if seen[-1]["type"] == "TOOL_CALL_ARGS":
            await Native(client).stop(run_id)

    kinds = [event["type"] for event in seen]
    assert ("RUN_ERROR", "stopped_by_user") == (seen[-1]["type"], seen[-1]["code"])
    assert ["TOOL_CALL_START", "TOOL_CALL_ARGS"] == [kind for kind in kinds if kind.startswith("TOOL_CALL")]


@requirement("wire.ag-ui", "wire.watch-any")
async def test_who_comes_later_gets_the_state_the_messages_and_every_frame_after_the_last_one_seen(client):
    """A page that was loaded again has nothing: it asks for the messages too. One that came back counts frames."""
    props = {"background": True}
    response = await client.post("/ag-ui", asked("t6", [user("go")], "up/echo:it went", state={"n": 1}, props=props))
    run_id, first = response.headers["x-run-id"], [frame.json() for frame in await response.all_events()]

    whole = await events_of(await client.get(f"/ag-ui/{run_id}?messages=true&protocolVersion=1.0"))
    rest = [
        [frame.json() for frame in await (await client.get(f"/ag-ui/{run_id}?starting_after={n}")).all_events()]
        for n in range(len(first))
    ]

    assert ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT"] == [event["type"] for event in whole[:3]]
    assert [("user", "go")] == [(said["role"], said["content"]) for said in whole[1]["messages"]]
    assert {"n": 1} == whole[2]["snapshot"]
    assert first == [event for event in whole if event["type"] != "MESSAGES_SNAPSHOT"]
    assert [first[n:] for n in range(len(first))] == rest


@requirement("wire.ag-ui")
async def test_a_thread_that_is_busy_refuses_unless_it_is_told_to_interrupt(client):
    """The same rules as for every session."""
    props = {"background": True}
    response = await client.post("/ag-ui", asked("t7", [user("one")], "up/hanging", props=props))
    first = response.headers["x-run-id"]
    await Native(client).shown(first, "so far")
    refused = await client.post("/ag-ui", asked("t7", [user("two")], "up/echo:never"))
    taken = await run(client, "t7", [user("two")], "up/echo:taken", props={"if_busy": "interrupt"})
    ended = await events_of(response)

    assert (409, "session_busy") == (refused.status, (await refused.json())["error"]["code"])
    assert {"type": "success"} == taken[-1]["outcome"]
    assert ("cancelled", "stopped_by_replaced") == (
        ended[-1]["outcome"]["type"],
        ended[-1]["metadata"]["holdfast"]["code"],
    )


@requirement("wire.ag-ui", "start.bad-input")
@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"threadId": ""}, "threadId"),
        ({"runId": "a\nb"}, "runId"),
        ({"messages": []}, "messages"),
        ({"messages": [user("")]}, "messages[0].content"),
        ({"messages": [{"id": "t", "role": "tool", "content": "x"}]}, "messages[0].toolCallId"),
        (
            {"messages": [user([{"type": "video", "source": {"type": "url", "value": "x"}}])]},
            "messages[0].content[0].type",
        ),
        ({"messages": [user({"x": 1})]}, "messages[0].content"),
        ({"messages": [{"id": "x", "role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"forwardedProps": {"model": 7}}, "model"),
    ],
)
async def test_bad_input_is_refused_in_words_and_asks_nobody(client, up, change, param):
    """Before anything is started: the client learns what to mend."""
    before = len(up.requests)
    response = await client.post("/ag-ui", asked("t8", [user("go")], "up/echo:never") | change)
    error = (await response.json())["error"]

    assert (400, param, before) == (response.status, error["param"], len(up.requests))
