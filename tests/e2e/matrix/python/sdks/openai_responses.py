"""OpenAI's client: responses."""

import json

import openai
from given import ADD, ADD_ASKED, CITY_ASKED, City

TOOL = {"type": "function", "name": "add", "description": "Add two numbers.", "parameters": ADD}


def connected(at):
    return openai.AsyncOpenAI(base_url=at.v1, api_key=at.key)


def learnt(response):
    thoughts = [item for item in response.output if item.type == "reasoning"]
    return {
        "word": response.status,
        "usage": [response.usage.input_tokens, response.usage.output_tokens],
        "reasoning": "".join(part.text for item in thoughts for part in item.summary),
    }


async def ask(at, model, stream):
    async with connected(at) as client:
        if not stream:
            whole = await client.responses.create(model=model, input=at.prompt)
            at.heard(whole.output_text)
            return learnt(whole)
        async with client.responses.stream(model=model, input=at.prompt) as events:
            async for event in events:
                if event.type == "response.output_text.delta":
                    at.heard(event.delta)
            return learnt(await events.get_final_response())


async def tools(at, model):
    async with connected(at) as client:
        whole = await client.responses.create(model=model, input=ADD_ASKED, tools=[TOOL])
        while calls := [item for item in whole.output if item.type == "function_call"]:
            results = [
                {
                    "type": "function_call_output",
                    "call_id": call.call_id,
                    "output": str(sum(json.loads(call.arguments).values())),
                }
                for call in calls
            ]
            whole = await client.responses.create(
                model=model, input=results, tools=[TOOL], previous_response_id=whole.id
            )
        return whole.output_text


async def structured(at, model):
    async with connected(at) as client:
        whole = await client.responses.parse(model=model, input=CITY_ASKED, text_format=City)
        return whole.output_parsed.model_dump()


async def picture(at, model):
    content = [{"type": "input_image", "image_url": f"data:image/png;base64,{at.picture}"}]
    async with connected(at) as client:
        await client.responses.create(model=model, input=[{"role": "user", "content": content}])
