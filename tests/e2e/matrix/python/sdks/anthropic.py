"""Anthropic's client: messages."""

import anthropic
from given import ADD_ASKED, CITY_ASKED, City

LIMIT = 1000


def connected(at):
    return anthropic.AsyncAnthropic(base_url=at.url, api_key=at.key)


def says(content):
    return [{"role": "user", "content": content}]


async def ask(at, model, stream):
    asked = {"model": model, "max_tokens": LIMIT, "messages": says(at.prompt)}
    async with connected(at) as client:
        if stream:
            async with client.messages.stream(**asked) as events:
                async for text in events.text_stream:
                    at.heard(text)
                message = await events.get_final_message()
        else:
            message = await client.messages.create(**asked)
            at.heard("".join(block.text for block in message.content if block.type == "text"))
        return {
            "word": message.stop_reason,
            "usage": [message.usage.input_tokens, message.usage.output_tokens],
            "reasoning": "".join(block.thinking for block in message.content if block.type == "thinking"),
        }


async def tools(at, model):
    @anthropic.beta_async_tool
    async def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    async with connected(at) as client:
        runner = client.beta.messages.tool_runner(model=model, max_tokens=LIMIT, messages=says(ADD_ASKED), tools=[add])
        message = await runner.until_done()
        return message.content[0].text


async def structured(at, model):
    async with connected(at) as client:
        message = await client.messages.parse(
            model=model, max_tokens=LIMIT, messages=says(CITY_ASKED), output_format=City
        )
        return message.parsed_output.model_dump()


async def picture(at, model):
    source = {"type": "base64", "media_type": "image/png", "data": at.picture}
    async with connected(at) as client:
        await client.messages.create(
            model=model, max_tokens=LIMIT, messages=says([{"type": "image", "source": source}])
        )
