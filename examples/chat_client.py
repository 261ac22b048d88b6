"""Reads a chat completion with OpenAI's own client, disconnects, resumes, and stops another one.

Run it as `python chat_client.py http://127.0.0.1:8787/v1 scripted/lorem:200:50`.
"""

import asyncio
import sys

from openai import AsyncOpenAI, AsyncStream
from openai.types.chat import ChatCompletionChunk

QUESTION = {"role": "user", "content": "Tell me of the sea."}


async def resume(client: AsyncOpenAI, completion_id: str, seen: int) -> str:
    """Return the text after the first `seen` chunks."""
    stream = await client.get(
        f"/chat/completions/{completion_id}",
        cast_to=ChatCompletionChunk,
        options={"params": {"stream": "true", "starting_after": seen}},
        stream=True,
        stream_cls=AsyncStream[ChatCompletionChunk],
    )
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


async def main(base_url: str, model: str) -> None:
    """Start in the background, read ten chunks, disconnect, and read the rest; then stop another by a disconnect."""
    async with AsyncOpenAI(base_url=base_url, api_key="not needed on this machine") as client:
        asked = {"model": model, "messages": [QUESTION], "stream": True}
        stream = await client.chat.completions.create(**asked, extra_body={"background": True})
        chunks = [await anext(stream) for _ in range(10)]
        await stream.close()
        said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        print(said + await resume(client, chunks[0].id, seen=10))

        stream = await client.chat.completions.create(**asked)
        first = await anext(stream)
        await stream.close()  # without `background` a disconnect is a stop
        left = await client.chat.completions.with_raw_response.retrieve(first.id)
        while left.status_code == 202:  # it is being stopped
            left = await client.chat.completions.with_raw_response.retrieve(first.id)
        print(left.http_response.json()["choices"][0]["finish_reason"])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
