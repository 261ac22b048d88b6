"""Reads a response with OpenAI's own client, across lost connections; stops one; asks two over a WebSocket.

Run it as `python responses_client.py http://127.0.0.1:8787/v1 scripted/lorem:200:50`.
"""

import asyncio
import sys

from openai import AsyncOpenAI


async def resume(client: AsyncOpenAI, response_id: str, seen: int, said: list[str]) -> int:
    """Read for a moment after event `seen`. Return the last event seen, or -1 at the end."""
    stream = await client.responses.retrieve(response_id, stream=True, starting_after=seen)
    try:
        async with asyncio.timeout(0.2), stream:
            async for event in stream:
                seen = event.sequence_number
                if event.type == "response.output_text.delta":
                    said.append(event.delta)
        return -1
    except TimeoutError:
        return seen


async def over_a_websocket(client: AsyncOpenAI, model: str, questions: list[str]) -> None:
    """Ask one question after the other on one connection. Nothing is stored: the connection knows what was said."""
    before: dict[str, str] = {}
    async with client.responses.connect() as connection:
        for question in questions:
            await connection.response.create(model=model, input=question, store=False, **before)
            async for event in connection:
                if event.type == "error":
                    raise RuntimeError(event.error.message)
                if event.type in ("response.completed", "response.incomplete", "response.failed"):
                    print(event.response.status)
                    before = {"previous_response_id": event.response.id}
                    break


async def main(base_url: str, model: str) -> None:
    """Start in the background, resume repeatedly, continue with a second question, and stop that one."""
    async with AsyncOpenAI(base_url=base_url, api_key="not needed on this machine") as client:
        first = await client.responses.create(model=model, input="Tell me of the sea.", background=True)
        said: list[str] = []
        seen = 0
        while (seen := await resume(client, first.id, seen, said)) >= 0:
            print(f"cut off after event {seen}", file=sys.stderr)
        print("".join(said))

        second = await client.responses.create(
            model=model, input="And of the waves?", previous_response_id=first.id, background=True
        )
        stopped = await client.responses.cancel(second.id)
        print(stopped.status)

        await over_a_websocket(client, model, ["Is it deep?", "And cold?"])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
