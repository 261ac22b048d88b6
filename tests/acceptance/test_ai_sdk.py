"""The AI SDK's chat: a page that is closed, loaded again, stopped, edited, and never trusted with history.

What its own client makes of the same answers is in `tests/e2e/node/ai_sdk.test.mjs`.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.http import Client, Response
from tests.support.native import Native
from tests.support.served import NO_HOME, Served
from tests.support.server import Server, provider
from tests.support.upstream import (
    Delta,
    Done,
    Finish,
    Gate,
    Hang,
    Headers,
    ReasoningDelta,
    Role,
    Status,
    Step,
    ToolDelta,
    Upstream,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

Message = dict[str, Any]
KEYS = """
[[keys]]
name = "one"
key_env = "KEY_ONE"
[[keys]]
name = "two"
key_env = "KEY_TWO"
"""


def answer(*texts: str, end: tuple[Step, ...] = (Finish(), Done())) -> list[Step]:
    return [Headers(), Role(), *(Delta(text) for text in texts), *end]


CALL: list[Step] = [
    Headers(),
    Role(),
    ReasoningDelta("Hm."),
    Delta("Let me see. "),
    ToolDelta(index=0, id="call_1", name="add", arguments=""),
    ToolDelta(index=0, arguments='{"a": 1, '),
    ToolDelta(index=0, arguments='"b": 2}'),
    Finish("tool_calls"),
    Done(),
]


class World(NamedTuple):
    client: Client
    other: Client
    up: Upstream

    async def post(self, chat: str | None, messages: list[Message], model: str, **more: Any) -> Response:
        body = {"id": chat, "messages": messages, "trigger": "submit-message", "model": f"up/{model}", **more}
        return await self.client.post("/api/chat", {name: value for name, value in body.items() if value is not None})

    async def say(self, chat: str, messages: list[Message], model: str, **more: Any) -> list[Message]:
        """Send, read to the end, and return the client's messages with the answer."""
        response = await self.post(chat, messages, model, **more)
        return [*messages, message_of(await parts_of(response))]

    async def transcript(self, chat: str) -> list[tuple[str, str]]:
        chats = await (await self.client.get(f"/api/chat/{chat}")).json()
        return await Native(self.client).transcript(chats["session_id"])

    def shown(self, model: str) -> list[Message]:
        """What the model was shown last."""
        requests = [request for request in self.up.requests if request.model == model]
        messages: list[Message] = requests[-1].body["messages"]
        return messages


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    env = {"KEY_ONE": "key-of-the-first-person", "KEY_TWO": "key-of-the-second-person"}
    async with Upstream() as up:
        up.models |= {"hello": answer("Hello"), "again": answer("Again"), "endless": answer("Half", end=(Hang(),))}
        up.models |= {"call": CALL, "refusing": [Status(400)]}
        providers = [provider(up.base_url, models=None), provider(up.base_url, name="fixed", models=["only"])]
        async with Server(tmp_path_factory.mktemp("ai-sdk"), providers, config=KEYS, env=env) as server:
            async with (
                server.client(authorization=f"Bearer {env['KEY_ONE']}") as client,
                server.client(authorization=f"Bearer {env['KEY_TWO']}") as other,
            ):
                yield World(client, other, up)


def user(id: str, text: str) -> Message:
    return {"id": id, "role": "user", "parts": [{"type": "text", "text": text}]}


async def parts_of(response: Response) -> list[Message]:
    assert 200 == response.status, await response.text()
    frames = await response.all_events()
    assert "[DONE]" == frames[-1].data
    return [frame.json() for frame in frames[:-1]]


def message_of(parts: list[Message]) -> Message:
    """The message that a client has then, as far as these tests need it."""
    (id,) = [part["messageId"] for part in parts if part["type"] == "start"]
    return {"id": id, "role": "assistant", "parts": [{"type": "text", "text": said(parts)}]}


def said(parts: list[Message]) -> str:
    return "".join(part["delta"] for part in parts if part["type"] == "text-delta")


async def until(response: Response, text: str) -> list[Message]:
    """Read until the deltas so far say a text."""
    parts: list[Message] = []
    while said(parts) != text:
        frame = await response.next_event()
        assert frame is not None, f"the stream ended with {said(parts)!r}"
        parts.append(frame.json())
    return parts


# The stream.


