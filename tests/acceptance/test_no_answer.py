"""An answer with nothing in it is no success, and silence is no failure where nothing had to be said."""

import json
from typing import Any

import pytest
import pytest_asyncio

from tests.acceptance.surfaces import World
from tests.requirements import requirement
from tests.support.server import Server, provider
from tests.support.upstream import Chunk, Delta, Done, Finish, Headers, Role, Upstream

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKED = [{"role": "user", "content": "hi"}]
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
AFTER_A_TOOL = [
    *ASKED,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "done"},
]


def says(index: int, content: str, end: str | None = None) -> Chunk:
    return Chunk({"choices": [{"index": index, "delta": {"content": content}, "finish_reason": end}]})


SCRIPTS: dict[str, list[Any]] = {
    "silent": [Headers(), Role(), Finish(), Done()],
    "blank": [Headers(), Role(), Delta("\n "), Delta("\n"), Finish(), Done()],
    "second": [Headers(), Role(), says(1, "Two."), says(0, "", "stop"), says(1, "", "stop"), Done()],
    "neither": [Headers(), Role(), says(0, "", "stop"), says(1, "", "stop"), Done()],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory):
    async with Upstream() as up:
        up.models |= SCRIPTS
        async with Server(tmp_path_factory.mktemp("silent"), [provider(up.base_url, models=None)]) as server:
            async with server.client() as client:
                yield World(up, server, client)


async def asked(world: World, model: str, **more: Any) -> tuple[int, str | None]:
    """The status of an answer, and the code of its error."""
    response = await world.call("POST", "/v1/chat/completions", {"model": f"up/{model}", "messages": ASKED} | more)
    body = json.loads(await response.body())
    return response.status, body["error"]["code"] if "error" in body else None


@requirement("truth.no-answer")
@pytest.mark.parametrize(
    ("model", "more"),
    [("silent", {}), ("blank", {}), ("neither", {"n": 2}), ("silent", {"response_format": {"type": "json_object"}})],
)
async def test_an_answer_with_nothing_to_read_has_failed(world, model, more):
    """Nor can anyone read spaces. Whoever asked for JSON got none."""
    assert (406, "no_answer") == await asked(world, model, **more)


@requirement("truth.no-answer")
@pytest.mark.parametrize(
    ("model", "more"),
    [("silent", {"messages": AFTER_A_TOOL}), ("silent", {"stop": ["."]}), ("second", {"n": 2})],
    ids=["after a tool", "stop sequence", "another choice"],
)
async def test_silence_is_complete_where_nothing_had_to_be_said(world, model, more):
    """A model that has nothing to add after its tools ends its turn like that, and coding agents rely on it."""
    assert (200, None) == await asked(world, model, **more)


@requirement("truth.no-answer")
async def test_a_prompt_may_have_no_continuation(world):
    """Editors ask for completions all the time, and mostly there is none."""
    response = await world.call("POST", "/v1/completions", {"model": "up/silent", "prompt": "done."})

    assert 200 == response.status
    assert [""] == [choice["text"] for choice in (await response.json())["choices"]]
