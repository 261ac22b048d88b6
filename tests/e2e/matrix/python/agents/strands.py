"""AWS's Strands Agents, on OpenAI's and on Anthropic's model."""

import base64

from given import ADD_ASKED, CITY_ASKED, City, add
from strands import Agent, tool


def agent(at, model, **options):
    if at.variant == "anthropic":
        from strands.models.anthropic import AnthropicModel

        llm = AnthropicModel(client_args={"base_url": at.url, "api_key": at.key}, model_id=model, max_tokens=1000)
    else:
        from strands.models.openai import OpenAIModel

        llm = OpenAIModel(client_args={"base_url": at.v1, "api_key": at.key}, model_id=model)
    return Agent(model=llm, callback_handler=None, **options)


async def ask(at, model, stream):
    word, usage, reasoning = None, {}, ""
    async for event in agent(at, model).stream_async(at.prompt):
        at.heard(event.get("data", ""))
        reasoning += event.get("reasoningText", "")
        if "result" in event:
            word = event["result"].stop_reason
            usage = event["result"].metrics.accumulated_usage
    return {"word": word, "usage": [usage.get("inputTokens"), usage.get("outputTokens")], "reasoning": reasoning}


async def tools(at, model):
    return str(await agent(at, model, tools=[tool(add)]).invoke_async(ADD_ASKED))


async def structured(at, model):
    result = await agent(at, model).invoke_async(CITY_ASKED, structured_output_model=City)
    return result.structured_output.model_dump()


async def picture(at, model):
    image = {"image": {"format": "png", "source": {"bytes": base64.b64decode(at.picture)}}}
    await agent(at, model).invoke_async([{"text": "What is it?"}, image])
