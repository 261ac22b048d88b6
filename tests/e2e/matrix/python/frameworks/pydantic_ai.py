"""Pydantic AI's agent on each of its models."""

import base64

from given import ADD_ASKED, CITY_ASKED, City, add
from pydantic_ai import Agent, BinaryContent
from pydantic_ai.messages import ThinkingPart
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider


def agent(at, model, **options):
    if at.variant == "anthropic":
        return Agent(AnthropicModel(model, provider=AnthropicProvider(api_key=at.key, base_url=at.url)), **options)
    if at.variant == "responses":
        options["model_settings"] = {"openai_reasoning_summary": "auto"}
    kind = {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel}[at.variant]
    return Agent(kind(model, provider=OpenAIProvider(base_url=at.v1, api_key=at.key)), **options)


def learnt(response, usage):
    thoughts = [part.content for part in response.parts if isinstance(part, ThinkingPart)]
    return {
        "word": response.finish_reason,
        "usage": [usage.input_tokens, usage.output_tokens],
        "reasoning": "".join(thoughts),
    }


def used(result):
    return result.usage() if callable(result.usage) else result.usage


async def ask(at, model, stream):
    if not stream:
        result = await agent(at, model).run(at.prompt)
        at.heard(result.output)
        return learnt(result.response, used(result))
    async with agent(at, model).run_stream(at.prompt) as result:
        async for text in result.stream_text(delta=True, debounce_by=None):
            at.heard(text)
        return learnt(result.response, used(result))


async def tools(at, model):
    return (await agent(at, model, tools=[add]).run(ADD_ASKED)).output


async def structured(at, model):
    return (await agent(at, model, output_type=City).run(CITY_ASKED)).output.model_dump()


async def picture(at, model):
    await agent(at, model).run(["What is it?", BinaryContent(base64.b64decode(at.picture), media_type="image/png")])
