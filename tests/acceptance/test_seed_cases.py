"""The cases of the systems that Holdfast descends from, literally: published agents in place of their agents.

Requests are as theirs: without `model`. The session name goes where their clients put it, into `session_id` of the body
or into a header (ours is `X-Session-Id`).

| case of theirs | test here | tests elsewhere |
| --- | --- | --- |
| a detached run goes on after its subscriber left | `..detached_run_goes_on..` | test_disconnect.py |
| stop cancels a detached run, partial saved once | `..stop_cancels_a_detached_run..` | test_stop.py |
| normal completion is saved once, not as a partial | `..detached_run_goes_on..` | test_disconnect.py |
| leaving a direct stream cancels it in mid-await | `..leaving_a_direct_stream..` | test_compare.py: leaving |
| a direct stream that completes is saved once | `..direct_stream_that_ends..` | test_compare.py: every pane answers |
| chat and agent follow the same rules | every test with `shape` | test_agents_everywhere.py |
| Compare is direct, all else detached | `..detached..` and `..direct..` | test_compare.py: who leaves at once |
| what is kept of a partial is freed at the end | | simulation: an idle engine holds on to nothing |
| cancel saves the partial; the marker is no message | `..stop_cancels..`, `..next_turn..` | test_stop.py |
| cancel without text saves no partial | `..stop_before_any_text..` | test_stop.py |
| closed and unclosed thinking is stripped | `..thinking_is_never_in_a_partial..` | unit/test_thinking.py |
| the partial is in history, the marker is not | `..next_turn..` | test_history.py |
| a disconnect cancels the agent (reset, broken pipe) | `..leaving_a_direct_stream..` | test_published.py |
| nothing is cancelled after the end | `..direct_stream_that_ends..` | test_disconnect.py |
| the agent is interrupted once, with a reason | `..leaving_a_direct_stream..` | test_published.py: stop hook |
| raise, failed, truncated, ok | `..ended_is_told..` | test_truth.py, test_every_wire.py |
| chunks have one id and one shape | `..chunks..` | test_start.py |
| without `stream` one object | `..without_stream..` | test_start.py |
| `session_id` leads to its own history | `..session_id..` | test_history.py |
| a failure has no `stop` in its body | `..ended_is_told..` | test_truth.py |
"""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from holdfast.events import ErrorInfo, Finish, ToolCall, ToolResult
from holdfast.server.app import create_app
from holdfast.server.config.settings import load_with_sources
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.served import NO_HOME, Served
from tests.support.waiting import LONG

CHAT = "/v1/chat/completions"
NOBODY = dict.fromkeys(("OLLAMA_HOST", "LLAMACPP_URL", "LMSTUDIO_URL"), "http://127.0.0.1:9")
WHOLE = "Hello world"


class Script:
    """An agent that speaks, waits for a word of the test, and goes on; it notes what became of it."""

    def __init__(self, shape="chat", before=("Hello ", "wor"), after=("ld",)):
        self.before, self.after = before, after
        self.uses_tools = shape == "agent"
        self.go_on, self.ended = asyncio.Event(), asyncio.Event()
        self.was_cancelled = False
        self.reasons, self.asked = [], []

    async def __call__(self, request):
        self.asked.append(request)
        request.on_stop(self.reasons.append)
        try:
            if self.uses_tools:
                yield [ToolCall("c1", "look", "{}"), ToolResult("c1", "sunny")]
            for text in self.before:
                yield text
            await self.go_on.wait()
            for text in self.after:
                yield text
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        finally:
            self.ended.set()


@pytest.fixture(params=["chat", "agent"])
def shape(request):
    """A stream of text alone, and one with tools in it."""
    return request.param


@asynccontextmanager
async def serving(tmp_path, agent):
    """A server with one agent and nothing else, as `holdfast serve --agent module:agent` starts it."""
    app = await asyncio.to_thread(made, tmp_path, agent)
    async with Served(app) as served, served.client() as client:
        yield Native(client)


def made(data, agent):
    environ, file = {**NO_HOME, **NOBODY}, data / "holdfast.toml"
    file.write_text("")
    settings, sources = load_with_sources({"data": str(data)}, environ, file)
    return create_app(settings, MemoryStore(), environ, sources=sources, agents={"own": agent})


