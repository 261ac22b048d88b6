"""Browser Use: the chat model that its agent speaks through. No browser is started."""

from browser_use import ChatOpenAI
from browser_use.llm.messages import ContentPartImageParam, ImageURL, UserMessage
from given import CITY_ASKED, City


def chat(at, model):
    return ChatOpenAI(model=model, base_url=at.v1, api_key=at.key)


async def ask(at, model, stream):
    whole = await chat(at, model).ainvoke([UserMessage(content=at.prompt)])
    at.heard(whole.completion)
    return {"usage": [whole.usage.prompt_tokens, whole.usage.completion_tokens], "word": whole.stop_reason}


async def structured(at, model):
    whole = await chat(at, model).ainvoke([UserMessage(content=CITY_ASKED)], output_format=City)
    return whole.completion.model_dump()


async def picture(at, model):
    image = ContentPartImageParam(image_url=ImageURL(url=f"data:image/png;base64,{at.picture}"))
    await chat(at, model).ainvoke([UserMessage(content=[image])])
