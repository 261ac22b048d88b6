"""What a conversation keeps, what of it the model is shown, and to whom it belongs."""

import asyncio
import hashlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from holdfast.history import Message, Session
from holdfast.server.app import create_app
from holdfast.server.config.settings import Settings
from holdfast.store import RunRecord
from holdfast.store.memory import MemoryStore
from tests.acceptance.surfaces import World, of_chunks
from tests.requirements import requirement
from tests.support.http import Response
from tests.support.native import Native
from tests.support.served import NO_HOME, Served
from tests.support.server import UP_KEY, Server, provider
from tests.support.upstream import (
    TEXT,
    Delta,
    Done,
    Finish,
    Gate,
    Hang,
    Headers,
    Role,
    ToolDelta,
    Upstream,
    UsageChunk,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALICE, BOB = "hf-alice-5d41402abc4b2a76b9719d", "hf-bob-7d793037a0760186574b0282"
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up():
    async with Upstream() as up:
        up.models |= {
            "two-calls": [
                Headers(),
                Role(),
                Delta("Let me see."),
                ToolDelta(index=0, id="call_1", name="add", arguments='{"a": 1}'),
                ToolDelta(index=1, id="call_2", name="add", arguments='{"a": 2}'),
                Finish("tool_calls"),
                Done(),
            ],
            "cut-call": [
                Headers(),
                Role(),
                ToolDelta(id="call_1", name="add", arguments='{"a": 1, '),
                Finish("length"),
                Done(),
            ],
            "text-and-cut-call": [
                Headers(),
                Role(),
                Delta("I shall add."),
                ToolDelta(id="call_1", name="add", arguments='{"a": 1, '),
                Finish("length"),
                Done(),
            ],
            "hanging-call": [Headers(), Role(), ToolDelta(id="call_1", name="add", arguments="{"), Hang()],
            "hanging": [Headers(), Role(), Delta("so far"), Hang()],
        }
        yield up


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(up, tmp_path_factory):
    """One for all, with two owners, and one upstream twice: as it is, and as one that insists on taking turns."""
    keys = [
        f'[[keys]]\nname = "{name}"\nsha256 = "{hashlib.sha256(key.encode()).hexdigest()}"'
        for name, key in (("alice", ALICE), ("bob", BOB))
    ]
    providers = [
        provider(up.base_url, models=None),
        provider(up.base_url, name="strict", models=None, alternate=True),
    ]
    config = "\n".join(["retry_patience = 0.05", *keys])
    async with Server(tmp_path_factory.mktemp("history"), providers, config=config) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def world(up, server):
    async with server.client(authorization=f"Bearer {ALICE}") as client:
        yield World(up, server, client)


@pytest_asyncio.fixture(loop_scope="module")
async def api(world):
    return Native(world.client)


@pytest_asyncio.fixture(loop_scope="module")
async def bob(up, server):
    async with server.client(authorization=f"Bearer {BOB}") as client:
        yield World(up, server, client)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def result(content: str, call: str = "call_1") -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": call}


def shown_to(world: World, model: str) -> list[dict[str, Any]]:
    """The messages of the last request for a model."""
    messages: list[dict[str, Any]] = [r for r in world.up.requests if r.model == model][-1].body["messages"]
    return messages


async def say(api: Native, session_id: str, input: Any, model: str, **more: Any) -> dict[str, Any]:
    """Take a turn to its end; the settlement."""
    return await api.settled(await api.start(session_id, input, f"up/{model}", **more))


async def chat(world: World, model: str, *messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    body = {"model": f"up/{model}", "messages": list(messages), **more}
    response = await world.call("POST", "/v1/chat/completions", body)
    told: dict[str, Any] = await response.json()
    return told


async def error_of(response: Response) -> tuple[int, str, str | None]:
    error = (await response.json())["error"]
    return response.status, error["code"], error["param"]


async def ids(api: Native, session_id: str) -> list[str]:
    return [message["id"] for message in (await api.session(session_id))["messages"]]


async def conversation(api: Native, *turns: tuple[str, str], **fields: Any) -> str:
    session_id = await api.new_session(**fields)
    for said, answered in turns:
        await say(api, session_id, said, f"echo:{answered}")
    return session_id


# Nothing of ours.


@requirement("hist.no-internal-fields")
async def test_a_request_reaches_the_upstream_with_what_is_its_own_and_nothing_of_ours(world):
    """A strict upstream refuses a field that it does not know, and a curious one learns what it should not."""
    theirs = {"temperature": 0.5, "seed": 7, "stop": ["x"], "response_format": {"type": "text"}, "x_unknown": {"a": 1}}
    ours = {"session_id": "mine alone", "background": False, "if_busy": "queue", "stream": False}
    messages = [{"role": "system", "content": "Be brief."}, user("hello")]

    await chat(world, "echo:fields", *messages, **theirs, **ours)
    request = world.request_for("echo:fields")

    sent = {"model": "echo:fields", "messages": messages, "stream": True, "stream_options": {"include_usage": True}}
    assert {**theirs, **sent} == request.body
    assert f"Bearer {UP_KEY}" == request.headers["authorization"]
    standard = {"host", "user-agent", "accept", "accept-encoding", "content-type", "content-length", "authorization"}
    assert standard >= set(request.headers)


@requirement("hist.no-internal-fields")
async def test_headers_of_the_client_stay_with_us(world):
    """Its key opens this server; its session, its cookies and its address are no business of the upstream's."""
    body = {"model": "up/echo:headers", "messages": [user("hello")]}
    headers = {
        "X_Session_Id": "secret name",
        "Idempotency_Key": "secret key",
        "Cookie": "secret=1",
        "X_Forwarded_For": "10.9.8.7",
        "User_Agent": "secret agent",
    }

    await (await world.call("POST", "/v1/chat/completions", body, **headers)).body()
    sent = repr(world.request_for("echo:headers").headers.pairs) + world.request_for("echo:headers").raw.decode()

    assert not [word for word in ("secret", "10.9.8.7", ALICE) if word in sent]


@requirement("hist.no-internal-fields")
async def test_a_stored_conversation_is_shown_as_plain_messages(world, api):
    """Ids, outcomes, reasoning, models and times of ours are for people, not for the model."""
    session_id = await api.new_session(system="You are a wave.", params={"temperature": 0.1, "top_p": 0.2})
    await say(api, session_id, "one", "end:think")
    await say(api, session_id, "two", "end:length")
    await say(api, session_id, "three", "end:in-band-error")
    await say(api, session_id, [{"type": "text", "text": "four"}], "echo:plain", params={"temperature": 0.9})

    request = world.request_for("echo:plain")

    assert [
        {"role": "system", "content": "You are a wave."},
        user("one"),
        assistant(TEXT),
        user("two"),
        assistant(TEXT),
        user("three"),
        assistant(TEXT),
        user([{"type": "text", "text": "four"}]),
    ] == request.body["messages"]
    assert {"model", "messages", "stream", "stream_options", "temperature", "top_p"} == set(request.body)
    assert (0.9, 0.2) == (request.body["temperature"], request.body["top_p"])


@requirement("hist.no-internal-fields")
async def test_params_cannot_take_the_place_of_what_is_ours_to_say(world, api):
    """A run is asked of the model, with the messages and in the way that its record says."""
    session_id = await api.new_session()
    params = {"model": "echo:another", "messages": [user("forged")], "stream": False, "temperature": 1}

    settlement = await say(api, session_id, "hello", "echo:params", params=params)
    body = world.request_for("echo:params").body

    assert "completed" == settlement["outcome"]
    assert ("echo:params", [user("hello")], True, 1) == (
        body["model"],
        body["messages"],
        body["stream"],
        body["temperature"],
    )


# Tools.


@requirement("hist.no-orphan-tools")
async def test_a_call_and_its_result_are_shown_together(world):
    """The whole round: the call is stored, the result comes in the next request, and the model sees both."""
    called = await chat(world, "end:tool-call", user("1 + 2?"), session_id="tools", tools=TOOLS)
    message = called["choices"][0]["message"]
    await chat(world, "echo:three", user("1 + 2?"), message, result("3"), session_id="tools", tools=TOOLS)
    await chat(world, "echo:later", assistant("three"), user("thanks"), session_id="tools")

    both = [user("1 + 2?"), assistant(None, tool_calls=[CALL]), result("3")]
    assert both == shown_to(world, "echo:three")
    assert [*both, assistant("three"), user("thanks")] == shown_to(world, "echo:later")


@requirement("hist.no-orphan-tools")
async def test_a_call_that_nobody_answered_is_not_shown(world):
    """Strict providers refuse the whole conversation for one call without a result."""
    await chat(world, "end:tool-call", user("1 + 2?"), session_id="unanswered")
    await chat(world, "two-calls", user("and now?"), session_id="unanswered")

    await chat(world, "echo:moved on", user("never mind"), session_id="unanswered")

    assert [user("1 + 2?\n\nand now?"), assistant("Let me see."), user("never mind")] == shown_to(
        world, "echo:moved on"
    )


@requirement("hist.no-orphan-tools")
async def test_of_two_calls_only_the_answered_one_is_shown(world):
    """Strict providers would refuse the other one."""
    called = await chat(world, "two-calls", user("go"), session_id="half")
    message = called["choices"][0]["message"]

    await chat(world, "echo:half", user("go"), message, result("2", "call_2"), user("so?"), session_id="half")

    call = {"id": "call_2", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
    assert [
        user("go"),
        assistant("Let me see.", tool_calls=[call]),
        result("2", "call_2"),
        user("so?"),
    ] == shown_to(world, "echo:half")


@requirement("hist.no-orphan-tools")
@pytest.mark.parametrize(("model", "text"), [("cut-call", None), ("text-and-cut-call", "I shall add.")])
async def test_a_call_that_was_cut_off_is_no_call(world, api, model, text):
    """Half of its arguments is not JSON: to show it again would be refused, to run it worse."""
    session_id = await api.new_session()
    settlement = await say(api, session_id, "go", model)
    await say(api, session_id, "again", f"echo:after {model}")

    turns = [user("go\n\nagain")] if text is None else [user("go"), assistant(text), user("again")]
    assert "truncated" == settlement["outcome"]
    assert turns == shown_to(world, f"echo:after {model}")


@requirement("hist.no-orphan-tools")
async def test_a_call_that_was_stopped_while_it_was_written_is_no_call(world, api):
    """The same after a stop: nothing was visible, so nothing is left of the turn but the user's message."""
    session_id = await api.new_session()
    run_id = await api.start(session_id, "go", "up/hanging-call")
    events = await api.events(run_id)
    while (await events.next_event()).event != "tool.delta":
        pass
    stopped = await api.stop(run_id)
    await say(api, session_id, "again", "echo:after a stopped call")

    assert "stopped" == stopped["settlement"]["outcome"]
    assert [user("go\n\nagain")] == shown_to(world, "echo:after a stopped call")


@requirement("hist.no-orphan-tools")
async def test_a_result_that_comes_after_another_message_is_shown_behind_its_call(world):
    """Calls and results are matched by their id. Where a client puts the result is its own matter."""
    called = await chat(world, "two-calls", user("go"), session_id="late")
    message = called["choices"][0]["message"]

    said = [user("and?"), result("2", "call_2"), result("1", "call_1")]
    await chat(world, "echo:late", user("go"), message, *said, session_id="late")

    roles = [(shown["role"], shown["content"]) for shown in shown_to(world, "echo:late")]
    assert [("user", "go"), ("assistant", "Let me see."), ("tool", "2"), ("tool", "1"), ("user", "and?")] == roles


@requirement("wire.orphan-result", "hist.no-orphan-tools")
@pytest.mark.parametrize(
    "results", [[result("?", "call_9")], [result("1"), result("again")]], ids=["never called", "answered twice"]
)
async def test_a_result_for_which_no_call_waits_is_refused_in_a_session(world, api, results):
    """It would be left out in silence. Nothing is stored, so the same request without it works."""
    name = f"orphan {len(results)}"
    called = await chat(world, "end:tool-call", user("1 + 2?"), session_id=name)
    said = [user("1 + 2?"), called["choices"][0]["message"]]
    body = {"model": "up/echo:never", "messages": [*said, *results, user("so?")], "session_id": name}
    refused = await world.call("POST", "/v1/chat/completions", body)
    await chat(world, f"echo:{name}", *said, result("3"), user("so?"), session_id=name)

    assert (400, "invalid_request", "messages") == await error_of(refused)
    roles = [shown["role"] for shown in shown_to(world, f"echo:{name}")]
    assert ["user", "assistant", "tool", "user"] == roles
    assert [] == [request for request in world.up.requests if request.model == "echo:never"]


@requirement("hist.no-orphan-tools")
async def test_a_result_without_any_call_in_the_session_is_refused(world, api):
    """There would be nothing new to show the model. Nothing is stored either, not even the session's name."""
    sessions = (await api.get("/api/sessions"))["sessions"]

    response = await world.call(
        "POST",
        "/v1/chat/completions",
        {"model": "up/echo:nothing", "messages": [result("3")], "session_id": "only a result"},
    )

    assert (400, "messages") == (response.status, (await response.json())["error"]["param"])
    assert [] == [request for request in world.up.requests if request.model == "echo:nothing"]
    assert sessions == (await api.get("/api/sessions"))["sessions"]


# Turns.


@requirement("hist.alternation")
async def test_neighbours_of_one_role_are_shown_as_one_message_to_every_upstream(world, api):
    """A turn that failed without a word leaves two user messages in a row; many chat templates refuse those."""
    session_id = await api.new_session(system="Be brief.")
    for said, model in (("one", "end:500"), ("two", "end:401"), ("three", "hanging")):
        run_id = await api.start(session_id, said, f"strict/{model}")
        if model == "hanging":
            (await api.shown(run_id, "so far")).leave()
            await api.stop(run_id)
        await api.settled(run_id)
    parts = [{"type": "text", "text": "five"}]
    for said, model in (("four", "end:404"), (parts, "echo:strict"), ("six", "echo:loose")):
        provider_name = "up" if model == "echo:loose" else "strict"
        await api.settled(await api.start(session_id, said, f"{provider_name}/{model}"))

    strict, loose = shown_to(world, "echo:strict"), shown_to(world, "echo:loose")

    assert [
        {"role": "system", "content": "Be brief."},
        user("one\n\ntwo\n\nthree"),
        assistant("so far"),
        user([{"type": "text", "text": "four"}, *parts]),
    ] == strict
    assert ["system", "user", "assistant", "user", "assistant", "user"] == [message["role"] for message in loose]


@requirement("hist.alternation")
async def test_calls_and_results_stay_apart_where_turns_are_joined(world):
    """Two results in a row belong to two calls: joined, neither would have its call."""
    called = await chat(world, "two-calls", user("go"), session_id="strict tools")
    message = called["choices"][0]["message"]
    body = {
        "model": "strict/echo:strict tools",
        "messages": [user("go"), message, result("1"), result("2", "call_2"), user("a"), user("b")],
        "session_id": "strict tools",
    }
    await (await world.call("POST", "/v1/chat/completions", body)).body()

    roles = [message["role"] for message in shown_to(world, "echo:strict tools")]
    assert ["user", "assistant", "tool", "tool", "user"] == roles
    assert "a\n\nb" == shown_to(world, "echo:strict tools")[-1]["content"]


# Another answer, another question, another session.


@requirement("hist.regenerate-edit-fork")
@pytest.mark.parametrize("named", ["the answer", "the question"])
async def test_a_new_answer_sees_what_the_old_one_saw_and_both_are_kept(world, api, named):
    """The model must not be shown the answer that was not good enough, nor the question twice."""
    session_id = await conversation(api, ("one", "1"), ("two", "2"))
    before = await ids(api, session_id)
    message_id = before[-1] if named == "the answer" else before[-2]
    path, model = f"/api/sessions/{session_id}/regenerate", f"echo:again by {named}"

    response = await world.call("POST", path, {"message_id": message_id, "model": f"up/{model}"})
    run = await response.json()
    await api.settled(run["id"])
    messages = (await api.session(session_id))["messages"]

    assert (202, f"/api/runs/{run['id']}") == (response.status, response.headers["location"])
    assert [user("one"), assistant("1"), user("two")] == shown_to(world, model)
    assert [*before[:3], run["message_id"]] == [message["id"] for message in messages]
    assert [before[3], run["message_id"]] == messages[-1]["siblings"]


@requirement("hist.regenerate-edit-fork")
async def test_an_edited_question_starts_a_branch_and_the_old_one_can_be_shown_again(world, api):
    """Nothing is overwritten: whoever edits may come back."""
    session_id = await conversation(api, ("one", "1"), ("two", "2"), ("three", "3"))
    before = await ids(api, session_id)
    body = {"message_id": before[2], "input": "TWO", "model": "up/echo:edited"}

    run = await (await world.call("POST", f"/api/sessions/{session_id}/edit", body)).json()
    await api.settled(run["id"])
    edited = await api.transcript(session_id)
    switched = await world.call("PATCH", f"/api/sessions/{session_id}", {"head_id": before[3]})
    restored = await ids(api, session_id)

    assert [user("one"), assistant("1"), user("TWO")] == shown_to(world, "echo:edited")
    assert [("user", "one"), ("assistant", "1"), ("user", "TWO"), ("assistant", "edited")] == edited
    assert (200, before) == (switched.status, restored)


@requirement("hist.regenerate-edit-fork")
async def test_the_first_question_can_be_edited_and_an_answer_in_the_middle_replaced(world, api):
    """The two ends of a branch: there is nothing before the one, and something after the other."""
    session_id = await conversation(api, ("one", "1"), ("two", "2"), system="Be brief.")
    before = await ids(api, session_id)
    sessions = f"/api/sessions/{session_id}"

    middle = await (
        await world.call("POST", f"{sessions}/regenerate", {"message_id": before[1], "model": "up/echo:uno"})
    ).json()
    await api.settled(middle["id"])
    after_middle = await api.transcript(session_id)
    body = {"message_id": before[0], "input": "ONE", "model": "up/echo:first"}
    first = await (await world.call("POST", f"{sessions}/edit", body)).json()
    await api.settled(first["id"])

    system = {"role": "system", "content": "Be brief."}
    assert [system, user("one")] == shown_to(world, "echo:uno")
    assert [("user", "one"), ("assistant", "uno")] == after_middle
    assert [system, user("ONE")] == shown_to(world, "echo:first")
    assert [("user", "ONE"), ("assistant", "first")] == await api.transcript(session_id)


@requirement("hist.regenerate-edit-fork")
async def test_a_fork_is_a_session_of_its_own_up_to_a_message(world, api):
    """What is said in one of them is not heard in the other."""
    session_id = await conversation(api, ("one", "1"), ("two", "2"), system="Be brief.")
    before = await ids(api, session_id)

    response = await world.call("POST", f"/api/sessions/{session_id}/fork", {"message_id": before[1]})
    fork = await response.json()
    await say(api, fork["id"], "other", "echo:forked")
    copied = await ids(api, fork["id"])

    assert (201, f"/api/sessions/{fork['id']}") == (response.status, response.headers["location"])
    assert [{"role": "system", "content": "Be brief."}, user("one"), assistant("1"), user("other")] == shown_to(
        world, "echo:forked"
    )
    assert [("user", "one"), ("assistant", "1"), ("user", "other"), ("assistant", "forked")] == await api.transcript(
        fork["id"]
    )
    assert before == await ids(api, session_id)
    assert not set(copied) & set(before)


@requirement("hist.regenerate-edit-fork")
async def test_a_fork_outlives_the_session_that_it_was_made_from(world, api):
    """It is a copy, not a view."""
    session_id = await conversation(api, ("one", "1"))
    last = (await ids(api, session_id))[-1]
    fork = await (await world.call("POST", f"/api/sessions/{session_id}/fork", {"message_id": last})).json()

    deleted = await world.call("DELETE", f"/api/sessions/{session_id}")
    await say(api, fork["id"], "still there?", "echo:yes")

    assert 204 == deleted.status
    assert [user("one"), assistant("1"), user("still there?")] == shown_to(world, "echo:yes")


@requirement("hist.regenerate-edit-fork")
@pytest.mark.parametrize("verb", ["regenerate", "edit"])
async def test_a_stale_view_is_refused_and_changes_nothing(world, api, verb):
    """A tab that has not seen the other tab's turn would cut it off."""
    session_id = await conversation(api, ("one", "1"))
    said, answered = seen = await ids(api, session_id)
    await say(api, session_id, "from the other tab", "echo:2")
    body = {"message_id": said, "last_message_id": answered, "model": "up/echo:stale"}
    body |= {"input": "ONE"} if verb == "edit" else {}
    before = await api.session(session_id)

    response = await world.call("POST", f"/api/sessions/{session_id}/{verb}", body)
    fresh = await world.call(
        "POST",
        f"/api/sessions/{session_id}/{verb}",
        body | {"last_message_id": before["head_id"], "model": "up/echo:x"},
    )
    await api.settled((await fresh.json())["id"])

    assert (409, "stale_view") == (response.status, (await response.json())["error"]["code"])
    assert "false" == response.headers["x-should-retry"]
    assert seen == [message["id"] for message in before["messages"][:2]]
    assert [] == [request for request in world.up.requests if request.model == "echo:stale"]
    assert 202 == fresh.status


@requirement("hist.regenerate-edit-fork")
async def test_a_message_of_another_branch_is_a_stale_view_and_an_unknown_one_is_not_found(world, api):
    """The tab still shows what another tab has replaced; the message exists, the view does not."""
    session_id = await conversation(api, ("one", "1"))
    other = (await ids(api, await conversation(api, ("else", "2"))))[0]
    _, answered = await ids(api, session_id)
    sessions = f"/api/sessions/{session_id}"
    run = await (
        await world.call("POST", f"{sessions}/regenerate", {"message_id": answered, "model": "up/echo:new"})
    ).json()
    await api.settled(run["id"])
    edit = {"input": "x", "model": "up/echo:never"}

    replaced = await world.call("POST", f"{sessions}/regenerate", {"message_id": answered})
    unknown = await world.call("POST", f"{sessions}/edit", {"message_id": "msg_none", **edit})
    foreign = await world.call("POST", f"{sessions}/edit", {"message_id": other, **edit})
    no_question = await world.call("POST", f"{sessions}/edit", {"message_id": run["message_id"], **edit})
    no_fork = await world.call("POST", f"{sessions}/fork", {"message_id": other})

    assert (409, "stale_view") == (replaced.status, (await replaced.json())["error"]["code"])
    assert (404, "message_not_found") == (unknown.status, (await unknown.json())["error"]["code"])
    assert (404, "message_not_found") == (foreign.status, (await foreign.json())["error"]["code"])
    assert (400, "message_id") == (no_question.status, (await no_question.json())["error"]["param"])
    assert (404, "message_not_found") == (no_fork.status, (await no_fork.json())["error"]["code"])
    assert [("user", "one"), ("assistant", "new")] == await api.transcript(session_id)


@requirement("hist.regenerate-edit-fork")
async def test_of_many_new_answers_asked_for_at_once_one_is_given(world, api):
    """A double click, or two tabs: the second is told that it is late."""
    session_id = await conversation(api, ("one", "1"))
    _, answered = await ids(api, session_id)
    body = {"message_id": answered, "last_message_id": answered, "model": "up/echo:once more"}

    responses = await asyncio.gather(
        *(world.call("POST", f"/api/sessions/{session_id}/regenerate", body) for _ in range(6))
    )
    started = [await response.json() for response in responses if response.status == 202]
    await api.settled(started[0]["id"])
    (last,) = [m for m in (await api.session(session_id))["messages"] if m["role"] == "assistant"]

    assert [202, *[409] * 5] == sorted(response.status for response in responses)
    assert [answered, started[0]["message_id"]] == last["siblings"]
    assert 1 == sum(request.model == "echo:once more" for request in world.up.requests)


@requirement("hist.regenerate-edit-fork")
async def test_an_edit_while_the_model_answers_is_refused_or_interrupts(world, api):
    """With `interrupt` the partial is saved first, on the branch that was left."""
    session_id = await api.new_session()
    run_id = await api.start(session_id, "one", "up/hanging")
    reader = await api.shown(run_id, "so far")
    (said,) = await ids(api, session_id)
    body = {"message_id": said, "input": "ONE", "model": "up/echo:interrupting"}

    refused = await world.call("POST", f"/api/sessions/{session_id}/edit", body)
    taken = await world.call("POST", f"/api/sessions/{session_id}/edit", {**body, "if_busy": "interrupt"})
    await api.settled((await taken.json())["id"])
    ended = (await reader.all_events())[-1].json()["settlement"]
    switched = await world.call("PATCH", f"/api/sessions/{session_id}", {"head_id": said})

    assert (409, "session_busy", run_id) == (
        refused.status,
        (await refused.json())["error"]["code"],
        (await refused.json())["active_run"],
    )
    assert (202, "stopped", "replaced", "so far") == (taken.status, ended["outcome"], ended["by"], ended["text"])
    assert [user("ONE")] == shown_to(world, "echo:interrupting")
    assert 200 == switched.status
    assert [("user", "one"), ("partial", "so far")] == await api.transcript(session_id)


class Meanwhile(MemoryStore):
    """A store on which something may happen before the messages of a session arrive."""

    then: Any = None

    async def messages(self, session_id: str) -> Any:
        found = await super().messages(session_id)
        if self.then is not None:
            then, self.then = self.then, None
            await then()
        return found


@requirement("hist.regenerate-edit-fork")
async def test_no_other_branch_is_shown_while_a_message_is_sent_in_another_tab():
    """What was said there, and its answer, would stand on a branch that nobody sees."""
    store = Meanwhile()
    first, *answers = [Message(id=f"msg_{n}", role="user" if n == 0 else "assistant", content="x") for n in range(3)]
    branches = [first, *(replace(each, parent_id=first.id) for each in answers)]
    await store.copy_session(Session(id="ses_1", owner="local"), branches)
    sent = RunRecord(id="run_1", owner="local", session_id="ses_1", message_id="msg_4")
    store.then = lambda: store.create_run(sent, input=[Message(id="msg_3", role="user", content="More")])
    async with Served(create_app(Settings(), store, NO_HOME)) as served, served.client() as client:
        switched = await client.request("PATCH", "/api/sessions/ses_1", json={"head_id": "msg_1"})
        again = await client.request("PATCH", "/api/sessions/ses_1", json={"head_id": "msg_1"})
    kept = await store.get_session("ses_1")

    assert (409, "stale_view") == (switched.status, (await switched.json())["error"]["code"])
    assert (409, "session_busy") == (again.status, (await again.json())["error"]["code"])
    assert "msg_3" == kept.head_id


# Deleting.


@requirement("hist.delete-during-run")
@pytest.mark.parametrize("watched", ["native", "chat"])
async def test_a_session_deleted_during_its_run_stays_deleted_and_everyone_is_told(world, api, watched):
    """The run stops, its upstream closes, its readers reach an end, and a late writer brings nothing back."""
    model = f"deleted {watched}"
    world.up.models[model] = [Headers(), Role(), Delta("so far"), Hang()]
    session_id = await api.new_session()
    if watched == "native":
        run_id = await api.start(session_id, "hello", f"up/{model}")
        reader = await api.shown(run_id, "so far")
    else:
        reader = await world.chat(f"up/{model}", stream=True, session_id=session_id)
        run_id = reader.headers["x-run-id"]
        assert ["", "so far"] == [(await reader.next_event()).json()["choices"][0]["delta"]["content"] for _ in "ab"]
    feed = await world.call("GET", f"/api/sessions/{session_id}/events")

    deleted = await world.call("DELETE", f"/api/sessions/{session_id}")
    closed_by = await _closed_by(world, model)
    last = (await reader.all_events())[-1]
    await feed.all_events()
    gone = [
        await world.call("GET", path)
        for path in (f"/api/sessions/{session_id}", f"/api/runs/{run_id}", f"/api/runs/{run_id}/events")
    ]
    again = await world.call("DELETE", f"/api/sessions/{session_id}")

    assert (204, "client", 404) == (deleted.status, closed_by, again.status)
    assert '"stopped"' in last.data or "[DONE]" == last.data
    assert [404, 404, 404] == [response.status for response in gone]


async def _closed_by(world: World, model: str) -> str | None:
    request = world.request_for(model)
    await request.wait_closed()
    return request.closed_by


@requirement("hist.delete-during-run")
@pytest.mark.one_server("it reads the SQLite file")
async def test_no_row_is_left_of_deleted_sessions(world, api, server):
    """Looked at in the file itself: messages, runs, logs, feeds, keys and what a search would find."""
    world.up.models["marked"] = [Headers(), Role(), Delta("orphanmark so far"), Hang()]
    world.up.models["racing"] = [Headers(), Role(), Delta("orphanmark"), Gate("race"), Finish(), UsageChunk(), Done()]
    headers = {"Idempotency-Key": "orphanmark key"}
    sessions = [await api.new_session(title="orphanmark") for _ in range(8)]
    for session_id in sessions[:4]:
        run_id = await api.start(session_id, "orphanmark", "up/marked")
        (await api.shown(run_id, "so far")).leave()
        await api.start(session_id, "orphanmark queued", "up/echo:queued", if_busy="queue")
    await api.settled(await api.start(sessions[4], "orphanmark", "up/echo:orphanmark", headers=headers))
    for session_id in sessions[5:]:
        run_id = await api.start(session_id, "orphanmark", "up/racing")
        (await api.shown(run_id, "orphanmark")).leave()
    named = await world.chat("up/echo:orphanmark", question="orphanmark", session_id="orphanmark name")
    sessions.append((await world.get(f"/api/runs/{named.headers['x-run-id']}"))["session_id"])

    world.up.open("race")
    deleted = await asyncio.gather(*(world.call("DELETE", f"/api/sessions/{id}") for id in sessions))
    await server.terminate()
    rows, orphans, unknown = read_database(server.data)
    await server.restart()

    assert {204} == {response.status for response in deleted}
    used = ("charges", "usage")  # what was used, by the names of models, outlives the chats
    assert [] == [(table, row) for table, row in rows if "orphanmark" in row and table not in used]
    assert {"sessions", "messages", "runs", "events", "feed"} <= {table for table, _ in rows}  # of other tests
    assert ([], []) == (orphans, unknown)


def read_database(folder: Path) -> tuple[list[tuple[str, str]], list[Any], list[int]]:
    """Every row of every table as text, the rows whose parent is gone, and what a search would find of the gone."""
    (path,) = [file for file in folder.iterdir() if file.is_file() and file.read_bytes()[:15] == b"SQLite format 3"]
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'search_%'")
        tables = [name for (name,) in names]  # without the inside of the index, which FTS5 cleans in its own time
        rows = [(table, repr(row)) for table in tables for row in database.execute(f'SELECT * FROM "{table}"')]
        orphans = database.execute("PRAGMA foreign_key_check").fetchall()
        unknown = database.execute("SELECT rowid FROM search WHERE rowid >> 20 NOT IN (SELECT n FROM sessions)")
        return rows, orphans, [rowid for (rowid,) in unknown]
    finally:
        database.close()


# Whose conversation it is.


@requirement("hist.session-id")
@pytest.mark.parametrize("way", ["body", "header"])
@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])
async def test_a_session_id_keeps_the_conversation(world, way, stream):
    """The store has the history: what the client repeats of it is not taken twice."""
    name = f"by {way} {stream}"
    headers = {"X_Session_Id": name} if way == "header" else {}

    async def turn(model: str, *messages: dict[str, Any]) -> str:
        body = {"model": f"up/{model}", "messages": list(messages), "stream": stream}
        body |= {"session_id": name} if way == "body" else {}
        response = await world.call("POST", "/v1/chat/completions", body, **headers)
        if stream:
            return of_chunks(response, await response.all_events()).text
        return str((await response.json())["choices"][0]["message"]["content"])

    first = await turn(f"echo:1 {name}", user("one"))
    await turn(f"echo:2 {name}", user("two"))
    await turn(
        f"echo:3 {name}", user("one"), assistant("1, as I remember it"), user("two"), assistant("2"), user("three")
    )

    assert f"1 {name}" == first
    assert [
        user("one"),
        assistant(f"1 {name}"),
        user("two"),
        assistant(f"2 {name}"),
        user("three"),
    ] == shown_to(world, f"echo:3 {name}")


@requirement("hist.session-id")
async def test_the_body_names_the_session_where_the_header_names_another(world):
    """The more particular word counts."""
    body = {"model": "up/echo:a", "messages": [user("in the body")], "session_id": "from the body"}
    await (await world.call("POST", "/v1/chat/completions", body, X_Session_Id="from the header")).body()

    await chat(world, "echo:body", user("next"), session_id="from the body")
    await chat(world, "echo:header", user("next"), session_id="from the header")

    assert [user("in the body"), assistant("a"), user("next")] == shown_to(world, "echo:body")
    assert [user("next")] == shown_to(world, "echo:header")


@requirement("hist.session-id")
async def test_a_native_session_can_be_continued_by_an_openai_client_and_the_other_way_round(world, api):
    """One store, two dialects."""
    session_id = await conversation(api, ("one", "1"))
    await chat(world, "echo:2", user("two"), session_id=session_id)
    await say(api, session_id, "three", "echo:both")

    assert [user("one"), assistant("1"), user("two"), assistant("2"), user("three")] == shown_to(world, "echo:both")


@requirement("hist.session-id")
async def test_the_system_prompt_of_a_request_is_this_requests_and_comes_first(world):
    """It is the client's instruction for this answer; it must not pile up in the transcript."""
    await chat(world, "echo:x", {"role": "system", "content": "Be brief."}, user("one"), session_id="with system")
    parts = [{"type": "text", "text": "Be long."}]
    messages = [{"role": "developer", "content": parts}, user("one"), assistant("x"), user("two")]
    await chat(world, "echo:system", *messages, session_id="with system")
    await chat(world, "echo:no system", user("three"), session_id="with system")

    assert [
        {"role": "system", "content": "Be long."},
        user("one"),
        assistant("x"),
        user("two"),
    ] == shown_to(world, "echo:system")
    assert ["user", "assistant", "user", "assistant", "user"] == [
        message["role"] for message in shown_to(world, "echo:no system")
    ]


BAD_NAMES = {
    "empty": "",
    "too long": "x" * 257,
    "newline": "a\nb",
    "tab": "a\tb",
    "NUL": "a\0b",
    "escape": "a\x1b[2J",
    "C1 control": "a\x85b",
    "DEL": "a\x7fb",
}


@requirement("hist.session-id")
@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])
async def test_a_bad_session_id_is_refused(world, api, name, stream):
    """A name goes into logs, pages and file names."""
    sessions = (await api.get("/api/sessions"))["sessions"]

    response = await world.chat("up/echo:bad name", session_id=BAD_NAMES[name], stream=stream)
    error = (await response.json())["error"]

    assert (400, "session_id", "invalid_request_error") == (response.status, error["param"], error["type"])
    assert sessions == (await api.get("/api/sessions"))["sessions"]
    assert [] == [request for request in world.up.requests if request.model == "echo:bad name"]


