"""Microsoft's Agent Framework: its agent on chat completions and on responses."""

import base64

from agent_framework import Agent, Content, Message
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient
from given import ADD_ASKED, CITY_ASKED, City, add


def agent(at, model, **options):
    kind = {"chat": OpenAIChatCompletionClient, "responses": OpenAIChatClient}[at.variant]
    return Agent(kind(model=model, base_url=at.v1, api_key=at.key), **options)


def learnt(response):
    usage = response.usage_details or {}
    thoughts = [
        content.text
        for message in response.messages
        for content in message.contents
        if content.type == "text_reasoning"
    ]
    return {
        "word": getattr(response, "finish_reason", None),
        "usage": [usage.get("input_token_count"), usage.get("output_token_count")],
        "reasoning": "".join(filter(None, thoughts)),
    }


async def ask(at, model, stream):
    if not stream:
        whole = await agent(at, model).run(at.prompt)
        at.heard(whole.text)
        return learnt(whole)
    streamed = agent(at, model).run(at.prompt, stream=True)
    async for update in streamed:
        for content in update.contents:
            if content.type == "text" and getattr(content, "merge_mode", "") != "replace":  # the whole text once more
                at.heard(content.text)
    return learnt(await streamed.get_final_response())


async def tools(at, model):
    return (await agent(at, model, tools=[add]).run(ADD_ASKED)).text


async def structured(at, model):
    return (await agent(at, model).run(CITY_ASKED, options={"response_format": City})).value.model_dump()


async def picture(at, model):
    image = Content.from_data(data=base64.b64decode(at.picture), media_type="image/png")
    await agent(at, model).run(Message("user", [Content.from_text("What is it?"), image]))