def said(text="Hi", **more):
    return {"messages": [{"role": "user", "content": text}], **more}


async def begun(api, text=None, **more):
    """A direct stream, once it has shown some text, or its head where there is none to come."""
    response = await api.client.post(CHAT, said(stream=True, session_id="my-session", **more))
    shown = ""
    while text is not None and text not in shown:
        shown += "".join(
            choice["delta"].get("content") or "" for choice in chunk(await response.next_event())["choices"]
        )
    return response


def chunk(frame):
    return json.loads(frame.data)


async def started(api, session_id):
    """A detached run of the native API, without a model."""
    response = await api.client.post(f"/api/sessions/{session_id}/runs", {"input": "Hi"})
    assert 202 == response.status
    return (await response.json())["id"]


async def named_session(api):
    """The transcript of the only session that there is."""
    (session,) = (await api.get("/api/sessions"))["sessions"]
    return await api.transcript(session["id"])


async def settled(event):
    async with asyncio.timeout(LONG):
        await event.wait()


# Detached runs.


@requirement("gone.detached")
async def test_a_detached_run_goes_on_after_its_subscriber_left(tmp_path, shape):
    """A closed tab stops nothing: the whole answer is kept, once, and not as a partial."""
    agent = Script(shape)
    async with serving(tmp_path, agent) as api:
        session_id = await api.new_session()
        run_id = await started(api, session_id)
        (await api.shown(run_id, "Hello wor")).leave("rst")
        agent.go_on.set()
        settlement = await api.settled(run_id)
        transcript = await api.transcript(session_id)

    assert ("completed", WHOLE, False) == (settlement["outcome"], settlement["text"], agent.was_cancelled)
    assert [("user", "Hi"), ("assistant", WHOLE)] == transcript
    assert [] == agent.reasons


@requirement("stop.partial-once", "stop.terminal-event")
async def test_stop_cancels_a_detached_run_and_saves_the_partial_once(tmp_path, shape):
    """Exactly what was streamed, once; both subscribers are told; and nothing says "cancelled" in a message."""
    agent = Script(shape)
    async with serving(tmp_path, agent) as api:
        session_id = await api.new_session()
        run_id = await started(api, session_id)
        readers = [await api.shown(run_id, "Hello wor") for _ in range(2)]
        stopped = await api.stop(run_id)
        ends = [(await reader.all_events())[-1].json()["settlement"]["outcome"] for reader in readers]
        again = await api.stop(run_id)
        transcript = await api.transcript(session_id)

    assert ("stopped", "user") == (stopped["settlement"]["outcome"], stopped["settlement"]["by"])
    assert ["stopped", "stopped"] == ends
    assert stopped["settlement"] == again["settlement"]
    assert [("user", "Hi"), ("partial", "Hello wor")] == transcript
    assert (True, ["user"]) == (agent.was_cancelled, agent.reasons)


@requirement("stop.no-text")
async def test_stop_before_any_text_saves_no_partial(tmp_path):
    """The question stays, and there is no answer beside it."""
    agent = Script(before=())
    async with serving(tmp_path, agent) as api:
        session_id = await api.new_session()
        run_id = await started(api, session_id)
        stopped = await api.stop(run_id)
        transcript = await api.transcript(session_id)

    assert ("stopped", "") == (stopped["settlement"]["outcome"], stopped["settlement"]["text"])
    assert [("user", "Hi")] == transcript


@requirement("stop.think", "think.every-source")
@pytest.mark.parametrize(
    ("before", "transcript"),
    [
        (("<think>", "half a thought"), [("user", "Hi")]),
        (("<think>x</think>\n", "The answer is 42"), [("user", "Hi"), ("partial", "The answer is 42")]),
        (("The `<think>` tag", " is code"), [("user", "Hi"), ("partial", "The `<think>` tag is code")]),
    ],
    ids=["unclosed", "closed", "in code"],
)
async def test_thinking_is_never_in_a_partial(tmp_path, before, transcript):
    """An agent's thinking is no part of what it said; words about the tag are."""
    agent = Script(before=before)
    async with serving(tmp_path, agent) as api:
        session_id = await api.new_session()
        run_id = await started(api, session_id)
        await _shown_all(api, run_id, before[-1])
        await api.stop(run_id)

        assert transcript == await api.transcript(session_id)


