"""Microsoft's AutoGen: its OpenAI client, and its assistant for the tools."""

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import MultiModalMessage
from autogen_core import CancellationToken, Image
from autogen_core.models import UserMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient
from given import ADD_ASKED, CITY_ASKED, City, add

INFO = {
    "vision": True,
    "function_calling": True,
    "json_output": True,
    "structured_output": True,
    "family": "unknown",
    "multiple_system_messages": True,
}


def client(at, model):
    return OpenAIChatCompletionClient(model=model, base_url=at.v1, api_key=at.key, model_info=INFO)


async def ask(at, model, stream):
    messages = [UserMessage(content=at.prompt, source="user")]
    leaving = CancellationToken()
    if stream:
        try:
            async for said in client(at, model).create_stream(messages, cancellation_token=leaving):
                if isinstance(said, str):
                    at.heard(said)
        finally:
            leaving.cancel()  # its own way to leave
        whole = said
    else:
        whole = await client(at, model).create(messages)
        at.heard(whole.content)
    return {
        "word": whole.finish_reason,
        "usage": [whole.usage.prompt_tokens, whole.usage.completion_tokens],
        "reasoning": whole.thought or "",
    }


async def tools(at, model):
    agent = AssistantAgent("agent", client(at, model), tools=[add], reflect_on_tool_use=True)
    return (await agent.run(task=ADD_ASKED)).messages[-1].content


async def structured(at, model):
    agent = AssistantAgent("agent", client(at, model), output_content_type=City)
    return (await agent.run(task=CITY_ASKED)).messages[-1].content.model_dump()


async def picture(at, model):
    image = Image.from_base64(at.picture)
    await AssistantAgent("agent", client(at, model)).run(
        task=MultiModalMessage(content=["What is it?", image], source="user")
    )
