"""OpenAI's client: chat completions."""

import json

import openai
from given import ADD, ADD_ASKED, CITY_ASKED, City

TOOL = {"type": "function", "function": {"name": "add", "description": "Add two numbers.", "parameters": ADD}}


def connected(at):
    return openai.AsyncOpenAI(base_url=at.v1, api_key=at.key)


async def ask(at, model, stream):
    messages = [{"role": "user", "content": at.prompt}]
    async with connected(at) as client:
        if not stream:
            whole = await client.chat.completions.create(model=model, messages=messages)
            message = whole.choices[0].message
            at.heard(message.content)
            usage = [whole.usage.prompt_tokens, whole.usage.completion_tokens]
            return {
                "word": whole.choices[0].finish_reason,
                "usage": usage,
                "reasoning": getattr(message, "reasoning_content", ""),
            }
        word, reasoning = None, ""
        async for chunk in await client.chat.completions.create(model=model, messages=messages, stream=True):
            delta = chunk.choices[0].delta
            at.heard(delta.content)
            reasoning += getattr(delta, "reasoning_content", "") or ""
            word = chunk.choices[0].finish_reason or word
        return {"word": word, "reasoning": reasoning}


async def tools(at, model):
    messages = [{"role": "user", "content": ADD_ASKED}]
    async with connected(at) as client:
        while True:
            whole = await client.chat.completions.create(model=model, messages=messages, tools=[TOOL])
            message = whole.choices[0].message
            if not message.tool_calls:
                return message.content
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls:
                result = str(sum(json.loads(call.function.arguments).values()))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


async def structured(at, model):
    async with connected(at) as client:
        whole = await client.chat.completions.parse(
            model=model, messages=[{"role": "user", "content": CITY_ASKED}], response_format=City
        )
        return whole.choices[0].message.parsed.model_dump()


async def picture(at, model):
    url = {"url": f"data:image/png;base64,{at.picture}"}
    content = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": url}]
    async with connected(at) as client:
        await client.chat.completions.create(model=model, messages=[{"role": "user", "content": content}])