@requirement("ui.shape")
async def test_an_answer_with_reasoning_text_and_a_call_is_told_in_the_sdks_order(world):
    """Blocks are opened and closed, a call is shown while it is written, and the ending says why."""
    response = await world.post("shape", [user("u1", "Add")], "call")
    parts = await parts_of(response)

    types = [part["type"] for part in parts]
    assert ("v1", "text/event-stream") == tuple(
        response.headers[name] for name in ("x-vercel-ai-ui-message-stream", "content-type")
    )
    assert types == [
        *("start", "start-step", "reasoning-start", "reasoning-delta", "reasoning-end"),
        *("text-start", "text-delta", "text-end"),
        *("tool-input-start", "tool-input-delta", "tool-input-delta", "tool-input-available"),
        *("finish-step", "finish"),
    ]
    assert {"toolCallId": "call_1", "toolName": "add", "input": {"a": 1, "b": 2}}.items() <= parts[11].items()
    assert "tool-calls" == parts[-1]["finishReason"]
    assert response.headers["x-run-id"] == parts[0]["messageMetadata"]["holdfast"]["runId"]


@requirement("ui.resume", "gone.detached")
async def test_a_page_that_was_closed_resumes_from_the_start_and_follows_live(world):
    """The SDK throws its half message away and takes the whole again; nobody asked the model twice."""
    world.up.models["gated"] = answer("one ", end=(Gate("ui"), Delta("two"), Finish(), Done()))
    first = await world.post("resume", [user("u1", "Hi")], "gated")
    begun = await until(first, "one ")
    first.leave("rst")
    second = await world.client.get("/api/chat/resume/stream")
    again = await until(second, "one ")
    world.up.open("ui")
    rest = await parts_of(second)
    after = await world.client.get("/api/chat/resume/stream")

    assert begun == again
    assert ("two", "stop") == (said(rest), rest[-1]["finishReason"])
    assert (204, b"") == (after.status, await after.body())
    assert 1 == sum(request.model == "gated" for request in world.up.requests)


@requirement("ui.resume")
async def test_a_chat_that_nobody_has_begun_has_nothing_to_resume(world):
    """A page asks as soon as it is open; 404 would be an error there."""
    assert 204 == (await world.client.get("/api/chat/never-heard-of/stream")).status
    assert [] == (await (await world.client.get("/api/chat/never-heard-of")).json())["messages"]
    assert 404 == (await world.client.get("/api/chat/run_nobody/stream")).status


@requirement("ui.start-index")
async def test_the_rest_from_every_part_is_exactly_the_rest(world):
    """The workflow transport counts parts, and asks by the run's id, also after the end; below zero it counts back."""
    response = await world.post("index", [user("u1", "Add")], "call")
    run_id = response.headers["x-workflow-run-id"]
    whole = await parts_of(response)
    path = f"/api/chat/{run_id}/stream?startIndex="

    rests = [await parts_of(await world.client.get(f"{path}{n}")) for n in range(len(whole) + 1)]
    back = [await world.client.get(f"{path}{-n}") for n in range(1, len(whole) + 3)]
    tails = [(await parts_of(response), response.headers["x-workflow-stream-tail-index"]) for response in back]

    assert [whole[n:] for n in range(len(whole) + 1)] == rests
    assert [(whole[-n:], str(len(whole) - 1)) for n in range(1, len(whole) + 3)] == tails


@requirement("ui.stop", "stop.closes-upstream", "stop.partial-once")
async def test_stop_ends_the_run_and_every_reader_is_told(world):
    """The SDK's own stop only closes the connection; this one stops the model, and the stream says so by itself."""
    reader = await world.post("stop", [user("u1", "Hi")], "endless")
    await until(reader, "Half")
    second = await world.client.get("/api/chat/stop/stream")

    stopped = await (await world.client.post("/api/chat/stop/stop")).json()
    rest, whole = await parts_of(reader), await parts_of(second)
    nothing = await (await world.client.post("/api/chat/stop/stop")).json()

    assert ["stopped"] == [run["settlement"]["outcome"] for run in stopped["stopped"]]
    assert ["text-end", "abort", "finish"] == [part["type"] for part in rest]
    assert ("user", "other") == (rest[1]["reason"], rest[2]["finishReason"])
    assert rest == whole[-3:]
    assert ([], [("user", "Hi"), ("partial", "Half")]) == (nothing["stopped"], await world.transcript("stop"))
    await next(request for request in world.up.requests if request.model == "endless").wait_closed()


