"""Ollama's client for Python."""

from given import ADD_ASKED, CITY_ASKED, City, add
from ollama import AsyncClient


def connected(at):
    return AsyncClient(at.url, headers={"Authorization": f"Bearer {at.key}"})


def says(text):
    return [{"role": "user", "content": text}]


async def ask(at, model, stream):
    if not stream:
        whole = await connected(at).chat(model, says(at.prompt), think=True)
        at.heard(whole.message.content)
        counts = [whole.prompt_eval_count, whole.eval_count]
        return {"word": whole.done_reason, "usage": counts, "reasoning": whole.message.thinking}
    word, reasoning = None, ""
    async for part in await connected(at).chat(model, says(at.prompt), stream=True, think=True):
        at.heard(part.message.content)
        reasoning += part.message.thinking or ""
        word = part.done_reason or word
    return {"word": word, "reasoning": reasoning}


async def tools(at, model):
    messages = says(ADD_ASKED)
    while True:
        message = (await connected(at).chat(model, messages, tools=[add])).message
        if not message.tool_calls:
            return message.content
        messages.append(message)
        for call in message.tool_calls:
            result = str(add(**call.function.arguments))
            messages.append({"role": "tool", "tool_name": call.function.name, "content": result})


async def structured(at, model):
    whole = await connected(at).chat(model, says(CITY_ASKED), format=City.model_json_schema())
    return City.model_validate_json(whole.message.content).model_dump()


async def picture(at, model):
    message = {"role": "user", "content": "What is it?", "images": [at.picture]}
    await connected(at).chat(model, [message])
