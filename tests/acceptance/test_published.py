"""Agents that somebody else wrote: any async generator is a model on every surface, and its runs are like others."""

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest

from holdfast.agents import AgentRequest, AgentStopped
from holdfast.agents.published import publish, publishable
from holdfast.errors import HoldfastError
from holdfast.events import Finish, Reasoning, Text, ToolCall, ToolResult, Usage
from holdfast.server.app import create_app
from holdfast.server.config.settings import AgentSettings, ProviderSettings, Settings, SettingsError
from holdfast.store.memory import MemoryStore
from tests.acceptance.surfaces import SURFACES, World
from tests.requirements import requirement
from tests.support.agents import check_anthropic, check_openai
from tests.support.native import Native
from tests.support.served import NO_HOME, Served
from tests.support.waiting import LONG


class Refused(HoldfastError):
    """A failure for which an agent has chosen the words and the code."""

    code = "out_of_cheese"
    status = 502


async def plain(request):
    yield "One. "
    yield Reasoning("hm")
    yield [Text("Two"), "."]


async def working(request):
    yield "One. "
    yield ToolCall("c1", "add", '{"a": 1}')
    yield ToolResult("c1", "3")
    yield "Two."
    yield Usage(7, 5)


async def breaking(request):
    yield "One. "
    raise RuntimeError("secret words")


async def refusing(request):
    yield "One. "
    raise Refused("There is no cheese.")
    yield "never"


async def cut_off(request):
    yield "One. "
    yield Finish("length")


async def wrong(request):
    yield "One. "
    yield 5


async def echo(request):
    roles = " ".join(said["role"] for said in request.messages)
    yield f"{roles}: {request.text} {sorted(request.params)} {bool(request.run_id)}"


@asynccontextmanager
async def serving(tmp_path, settings=None, **agents):
    configured = Settings(
        data=str(tmp_path), providers=(ProviderSettings("s", dialect="scripted"),), **(settings or {})
    )
    async with (
        Served(create_app(configured, MemoryStore(), NO_HOME, agents=agents)) as served,
        served.client() as client,
    ):
        yield Native(client)


async def ask(api, agent, input="Hi", **more):
    session_id = await api.new_session()
    return session_id, await api.start(session_id, input, f"agent/{agent}", **more)


async def leaving(request):
    yield "One. "
    raise SystemExit(3)


async def emitting(request, emit):
    await emit("One. ")
    emit(Reasoning("hm"))
    await emit(["Two", "."])
    return "One. Two."


async def returning(request):
    await asyncio.sleep(0)
    return "One. Two."


async def emitting_then_breaking(request, emit):
    emit("One. ")
    raise RuntimeError("secret words")


async def returning_nonsense(request, emit):
    emit("One. ")
    return 5


def blocking(request, emit):
    emit("One. ")
    emit([ToolCall("c1", "add", "{}"), ToolResult("c1", "3")])
    emit(Text("Two."))


def blocking_generator(request):
    yield "One. "
    yield Text("Two.")


def blocking_and_returning(request):
    return "One. Two."


def blocking_then_leaving(request, emit):
    emit("One. ")
    raise SystemExit(3)


def generator_that_breaks(request):
    yield "One. "
    raise RuntimeError("secret words")


ROWS = {
    "a coroutine": (emitting, "completed", "One. Two.", None),
    "a coroutine that returns its text": (returning, "completed", "One. Two.", None),
    "a coroutine that raises": (emitting_then_breaking, "failed", "One. ", "source_failed"),
    "a coroutine that returns nonsense": (returning_nonsense, "failed", "One. ", "source_failed"),
    "a blocking function": (blocking, "completed", "One. Two.", None),
    "a blocking function that returns its text": (blocking_and_returning, "completed", "One. Two.", None),
    "a blocking function that wants to end the program": (blocking_then_leaving, "failed", "One. ", "source_failed"),
    "a generator": (blocking_generator, "completed", "One. Two.", None),
    "a generator that raises": (generator_that_breaks, "failed", "One. ", "source_failed"),
    "plain": (plain, "completed", "One. Two.", None),
    "with tools": (working, "completed", "One. Two.", None),
    "raises": (breaking, "failed", "One. ", "source_failed"),
    "wants to end the program": (leaving, "failed", "One. ", "source_failed"),
    "raises our own": (refusing, "failed", "One. ", "out_of_cheese"),
    "length": (cut_off, "truncated", "One. ", None),
    "yields nonsense": (wrong, "failed", "One. ", "source_failed"),
}


