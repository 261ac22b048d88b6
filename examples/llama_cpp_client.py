"""Reads a response in llama.cpp's resumable dialect, across any number of lost connections.

Run it as `python llama_cpp_client.py http://127.0.0.1:8787 scripted/lorem:200:50 "Hello"`.
"""

import asyncio
import sys

import httpx2


async def start(base_url: str, conversation: str, model: str, question: str) -> None:
    """Start a response with a name, and disconnect at once: it continues."""
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": question}]}
    named = {"X-Conversation-Id": conversation}
    async with httpx2.AsyncClient(headers=named) as http:
        async with http.stream("POST", f"{base_url}/v1/chat/completions", json=body) as answer:
            answer.raise_for_status()


async def resume(base_url: str, conversation: str, seen: bytearray) -> None:
    """Append the rest of a response to the bytes seen so far. Call it again after a lost connection."""
    where = {"conv_id": conversation, "from": str(len(seen))}
    async with httpx2.AsyncClient(timeout=None) as http:
        async with http.stream("GET", f"{base_url}/v1/stream", params=where) as answer:
            answer.raise_for_status()
            async for piece in answer.aiter_raw():
                seen += piece


async def main(base_url: str, model: str, question: str) -> None:
    """Start a response, read it for a tenth of a second at a time, and print the whole."""
    seen = bytearray()
    await start(base_url, "example", model, question)
    while not seen.endswith(b"data: [DONE]\n\n"):
        try:
            async with asyncio.timeout(0.1):
                await resume(base_url, "example", seen)
        except TimeoutError:
            print(f"cut off after {len(seen)} bytes", file=sys.stderr)
    sys.stdout.write(seen.decode())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
