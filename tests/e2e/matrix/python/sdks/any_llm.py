"""Mozilla's any-llm."""

import json

from any_llm import acompletion
from given import ADD_ASKED, CITY_ASKED, City, add


def named(at, model):
    return {"provider": "openai", "model": model, "api_base": at.v1, "api_key": at.key}


def says(content):
    return [{"role": "user", "content": content}]


async def ask(at, model, stream):
    if not stream:
        whole = await acompletion(**named(at, model), messages=says(at.prompt))
        at.heard(whole.choices[0].message.content)
        thought = whole.choices[0].message.reasoning
        return {
            "word": whole.choices[0].finish_reason,
            "usage": [whole.usage.prompt_tokens, whole.usage.completion_tokens],
            "reasoning": thought.content if thought else "",
        }
    word, reasoning = None, ""
    async for chunk in await acompletion(**named(at, model), messages=says(at.prompt), stream=True):
        delta = chunk.choices[0].delta
        at.heard(delta.content)
        reasoning += delta.reasoning.content if delta.reasoning else ""
        word = chunk.choices[0].finish_reason or word
    return {"word": word, "reasoning": reasoning}


async def tools(at, model):
    messages = says(ADD_ASKED)
    while True:
        message = (await acompletion(**named(at, model), messages=messages, tools=[add])).choices[0].message
        if not message.tool_calls:
            return message.content
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            result = str(add(**json.loads(call.function.arguments)))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


async def structured(at, model):
    whole = await acompletion(**named(at, model), messages=says(CITY_ASKED), response_format=City)
    return json.loads(whole.choices[0].message.content)


async def picture(at, model):
    url = {"url": f"data:image/png;base64,{at.picture}"}
    await acompletion(**named(at, model), messages=says([{"type": "image_url", "image_url": url}]))