async def _shown_all(api, run_id, last):
    """Wait until a reader has been shown the last piece, as text or as reasoning."""
    reader = await api.events(run_id)
    while last not in ((await reader.next_event()).json().get("text") or ""):
        pass
    reader.close()


@requirement("stop.history")
async def test_the_next_turn_shows_the_agent_the_partial_and_nothing_of_the_stop(tmp_path):
    """User, what it had said, user: no marker, no error text, no field of ours."""
    agent = Script()
    async with serving(tmp_path, agent) as api:
        session_id = await api.new_session()
        run_id = await started(api, session_id)
        (await api.shown(run_id, "Hello wor")).close()
        await api.stop(run_id)
        agent.go_on.set()
        await api.settled(await started(api, session_id))

    assert [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello wor"},
        {"role": "user", "content": "Hi"},
    ] == agent.asked[1].messages


# Direct streams.


@requirement("gone.attached", "byo.stop-hook")
@pytest.mark.parametrize("how", ["rst", "fin"])
@pytest.mark.parametrize("is_silent", [False, True], ids=["after text", "before any"])
async def test_leaving_a_direct_stream_cancels_the_agent_in_mid_await(tmp_path, shape, how, is_silent):
    """Also in silence; the partial is saved once, and the agent is interrupted once, with the reason."""
    agent = Script(shape, before=() if is_silent else ("Hello ", "wor"))
    async with serving(tmp_path, agent) as api:
        if is_silent:
            response = await api.client.send("POST", CHAT, json=said(stream=True, session_id="my-session"))
            async with asyncio.timeout(LONG):
                while not agent.asked:
                    await api.get("/health")
        else:
            response = await begun(api, "wor")
        response.leave(how)
        await settled(agent.ended)
        (session,) = (await api.get("/api/sessions"))["sessions"]
        run = (await api.get(f"/api/runs?session_id={session['id']}"))["runs"][0]
        settlement = await api.settled(run["id"])
        transcript = await api.transcript(session["id"])

    assert ("stopped", "disconnect") == (settlement["outcome"], settlement["by"])
    partial = "" if is_silent else "Hello wor"  # an agent that has called a tool leaves that, also without a word
    kept = [("partial", partial)] if partial or shape == "agent" else []
    assert [("user", "Hi"), *kept] == transcript
    assert (True, ["disconnect"]) == (agent.was_cancelled, agent.reasons)


@requirement("gone.after-end")
async def test_a_direct_stream_that_ends_is_saved_once_and_leaving_after_the_end_changes_nothing(tmp_path, shape):
    """A normal completion is one message, complete; nothing is interrupted when the client goes."""
    agent = Script(shape)
    async with serving(tmp_path, agent) as api:
        response = await begun(api, "wor")
        agent.go_on.set()
        await response.all_events()
        response.leave("rst")

        assert [("user", "Hi"), ("assistant", WHOLE)] == await named_session(api)
    assert (False, []) == (agent.was_cancelled, agent.reasons)


# Truthful ends.


async def ok(request):
    yield WHOLE


async def raises(request):
    yield "Hello "
    raise ConnectionError("the backend is gone")


async def finishes_and_raises(request):
    yield "Hello "
    yield Finish("stop")
    raise ConnectionError("the backend is gone")


async def finishes_and_fails(request):
    yield "Hello "
    yield Finish("stop")
    yield Finish("error", error=ErrorInfo("agent_error", "HTTP 401: bad key"))


async def says_failed(request):
    yield "Hello "
    yield Finish("failed")


async def truncated(request):
    yield "Hello "
    yield Finish("length")


ENDS = {
    "ok": (ok, "stop"),
    "raise": (raises, "error"),
    "finish, then raise": (finishes_and_raises, "error"),
    "finish, then failed": (finishes_and_fails, "error"),
    "failed": (says_failed, "error"),
    "truncated": (truncated, "length"),
}


