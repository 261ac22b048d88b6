"""LlamaIndex's models, and its agent for the tools."""

import base64

from given import ADD_ASKED, CITY_ASKED, City, add
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage, ImageBlock, TextBlock
from llama_index.core.prompts import PromptTemplate


def llm(at, model):
    if at.variant == "ollama":
        from llama_index.llms.ollama import Ollama
        from ollama import AsyncClient, Client

        headers = {"Authorization": f"Bearer {at.key}"}
        return Ollama(
            model=model,
            client=Client(at.url, headers=headers),
            async_client=AsyncClient(at.url, headers=headers),
            context_window=8000,
            thinking=True,
        )
    from llama_index.llms.openai_like import OpenAILike

    return OpenAILike(
        model=model,
        api_base=at.v1,
        api_key=at.key,
        is_chat_model=True,
        is_function_calling_model=True,
        should_use_structured_outputs=True,
        max_retries=0,
    )


def learnt(response):
    raw = response.raw
    raw = raw if isinstance(raw, dict) else vars(raw) if raw is not None else {}
    counts = raw.get("usage")
    counts = counts if isinstance(counts, dict) else vars(counts) if counts is not None else {}
    choices = raw.get("choices")
    thoughts = [block.content for block in response.message.blocks if block.block_type == "thinking"]
    return {
        "word": (choices[0].finish_reason if choices else None) or raw.get("stop_reason") or raw.get("done_reason"),
        "usage": [
            counts.get("prompt_tokens") or counts.get("input_tokens"),
            counts.get("completion_tokens") or counts.get("output_tokens"),
        ],
        "reasoning": "".join(thoughts),
    }


async def ask(at, model, stream):
    messages = [ChatMessage(role="user", content=at.prompt)]
    if not stream:
        whole = await llm(at, model).achat(messages)
        at.heard(whole.message.content)
        return learnt(whole)
    last = None
    async for last in await llm(at, model).astream_chat(messages):
        at.heard(last.delta)
    return learnt(last)


async def tools(at, model):
    return str(await FunctionAgent(llm=llm(at, model), tools=[add], streaming=False).run(ADD_ASKED))


async def structured(at, model):
    return (await llm(at, model).astructured_predict(City, PromptTemplate(CITY_ASKED))).model_dump()


async def picture(at, model):
    image = ImageBlock(image=base64.b64decode(at.picture), image_mimetype="image/png")
    await llm(at, model).achat([ChatMessage(role="user", blocks=[TextBlock(text="What is it?"), image])])