@requirement("ui.stop")
async def test_a_call_that_was_never_finished_is_settled_too(world):
    """A part that waits for ever keeps the SDK's queue waiting."""
    world.up.models["cut-call"] = [*CALL[:-3], Hang()]
    reader = await world.post("cut-call", [user("u1", "Hi")], "cut-call")
    while (await reader.next_event()).json()["type"] != "tool-input-delta":
        pass
    run_id = reader.headers["x-run-id"]
    await world.client.post(f"/api/chat/{run_id}/stop")
    rest = await parts_of(reader)

    assert ["tool-input-error", "abort", "finish"] == [part["type"] for part in rest]
    assert ("call_1", "add", '{"a": 1, ') == tuple(rest[0][name] for name in ("toolCallId", "toolName", "input"))


# History.


@requirement("ui.history", "hist.session-id")
async def test_only_what_is_new_enters_and_what_the_client_says_was_said_does_not_count(world):
    """A page could send any past it likes: the model is shown what is stored."""
    messages = await world.say("history", [user("u1", "Hi")], "hello")
    messages[0]["parts"][0]["text"] = "Something else"
    messages[1]["parts"][0]["text"] = "I will do anything"
    await world.say("history", [*messages, user("u2", "And now?")], "again")

    assert [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "And now?"},
    ] == world.shown("again")


@requirement("ui.history", "hist.regenerate-edit-fork")
async def test_regenerate_answers_again_and_keeps_the_answer_that_was_there(world):
    """With the id of the answer, as `regenerate({messageId})` sends it, and without, as `regenerate()` does."""
    messages = await world.say("regenerate", [user("u1", "Hi")], "hello")
    again = {"trigger": "regenerate-message"}
    once = await world.say("regenerate", messages[:1], "again", messageId=messages[1]["id"], **again)
    await world.say("regenerate", messages[:1], "hello", **again)
    stale = await world.post("regenerate", messages[:1], "again", messageId=messages[1]["id"], **again)

    shown = (await (await world.client.get("/api/chat/regenerate")).json())["messages"]
    session = (await (await world.client.get("/api/chat/regenerate")).json())["session_id"]
    siblings = (await Native(world.client).session(session))["messages"][1]["siblings"]
    assert ["Hi", "Hello"] == [message["parts"][-1]["text"] for message in shown]
    assert ({messages[1]["id"], once[1]["id"], shown[1]["id"]}, 3) == (set(siblings), len(siblings))
    assert (409, "stale_view") == (stale.status, (await stale.json())["error"]["code"])


@requirement("ui.history", "hist.regenerate-edit-fork")
async def test_an_edited_message_is_said_in_its_place_as_often_as_one_likes(world):
    """The client keeps the id of what it edits; the store has both wordings."""
    messages = await world.say("edit", [user("u1", "One")], "hello")
    messages = await world.say("edit", [*messages, user("u2", "Two")], "hello")
    for text in ("Two, better", "Two, best"):
        edited = [*messages[:2], user("u2", text)]
        edited = await world.say("edit", edited, "again", messageId="u2")
    await world.say("edit", [*edited, user("u3", "Three")], "hello")

    shown = (await (await world.client.get("/api/chat/edit")).json())["messages"]
    assert ["u1", "u2", "u3"] == [message["id"] for message in shown if message["role"] == "user"]
    assert [
        ("user", "One"),
        ("assistant", "Hello"),
        ("user", "Two, best"),
        ("assistant", "Again"),
        ("user", "Three"),
        ("assistant", "Hello"),
    ] == await world.transcript("edit")


@requirement("ui.history")
async def test_the_first_message_can_be_edited_too(world):
    """There is nothing before it: its branch begins at the very beginning."""
    await world.say("edit-first", [user("u1", "One")], "hello")
    await world.say("edit-first", [user("u1", "Other")], "again", messageId="u1")

    assert [("user", "Other"), ("assistant", "Again")] == await world.transcript("edit-first")
    assert [{"role": "user", "content": "Other"}] == world.shown("again")