@requirement("byo.every-wire", "byo.kinds", "start.agent-late-text")
@pytest.mark.parametrize("row", ROWS)
async def test_a_function_of_any_kind_is_a_model_on_every_surface(tmp_path, row):
    """Whoever asks, and however: the same text, the same truth, and no client is given calls that are not for it."""
    agent, outcome, text, code = ROWS[row]
    async with serving(tmp_path, own=agent) as api:
        world = World(None, None, api.client)  # type: ignore[arg-type]
        told = await asyncio.gather(*(surface(world, "agent/own") for surface in SURFACES.values()))

    assert dict.fromkeys(SURFACES, (outcome, text, code)) == {
        name: (each.outcome, each.text, each.code) for name, each in zip(SURFACES, told, strict=True)
    }


async def test_published_agents_are_listed(tmp_path):
    """A client finds them where it finds models."""
    async with serving(tmp_path, own=plain, other=echo) as api:
        models = [model["id"] for model in (await api.get("/v1/models"))["data"]]

    assert {"agent/own", "agent/other"} <= set(models)


async def test_an_agent_is_given_the_conversation(tmp_path):
    """The session's history and the caller's parameters, in OpenAI's shape."""
    async with serving(tmp_path, own=echo) as api:
        session_id, run_id = await ask(api, "own", "first", params={"temperature": 0})
        await api.settled(run_id)
        second = await api.settled(await api.start(session_id, "second", "agent/own"))

    assert "user assistant user: second [] True" == second["text"]


@requirement("byo.stop")
async def test_stop_cancels_the_agent_where_it_is(tmp_path):
    """Its own cleanup runs, in the task in which it ran, and what it had said is kept."""
    seen: list[object] = []

    async def endless(request):
        task = asyncio.current_task()
        try:
            yield "Going"
            await asyncio.Event().wait()
        finally:
            seen.append(task is asyncio.current_task())

    async with serving(tmp_path, own=endless) as api:
        session_id, run_id = await ask(api, "own")
        (await api.shown(run_id, "Going")).close()  # who leaves a detached run does not stop it
        stopped = await api.stop(run_id)
        transcript = await api.transcript(session_id)

    assert [True] == seen
    assert ("stopped", "user") == (stopped["settlement"]["outcome"], stopped["settlement"]["by"])
    assert [("user", "Hi"), ("partial", "Going")] == transcript


