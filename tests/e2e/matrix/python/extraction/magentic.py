"""Magentic: functions whose body is a model."""

import base64

from given import ADD_ASKED, CITY_ASKED, City, add
from magentic import AsyncStreamedStr, Chat, ImageBytes, OpenaiChatModel, UserMessage, prompt, prompt_chain


def llm(at, model):
    return OpenaiChatModel(model, base_url=at.v1, api_key=at.key)


async def ask(at, model, stream):
    if not stream:
        chat = await Chat(messages=[UserMessage(at.prompt)], model=llm(at, model)).asubmit()
        at.heard(chat.last_message.content)
        usage = chat.last_message.usage
        return {"usage": [usage.input_tokens, usage.output_tokens] if usage else None}

    @prompt("{question}", model=llm(at, model))
    async def answered(question: str) -> AsyncStreamedStr: ...

    async for text in await answered(at.prompt):
        at.heard(text)
    return {}


async def tools(at, model):
    @prompt_chain(ADD_ASKED, functions=[add], model=llm(at, model))
    async def summed() -> str: ...

    return await summed()


async def structured(at, model):
    @prompt(CITY_ASKED, model=llm(at, model))
    async def described() -> City: ...

    return (await described()).model_dump()


async def picture(at, model):
    image = ImageBytes(base64.b64decode(at.picture))
    await Chat(messages=[UserMessage(["What is it?", image])], model=llm(at, model)).asubmit()