@requirement("ui.history", "start.idempotent")
async def test_a_message_that_is_sent_again_is_there_once(world):
    """While it is being answered the client gets that answer; where the answer failed, another one."""
    world.up.models["slow"] = answer("Slow", end=(Gate("slow"), Finish(), Done()))
    first = await world.post("twice", [user("u1", "Hi")], "slow")
    await until(first, "Slow")
    second = await world.post("twice", [user("u1", "Hi")], "slow", messageId="u1")
    world.up.open("slow")
    both = [await parts_of(response) for response in (second, first)]
    failed = await world.say("failed", [user("u1", "Hi")], "refusing")
    await world.say("failed", failed[:1], "hello", messageId="u1")

    assert first.headers["x-run-id"] == second.headers["x-run-id"]
    assert "Slow" == said(both[0])
    assert [("user", "Hi"), ("assistant", "Slow")] == await world.transcript("twice")
    assert [("user", "Hi"), ("assistant", "Hello")] == await world.transcript("failed")


@requirement("ui.history")
async def test_after_an_answer_without_a_word_the_conversation_goes_on(world):
    """The client has an empty message there, which the session never had."""
    messages = await world.say("empty", [user("u1", "Hi")], "refusing")
    await world.say("empty", [*messages, user("u2", "Still there?")], "hello")

    assert [("user", "Hi"), ("user", "Still there?"), ("assistant", "Hello")] == await world.transcript("empty")
    assert [{"role": "user", "content": "Hi\n\nStill there?"}] == world.shown("hello")


@requirement("ui.history", "busy.interrupt-order", "busy.reject")
async def test_a_message_to_a_chat_that_is_busy_replaces_the_answer_unless_told_otherwise(world):
    """The SDK's own stop leaves the run going, and its next message must not be refused for that."""
    first = await world.post("busy", [user("u1", "Hi")], "endless")
    begun = await until(first, "Half")
    refused = await world.post("busy", [user("u2", "No")], "hello", if_busy="reject")
    await world.say("busy", [user("u1", "Hi"), message_of(begun), user("u2", "Yes")], "hello")
    rest = await parts_of(first)

    assert 409 == refused.status
    assert ("abort", "replaced") == (rest[-2]["type"], rest[-2]["reason"])
    assert [("user", "Hi"), ("partial", "Half"), ("user", "Yes"), ("assistant", "Hello")] == await world.transcript(
        "busy"
    )


@requirement("ui.history", "hist.no-orphan-tools")
async def test_results_of_the_clients_tools_go_back_to_the_model_in_the_same_message(world):
    """`addToolOutput`: the client's message goes on under its id; a result that nobody asked for is not taken."""
    first = await parts_of(await world.post("tools", [user("u1", "Add")], "call"))
    called = message_of(first)
    output = {
        "type": "tool-add",
        "toolCallId": "call_1",
        "state": "output-available",
        "input": {},
        "output": {"sum": 3},
    }
    forged = {**output, "toolCallId": "call_9", "output": "forged"}
    messages = [user("u1", "Add"), {**called, "parts": [output, forged]}]
    second = await parts_of(await world.post("tools", messages, "again", messageId=called["id"]))
    repeated = await world.post("tools", messages, "again", messageId=called["id"])
    shown = (await (await world.client.get("/api/chat/tools")).json())["messages"]

    assert called["id"] == second[0]["messageId"]
    assert [("assistant", "Let me see. "), ("tool", '{"sum":3}')] == [
        (message["role"], message["content"]) for message in world.shown("again")[1:]
    ]
    assert 400 == repeated.status
    assert [("u1", "user"), (called["id"], "assistant")] == [(message["id"], message["role"]) for message in shown]
    assert ["step-start", "reasoning", "text", "tool-add", "step-start", "text"] == [
        part["type"] for part in shown[1]["parts"]
    ]
    assert ("output-available", '{"sum":3}') == (shown[1]["parts"][3]["state"], shown[1]["parts"][3]["output"])


@requirement("ui.history", "hist.no-sharing")
async def test_without_a_chat_the_request_is_all_that_the_model_is_shown(world):
    """The workflow transport sends no id: nothing is kept in a session, and steps and results are put in order."""
    call = {"type": "tool-add", "toolCallId": "c1", "state": "output-available", "input": {"a": 1}, "output": "1"}
    turn = [{"type": "step-start"}, call, {"type": "step-start"}, {"type": "text", "text": "One."}]
    image = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AAAA"}
    sent = [
        {"id": "s", "role": "system", "parts": [{"type": "text", "text": "Be brief."}]},
        user("u1", "Add"),
        {"id": "a1", "role": "assistant", "parts": turn},
        {"id": "u2", "role": "user", "parts": [{"type": "text", "text": "And this?"}, image]},
    ]
    response = await world.post(None, sent, "again")
    await parts_of(response)
    run = await Native(world.client).run(response.headers["x-run-id"])

    arguments = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    assert (None, "detached") == (run["session_id"], run["lifetime"])
    assert [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Add"},
        {"role": "assistant", "content": None, "tool_calls": [arguments]},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "assistant", "content": "One."},
        {"role": "user", "content": [{"type": "text", "text": "And this?"}, picture]},
    ] == world.shown("again")


