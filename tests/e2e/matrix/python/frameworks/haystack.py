"""Haystack's chat generators, and its agent for the tools."""

from given import ADD, ADD_ASKED, CITY_ASKED, City, add
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator, OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage, ImageContent
from haystack.tools import Tool
from haystack.utils import Secret


def generator(at, model, **options):
    kind = {"chat": OpenAIChatGenerator, "responses": OpenAIResponsesChatGenerator}[at.variant]
    return kind(api_key=Secret.from_token(at.key), model=model, api_base_url=at.v1, **options)


async def ask(at, model, stream):
    async def hear(chunk):
        at.heard(chunk.content)

    made = generator(at, model, **({"streaming_callback": hear} if stream else {}))
    reply = (await made.run_async(messages=[ChatMessage.from_user(at.prompt)]))["replies"][0]
    if not stream:
        at.heard(reply.text)
    counts = reply.meta.get("usage") or {}
    return {
        "word": reply.meta.get("finish_reason") or reply.meta.get("status"),
        "usage": [
            counts.get("prompt_tokens") or counts.get("input_tokens"),
            counts.get("completion_tokens") or counts.get("output_tokens"),
        ],
        "reasoning": reply.reasoning.reasoning_text if reply.reasoning else "",
    }


async def tools(at, model):
    tool = Tool(name="add", description="Add two numbers.", parameters=ADD, function=add)
    agent = Agent(chat_generator=generator(at, model), tools=[tool])
    return (await agent.run_async(messages=[ChatMessage.from_user(ADD_ASKED)]))["last_message"].text


async def structured(at, model):
    wanted = {"chat": "response_format", "responses": "text_format"}[at.variant]
    made = generator(at, model, generation_kwargs={wanted: City})
    reply = (await made.run_async(messages=[ChatMessage.from_user(CITY_ASKED)]))["replies"][0]
    return City.model_validate_json(reply.text).model_dump()


async def picture(at, model):
    image = ImageContent(base64_image=at.picture, mime_type="image/png")
    message = ChatMessage.from_user(content_parts=["What is it?", image])
    await generator(at, model).run_async(messages=[message])
