"""Agents of other frameworks, as their own packages make them, published as models: with U as their model."""

import json
import warnings

import pytest

from holdfast.server.app import create_app
from holdfast.server.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.served import Served
from tests.support.upstream import Delta, Hang, Headers, Role, Status, Upstream, answer, calling

pytestmark = [pytest.mark.timeout(180), pytest.mark.filterwarnings("ignore")]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def pydantic_ai(base_url: str):
    from openai import AsyncOpenAI
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    client = AsyncOpenAI(base_url=base_url, api_key="k", max_retries=0)
    return Agent(OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client)), tools=[add]), client


def openai_agents(base_url: str):
    from agents import Agent, OpenAIChatCompletionsModel, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=base_url, api_key="k", max_retries=0)
    model = OpenAIChatCompletionsModel(model="m", openai_client=client)
    return Agent(name="own", model=model, tools=[function_tool(add)]), client


def langgraph(base_url: str):
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    made = tool(add)
    chat = ChatOpenAI(model="m", base_url=base_url, api_key="k", max_retries=0, stream_usage=True)
    model = chat.bind_tools([made])

    async def think(state):
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("tools", ToolNode([made]))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", tools_condition)
    graph.add_edge("tools", "think")
    return graph.compile(), chat.root_async_client


FRAMEWORKS = {"pydantic_ai": pydantic_ai, "openai_agents": openai_agents, "langgraph": langgraph}


@pytest.fixture(scope="module", autouse=True)
def _frameworks_may_block(blocking_is_an_error):
    """They load more of themselves when they are first used: that is theirs to mend."""
    blocking_is_an_error.deactivate()
    yield
    blocking_is_an_error.activate()


@pytest.fixture(params=FRAMEWORKS)
async def world(request, tmp_path):
    """A server that publishes an agent of each framework, with U as its model."""
    async with Upstream() as up:
        with warnings.catch_warnings(action="ignore"):
            agent, model = FRAMEWORKS[request.param](up.base_url)
        settings = Settings(data=str(tmp_path), providers=(ProviderSettings("s", dialect="scripted"),))
        async with Served(create_app(settings, MemoryStore(), {}, agents={"own": agent})) as served:
            async with served.client() as client:
                yield up, Native(client)
        await model.close()


async def ask(api, input="Add", session_id=None):
    session_id = session_id or await api.new_session()
    return session_id, await api.start(session_id, input, "agent/own")


@requirement("byo.frameworks")
async def test_its_text_and_tools_are_events_and_stand_in_history(world):
    """What the framework does is seen as it happens, and told to its model again in the next turn."""
    up, api = world
    up.enqueue(calling(("add", {"a": 1, "b": 2}), text="Let me see. "), answer("It is ", "3."), answer("Really."))
    session_id, run_id = await ask(api)
    frames = await api.replay(run_id)
    again = await api.settled((await ask(api, "Sure?", session_id))[1])
    events = [frame.json() for frame in frames]
    settlement = events[-1]["settlement"]

    assert ("completed", "Let me see. It is 3.") == (settlement["outcome"], settlement["text"])
    assert [("add", {"a": 1, "b": 2})] == [
        (event["name"], json.loads(event["arguments"])) for event in events if event["type"] == "tool.call"
    ]
    assert [("3", False)] == [
        (event["output"], event["is_error"]) for event in events if event["type"] == "tool.result"
    ]
    assert "provider" == settlement["usage"]["source"]
    assert ("completed", "Really.") == (again["outcome"], again["text"])
    shown = up.requests[-1].body["messages"]
    assert [("user", "Add"), ("user", "Sure?")] == [
        (said["role"], said["content"]) for said in shown if said["role"] == "user"
    ]
    assert [("tool", "3")] == [(said["role"], said["content"]) for said in shown if said["role"] == "tool"]


@requirement("byo.frameworks")
async def test_a_failure_of_its_model_is_a_failed_run(world):
    """Whatever the framework raises."""
    up, api = world
    up.models["m"] = [Status(400)]
    failed = await api.settled((await ask(api))[1])

    assert ("failed", "source_failed") == (failed["outcome"], failed["error"]["code"])


@requirement("byo.frameworks", "byo.stop")
async def test_stop_reaches_the_frameworks_own_model_call(world):
    """The connection to its model is closed, and what it had said is kept."""
    up, api = world
    up.models["m"] = [Headers(), Role(), Delta("Going"), Hang()]
    _, run_id = await ask(api)
    (await api.shown(run_id, "Going")).close()
    stopped = (await api.stop(run_id))["settlement"]
    await up.requests[-1].wait_closed(10.0)

    assert ("stopped", "Going") == (stopped["outcome"], stopped["text"])


@requirement("byo.frameworks")
async def test_an_agent_that_runs_in_circles_is_cut_off_by_its_framework_and_that_is_no_success(tmp_path):
    """OpenAI's Agents SDK gives up after ten turns: truncated, and not completed."""
    async with Upstream() as up:
        up.models["m"] = calling(("add", {"a": 1, "b": 2}))
        settings = Settings(data=str(tmp_path), providers=(ProviderSettings("s", dialect="scripted"),))
        agent, model = openai_agents(up.base_url)
        app = create_app(settings, MemoryStore(), {}, agents={"own": agent})
        async with Served(app) as served, served.client() as client:
            ended = await Native(client).settled((await ask(Native(client)))[1])
        await model.close()

    assert ("truncated", "max_steps") == (ended["outcome"], ended["finish_reason"])
