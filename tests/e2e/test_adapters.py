"""Agents of other frameworks, as their own packages make them, published as models: with U as their model."""

import asyncio
import json
import warnings
from contextlib import asynccontextmanager

import pytest

from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.served import Served
from tests.support.upstream import (
    Delta,
    Done,
    Hang,
    Headers,
    ReasoningDelta,
    Role,
    Status,
    Upstream,
    UsageChunk,
    answer,
    calling,
)
from tests.support.upstream import Finish as FinishChunk
from tests.support.waiting import LONG

pytestmark = pytest.mark.filterwarnings("ignore")


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def pydantic_ai(base_url: str, called=add, profile=None, **more):
    from openai import AsyncOpenAI
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    client = AsyncOpenAI(base_url=base_url, api_key="k", max_retries=0)
    model = OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client), profile=profile)
    return Agent(model, tools=[called], **more), client


def openai_agents(base_url: str, called=add, **more):
    from agents import Agent, FunctionTool, OpenAIChatCompletionsModel, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=base_url, api_key="k", max_retries=0)
    model = OpenAIChatCompletionsModel(model="m", openai_client=client)
    tool = called if isinstance(called, FunctionTool) else function_tool(called)
    return Agent(name="own", model=model, tools=[tool], **more), client


def langgraph(base_url: str, called=add):
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition
    from openai import DefaultAsyncHttpxClient

    made = tool(called)
    own = DefaultAsyncHttpxClient()  # LangChain would share one among all with the same address, also if it is closed
    chat = ChatOpenAI(
        model="m", base_url=base_url, api_key="k", max_retries=0, stream_usage=True, http_async_client=own
    )
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


@asynccontextmanager
async def publishing(folder, agent, **settings):
    """A server that publishes an agent."""
    providers = settings.pop("providers", (ProviderSettings("s", dialect="scripted"),))
    configured = Settings(data=str(folder), providers=providers, **settings)
    async with Served(create_app(configured, MemoryStore(), {}, agents={"own": agent})) as served:
        async with served.client() as client:
            yield Native(client)


@pytest.fixture(params=FRAMEWORKS)
async def world(request, tmp_path):
    """A server that publishes an agent of each framework, with U as its model."""
    async with Upstream() as up:
        with warnings.catch_warnings(action="ignore"):
            agent, model = FRAMEWORKS[request.param](up.base_url)
        async with publishing(tmp_path, agent) as api:
            yield up, api
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
    await up.requests[-1].wait_closed()

    assert ("stopped", "Going") == (stopped["outcome"], stopped["text"])


@requirement("byo.frameworks", "start.reasoning-apart")
async def test_what_its_model_thinks_is_told_apart(world, request):
    """It is shown as what it is, and is no part of the answer."""
    up, api = world
    up.models["m"] = [Headers(), Role(), ReasoningDelta("Let me think."), *answer("The answer.")[2:]]
    frames = await api.replay((await ask(api))[1])
    events = [frame.json() for frame in frames]
    thoughts = "".join(event["text"] for event in events if event["type"] == "reasoning.delta")

    assert "The answer." == events[-1]["settlement"]["text"]
    if "langgraph" not in request.node.name:  # whose client for OpenAI leaves such thoughts out
        assert "Let me think." == thoughts