@requirement("hist.session-id")
@pytest.mark.parametrize("name", ["", "x" * 257, "a\tb", "a\x85b"])
async def test_a_bad_session_id_in_the_header_is_refused_too(world, name):
    """The same rule, whichever way it comes. (Other control characters never pass HTTP.)"""
    body = {"model": "up/echo:bad header", "messages": [user("x")]}

    response = await world.call("POST", "/v1/chat/completions", body, X_Session_Id=name)

    assert (400, "session_id") == (response.status, (await response.json())["error"]["param"])
    assert [] == [request for request in world.up.requests if request.model == "echo:bad header"]


@requirement("hist.session-id")
@pytest.mark.parametrize("name", ["x" * 256, "🌊 spaces & / ? # %00", "../../etc/passwd", "ses_0000", "' OR 1=1 --"])
async def test_any_other_name_is_a_name(world, name):
    """It is only a name: whatever it says, it names this owner's conversation and does nothing else."""
    mark = hashlib.sha256(name.encode()).hexdigest()[:8]
    await chat(world, "echo:odd", user("one"), session_id=name)
    await chat(world, f"echo:{mark}", user("two"), session_id=name)

    assert [user("one"), assistant("odd"), user("two")] == shown_to(world, f"echo:{mark}")


@requirement("hist.session-id")
async def test_a_request_that_adds_nothing_to_the_session_is_refused(world, api):
    """What follows the last assistant message is the new input; here nothing does, and nothing is stored."""
    sessions = (await api.get("/api/sessions"))["sessions"]

    response = await world.call(
        "POST",
        "/v1/chat/completions",
        {"model": "up/echo:nothing new", "messages": [user("a"), assistant("b")], "session_id": "nothing new"},
    )

    assert (400, "messages") == (response.status, (await response.json())["error"]["param"])
    assert sessions == (await api.get("/api/sessions"))["sessions"]