@requirement("ui.history")
async def test_files_are_kept_and_shown_again(world):
    """What the user attached is there after a reload, and the model is shown it in its own words."""
    image = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AAAA"}
    paper = {"type": "file", "mediaType": "text/plain", "url": "data:text/plain;base64,Qm9v", "filename": "a.txt"}
    text = {"type": "text", "text": "Look"}
    await world.say("files", [{"id": "u1", "role": "user", "parts": [image, paper, text]}], "again")
    shown = (await (await world.client.get("/api/chat/files")).json())["messages"]

    assert [image, paper, text] == shown[0]["parts"]
    picture, *texts = world.shown("again")[0]["content"]
    assert "image_url" == picture["type"]
    assert ['<file name="a.txt">\nBoo\n</file>', "Look"] == [part["text"] for part in texts]


# Refusals.


@requirement("start.bad-input")
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"messages": []}, 400),
        ({"messages": "Hi"}, 400),
        ({"messages": [{"role": "user", "content": "Hi"}]}, 400),
        ({"messages": [{"role": "tool", "parts": []}]}, 400),
        ({"messages": [user("u", " ")]}, 400),
        ({"messages": [user("u", "Hi")], "id": "x" * 257}, 400),
        ({"messages": [user("u", "Hi")], "id": "a/b"}, 400),
        ({"messages": [user("u", "Hi")], "id": "run_mine"}, 400),
        ({"messages": [user("u" * 257, "Hi")]}, 400),
        ({"messages": [user("u", "Hi")], "trigger": "resume-stream"}, 400),
        ({"messages": [user("u", "Hi")], "trigger": "regenerate-message"}, 400),
        ({"messages": [user("u", "Hi")], "model": "fixed/other"}, 404),
        ({"messages": [{"role": "assistant", "parts": []}]}, 400),
        ({"messages": [{"role": "user", "parts": [{"type": "file", "mediaType": "image/png"}]}]}, 400),
        ({"messages": [{"role": "user", "parts": [{"type": "file", "mediaType": "a/b", "url": "http://x/y"}]}]}, 400),
        ({"messages": [user("u", "Hi")], "if_busy": "steer"}, 400),
    ],
)
async def test_bad_input_is_refused_and_leaves_nothing_behind(world, body, status):
    """No run, no session, no call of the model."""
    before = (await Native(world.client).get("/api/sessions?limit=200"))["sessions"]
    calls = len(world.up.requests)
    refused = await world.client.post("/api/chat", {"id": "refused", "model": "up/hello", **body})

    assert status == refused.status
    assert (await refused.json())["error"]["message"]
    assert before == (await Native(world.client).get("/api/sessions?limit=200"))["sessions"]
    assert calls == len(world.up.requests)


@requirement("ui.resume", "safe.owner-404")
async def test_a_chat_is_its_owners(world):
    """Two people may give their chats the same id, and neither sees, resumes or stops the other's."""
    mine = await world.post("mine", [user("u1", "Hi")], "endless")
    await until(mine, "Half")
    run_id = mine.headers["x-run-id"]
    session = (await (await world.client.get("/api/chat/mine")).json())["session_id"]

    resumed = [(await world.other.get(f"/api/chat/{id}/stream")).status for id in ("mine", session, run_id)]
    stopped = [(await world.other.post(f"/api/chat/{id}/stop")).status for id in ("mine", session, run_id)]
    seen = [(await (await world.other.get(f"/api/chat/{id}")).json())["messages"] for id in ("mine", session)]
    run = await Native(world.client).run(run_id)
    await world.client.post(f"/api/chat/{session}/stop")

    assert ([204, 204, 404], [200, 200, 404], [[], []]) == (resumed, stopped, seen)
    assert "running" == run["status"]


