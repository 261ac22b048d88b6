"""The truth table through the real clients: how each ending looks to a program that uses them, streaming and not.

A client may raise, or tell the ending in its own words. What counts is what its user learns: only an answer that
completed may look complete, and what a failed answer had said is not asked for a second time.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anthropic
import openai
import pytest
import pytest_asyncio
from langchain_openai import ChatOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.e2e.clients import KEY, SCRIPTS, Setting, setting
from tests.requirements import requirement
from tests.support.upstream import ENDINGS, TEXT

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = "What is the wave?"
ASKED = [{"role": "user", "content": PROMPT}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory):
    async with setting(tmp_path_factory.mktemp("truth-in-clients")) as here:
        yield here


@dataclass(frozen=True)
class Learnt:
    """What a program has learnt of an answer: its text, and the client's own word for how it ended."""

    text: str
    word: str | None


Client = Callable[[Setting, str, bool], Awaitable[Learnt]]


async def openai_chat(here: Setting, model: str, stream: bool) -> Learnt:
    async with openai.AsyncOpenAI(base_url=here.base_url, api_key=KEY) as client:
        if not stream:
            whole = await client.chat.completions.create(model=model, messages=ASKED)
            return Learnt(whole.choices[0].message.content or "", whole.choices[0].finish_reason)
        text, word = "", None
        async for chunk in await client.chat.completions.create(model=model, messages=ASKED, stream=True):
            text += chunk.choices[0].delta.content or ""
            word = chunk.choices[0].finish_reason or word
        return Learnt(text, word)


async def openai_responses(here: Setting, model: str, stream: bool) -> Learnt:
    async with openai.AsyncOpenAI(base_url=here.base_url, api_key=KEY) as client:
        if not stream:
            whole = await client.responses.create(model=model, input=PROMPT)
            return Learnt(whole.output_text, whole.status)
        text, word = "", None
        async for event in await client.responses.create(model=model, input=PROMPT, stream=True):
            if event.type == "response.output_text.delta":
                text += event.delta
            elif event.type in ("response.completed", "response.incomplete", "response.failed"):
                word = event.response.status
        return Learnt(text, word)


async def anthropic_messages(here: Setting, model: str, stream: bool) -> Learnt:
    asked = {"model": model, "max_tokens": 100, "messages": ASKED}
    async with anthropic.AsyncAnthropic(base_url=here.server.url, api_key=KEY) as client:
        if stream:
            async with client.messages.stream(**asked) as events:
                message = await events.get_final_message()
        else:
            message = await client.messages.create(**asked)
        return Learnt("".join(block.text for block in message.content), message.stop_reason)


async def langchain(here: Setting, model: str, stream: bool) -> Learnt:
    async with openai.DefaultAsyncHttpxClient() as http:  # LangChain's own is closed by the garbage collector
        chat = ChatOpenAI(model=model, base_url=here.base_url, api_key=KEY, http_async_client=http)
        if not stream:
            whole = await chat.ainvoke(PROMPT)
            return Learnt(str(whole.content), whole.response_metadata.get("finish_reason"))
        text, word = "", None
        async for chunk in chat.astream(PROMPT):
            text += str(chunk.content)
            word = chunk.response_metadata.get("finish_reason") or word
        return Learnt(text, word)


def pydantic_ai(kind: type[OpenAIChatModel] | type[OpenAIResponsesModel]) -> Client:
    async def ask(here: Setting, model: str, stream: bool) -> Learnt:
        async with openai.AsyncOpenAI(base_url=here.base_url, api_key=KEY) as client:
            agent = Agent(kind(model, provider=OpenAIProvider(openai_client=client)))
            if not stream:
                result = await agent.run(PROMPT)
                return Learnt(result.output, str(result.response.finish_reason))
            async with agent.run_stream(PROMPT) as streamed:
                text = await streamed.get_output()
                return Learnt(text, str(streamed.response.finish_reason))

    return ask


CLIENTS: dict[str, Client] = {
    "openai, chat completions": openai_chat,
    "openai, responses": openai_responses,
    "anthropic": anthropic_messages,
    "langchain-openai": langchain,
    "pydantic-ai, chat completions": pydantic_ai(OpenAIChatModel),
    "pydantic-ai, responses": pydantic_ai(OpenAIResponsesModel),
}
COMPLETED = {"stop", "completed", "end_turn"}
"""Words by which these clients call an answer complete."""
CUT_SHORT = ["end:length", "end:content-filter"]
FAILED_AFTER_TEXT = [
    *("end:in-band-error", "end:event-error", "end:eof", "end:eof-unclean", "end:garbage-json"),
    "late-cut",
]
FAILED_BEFORE_TEXT = ["end:400", "end:401", "end:404", "end:500", "end:html-200", "end:json-error-200"]


@pytest.fixture(params=CLIENTS)
def client(request) -> Client:
    return CLIENTS[request.param]


@requirement("truth.clients-see-failure")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_an_answer_that_completed_looks_complete(here, client, stream):
    """Else every word that follows here could be said of nothing."""
    learnt = await client(here, "up/end:completed", stream)

    assert TEXT == learnt.text
    assert learnt.word in COMPLETED


@requirement("truth.clients-see-failure")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("ending", CUT_SHORT)
async def test_an_answer_that_was_cut_short_does_not_look_complete(here, client, ending, stream):
    """The client says so in its own word, or raises."""
    try:
        learnt = await client(here, f"up/{ending}", stream)
    except Exception as error:  # noqa: BLE001 - each client has its own
        learnt = Learnt("", str(error))

    assert learnt.word is not None
    assert learnt.word not in COMPLETED


@requirement("truth.clients-see-failure")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("ending", FAILED_AFTER_TEXT)
async def test_an_answer_that_failed_after_text_raises_and_is_not_asked_for_again(here, client, ending, stream):
    """A second run of the model costs twice, and its answer would be another one."""
    name = f"{ending.removeprefix('end:')} {id(client)} {stream}"
    here.up.models[name] = SCRIPTS.get(ending) or ENDINGS[ending.removeprefix("end:")]
    with pytest.raises(Exception, match=r"\w"):  # each client has its own type, and none may return
        await client(here, f"up/{name}", stream)

    assert 1 == here.calls(name)


@requirement("truth.clients-see-failure")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("ending", FAILED_BEFORE_TEXT)
async def test_an_answer_that_failed_before_text_raises(here, client, ending, stream):
    """With a real status, so that each client has its own type for it."""
    with pytest.raises(Exception, match=r"\w") as raised:  # each client has its own type, and none may return
        await client(here, f"up/{ending}", stream)

    assert not isinstance(raised.value, AssertionError | TypeError | KeyError), raised.value
