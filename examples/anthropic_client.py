"""Calls any model of a Holdfast server with Anthropic's own client, and stops a response by its run id.

Run it as `python anthropic_client.py http://127.0.0.1:8787 scripted/lorem:40:100`.
"""

import asyncio
import sys

import anthropic
import httpx2


async def ask(client: anthropic.AsyncAnthropic, model: str, question: str) -> str:
    """Stream a response and return its text."""
    asked = [{"role": "user", "content": question}]
    async with client.messages.stream(model=model, max_tokens=1000, messages=asked) as stream:
        return "".join([text async for text in stream.text_stream])


async def ask_and_stop(client: anthropic.AsyncAnthropic, base_url: str, model: str, question: str) -> tuple[str, str]:
    """Stream a response that is stopped at its tenth word; return the text, and the code that the client gets."""
    said: list[str] = []
    try:
        asked = [{"role": "user", "content": question}]
        async with client.messages.stream(model=model, max_tokens=1000, messages=asked) as stream:
            async for text in stream.text_stream:
                said.append(text)
                if len(said) == 10:
                    await stop(base_url, stream.response.headers["x-run-id"])
    except anthropic.APIStatusError as error:
        return "".join(said), error.body["error"]["code"]
    return "".join(said), "completed"


async def stop(base_url: str, run_id: str) -> None:
    """Stop a run by its id. Any client with the same key can do this."""
    async with httpx2.AsyncClient() as http:
        (await http.post(f"{base_url}/api/runs/{run_id}/stop")).raise_for_status()


async def main(base_url: str, model: str) -> None:
    """Show a whole response, and one that was stopped."""
    async with anthropic.AsyncAnthropic(base_url=base_url, api_key="none-needed-on-this-machine") as client:
        print(await ask(client, model, "Tell me something"))
        text, ended = await ask_and_stop(client, base_url, model, "Tell me more")
        print(f"{ended}: {text}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
