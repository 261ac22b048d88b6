"""A model that is not there is not found, before an upstream that takes any name could answer under it."""

from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from holdfast.upstreams.http.catalogue import Catalogue
from holdfast.upstreams.kinds import ProviderSetup, kind_of
from holdfast.upstreams.profiles import PROFILES
from tests.requirements import requirement
from tests.support.http import Client
from tests.support.served import NO_HOME, Served
from tests.support.upstream import Status, Upstream, answer

pytestmark = requirement("model.unknown")

HELLO = [{"role": "user", "content": "Hi"}]
WIRES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO},
    "/v1/completions": {"prompt": "Hi"},
    "/v1/responses": {"input": "Hi"},
    "/v1/responses/input_tokens": {"input": "Hi"},
    "/v1/messages": {"messages": HELLO, "max_tokens": 9},
    "/v1/messages/count_tokens": {"messages": HELLO},
    "/v1/embeddings": {"input": "Hi"},
    "/api/chat": {"messages": HELLO},
    "/api/generate": {"prompt": "Hi"},
    "/api/show": {},
    "/api/comparisons": {"prompt": "Hi"},
    "/api/batches": {"prompts": [{"prompt": "Hi"}]},
}
WRONG = ("nosuchmodel", "PLAIN", "up/plian", "nosuch/model")


@asynccontextmanager
async def serving(up: Upstream, **provider: Any):
    settings = Settings(providers=(ProviderSettings("up", base_url=up.base_url, **provider),))
    async with Served(create_app(settings, MemoryStore(), NO_HOME)) as served, Client(served.url) as client:
        yield client


def body_of(path: str, name: str) -> dict[str, Any]:
    is_list = path in ("/api/comparisons", "/api/batches")
    return WIRES[path] | ({"models": [name]} if is_list else {"model": name})


@pytest.mark.parametrize("path", WIRES)
async def test_a_name_that_no_list_has_is_not_found_on_every_wire(path):
    """A lenient upstream once answered, and the answer repeated the wrong name."""
    async with Upstream() as up:
        up.models["plain"] = answer("Hi.")
        async with serving(up) as client:
            answers = {name: await client.post(path, body_of(path, name)) for name in WRONG}
            shown = {name: (await client.get(f"/v1/models/{name}")).status for name in (*WRONG, "plain", "up/plain")}
            near = await answers["up/plian"].text()
            told = (await answers["PLAIN"].json())["error"]

    assert dict.fromkeys(WRONG, 404) == {name: each.status for name, each in answers.items()}
    assert shown == dict.fromkeys(WRONG, 404) | {"plain": 200, "up/plain": 200}
    assert "Did you mean up/plain?" in near
    assert isinstance(told, str) or ("model_not_found", "model") == (told["code"], told["param"])
    assert [] == up.requests


async def test_what_a_list_cannot_tell_is_passed_on():
    """A list that cannot be read, and an upstream whose list is known to lack models."""
    for models_script, more in (([Status(404)], {}), ([Status(200, {"data": []})], {}), (None, {"unlisted": "pass"})):
        async with Upstream() as up:
            up.models["plain"], up.models_script = answer("Hi."), models_script
            async with serving(up, **more) as client:
                asked = {"messages": HELLO, "model": "nosuchmodel"}
                statuses = [(await client.post("/v1/chat/completions", asked)).status]
                statuses += [(await client.get("/v1/models/nosuchmodel")).status]

        assert [200, 200] == statuses
        assert ["nosuchmodel"] == [request.model for request in up.requests]


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "The model `m` does not exist", "code": "model_not_found"}},
        {"error": 'model "m" not found, try pulling it first'},
        {"error": {"message": "model 'm' not found"}},
    ],
)
async def test_an_upstream_that_does_not_know_a_model_says_so_itself(body):
    """With the code that clients know, and the field."""
    async with Upstream() as up:
        up.models["m"] = [Status(404, body)]
        async with serving(up) as client:
            response = await client.post("/v1/chat/completions", {"messages": HELLO, "model": "m"})
            error = (await response.json())["error"]

    assert (404, "model_not_found", "model") == (response.status, error["code"], error["param"])


async def test_a_list_is_read_again_for_a_name_that_it_lacks_but_not_for_each():
    """A model may have been added a moment ago; names of strangers must not become requests to the upstream."""
    lists, reads = [["m"], ["m", "new"]], []

    async def look_up():
        reads.append(1)
        return lists[min(len(reads), 2) - 1]

    eager, calm = Catalogue(look_up, 1.0, 60.0, again=0.0), Catalogue(look_up, 1.0, 60.0)
    found = [await eager.has(lambda names: "m" in names), await eager.has(lambda names: "new" in names)]
    after = len(reads)
    unknown = [await calm.has(lambda names: "other" in names) for _ in range(5)]

    assert ([True, True], 2) == (found, after)
    assert ([False] * 5, 3) == (unknown, len(reads))


@pytest.mark.parametrize(
    ("dialect", "profile", "listed", "names"),
    [
        (
            "anthropic",
            None,
            "claude-x-4-5-20250929",
            {"claude-x-4-5": True, "claude-x-latest": True, "claude-y": False},
        ),
        ("gemini", None, "gemini-2.0-flash-001", {"gemini-2.0-flash": True, "gemini-pro-latest": True, "gemin": False}),
        ("openai", "openrouter", "org/m", {"org/m:nitro": True, "org/m": True, "org/n:nitro": False}),
        ("openai", "ollama", "llama3:latest", {"llama3": True, "llama4": False}),
        ("ollama", None, "llama3:latest", {"llama3": True, "llama3:8b": False}),
        ("openai", None, "m", {"m:nitro": False, "m-latest": False}),
    ],
)
def test_other_names_of_a_model_that_lists_do_not_have_are_known(dialect, profile, listed, names):
    """Aliases without a date, suffixes of a router, Ollama's tag that may be left out."""
    known = PROFILES[profile] if profile else PROFILES["openai"]
    kind = kind_of(dialect)
    setup = ProviderSetup(name="up", base_url="http://127.0.0.1:1", profile=known, options=kind.options_from({}))
    provider: Any = kind.make(setup)

    assert names == {name: provider.is_among(name, [listed]) for name in names}
