"""LiteLLM's SDK: with OpenAI's API, with Anthropic's, with Ollama's, and with the class for vLLM."""

import json

import litellm
from given import ADD, ADD_ASKED, CITY_ASKED, City

TOOL = {"type": "function", "function": {"name": "add", "description": "Add two numbers.", "parameters": ADD}}
litellm.suppress_debug_info = True


def named(at, model):
    bases = {"openai": at.v1, "hosted_vllm": at.v1, "anthropic": at.url, "ollama_chat": at.url}
    return {"model": f"{at.variant}/{model}", "api_base": bases[at.variant], "api_key": at.key}


async def ask(at, model, stream):
    messages = [{"role": "user", "content": at.prompt}]
    if not stream:
        whole = await litellm.acompletion(**named(at, model), messages=messages)
        message = whole.choices[0].message
        at.heard(message.content)
        return {
            "word": whole.choices[0].finish_reason,
            "usage": [whole.usage.prompt_tokens, whole.usage.completion_tokens],
            "reasoning": getattr(message, "reasoning_content", ""),
        }
    word, reasoning = None, ""
    async for chunk in await litellm.acompletion(**named(at, model), messages=messages, stream=True):
        delta = chunk.choices[0].delta
        at.heard(delta.content)
        reasoning += getattr(delta, "reasoning_content", "") or ""
        word = chunk.choices[0].finish_reason or word
    return {"word": word, "reasoning": reasoning}


async def tools(at, model):
    messages = [{"role": "user", "content": ADD_ASKED}]
    while True:
        whole = await litellm.acompletion(**named(at, model), messages=messages, tools=[TOOL])
        message = whole.choices[0].message
        if not message.tool_calls:
            return message.content
        messages.append(message.model_dump())
        for call in message.tool_calls:
            result = str(sum(json.loads(call.function.arguments).values()))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


async def structured(at, model):
    messages = [{"role": "user", "content": CITY_ASKED}]
    whole = await litellm.acompletion(**named(at, model), messages=messages, response_format=City)
    return json.loads(whole.choices[0].message.content)


async def picture(at, model):
    url = {"url": f"data:image/png;base64,{at.picture}"}
    messages = [{"role": "user", "content": [{"type": "image_url", "image_url": url}]}]
    await litellm.acompletion(**named(at, model), messages=messages)
