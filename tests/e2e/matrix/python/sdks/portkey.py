"""Portkey's client, which is OpenAI's with headers of its own."""

from portkey_ai import AsyncPortkey


def connected(at):
    return AsyncPortkey(base_url=at.v1, api_key=at.key, Authorization=f"Bearer {at.key}")


async def ask(at, model, stream):
    messages = [{"role": "user", "content": at.prompt}]
    if not stream:
        whole = await connected(at).chat.completions.create(model=model, messages=messages)
        at.heard(whole.choices[0].message.content)
        return {
            "word": whole.choices[0].finish_reason,
            "usage": [whole.usage.prompt_tokens, whole.usage.completion_tokens],
        }
    word = None
    async for chunk in await connected(at).chat.completions.create(model=model, messages=messages, stream=True):
        at.heard(chunk.choices[0].delta.content)
        word = chunk.choices[0].finish_reason or word
    return {"word": word}


async def picture(at, model):
    url = {"url": f"data:image/png;base64,{at.picture}"}
    content = [{"type": "image_url", "image_url": url}]
    await connected(at).chat.completions.create(model=model, messages=[{"role": "user", "content": content}])
