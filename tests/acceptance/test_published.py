"""Agents that somebody else wrote: any async generator is a model on every surface, and its runs are like others."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from holdfast.errors import HoldfastError
from holdfast.events import Finish, Reasoning, Text, ToolCall, ToolResult, Usage
from holdfast.server.app import create_app
from holdfast.server.settings import AgentSettings, ProviderSettings, Settings, SettingsError
from holdfast.store.memory import MemoryStore
from tests.acceptance.surfaces import SURFACES, World
from tests.requirements import requirement
from tests.support.agents import check_anthropic, check_openai
from tests.support.native import Native
from tests.support.served import NO_HOME, Served


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


ROWS = {
    "plain": (plain, "completed", "One. Two.", None),
    "with tools": (working, "completed", "One. Two.", None),
    "raises": (breaking, "failed", "One. ", "source_failed"),
    "wants to end the program": (leaving, "failed", "One. ", "source_failed"),
    "raises our own": (refusing, "failed", "One. ", "out_of_cheese"),
    "length": (cut_off, "truncated", "One. ", None),
    "yields nonsense": (wrong, "failed", "One. ", "source_failed"),
}


@requirement("byo.every-wire")
@pytest.mark.parametrize("row", ROWS)
async def test_any_async_generator_is_a_model_on_every_surface(tmp_path, row):
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
        async with asyncio.timeout(10):
            await ended.wait()


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


async def test_a_long_tool_is_no_silence_but_a_silent_agent_is(tmp_path):
    """The idle limit ends what hangs, and not what works."""
    limit = {"idle_limit": 0.4}

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
        ({"own": lambda request: "text"}, {}, "cannot be published"),
        ({"a/b": plain}, {}, "no name for an agent"),
        ({"": plain}, {}, "no name for an agent"),
        ({"own": plain}, {"agents": (AgentSettings("own", model="s/m"),)}, "Two agents are called 'own'"),
        ({"own": plain}, {"providers": (ProviderSettings("agent", dialect="scripted"),)}, "No provider can be called"),
    ],
)
def test_what_is_no_agent_is_refused_at_the_start(tmp_path, agents, settings, words):
    """A mistake is told when the server is made, not when somebody asks."""
    with pytest.raises(SettingsError, match=words):
        create_app(Settings(data=str(tmp_path), **settings), MemoryStore(), NO_HOME, agents=agents)
