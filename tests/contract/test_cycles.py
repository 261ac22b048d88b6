"""A request leaves nothing for the collector: whenever that looks, the loop and every stream stand still."""

import gc
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from holdfast import Limits
from holdfast.engine.core import Core
from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.support.http import Client, Response
from tests.support.served import NO_HOME, Served, protocol
from tests.support.upstream import Delta, Hang, Headers, Role, Status, Upstream

REQUESTS = 10
OURS = ("holdfast", "uvicorn")
SCRIPTS = {
    "hanging": [Headers(), Role(), Delta("half an answer"), Hang()],
    "mute": [Hang()],
    "refusing": [Status(400)],
}
Asking = Callable[[Client, Upstream], Awaitable[None]]


async def ask(client: Client, model: str, **more: Any) -> Response:
    body = {"model": f"up/{model}", "messages": [{"role": "user", "content": "x"}], **more}
    return await client.send("POST", "/v1/chat/completions", json=body)


async def whole_stream(client: Client, up: Upstream) -> None:
    assert await (await ask(client, "echo:word", stream=True)).all_events()


async def whole_answer(client: Client, up: Upstream) -> None:
    assert await (await ask(client, "echo:word")).json()


async def left_stream(client: Client, up: Upstream) -> None:
    response = await ask(client, "hanging", stream=True)
    await response.next_event()
    response.leave()
    await (await up.next_request()).wait_closed()


async def left_before_the_answer(client: Client, up: Upstream) -> None:
    response = await ask(client, "mute")
    asked = await up.next_request()
    response.leave()
    await asked.wait_closed()


async def refused(client: Client, up: Upstream) -> None:
    assert await (await ask(client, "refusing", stream=True)).json()


@pytest.fixture
def only_a_test_collects() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def held_by_nobody() -> Counter[str]:
    """Count what of ours only a collector can find, by type."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        kinds = Counter(f"{type(each).__module__}.{type(each).__name__}" for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    return Counter({kind: count for kind, count in kinds.items() if kind.startswith(OURS)})


async def take_the_place_of_all(engine: Core) -> None:
    """Make the engine forget the ended runs that it keeps: a newer one needs all of the memory for them."""
    batch = ["x"] * (Limits().recent // 4)

    async def long() -> AsyncGenerator[list[str]]:
        for _ in range(5):
            yield batch

    await (await engine.start(long())).settled()


@pytest.mark.usefixtures("only_a_test_collects")
@pytest.mark.parametrize("asking", [whole_stream, whole_answer, left_stream, left_before_the_answer, refused])
async def test_requests_leave_no_cycles(asking: Asking) -> None:
    """However a request ends, its run, its client's connection and its upstream's go when nobody holds them."""
    async with Upstream() as up:
        up.models.update(SCRIPTS)
        described = ProviderSettings("up", base_url=up.base_url, models=("echo:word", *SCRIPTS))
        app = create_app(Settings(providers=(described,)), MemoryStore(), NO_HOME)
        async with Served(app, http=protocol()) as served, served.client() as client:
            for _ in range(REQUESTS):
                await asking(client, up)
            await take_the_place_of_all(app.state.server.engine)

    left = held_by_nobody()

    assert {} == {kind: count for kind, count in left.items() if count >= REQUESTS}
