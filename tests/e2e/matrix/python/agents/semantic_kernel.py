"""Semantic Kernel's chat completion, with functions of a kernel for the tools."""

import base64

from given import ADD_ASKED, CITY_ASKED, City
from openai import AsyncOpenAI
from semantic_kernel import Kernel
from semantic_kernel.connectors.ai import FunctionChoiceBehavior
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings
from semantic_kernel.contents import ChatHistory, ChatMessageContent, ImageContent, TextContent
from semantic_kernel.functions import kernel_function


class Sums:
    @kernel_function(description="Add two numbers.")
    def add(self, a: int, b: int) -> int:
        return a + b


def service(at, model):
    return OpenAIChatCompletion(
        ai_model_id=model, async_client=AsyncOpenAI(base_url=at.v1, api_key=at.key), service_id="up"
    )


def history(text):
    return ChatHistory(messages=[ChatMessageContent(role="user", content=text)])


async def ask(at, model, stream):
    settings = OpenAIChatPromptExecutionSettings()
    if not stream:
        whole = await service(at, model).get_chat_message_content(history(at.prompt), settings)
        at.heard(str(whole))
        usage = whole.metadata["usage"]
        return {"word": whole.finish_reason, "usage": [usage.prompt_tokens, usage.completion_tokens]}
    word = None
    async for chunk in service(at, model).get_streaming_chat_message_content(history(at.prompt), settings):
        at.heard(str(chunk))
        word = chunk.finish_reason or word
    return {"word": word}


async def tools(at, model):
    kernel = Kernel()
    kernel.add_plugin(Sums(), "sums")
    settings = OpenAIChatPromptExecutionSettings(function_choice_behavior=FunctionChoiceBehavior.Auto())
    return str(await service(at, model).get_chat_message_content(history(ADD_ASKED), settings, kernel=kernel))


async def structured(at, model):
    settings = OpenAIChatPromptExecutionSettings(response_format=City)
    whole = await service(at, model).get_chat_message_content(history(CITY_ASKED), settings)
    return City.model_validate_json(str(whole)).model_dump()


async def picture(at, model):
    image = ImageContent(data=base64.b64decode(at.picture), data_format="base64", mime_type="image/png")
    message = ChatMessageContent(role="user", items=[TextContent(text="What is it?"), image])
    await service(at, model).get_chat_message_content(
        ChatHistory(messages=[message]), OpenAIChatPromptExecutionSettings()
    )