@requirement("byo.stop")
async def test_leaving_an_attached_run_cancels_the_agent(tmp_path):
    """A client of the OpenAI API that leaves takes its agent along."""
    ended = asyncio.Event()

    async def endless(request):
        try:
            yield "Going"
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with serving(tmp_path, own=endless) as api:
        body = {"model": "agent/own", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
        response = await api.client.post("/v1/chat/completions", body)
        while "Going" not in str(await response.next_event()):
            pass
        response.leave("rst")
        async with asyncio.timeout(LONG):
            await ended.wait()


# Functions that block.


PAUSE = threading.Event()
"""Never set: an agent that says a word each millisecond leaves the processor to others, as most agents do."""


def _endless_function(seen):
    def endless(request, emit):
        try:
            while not PAUSE.wait(0.001):
                emit("Going. ")
        except AgentStopped:
            seen.append("stopped")
            raise

    return endless


def _endless_generator(seen):
    def endless(request):
        try:
            while not PAUSE.wait(0.001):
                yield "Going. "
        finally:
            seen.append("stopped")

    return endless


@requirement("byo.stop", "byo.kinds")
@pytest.mark.parametrize("kind", [_endless_function, _endless_generator])
async def test_a_stop_ends_a_blocking_agent_where_it_speaks_next(tmp_path, kind):
    """Its own cleanup runs in its thread, which is gone afterwards; what was said is kept."""
    seen: list[str] = []
    async with serving(tmp_path, own=kind(seen)) as api:
        _, run_id = await ask(api, "own")
        (await api.shown(run_id, "Going")).close()
        stopped = await api.stop(run_id)
        ending = [thread for thread in threading.enumerate() if run_id in thread.name]
        for thread in ending:  # one that has done its last is listed for a moment
            await asyncio.to_thread(thread.join, LONG)
        left = [thread.name for thread in ending if thread.is_alive()]

    assert ["stopped"] == seen
    assert [] == left
    assert "stopped" == stopped["settlement"]["outcome"]
    assert stopped["settlement"]["text"].startswith("Going. ")
    assert not stopped["settlement"]["receipt"].get("refused")


@requirement("byo.stop", "byo.kinds")
async def test_a_thread_that_ignores_the_stop_is_told_of(tmp_path):
    """Nothing can end a thread from outside: the run settles all the same, and its receipt says what goes on."""
    may_end = threading.Event()

    def deaf(request, emit):
        emit("Going")
        may_end.wait(60)
        emit("too late")

    async with serving(tmp_path, own=deaf) as api:
        _, run_id = await ask(api, "own")
        (await api.shown(run_id, "Going")).close()
        stopped = await api.stop(run_id)
        may_end.set()

    assert ("stopped", "Going") == (stopped["settlement"]["outcome"], stopped["settlement"]["text"])
    (refused,) = stopped["settlement"]["receipt"]["refused"]
    assert "runs in a thread, which ignored the stop" in refused


async def test_a_blocking_agent_waits_for_its_reader(tmp_path):
    """A thread that speaks faster than anybody reads would fill the memory: it is held where it speaks."""
    said = []

    def fast(request, emit):
        for number in range(2000):
            said.append(number)
            emit("x")

    slow = Slow(room_for=100)
    answering = asyncio.create_task(publish(publishable(fast, "fast"), AgentRequest(messages=[]), slow))
    await asyncio.wait_for(slow.is_waited_for.wait(), LONG)
    ahead = len(said)
    slow.has_read.set()
    await asyncio.wait_for(answering, LONG)

    assert 100 == ahead
    assert 2000 == sum(isinstance(item, str) for item in slow.events)


class Slow:
    """An outlet that has room for so many emits until its reader has read."""

    def __init__(self, room_for):
        self.events = []
        self.is_waited_for = asyncio.Event()
        self.has_read = asyncio.Event()
        self._left = room_for

    def emit(self, events):
        self.events += events
        self._left -= 1
        return self._left != 0

    async def room(self):
        self.is_waited_for.set()
        await self.has_read.wait()


# Stop hooks.


@requirement("byo.stop-hook")
@pytest.mark.parametrize("is_blocking", [False, True], ids=["a coroutine", "a blocking function"])
@pytest.mark.parametrize(("how", "reason"), [("stop", "user"), ("leave", "disconnect"), ("nothing", None)])
async def test_a_stop_hook_is_called_once_with_the_reason(tmp_path, is_blocking, how, reason):
    """Also when the client of an attached run leaves; and never for a run that ends by itself."""
    reasons, called, go_on = [], asyncio.Event(), threading.Event()

    def note(why):
        reasons.append(why)
        go_on.set()
        called.set()

    def blocking(request, emit):
        request.on_stop(note)
        emit("Going")
        go_on.wait(LONG)

    async def waiting(request, emit):
        request.on_stop(note)
        await emit("Going")
        if how == "nothing":
            return
        await asyncio.Event().wait()

    if how == "nothing":
        go_on.set()
    async with serving(tmp_path, own=blocking if is_blocking else waiting) as api:
        body = {"model": "agent/own", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
        response = await api.client.post("/v1/chat/completions", body)
        while "Going" not in str(await response.next_event()):
            pass
        if how == "stop":
            await api.stop(response.headers["x-run-id"])
        elif how == "leave":
            response.leave("rst")
        async with asyncio.timeout(LONG):
            await (called.wait() if reason else response.all_events())

    assert ([reason] if reason else []) == reasons


# What an agent is told of its client.


@requirement("byo.client")
async def test_an_agent_is_told_the_clients_session_name_and_whether_it_streams(tmp_path):
    """An agent that keeps things by conversation needs the name that its client uses, and not ours alone."""
    told = []

    async def asking(request):
        told.append((request.session_name, request.stream))
        yield "Hi."

    said = [{"role": "user", "content": "Hi"}]
    ui = [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}]
    thread = {"threadId": "t-1", "runId": "r", "messages": [{"id": "m", **said[0]}], "tools": [], "context": []}
    async with serving(tmp_path, own=asking) as api:
        post, model = api.client.post, {"model": "agent/own"}
        chat = "/v1/chat/completions"
        await (await post(chat, {**model, "messages": said})).body()
        await (await post(chat, {**model, "messages": said, "stream": True, "session_id": "mine"})).body()
        await (await post(chat, {**model, "messages": said}, headers={"X-Session-Id": "api:my-session"})).body()
        await (await post("/v1/responses", {**model, "input": "Hi", "stream": True})).body()
        await (await post("/v1/messages", {**model, "messages": said, "max_tokens": 9, "stream": True})).body()
        await (await post("/v1/messages", {**model, "messages": said, "max_tokens": 9})).body()
        await (await post("/api/chat", {**model, "id": "chat-7", "messages": ui})).body()
        await (await post("/ag-ui", {**thread, "state": {}, "forwardedProps": model})).body()
        session_id, run_id = await ask(api, "own")
        await api.settled(run_id)

    assert told == [
        (None, False),
        ("mine", True),
        ("api:my-session", False),
        (None, True),
        (None, True),
        (None, False),
        ("chat-7", True),
        ("t-1", True),
        (session_id, False),
    ]


@requirement("hist.no-orphan-tools")
async def test_what_it_did_stands_in_history(tmp_path):
    """Its calls and results are told to the next model as they came about, a call without a result too."""
    histories = []

    async def busy(request):
        yield "Look: "
        yield [ToolCall("a", "find", "{}"), ToolCall("b", "find", "no json")]
        yield [ToolResult("b", "two"), ToolResult("a", "one")]
        yield "and "
        yield ToolCall("c", "find", "{}")
        raise RuntimeError

    async def looking(request):
        histories.append(request.messages)
        yield "Seen."

    async with serving(tmp_path, busy=busy, looking=looking) as api:
        session_id, run_id = await ask(api, "busy")
        frames = await api.replay(run_id)
        await api.settled(await api.start(session_id, "So?", "agent/looking"))

    kinds = [frame.event for frame in frames if frame.event.startswith("step.")]
    assert ["step.started", "step.finished", "step.started"] == kinds
    assert ["user", "assistant", "tool", "tool", "assistant", "tool", "user"] == [said["role"] for said in histories[0]]
    check_openai(histories[0])
    check_anthropic(histories[0])


async def test_a_step_is_finished_once_when_the_agent_says_how_it_ended(tmp_path):
    """A second `step.finished` would be the end of a step that never began."""

    async def brief(request):
        yield "Done."
        yield Finish("stop")

    async with serving(tmp_path, brief=brief) as api:
        _, run_id = await ask(api, "brief")
        frames = await api.replay(run_id)

    assert ["step.started", "step.finished"] == [frame.event for frame in frames if frame.event.startswith("step.")]


async def test_a_long_tool_is_no_silence_but_a_silent_agent_is(tmp_path):
    """The idle limit ends what hangs, and not what works."""
    limit = {"idle_limit": 1.0}

    async def slow_tool(request):
        yield ToolCall("a", "dig", "{}")
        await asyncio.sleep(1.2)
        yield ToolResult("a", "gold")

    async def silent(request):
        yield "Hm"
        await asyncio.Event().wait()

    async with serving(tmp_path, limit, slow=slow_tool, silent=silent) as api:
        runs = [(await ask(api, name))[1] for name in ("slow", "silent")]
        worked, hung = [await api.settled(run_id) for run_id in runs]

    assert "completed" == worked["outcome"]
    assert ("failed", "upstream_stalled") == (hung["outcome"], hung["error"]["code"])


async def test_it_cannot_be_steered_and_says_so(tmp_path):
    """A generator has no boundary at which a message could reach it."""

    async def endless(request):
        yield "Going"
        await asyncio.Event().wait()

    async with serving(tmp_path, own=endless) as api:
        _, run_id = await ask(api, "own")
        (await api.shown(run_id, "Going")).close()
        answer = await api.client.post(f"/api/runs/{run_id}/steer", {"input": "Left!"})
        said = await answer.json()
        await api.stop(run_id)

    assert (409, "cannot_steer") == (answer.status, said["error"]["code"])
    assert "agent/own takes no messages" in said["error"]["message"]


@pytest.mark.parametrize(
    ("agents", "settings", "words"),
    [
        ({"own": object()}, {}, "cannot be published"),
        ({"own": lambda: "text"}, {}, "cannot be published"),
        ({"own": lambda a, b, c: "text"}, {}, "cannot be published"),
        ({"own": str}, {}, "cannot be published"),
        ({"a/b": plain}, {}, "not a valid agent name"),
        ({"": plain}, {}, "not a valid agent name"),
        ({"own": plain}, {"agents": (AgentSettings("own", model="s/m"),)}, "Two agents are called 'own'"),
        ({"own": plain}, {"providers": (ProviderSettings("agent", dialect="scripted"),)}, "is reserved for agents"),
    ],
)
def test_what_is_no_agent_is_refused_at_the_start(tmp_path, agents, settings, words):
    """A mistake is told when the server is made, not when somebody asks."""
    with pytest.raises(SettingsError, match=words):
        create_app(Settings(data=str(tmp_path), **settings), MemoryStore(), NO_HOME, agents=agents)