@requirement("truth.raise", "truth.failed-result", "truth.length", "truth.last-word")
@pytest.mark.parametrize("end", ENDS)
async def test_how_an_agents_stream_ended_is_told_and_a_failure_is_never_stop(tmp_path, end):
    """`stop` without an `error` for what is whole; `error` with one, or `length`, for what is not; then `[DONE]`."""
    agent, reason = ENDS[end]
    async with serving(tmp_path, agent) as api:
        response = await api.client.post(CHAT, said(stream=True))
        datas = [frame.data for frame in await response.all_events()]
    chunks = [json.loads(data) for data in datas[:-1]]
    reasons = [choice["finish_reason"] for each in chunks for choice in each.get("choices", ())]

    assert ("[DONE]", [reason]) == (datas[-1], [each for each in reasons if each])
    assert (reason == "error") == any("error" in each for each in chunks)
    assert (reason == "stop") == ('"finish_reason":"stop"' in "".join(datas).replace(" ", ""))


@requirement("truth.raise", "truth.failed-result", "truth.length", "truth.no-error-text-in-content")
@pytest.mark.parametrize("end", ENDS)
async def test_how_an_agent_ended_is_told_without_a_stream(tmp_path, end):
    """A failure is no 200, and its words are never the answer's."""
    agent, reason = ENDS[end]
    async with serving(tmp_path, agent) as api:
        response = await api.client.post(CHAT, said())
        body = await response.json()

    (choice,) = body.get("holdfast", {}).get("partial", body)["choices"]
    assert (reason == "error") == (response.status == 406)
    assert (reason, reason == "error") == (choice["finish_reason"], "error" in body)
    assert (WHOLE if end == "ok" else "Hello ") == choice["message"]["content"]


# The shape of a stream, and sessions.


@requirement("start.stream-shape")
async def test_all_chunks_have_one_id_and_the_shape_of_openais(tmp_path):
    """The role first, then text in order, then an empty delta with its reason, then `[DONE]`."""
    agent = Script()
    agent.go_on.set()
    async with serving(tmp_path, agent) as api:
        response = await api.client.post(CHAT, said(stream=True))
        datas = [frame.data for frame in await response.all_events()]
    chunks = [json.loads(data) for data in datas[:-1]]
    deltas = [each["choices"][0]["delta"] for each in chunks]

    assert 1 == len({each["id"] for each in chunks})
    assert chunks[0]["id"].startswith("chatcmpl-")
    assert {("chat.completion.chunk", "agent/own")} == {(each["object"], each["model"]) for each in chunks}
    assert "assistant" == deltas[0]["role"]
    assert WHOLE == "".join(delta.get("content") or "" for delta in deltas)
    assert ({}, "stop", "[DONE]") == (deltas[-1], chunks[-1]["choices"][0]["finish_reason"], datas[-1])


@requirement("start.default-json")
@pytest.mark.parametrize("stream", [{}, {"stream": False}, {"stream": "false"}], ids=str)
async def test_without_stream_the_answer_is_one_object(tmp_path, stream):
    """Their default is no stream."""
    async with serving(tmp_path, ok) as api:
        body = await (await api.client.post(CHAT, said(**stream))).json()

    assert ("chat.completion", "agent/own", WHOLE) == (
        body["object"],
        body["model"],
        body["choices"][0]["message"]["content"],
    )


@requirement("hist.session-id", "byo.client")
@pytest.mark.parametrize("place", ["body", "header"])
async def test_a_session_id_leads_to_a_history_of_its_own(tmp_path, place):
    """`my-session` keeps its conversation, the agent is told the name, and another name shares nothing."""
    agent = Script(before=(), after=("Yes.",))
    agent.go_on.set()
    async with serving(tmp_path, agent) as api:
        for name in ("my-session", "my-session", "other"):
            body = {"session_id": name} if place == "body" else {}
            headers = {"X-Session-Id": name} if place == "header" else {}
            await (await api.client.post(CHAT, said(**body), headers=headers)).json()
        await (await api.client.post(CHAT, said())).json()

    assert ["my-session", "my-session", "other", None] == [asked.session_name for asked in agent.asked]
    assert [1, 3, 1, 1] == [len(asked.messages) for asked in agent.asked]
