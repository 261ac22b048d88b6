"""llama.cpp's own server, and ours in front of it, are asked the same in the resumable dialect, and answer alike."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from holdfast.upstreams.local.weights import fetch_now
from tests.e2e.test_llama_server_goes_on import LlamaServer, llama_server
from tests.requirements import requirement
from tests.support.http import Client, Response
from tests.support.programs import missing_for_the_built_in_model
from tests.support.server import UP_KEY, Server

MISSING = missing_for_the_built_in_model()

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
    pytest.mark.asyncio(loop_scope="module"),
]

ENDLESS = {"max_tokens": 3000, "ignore_eos": True}


@pytest.fixture(scope="session")
def weights(request: pytest.FixtureRequest) -> Path:
    return fetch_now(request.config.cache.mkdir("holdfast-data") / "models")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def llama(weights: Path) -> AsyncIterator[LlamaServer]:
    async with llama_server(weights) as llama:
        yield llama


class Dialect:
    """A client of the dialect, whoever answers it."""

    def __init__(self, client: Client, model: str) -> None:
        self.client = client
        self.model = model

    async def ask(self, name: str, **more: Any) -> Response:
        body = {"model": self.model, "messages": [{"role": "user", "content": "Hi"}], "stream": True, **more}
        return await self.client.post("/v1/chat/completions", body, headers={"X-Conversation-Id": name})

    async def get(self, query: str) -> Response:
        return await self.client.get(f"/v1/stream{query}")

    async def delete(self, query: str) -> Response:
        return await self.client.request("DELETE", f"/v1/stream{query}")

    async def lookup(self, *names: str) -> Any:
        return await (await self.client.post("/v1/streams/lookup", {"conversation_ids": names})).json()


async def refusals(dialect: Dialect) -> dict[str, int]:
    """The statuses of what is not there, or makes no sense."""
    await (await dialect.ask("there", max_tokens=2)).body()
    return {
        "an unknown name": (await dialect.get("?conv_id=nobody")).status,
        "no name": (await dialect.get("")).status,
        "an offset that is no number": (await dialect.get("?conv_id=there&from=zz")).status,
        "a stop of nothing": (await dialect.delete("?conv_id=nobody")).status,
        "a stop without a name": (await dialect.delete("")).status,
    }


async def coming_back(dialect: Dialect) -> dict[str, Any]:
    """What a client sees that reads an answer again from some places."""
    first = await dialect.ask("back", max_tokens=5)
    whole = await first.body()
    rests = [await (await dialect.get(f"?conv_id=back&from={at}")).body() for at in (0, 7, len(whole), len(whole) + 9)]
    (told,) = await dialect.lookup("back", "nobody")
    return {
        "types": [response.headers["content-type"] for response in (first, await dialect.get("?conv_id=back"))],
        "rests": [whole[at:] == rest for at, rest in zip((0, 7, len(whole), len(whole) + 9), rests, strict=True)],
        "lookup": {name: type(value) for name, value in told.items()},
        "told": (told["conversation_id"], told["is_done"], told["total_bytes"] == len(whole), told["completed_at"] > 0),
        "last": whole.endswith(b"data: [DONE]\n\n"),
    }


async def leaving(dialect: Dialect) -> dict[str, Any]:
    """What becomes of an answer whose client leaves, and of one that another takes the place of."""
    first = await dialect.ask("left", **ENDLESS)
    await first.next_event()
    first.leave("rst")
    (going,) = await dialect.lookup("left")
    reader = await dialect.get("?conv_id=left")
    await reader.next_event()
    second = await (await dialect.ask("left", max_tokens=2)).body()
    await reader.all_events()
    found = await (await dialect.get("?conv_id=left")).body()
    third = await dialect.ask("left", **ENDLESS)
    await third.next_event()
    stopped = await dialect.delete("?conv_id=left")
    await third.all_events()
    return {
        "goes on": (going["is_done"], going["completed_at"], going["total_bytes"] > 0),
        "is replaced": found == second,
        "is stopped": (stopped.status, await stopped.body()),
        "nothing left": await dialect.lookup("nobody"),
    }


@requirement("llama.byte-exact", "llama.lookup", "llama.replace", "llama.stop")
@pytest.mark.parametrize("scene", [refusals, coming_back, leaving], ids=lambda scene: scene.__name__)
async def test_both_servers_answer_alike(llama, tmp_path, scene):
    """Statuses, shapes and what is where: whatever differs is in the table of docs/wires/llama-cpp.md."""
    async with Client(llama.address, {"authorization": f"Bearer {UP_KEY}"}) as client:
        theirs = await scene(Dialect(client, "smollm2"))
    async with Server(tmp_path, [llama.as_provider()]) as server, server.client() as client:
        ours = await scene(Dialect(client, "llamacpp/smollm2"))

    assert theirs == ours