@requirement("byo.frameworks", "start.reasoning-apart")
@pytest.mark.parametrize(
    "said",
    [
        {"content": [{"type": "thinking", "thinking": "Let me think."}]},
        {"content": [{"type": "reasoning", "reasoning": "Let me think."}]},
        {"content": "", "additional_kwargs": {"reasoning_content": "Let me think."}},
    ],
    ids=["thinking", "reasoning", "reasoning_content"],
)
async def test_a_graph_whose_model_thinks_tells_its_thoughts_apart(tmp_path, said):
    """Each of its clients for models has another place for them."""
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessageChunk
    from langchain_core.outputs import ChatGenerationChunk
    from langgraph.graph import START, MessagesState, StateGraph

    class Thinking(BaseChatModel):
        _llm_type = "thinking"

        def _generate(self, *args, **kwargs):
            raise NotImplementedError

        async def _astream(self, *args, **kwargs):
            yield ChatGenerationChunk(message=AIMessageChunk(**said))
            last = {"finish_reason": "stop"}
            yield ChatGenerationChunk(message=AIMessageChunk(content="The answer.", response_metadata=last))

    async def think(state):
        return {"messages": [await Thinking().ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("think", think).add_edge(START, "think").compile()
    async with publishing(tmp_path, graph) as api:
        frames = await api.replay((await ask(api))[1])
    events = [frame.json() for frame in frames]

    assert "Let me think." == "".join(event["text"] for event in events if event["type"] == "reasoning.delta")
    assert ("completed", "The answer.") == tuple(events[-1]["settlement"][name] for name in ("outcome", "text"))


CUT = [Headers(), Role(), Delta("It goes on and"), FinishChunk("length"), UsageChunk(7, 5), Done()]


@requirement("byo.frameworks", "truth.length")
@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_a_model_that_was_cut_off_is_no_success(tmp_path, framework):
    """The framework ends as if all were well; the run tells how its model ended, and what it cost.

    OpenAI's Agents SDK is told so by Responses only, which here is our own, with U behind it.
    """
    async with Upstream() as up:
        up.models["m"] = CUT
        agent, model = FRAMEWORKS[framework](up.base_url)
        async with publishing(tmp_path, agent, providers=(ProviderSettings("up", base_url=up.base_url),)) as api:
            if framework == "openai_agents":
                from agents import OpenAIResponsesModel

                model.base_url = f"http://{api.client.host}:{api.client.port}/v1/"
                agent.model = OpenAIResponsesModel("up/m", model)
            ended = await api.settled((await ask(api))[1])
        await model.close()

    assert ("truncated", "length", "It goes on and") == tuple(
        ended[name] for name in ("outcome", "finish_reason", "text")
    )
    assert ("provider", 7, 5) == tuple(ended["usage"][name] for name in ("source", "input_tokens", "output_tokens"))


@requirement("byo.frameworks", "byo.stop")
@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_stop_reaches_the_frameworks_own_tools(tmp_path, framework):
    """What they wait for is cancelled in their own task, and the call stands in history as one that may have run."""
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        """Wait for ever."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    async with Upstream() as up:
        up.models["m"] = calling(("wait", {}), text="So. ")
        agent, model = FRAMEWORKS[framework](up.base_url, wait)
        async with publishing(tmp_path, agent) as api:
            session_id, run_id = await ask(api)
            async with asyncio.timeout(LONG):
                await begun.wait()
            stopped = (await api.stop(run_id))["settlement"]
            async with asyncio.timeout(LONG):
                await ended.wait()
            steps = (await api.session(session_id))["messages"][-1]["steps"]
        await model.close()

    assert ("stopped", "So. ") == (stopped["outcome"], stopped["text"])
    assert ["The run was stopped before this call finished. It may have run."] == [
        call["output"] for step in steps for call in step["tool_calls"]
    ]


def asking_pydantic_ai(base_url: str):
    from pydantic_ai import DeferredToolRequests, Tool

    return pydantic_ai(base_url, Tool(add, requires_approval=True), output_type=[str, DeferredToolRequests])


def asking_openai_agents(base_url: str):
    from agents import function_tool

    return openai_agents(base_url, function_tool(add, needs_approval=True))


def asking_langgraph(base_url: str):
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.types import interrupt

    def think(state):
        return {"messages": [("ai", interrupt("May I?"))]}

    graph = StateGraph(MessagesState).add_node("think", think).add_edge(START, "think")
    return graph.compile(checkpointer=InMemorySaver()), None


@requirement("byo.frameworks")
@pytest.mark.parametrize("asking", [asking_pydantic_ai, asking_openai_agents, asking_langgraph])
async def test_an_agent_that_waits_for_a_person_has_not_succeeded(tmp_path, asking):
    """Nobody can be asked here: the run fails, and says what to do about it."""
    async with Upstream() as up:
        up.models["m"] = calling(("add", {"a": 1, "b": 2}))
        agent, model = asking(up.base_url)
        async with publishing(tmp_path, agent) as api:
            ended = await api.settled((await ask(api))[1])
        if model is not None:
            await model.close()

    assert ("failed", "source_failed") == (ended["outcome"], ended["error"]["code"])
    assert "waits for a person, who cannot be asked here" in ended["error"]["message"]


@requirement("byo.frameworks")
@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_a_limit_of_its_own_is_told_with_what_was_used(tmp_path, framework):
    """A limit of requests, of turns or of recursion: truncated, with the usage up to there."""
    async with Upstream() as up:
        up.models["m"] = [*calling(("add", {"a": 1, "b": 2}))[:-1], UsageChunk(10, 5), Done()]
        agent, model = FRAMEWORKS[framework](up.base_url)
        if framework == "langgraph":
            agent = agent.with_config(recursion_limit=20)
        async with publishing(tmp_path, agent) as api:
            ended = await api.settled((await ask(api))[1])
        await model.close()

    asked = ended["usage"]["input_tokens"] // 10
    assert ("truncated", "max_steps") == (ended["outcome"], ended["finish_reason"])
    assert asked >= 10
    assert ("provider", asked * 10, asked * 5) == tuple(
        ended["usage"][name] for name in ("source", "input_tokens", "output_tokens")
    )


@requirement("byo.frameworks")
async def test_a_result_that_is_no_text_is_told_though_something_was_said_before(tmp_path):
    """The words on the way to an answer are not the answer."""
    async with Upstream() as up:
        agent, model = pydantic_ai(up.base_url, output_type=dict[str, int])
        result = calling(("final_result", {"response": {"sum": 3}}))
        up.enqueue(calling(("add", {"a": 1, "b": 2}), text="Let me see. "), result)
        async with publishing(tmp_path, agent) as api:
            ended = await api.settled((await ask(api))[1])
        await model.close()

    assert ("completed", 'Let me see. {"sum":3}') == (ended["outcome"], ended["text"])


def pydantic_ai_with_tags(base_url: str):
    """One that leaves `<think>` in its text: by default pydantic-ai itself takes it out."""
    from pydantic_ai.profiles.openai import OpenAIModelProfile

    return pydantic_ai(base_url, profile=OpenAIModelProfile(thinking_tags=("<none>", "</none>")))


TAGGED = "<think>First.</think>Then."


@requirement("think.switch", "think.every-source")
@pytest.mark.parametrize(("think", "text", "reasoning"), [(True, "Then.", "First."), (False, TAGGED, "")])
@pytest.mark.parametrize("framework", [pydantic_ai_with_tags, openai_agents, langgraph])
async def test_whether_its_tags_are_meant_is_a_setting(tmp_path, framework, think, text, reasoning):
    """It yields what its model wrote, and has no event by which it could say that itself."""
    async with Upstream() as up:
        agent, model = framework(up.base_url)
        async with publishing(tmp_path, agent, agent_think={"own": think}) as api:
            up.enqueue(calling(("add", {"a": 1, "b": 2})), answer(*TAGGED))
            events = [frame.json() for frame in await api.replay((await ask(api))[1])]
        await model.close()
    thought = "".join(event["text"] for event in events if event["type"] == "reasoning.delta")

    assert ("completed", text) == (events[-1]["settlement"]["outcome"], events[-1]["settlement"]["text"])
    assert reasoning == thought
