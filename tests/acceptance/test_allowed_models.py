"""The models and agents that groups and keys allow. For everybody else they are not there."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from holdfast.server.app import create_app
from holdfast.server.config.settings import AgentSettings, KeySettings, ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.acceptance.test_budgets import ADMIN, World, posted
from tests.requirements import requirement
from tests.support.http import Client
from tests.support.native import Native
from tests.support.served import NO_HOME, Served
from tests.support.upstream import Status, Upstream, answer

HELLO = [{"role": "user", "content": "Hi"}]
AGENTS = (
    AgentSettings("operator", model="up/small", tools=("shell",)),
    AgentSettings("reader", model="up/small", tools=("files",), approvals={"files_write": "deny"}),
    AgentSettings("costly", model="up/large", tools=("files",), approvals={"files_write": "deny"}),
)


@asynccontextmanager
async def serving(**more: Any) -> AsyncIterator[World]:
    async with Upstream() as up, AsyncExitStack() as clients:
        up.models.update(small=answer("Small."), large=answer("Large."), broken=[Status(503)])
        settings = Settings(
            providers=(
                ProviderSettings("up", base_url=up.base_url, models=("small", "large", "broken")),
                ProviderSettings("hidden", base_url=up.base_url, models=("large",)),
            ),
            keys=(KeySettings("admin", sha256=hashlib.sha256(ADMIN.encode()).hexdigest(), admin=True),),
            aliases={"quick": "up/small", "best": "up/large"},
            agents=AGENTS,
            **more,
        )
        async with Served(create_app(settings, MemoryStore(), NO_HOME)) as served:
            admin = await clients.enter_async_context(Client(served.url, {"authorization": f"Bearer {ADMIN}"}))
            yield World(served.url, up, admin, clients)


async def key_for(world: World, name: str, **limits: Any) -> Native:
    made = await posted(world.admin, "/api/admin/keys", {"name": name, **limits})
    return await world.client(made["key"])


async def names(api: Native) -> set[str]:
    found = {model["id"] for model in (await api.get("/v1/models"))["data"]}
    assert found >= {model["id"] for model in (await api.get("/api/models"))["models"]}
    return found


@pytest.fixture
async def world():
    async with serving() as world:
        yield world


@requirement("access.models")
async def test_a_model_that_a_key_does_not_allow_is_unknown_on_every_wire(world):
    """As unknown as one that no provider has: the same status and the same words."""
    api = await key_for(world, "small", models=["up/small"])
    session = await api.new_session()
    calls: dict[str, Any] = {
        "/v1/chat/completions": {"messages": HELLO},
        "/v1/completions": {"prompt": "Hi"},
        "/v1/responses": {"input": "Hi"},
        "/v1/messages": {"messages": HELLO, "max_tokens": 9},
        "/v1/messages/count_tokens": {"messages": HELLO},
        "/v1/embeddings": {"input": "Hi"},
        "/api/chat": {"messages": HELLO},
        f"/api/sessions/{session}/runs": {"input": "Hi"},
        "/api/sessions": {},
    }
    for path, body in calls.items():
        for model in ("up/large", "large", "hidden/large", "best"):
            refused = await api.client.post(path, {**body, "model": model})
            unknown = await api.client.post(path, {**body, "model": model.replace("l", "z").replace("b", "z")})
            words = (await refused.text()).replace(model, "")
            assert 404 == refused.status == unknown.status, (path, model, words)
            assert "large" not in words
            assert "No provider 'up'" not in words
    for path, body in (("/api/comparisons", {"prompt": "Hi"}), ("/api/batches", {"prompts": [{"prompt": "Hi"}]})):
        assert 404 == (await api.client.post(path, {**body, "models": ["up/small", "up/large"]})).status
    assert 404 == (await api.client.get("/v1/models/up/large")).status


@requirement("access.models")
async def test_lists_and_defaults_have_the_allowed_models_only(world):
    """Of several limits all count: the key's own, and the ones that the person's groups have together."""
    one, two = [
        await posted(world.admin, "/api/admin/groups", {"name": models[0], "models": models})
        for models in (["up/small"], ["large"])
    ]
    ann, _ = await world.person("ann", groups=[one["id"]])
    bob, _ = await world.person("bob", groups=[one["id"], two["id"]])
    eve, _ = await world.person("eve")
    made = await posted(bob.client, "/api/keys", {"name": "own", "models": ["hidden/*", "up/broken"]})
    own = await world.client(made["key"])

    assert {"up/small", "quick", "agent/reader"} == await names(ann)
    assert {"up/small", "up/large", "hidden/large", "quick", "best", "agent/reader", "agent/costly"} == await names(bob)
    assert {"hidden/large"} == await names(own)
    assert "up/broken" in await names(eve)
    assert "up/small" == (await ann.get("/api/models"))["default"]
    answered = await own.client.post("/v1/chat/completions", {"messages": HELLO})
    assert "hidden/large" == (await answered.json())["model"]


@requirement("access.models")
async def test_a_fallback_that_is_not_allowed_is_not_asked():
    """The run fails as it would without a fallback; who may use the fallback gets its answer."""
    async with serving(fallbacks={"up/broken": "up/large"}, retry_patience=0.0) as world:
        limited = await world.person("ann", groups=[(await posted(world.admin, "/api/admin/groups", LIMITED))["id"]])
        body = {"model": "up/broken", "messages": HELLO}
        refused = await limited[0].client.post("/v1/chat/completions", body)
        served = await world.admin.post("/v1/chat/completions", body)

        assert 500 <= refused.status
        assert 200 == served.status


LIMITED = {"name": "limited", "models": ["up/broken", "up/small"]}


@requirement("access.agents")
async def test_an_agent_that_could_write_is_for_those_whom_a_group_grants_it(world):
    """Members have none of them by default; a key can be limited to some."""
    group = await posted(world.admin, "/api/admin/groups", {"name": "ops", "agents": ["oper*"]})
    ann, _ = await world.person("ann", groups=[group["id"]])
    bob, _ = await world.person("bob")
    made = await posted(ann.client, "/api/keys", {"name": "own", "agents": ["reader"]})
    own = await world.client(made["key"])
    runs = [await api.settled(await api.start(await api.new_session(), "Go", "agent/operator")) for api in (ann,)]

    assert ["completed"] == [run["outcome"] for run in runs]
    assert {"agent/operator", "agent/reader", "agent/costly"} <= await names(ann)
    assert "agent/operator" not in await names(bob) | await names(own)
    assert {"agent/reader"} == {name for name in await names(own) if name.startswith("agent/")}
    for api in (bob, own):
        assert 404 == (await api.send(await api.new_session(), "Go", "agent/operator")).status


def field(name: str, value: str, end: str = "\r\n") -> str:
    return f"--edge{end}Content-Disposition: form-data; {name}{end}{end}{value}{end}"


@requirement("access.models")
@pytest.mark.parametrize(
    "form",
    [
        field('name="model"', "up/small") + field('name="model"', "large"),
        field('name="model"', "up/small") + field("name=model", "large"),
        field('name="model"', "up/small") + field('Name="model"', "large"),
        field('name="model"', "up/small") + field("name*=utf-8''model", "large"),
        field(
            'name="file"; filename="a.wav"', field('name="model"', "up/small").replace("--edge", "--other") + "--other"
        )
        + field("name=model", "large"),
        field('name="model"', "up/small") + field('name="model"', "large", "\n"),
    ],
)
async def test_a_form_cannot_name_a_second_model(world, form: str):
    """The upstream may read another one than was checked."""
    api = await key_for(world, "small", models=["up/small"])
    headers = {"content-type": "multipart/form-data; boundary=edge"}
    body = f"{form}--edge--\r\n".encode()
    response = await api.client.request("POST", "/v1/audio/transcriptions", body=body, headers=headers)

    assert response.status in (400, 404), await response.text()
    assert not [request for request in world.up.requests if "transcriptions" in request.path]
