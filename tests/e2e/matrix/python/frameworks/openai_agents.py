"""OpenAI's Agents SDK on both of its models."""

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from given import ADD_ASKED, CITY_ASKED, City, add
from openai import AsyncOpenAI

set_tracing_disabled(True)


def agent(at, model, **options):
    kind = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}[at.variant]
    client = AsyncOpenAI(base_url=at.v1, api_key=at.key)
    return Agent(name="agent", model=kind(model=model, openai_client=client), **options)


def learnt(result):
    usage = result.context_wrapper.usage
    thoughts = [item.raw_item for item in result.new_items if item.type == "reasoning_item"]
    parts = [part for item in thoughts for part in (item.content or item.summary or [])]
    return {"usage": [usage.input_tokens, usage.output_tokens], "reasoning": "".join(part.text for part in parts)}


async def ask(at, model, stream):
    if not stream:
        result = await Runner.run(agent(at, model), at.prompt)
        at.heard(result.final_output)
        return learnt(result)
    result = Runner.run_streamed(agent(at, model), at.prompt)
    try:
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                at.heard(event.data.delta)
    finally:
        result.cancel()  # as its documentation says for a program that leaves
    return learnt(result)


async def tools(at, model):
    return (await Runner.run(agent(at, model, tools=[function_tool(add)]), ADD_ASKED)).final_output


async def structured(at, model):
    return (await Runner.run(agent(at, model, output_type=City), CITY_ASKED)).final_output.model_dump()


async def picture(at, model):
    content = [{"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{at.picture}"}]
    await Runner.run(agent(at, model), [{"role": "user", "content": content}])