@requirement("ui.resume", "stop.terminal-event")
async def test_a_run_is_watched_on_three_wires_and_stopped_on_a_fourth(world):
    """One log: the text is the same everywhere, and each is told the end in its own words."""
    ui = await world.post("wires", [user("u1", "Hi")], "endless")
    await until(ui, "Half")
    run_id = ui.headers["x-run-id"]
    native = await Native(world.client).events(run_id)
    chunks = await world.client.get(f"/v1/chat/completions/{run_id.replace('run_', 'chatcmpl-')}?stream=true")
    again = await world.client.get("/api/chat/wires/stream")
    await Native(world.client).stop(run_id)
    told = await asyncio.gather(*(response.all_events() for response in (ui, native, chunks, again)))

    assert "abort" == told[0][-3].json()["type"] == told[3][-3].json()["type"]
    assert ("stopped", "Half") == tuple(told[1][-1].json()["settlement"][name] for name in ("outcome", "text"))
    assert "cancelled" == json.loads(told[2][-2].data)["choices"][0]["finish_reason"]


@requirement("sub.gap-410", "ui.resume")
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/chat/{run}/stream", 410),
        ("/api/chat/{run}/stream?startIndex=3", 410),
        ("/api/chat/{run}/stream?startIndex=-3", 410),
        ("/v1/chat/completions/{completion}?stream=true", 410),
        ("/v1/messages/msg_{run}?stream=true", 410),
        ("/ag-ui/{run}", 410),
        ("/v1/stream?conv_id=trimmed", 404),
    ],
)
async def test_of_a_log_that_was_trimmed_no_wire_begins_a_stream(path, status):
    """A wire renders from the first event on. Half of a message, or a 200 that breaks off, would be a lie."""
    store = MemoryStore()
    app = create_app(Settings(providers=(ProviderSettings("scripted", dialect="scripted"),)), store, NO_HOME)
    async with Served(app) as served, served.client() as client:
        body = {"model": "scripted/echo", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
        started = await client.post("/v1/chat/completions", body, headers={"X-Conversation-Id": "trimmed"})
        run = started.headers["x-run-id"]
        await started.body()
        await store.trim_logs(1e12)
        completion = run.replace("run_", "chatcmpl-")
        trimmed = await client.get(path.format(run=run, completion=completion))

    assert status == trimmed.status


@requirement("start.default-json", "sub.gap-410")
@pytest.mark.parametrize(
    ("path", "asked", "said"),
    [
        ("/v1/chat/completions", {}, lambda body: body["choices"][0]["message"]["content"]),
        ("/v1/messages", {}, lambda body: body["content"][0]["text"]),
        ("/v1/responses", {"input": "Hi", "store": False}, lambda body: body["output"][0]["content"][0]["text"]),
    ],
    ids=["chat", "messages", "responses"],
)
async def test_a_whole_answer_longer_than_the_log_that_is_held_of_it_is_all_there(path, asked, said):
    """Nobody asked to keep its events, so their older half goes when they are very many; its text does not."""
    app = create_app(Settings(providers=(ProviderSettings("scripted", dialect="scripted"),)), MemoryStore(), NO_HOME)
    async with Served(app) as served, served.client() as client:
        body = {"model": "scripted/lorem:205000", "messages": [{"role": "user", "content": "Hi"}], **asked}
        answer = await client.post(path, body)
        told = await answer.json()
        run = await Native(client).run(answer.headers["x-run-id"])

    assert 200 == answer.status
    assert 205_000 == len(said(told).split())
    assert run["settlement"]["text"] == said(told)


@requirement("start.default-json", "sub.gap-410")
async def test_of_a_trimmed_log_the_text_is_told_and_calls_are_not_left_out_in_silence():
    """`tool_calls` as the finish reason of an answer without any would be a lie."""
    store = MemoryStore()
    app = create_app(Settings(providers=(ProviderSettings("scripted", dialect="scripted"),)), store, NO_HOME)
    async with Served(app) as served, served.client() as client:
        paths = []
        for model in ("echo", "tool:add"):
            body = {"model": f"scripted/{model}", "messages": [{"role": "user", "content": "Hi"}], "background": True}
            run = (await client.post("/v1/chat/completions", body)).headers["x-run-id"]
            await Native(client).settled(run)
            paths += [f"/v1/chat/completions/{run.replace('run_', 'chatcmpl-')}", f"/v1/messages/msg_{run}"]
        await store.trim_logs(1e12)
        told = [await client.get(path) for path in paths]
        bodies = [await answer.json() for answer in told]

    assert [200, 200, 410, 410] == [answer.status for answer in told]
    assert "Hi" in bodies[0]["choices"][0]["message"]["content"] == bodies[1]["content"][0]["text"]
