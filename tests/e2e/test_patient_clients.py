"""Published clients in front of a model that says nothing for minutes: they wait, and the model is asked once.

Whoever gives up and asks again pays twice for an answer that nobody reads. `make test-all` waits six real minutes.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from tests.e2e.test_coding_agents import AGENTS, FACT, KEY, PROGRAMS, Desk
from tests.requirements import requirement
from tests.support.server import Server, provider
from tests.support.upstream import Delta, Done, Finish, Headers, Pause, Raw, Role, Script, Upstream
from tests.support.waiting import SOON

Client = Callable[[str, str, float], Awaitable[str]]
"""Asks the model of a server something, with its own limit of silence in seconds, and returns the answer."""

MINUTES = 6 * 60.0
LIMIT = 600.0
"""What the published clients wait for the next byte, if nobody says otherwise."""
ANSWER = [Delta(FACT), Finish("stop"), Done()]
COMMENTS: Script = [Headers(), Role(), *([Raw(b": OPENROUTER PROCESSING\n\n"), Pause(10.0)] * 15), *ANSWER]


async def chat(url: str, asked: str, limit: float) -> str:
    """Ask as openai-python does for chat completions."""
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, timeout=limit) as client:
        messages = [{"role": "user", "content": asked}]
        stream = await client.chat.completions.create(model="up/m", messages=messages, stream=True)  # type: ignore[call-overload]
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])


async def responses(url: str, asked: str, limit: float) -> str:
    """Ask as openai-python does for a response."""
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, timeout=limit) as client:
        stream = await client.responses.create(model="up/m", input=asked, stream=True)
        return "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])


async def messages(url: str, asked: str, limit: float) -> str:
    """Ask as anthropic-python does."""
    async with AsyncAnthropic(base_url=url, api_key=KEY, timeout=limit) as client:
        said = [{"role": "user", "content": asked}]
        async with client.messages.stream(model="up/m", max_tokens=100, messages=said) as stream:  # type: ignore[arg-type]
            return "".join([piece async for piece in stream.text_stream])


CLIENTS: dict[str, Client] = {"openai chat": chat, "openai responses": responses, "anthropic": messages}


@asynccontextmanager
async def serving(folder: Path, config: str) -> AsyncIterator[tuple[Upstream, Server]]:
    key = '[[keys]]\nname = "ada"\nkey_env = "ADA"'
    async with (
        Upstream() as up,
        Server(folder, [provider(up.base_url, models=None)], config=f"{config}\n{key}", env={"ADA": KEY}) as server,
    ):
        yield up, server


def question(name: str) -> str:
    return f"What has the sea to say to {name}?"


def asked_about(up: Upstream, name: str) -> int:
    """How often the model was asked for a client, but for the titles that coding agents ask for."""
    sent = [request.body for request in up.requests if question(name) in str(request.body["messages"])]
    return len([body for body in sent if name in CLIENTS or body.get("tools")])


@requirement("wire.heartbeat", "truth.stall")
async def test_clients_wait_for_a_silent_model_for_longer_than_their_own_limit(tmp_path):
    """What keeps them waiting are the events that the server sends meanwhile. Only their limit is shorter here."""
    async with serving(tmp_path, "heartbeat = 0.3") as (up, server):
        up.models["m"] = [Pause(SOON + 5.0), Headers(), Role(), *ANSWER]
        said = await asyncio.gather(*(client(server.url, question(name), SOON) for name, client in CLIENTS.items()))

    assert [FACT] * len(CLIENTS) == said
    assert [1] * len(CLIENTS) == [asked_about(up, name) for name in CLIENTS]


async def worked(folder: Path, server: Server, up: Upstream, name: str) -> str:
    """Let a coding agent ask, and return what it prints."""
    process = await Desk(folder / name, server, up).start(AGENTS[name], question(name))
    try:
        printed, errors = await process.communicate()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
    return (printed + errors).decode()


@pytest.mark.long("waits for six minutes")
@pytest.mark.timeout(900)
@requirement("wire.heartbeat", "truth.stall")
@pytest.mark.parametrize("silence", ["silence", "comments"])
async def test_every_client_waits_for_six_minutes_and_asks_once(tmp_path, silence):
    """In their default configuration, all of them at the same time; the coding agents too, if they are installed."""
    agents = [name for name in ("codex", "claude-code") if (PROGRAMS / AGENTS[name].command[0]).exists()]
    config = '[limits]\n"up/m" = { first_token = 900 }' if silence == "silence" else ""
    async with serving(tmp_path / "data", config) as (up, server):
        up.models["m"] = [Pause(MINUTES), Headers(), Role(), *ANSWER] if silence == "silence" else COMMENTS
        asking = [client(server.url, question(name), LIMIT) for name, client in CLIENTS.items()]
        async with asyncio.timeout(2 * MINUTES):
            said = await asyncio.gather(*asking, *(worked(tmp_path, server, up, name) for name in agents))
        runs = [asked_about(up, name) for name in (*CLIENTS, *agents)]

    assert all(FACT in each for each in said), said
    assert [1] * len(said) == runs