@requirement("hist.no-sharing")
@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])
async def test_the_same_first_message_without_a_session_id_shares_nothing_and_leaves_nothing(world, api, stream):
    """Guessing a conversation from its first message has shown people the chats of others."""
    sessions, runs = (await api.get("/api/sessions?limit=200"))["sessions"], await api.get("/api/runs?limit=200")

    answers = await asyncio.gather(*(world.chat("up/echo:same", question="hi", stream=stream) for _ in range(5)))
    run_ids = {answer.headers["x-run-id"] for answer in answers}
    bodies = [await answer.body() for answer in answers]
    again = await chat(world, "echo:continued", user("hi"), assistant("same"), user("and?"))

    assert 5 == len(run_ids) == len(set(bodies))
    assert all([user("hi")] == r.body["messages"] for r in world.up.requests if r.model == "echo:same")
    assert [user("hi"), assistant("same"), user("and?")] == shown_to(world, "echo:continued")
    assert "continued" == again["choices"][0]["message"]["content"]
    assert sessions == (await api.get("/api/sessions?limit=200"))["sessions"]
    assert runs == await api.get("/api/runs?limit=200")


@requirement("hist.no-sharing")
async def test_two_owners_who_use_one_name_have_two_conversations(world, bob, api):
    """A session's name is no secret, and another's session id does not open it."""
    session_id = await conversation(api, ("alice's own", "1"))
    await chat(world, "echo:a", user("from alice"), session_id="shared name")

    await chat(bob, "echo:b", user("from bob"), session_id="shared name")
    await chat(bob, "echo:by id", user("from bob"), session_id=session_id)
    listed = await bob.get("/api/sessions")
    refused = [
        await bob.call("GET", path) for path in (f"/api/sessions/{session_id}", f"/api/sessions/{session_id}/events")
    ]

    assert [user("from bob")] == shown_to(world, "echo:b")
    assert [user("from bob")] == shown_to(world, "echo:by id")
    assert [404, 404] == [response.status for response in refused]
    assert "alice" not in json.dumps(listed)
    assert [("user", "alice's own"), ("assistant", "1")] == await api.transcript(session_id)


@requirement("hist.no-sharing")
async def test_two_owners_who_use_one_idempotency_key_have_two_runs(world, bob):
    """Otherwise the second would be handed the first one's answer."""
    body = {"model": "up/echo:key", "messages": [user("hi")]}

    one = await world.call("POST", "/v1/chat/completions", body, Idempotency_Key="the same")
    other = await bob.call("POST", "/v1/chat/completions", body, Idempotency_Key="the same")
    peeked = await bob.call("GET", f"/v1/chat/completions/{(await one.json())['id']}")

    assert (200, 200, 404) == (one.status, other.status, peeked.status)
    assert one.headers["x-run-id"] != other.headers["x-run-id"]


@requirement("hist.no-sharing")
async def test_a_search_finds_only_ones_own(world, bob, api):
    """The index holds everyone's words."""
    await conversation(api, ("zyzzyva", "1"))

    found = await api.get("/api/sessions?query=zyzzyva")
    by_bob = await bob.get("/api/sessions?query=zyzzyva")

    assert (1, 0) == (len(found["sessions"]), len(by_bob["sessions"]))
