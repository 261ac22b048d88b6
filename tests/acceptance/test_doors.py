"""Every door to a run checks the same things in the same order, whichever wire a client speaks."""

import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

import pytest

from holdfast.access import Budget
from holdfast.server.app import create_app
from holdfast.server.config.settings import AgentSettings, KeySettings, ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.http import Client
from tests.support.native import Native
from tests.support.served import NO_HOME, Served
from tests.support.upstream import Hang, Headers, Upstream, answer

ADMIN = "admin-key-4f1c9d77aa0142"
SAID = [{"role": "user", "content": "hello"}]
UI = [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hello"}]}]
AG_UI = {"threadId": "t", "runId": "r", "state": {}, "tools": [], "context": []}
COMPARE = "/api/comparisons"
DOORS: dict[str, dict[str, Any]] = {
    "/api/sessions/ID/runs": {"input": "hello"},
    "/v1/chat/completions": {"messages": SAID},
    "/v1/chat/completions (session)": {"messages": SAID, "session_id": "c"},
    "/v1/completions": {"prompt": "hello"},
    "/v1/responses": {"input": "hello"},
    "/v1/responses/compact": {"input": "hello"},
    "/v1/messages": {"messages": SAID, "max_tokens": 9},
    "/api/chat": {"messages": UI},
    "/api/chat (session)": {"id": "c", "messages": UI},
    "/api/chat (Ollama)": {"messages": SAID, "stream": False},
    "/api/generate": {"prompt": "hello", "stream": False},
    "/ag-ui": {**AG_UI, "messages": [{"id": "m1", **SAID[0]}]},
    COMPARE: {"prompt": "hello"},
}
WITH_KEYS = [door for door in DOORS if door != "/v1/responses/compact"]
LIMITS: dict[str, dict[str, Any]] = {
    "rate": {"starts_per_minute": 1},
    "budget": {"budget": Budget(requests_per_minute=1)},
}


class Answer(NamedTuple):
    """What a door has answered."""

    status: int
    about: str | None
    """The id of the run or the comparison."""
    text: str

    @property
    def error(self) -> str:
        """The code of the error; its words if the dialect has no codes."""
        told = json.loads(self.text)["error"]
        return str(told if isinstance(told, str) else told["code"])


class Caller:
    """A client with a session of its own."""

    def __init__(self, client: Client, session: str) -> None:
        self.client, self.session = client, session

    async def ask(self, door: str, model: str = "up/m", key: str = "") -> Answer:
        """Ask for an answer, and wait for all of it."""
        named = {"models": [model]} if door == COMPARE else {"model": model}
        body = DOORS[door] | ({"forwardedProps": named} if door == "/ag-ui" else named)
        path = door.split()[0].replace("ID", self.session)
        response = await self.client.post(path, body, headers={"Idempotency-Key": key} if key else {})
        text = await response.text()
        about = json.loads(text).get("id") if door == COMPARE else dict(response.headers).get("x-run-id")
        return Answer(response.status, about, text)


class World:
    """A server, and clients with keys."""

    def __init__(self, url: str, up: Upstream, app: Any, clients: AsyncExitStack) -> None:
        self.url, self.up, self.app, self._clients = url, up, app, clients

    async def caller(self, key: str = ADMIN) -> Caller:
        client = await self._clients.enter_async_context(Client(self.url, {"authorization": f"Bearer {key}"}))
        return Caller(client, await Native(client).new_session())

    async def with_key(self, name: str, **limits: Any) -> tuple[Caller, str]:
        """A client with a new key, and the key's owner."""
        admin = await self.caller()
        response = await admin.client.post("/api/admin/keys", {"name": name, **limits})
        made = await response.json()
        return await self.caller(made["key"]), made["owner"]


@asynccontextmanager
async def serving(**more: Any) -> AsyncIterator[World]:
    async with Upstream() as up, AsyncExitStack() as clients:
        up.models |= {"m": answer("42"), "other": answer("43"), "hanging": [Headers(), Hang()]}
        settings = Settings(
            providers=(ProviderSettings("up", base_url=up.base_url, models=("m", "other", "hanging")),),
            keys=(KeySettings("admin", sha256=hashlib.sha256(ADMIN.encode()).hexdigest(), admin=True),),
            agents=(AgentSettings("helper", model="up/m", tools=("files",)),),
            default_model="up/m",
            **more,
        )
        app = create_app(settings, MemoryStore(), NO_HOME)
        async with Served(app) as served:
            yield World(served.url, up, app, clients)


@requirement("start.idempotent")
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("door", WITH_KEYS)
async def test_a_repeated_key_is_answered_where_a_new_start_is_refused(door, limit):
    """A client that repeats a request whose response was lost got 429, although its run was there."""
    async with serving(**LIMITS[limit]) as world:
        caller = await world.caller()
        first, again, other = [await caller.ask(door, key=key) for key in ("first", "first", "other")]

    assert first.status in (200, 202), first
    assert first[:2] == again[:2]
    assert first.about is not None
    assert 429 == other.status, other
    assert 1 == len(world.up.requests)


@requirement("start.idempotent")
@pytest.mark.parametrize("door", WITH_KEYS)
async def test_a_repeated_key_is_answered_to_its_owner_whatever_it_may_ask_now(door):
    """The run is there, and is the owner's. For another owner the key is new."""
    async with serving() as world:
        caller, owner = await world.with_key("first")
        limited, _ = await world.with_key("second", owner=owner, models=["up/other"])
        stranger, _ = await world.with_key("third", models=["up/other"])
        limited.session = caller.session
        first = await caller.ask(door, key="k")
        again, new, others = [
            await each.ask(door, key=key) for each, key in ((limited, "k"), (limited, "new"), (stranger, "k"))
        ]

    assert first[:2] == again[:2]
    assert first.about is not None
    assert [404, 404] == [new.status, others.status]
    assert 1 == len(world.up.requests)


@requirement("start.idempotent", "batch.once")
async def test_a_repeated_key_is_answered_with_its_batch_whatever_its_owner_may_ask_now():
    """A batch is a door to many runs: its models were checked before its key."""
    body = {"models": ["up/m"], "prompts": [{"prompt": "hello"}]}
    async with serving() as world:
        caller, owner = await world.with_key("first")
        limited, _ = await world.with_key("second", owner=owner, models=["up/other"])
        first, again, new = [
            await each.client.post("/api/batches", body, headers={"Idempotency-Key": key})
            for each, key in ((caller, "k"), (limited, "k"), (limited, "new"))
        ]
        ids = [(await each.json())["id"] for each in (first, again)]

    assert [202, 202, 404] == [each.status for each in (first, again, new)]
    assert ids[0] == ids[1]


@requirement("access.models")
@pytest.mark.parametrize("door", DOORS)
async def test_a_model_or_an_agent_that_a_key_does_not_allow_is_not_there_at_any_door(door):
    """As a name that nobody has: the same status and the same error, and no model is asked."""
    async with serving() as world:
        caller, _ = await world.with_key("limited", models=["up/other"])
        refused = [await caller.ask(door, model) for model in ("up/m", "agent/helper", "up/nosuch")]

    assert [404] * 3 == [each.status for each in refused], refused
    assert all(each.error == "model_not_found" or each.error.startswith("Unknown model") for each in refused), refused
    assert [] == world.up.requests


@requirement("start.bad-input")
@pytest.mark.parametrize("door", [door for door in DOORS if door != COMPARE])
async def test_an_agent_whose_model_lacks_what_it_needs_is_refused_at_every_door(door):
    """The AI SDK's door had forgotten to look: its run failed, in a stream with status 200."""
    async with serving() as world:
        provider, *_ = await world.app.state.server.configured.providers.find("up/m")
        provider.tools = False
        refused = await (await world.caller()).ask(door, "agent/helper")

    assert 400 == refused.status, refused
    assert "cannot call tools" in refused.text
    assert [] == world.up.requests


@requirement("safe.run-limit")
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("door", DOORS)
async def test_a_start_that_is_refused_gives_back_what_it_had_taken(door, limit):
    """There is no place for it: it counts neither for the minute nor for the budget, however often it is tried."""
    limits = {"rate": {"starts_per_minute": 2}, "budget": {"budget": Budget(requests_per_minute=2)}}[limit]
    async with serving(max_runs=1, **limits) as world:
        caller = await world.caller()
        api = Native(caller.client)
        hanging = await api.start(await api.new_session(), "hello", "up/hanging")
        refused = [await caller.ask(door) for _ in range(3)]
        held = world.app.state.server.engine.held
        await caller.client.post(f"/api/runs/{hanging}/stop", {})
        allowed = await caller.ask(door)
        last = await caller.ask(door)
        sessions = (await api.get("/api/sessions"))["sessions"]

    assert [429] * 3 == [each.status for each in refused]
    assert all("concurrent runs" in each.text for each in refused), refused
    assert (1, 1) == (held["runs"], held["places"])
    assert allowed.status in (200, 202), allowed
    assert 429 == last.status
    assert "minute" in last.text
    assert len(sessions) <= 3
