"""Who may use an agent. For everybody else it is not there: on no list, and 404 wherever a model can be named."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.server.app import create_app
from holdfast.server.config.settings import (
    AgentSettings,
    KeySettings,
    McpSettings,
    ProviderSettings,
    Settings,
    SettingsError,
)
from holdfast.server.sources.agent_factory import users_of
from holdfast.store import Store
from holdfast.store.memory import MemoryStore
from holdfast.store.sqlite import SqliteStore
from tests.requirements import requirement
from tests.support.http import Client, Response
from tests.support.native import Native
from tests.support.routes import ENDPOINTS
from tests.support.served import NO_HOME, Served
from tests.support.upstream import Delta, Hang, Headers, Role, Upstream, answer, calling
from tests.support.waiting import LONG

KEYS = {"ada": "ada-key-4f1c9d77aa0142", "bob": "bob-key-77aa014f1c9d42", "carol": "carol-key-90ab12cd34ef"}
AGENTS = (
    AgentSettings("operator", model="up/m", tools=("shell",)),
    AgentSettings("reader", model="up/m", tools=("files",), approvals={"files_write": "deny"}),
    AgentSettings("carols", model="up/m", users=("carol",)),
    AgentSettings("default", model="up/m", tools=("shell",)),
)
SEES = {
    "ada": {"operator", "reader", "default", "carols", "own", "hers"},
    "bob": {"reader", "own"},
    "carol": {"reader", "carols", "own", "hers"},
}
"""Which agents each of them may use. Ada is the admin."""
NAMES = sorted({name for names in SEES.values() for name in names})


async def own(request):
    yield "Mine."


def keys_of(*admins: str) -> tuple[KeySettings, ...]:
    hashed = {name: hashlib.sha256(key.encode()).hexdigest() for name, key in KEYS.items()}
    return tuple(KeySettings(name, sha256=digest, admin=name in admins) for name, digest in hashed.items())


@asynccontextmanager
async def serving(
    up: Upstream, data: Path, store: Store | None = None, admins: tuple[str, ...] = ("ada",), **more: Any
) -> AsyncIterator[dict[str, Native]]:
    settings = Settings(
        data=str(data),
        providers=(ProviderSettings("up", base_url=up.base_url, models=("m", "next", "hanging")),),
        agents=AGENTS,
        **{"agent_users": {"hers": ("carol",)}, "keys": keys_of(*admins), **more},
    )
    app = create_app(settings, store or MemoryStore(), NO_HOME, agents={"own": own, "hers": own})
    async with Served(app) as served, AsyncExitStack() as stack:
        callers = {name: Client(served.url, {"authorization": f"Bearer {key}"}) for name, key in KEYS.items()}
        yield {name: Native(await stack.enter_async_context(client)) for name, client in callers.items()}


@pytest.fixture
async def up():
    async with Upstream() as upstream:
        upstream.models["m"] = upstream.models["next"] = answer("Hello.")
        yield upstream


# Every place where a model can be named.

Ask = Callable[[Native, str], Awaitable[Response]]
SAID = [{"role": "user", "content": "Hi"}]


def posting(path: str, **body: Any) -> Ask:
    async def ask(api: Native, model: str) -> Response:
        return await api.client.post(path, {"model": model, **body})

    return ask


def in_session(action: str, **body: Any) -> Ask:
    """Something in a session whose only answer, by another model, was stopped."""

    async def ask(api: Native, model: str) -> Response:
        session_id = await api.new_session()
        run_id = await api.start(session_id, "Hang", "up/hanging")
        (await api.shown(run_id, "So far")).close()
        await api.stop(run_id)
        first, second = (said["id"] for said in (await api.session(session_id))["messages"])
        about = {
            "edit": {"message_id": first},
            "regenerate": {"message_id": second},
            "continue": {"message_id": second},
        }
        return await api.client.post(
            f"/api/sessions/{session_id}/{action}", {"model": model, **about.get(action, {}), **body}
        )

    return ask


async def look_up(api: Native, model: str) -> Response:
    return await api.client.get(f"/v1/models/{model}")


async def change_session(api: Native, model: str) -> Response:
    return await api.client.request("PATCH", f"/api/sessions/{await api.new_session()}", json={"model": model})


async def old_session(api: Native, model: str) -> Response:
    """A session that was imported with a model which was never asked for."""
    brought = {"model": model, "messages": [{"role": "user", "content": "Hi"}]}
    session = await (await api.client.post("/api/sessions/import", brought)).json()
    return await api.client.post(f"/api/sessions/{session['id']}/runs", {"input": "Hi"})


async def chat_of_a_page(api: Native, model: str) -> Response:
    message = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}
    return await api.client.post("/api/chat", {"id": f"chat-{id(api)}", "messages": [message], "model": model})


async def keep_preset(api: Native, model: str) -> Response:
    return await api.client.post("/api/presets", {"name": model, "model": model})


async def swap(api: Native, model: str) -> Response:
    body = {"models": ["up/m", "up/next"], "prompt": "Hi"}
    comparison = await (await api.client.post("/api/comparisons", body)).json()
    return await api.client.post(f"/api/comparisons/{comparison['id']}/panes/0/swap", {"model": model})


async def compare(api: Native, model: str) -> Response:
    return await api.client.post("/api/comparisons", {"models": ["up/m", model], "prompt": "Hi"})


async def batch(api: Native, model: str) -> Response:
    return await api.client.post("/api/batches", {"models": [model], "prompts": [{"prompt": "Hi"}]})


async def named_run(api: Native, model: str) -> Response:
    headers = {"x-conversation-id": "named"}
    return await api.client.post("/v1/chat/completions", {"model": model, "messages": SAID}, headers=headers)


async def ag_ui(api: Native, model: str) -> Response:
    said = [{"id": "m1", "role": "user", "content": "Hi"}]
    body = {"threadId": "t", "runId": "r", "messages": said, "tools": [], "context": [], "state": {}}
    return await api.client.post("/ag-ui", {**body, "forwardedProps": {"model": model}})


PLACES: dict[str, Ask] = {
    "/v1/models/{model}": look_up,
    "/v1/chat/completions": posting("/v1/chat/completions", messages=SAID),
    "/v1/chat/completions, streamed": posting("/v1/chat/completions", messages=SAID, stream=True),
    "/v1/chat/completions, in the background": posting("/v1/chat/completions", messages=SAID, background=True),
    "/v1/chat/completions, in a session": posting("/v1/chat/completions", messages=SAID, session_id="s"),
    "/v1/chat/completions, under a name": named_run,
    "/v1/responses": posting("/v1/responses", input="Hi"),
    "/v1/responses, streamed": posting("/v1/responses", input="Hi", stream=True),
    "/v1/responses, in the background": posting("/v1/responses", input="Hi", background=True),
    "/v1/messages": posting("/v1/messages", messages=SAID, max_tokens=9),
    "/v1/messages, streamed": posting("/v1/messages", messages=SAID, max_tokens=9, stream=True),
    "/v1/responses/compact": posting("/v1/responses/compact", input="Hi"),
    "/v1/responses/input_tokens": posting("/v1/responses/input_tokens", input="Hi"),
    "/v1/completions": posting("/v1/completions", prompt="Hi"),
    "/ag-ui": ag_ui,
    "/api/chat": chat_of_a_page,
    "/api/chat, Ollama's": posting("/api/chat", messages=SAID, stream=False),
    "/api/generate": posting("/api/generate", prompt="Hi", stream=False),
    "/api/show": posting("/api/show"),
    "/api/sessions": posting("/api/sessions"),
    "/api/sessions/{id}": change_session,
    "an old session": old_session,
    "runs": in_session("runs", input="Hi"),
    "runs, as an agent": in_session("runs", input="Hi", kind="agent"),
    "regenerate": in_session("regenerate"),
    "edit": in_session("edit", input="Hi again"),
    "continue": in_session("continue"),
    "/api/presets": keep_preset,
    "/api/comparisons": compare,
    "swap": swap,
    "/api/batches": batch,
    "/api/schedules": posting("/api/schedules", name="n", prompt="Hi", when={"kind": "every", "seconds": 86400}),
    "/api/triggers": posting("/api/triggers", name="n", prompt="Hi"),
}
NAMING = {
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/responses/compact",
    "/v1/responses/input_tokens",
    "/v1/messages",
    "/v1/messages/count_tokens",  # asks no model
    "/ag-ui",  # in forwardedProps
    "/api/chat",
    "/api/generate",
    "/api/sessions",
    "/api/sessions/{session_id}",
    "/api/sessions/import",  # asks no model: the next message in the session does
    "/api/sessions/{session_id}/runs",
    "/api/sessions/{session_id}/regenerate",
    "/api/sessions/{session_id}/edit",
    "/api/sessions/{session_id}/continue",
    "/api/sessions/{session_id}/compact",
    "/api/sessions/{session_id}/messages/{message_id}/fork",
    "/api/runs/{run_id}/fork",
    "/api/comparisons/{comparison_id}/synthesis",
    "/api/presets",  # asks no model: a chat with the preset does
    "/api/presets/{preset_id}",
    "/api/comparisons",
    "/api/comparisons/{comparison_id}/panes/{n}/swap",
    "/api/batches",
    "/api/schedules",
    "/api/schedules/{schedule_id}",
    "/api/triggers",
    "/api/triggers/{trigger_id}",
    "/api/settings",  # for admins, who may use every agent
    "/api/settings/test",
}
"""Calls whose body can name a model. A new one belongs into `PLACES` too."""


@requirement("safe.agent-users")
@pytest.mark.parametrize("place", PLACES)
async def test_an_agent_is_there_for_those_who_may_use_it_and_for_nobody_else(up, tmp_path, place):
    """A key that may chat is no key to a shell: wherever a model can be named, there is no such model."""
    up.models["hanging"] = [Headers(), Role(), Delta("So far"), Hang()]
    told: dict[str, set[str]] = {}
    async with serving(up, tmp_path) as callers:
        for name, api in callers.items():
            told[name] = set()
            for agent in NAMES:
                response = await PLACES[place](api, f"agent/{agent}")
                body = await response.text()
                if response.status != 404:
                    told[name].add(agent)
                    assert response.status < 300, (name, agent, body)
                else:
                    assert "model_not_found" in body or '"not_found_error"' in body, (name, agent, body)

    assert SEES == told


def test_every_call_that_can_name_a_model_is_looked_at():
    """Whoever adds such a call is reminded of those who may not use every agent."""
    named = {"model", "models", "default_model", "forwardedProps"}
    found = {each.path for each in ENDPOINTS if each.takes is not None and named & set(_fields(each.takes))}
    of_accounts = {
        each.path for each in ENDPOINTS if ".features.accounts." in each.handler.__module__
    }  # patterns, not models
    of_agents = {each.path for each in ENDPOINTS if each.path.startswith("/api/agents")}  # of admins, and no agents

    assert NAMING == found - of_accounts - of_agents


def _fields(takes: type[msgspec.Struct]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(takes)]


@requirement("safe.agent-users")
async def test_no_list_names_an_agent_that_the_caller_may_not_use(up, tmp_path):
    """Neither OpenAI's list, nor Anthropic's, nor our own; nor does a hint for who mistyped a name."""
    listed: dict[str, list[set[str]]] = {}
    async with serving(up, tmp_path) as callers:
        for name, api in callers.items():
            ours = await api.get("/api/models")
            lists = [
                [model["id"] for model in (await api.get("/v1/models"))["data"]],
                [m["id"] for m in (await api.get("/v1/models", headers={"anthropic-version": "2023-06-01"}))["data"]],
                [model["id"] for model in ours["models"]],
                [f"{it['name']}/{model}" for it in ours["providers"] for model in it["models"]],
                [model["model"] for model in (await api.get("/api/tags"))["models"]],
            ]
            listed[name] = [{id.removeprefix("agent/") for id in ids if id.startswith("agent/")} for ids in lists]
        mistyped = await callers["bob"].client.post(
            "/v1/chat/completions", {"model": "agent/operatr", "messages": SAID}
        )
        hint = await mistyped.text()

    assert {name: [names] * 5 for name, names in SEES.items()} == listed
    assert 404 == mistyped.status
    assert "agent/operator" not in hint


@requirement("safe.agent-users")
async def test_a_default_model_that_is_not_there_for_a_caller_is_none(up, tmp_path):
    """Its requests without a model are answered by the first model that is there, and no answer names the agent."""
    async with serving(up, tmp_path, default_model="agent/operator") as callers:
        bob, ada = callers["bob"], callers["ada"]
        seen = [await bob.get("/api/models"), await bob.get("/api/settings")]
        default = (await ada.get("/api/models"))["default"]
        session_id = await bob.new_session()
        run = await (await bob.client.post(f"/api/sessions/{session_id}/runs", {"input": "Hi"})).json()

    assert "agent/operator" == default
    assert ("up/m", None) == (seen[0]["default"], seen[1]["default_model"])
    assert "operator" not in str(seen)
    assert "up/m" == run["model"]


@requirement("safe.agent-users")
async def test_the_tools_of_the_default_agent_are_for_its_users_only(up, tmp_path):
    """A run of the kind `agent` has the tools of the agent `default`; for others there is none, and so no tools."""
    async with serving(up, tmp_path) as callers:
        offered = {}
        for name, api in callers.items():
            run_id = await api.start(await api.new_session(), "Hi", "up/m", kind="agent")
            await api.settled(run_id)
            offered[name] = [tool["function"]["name"] for tool in up.requests[-1].body.get("tools", ())]

    assert {"ada": ["shell"], "bob": [], "carol": []} == offered


@requirement("safe.agent-users")
async def test_who_has_lost_the_right_goes_on_with_nothing_that_was_begun(up, tmp_path):
    """What waited for a person, or in the queue, starts without a request: the rights of its owner count then.

    The message that is queued behind is never asked of the model, and the approval cannot be given any more.
    """
    up.models["m"] = calling(("shell", {"command": "touch ran"}))
    async with serving(
        up, tmp_path, await asyncio.to_thread(SqliteStore, tmp_path / "db"), default_model="up/next"
    ) as callers:
        ada = callers["ada"]
        session_id = await ada.new_session(model="agent/operator")
        waiting = await ada.start(session_id, "Go", "agent/operator")
        approval = await _asked(ada, waiting)
        queued = await ada.start(session_id, "And then", "agent/operator", if_busy="queue")
    asked = len(up.requests)
    async with serving(up, tmp_path, await asyncio.to_thread(SqliteStore, tmp_path / "db"), admins=("bob",)) as callers:
        ada = callers["ada"]
        ended = [await ada.settled(run_id) for run_id in (waiting, queued)]
        refused = [
            await ada.client.post(f"/api/runs/{waiting}/approvals/{approval}", {"decision": "allow"}),
            await ada.client.post(f"/api/runs/{waiting}/steer", {"input": "Go on"}),
            await ada.client.post(f"/api/sessions/{session_id}/runs", {"input": "Again"}),
        ]
        codes = [(await response.json())["error"]["code"] for response in refused]

    assert [("interrupted", None), ("failed", "model_not_found")] == [
        (each["outcome"], each["error"]["code"] if each["outcome"] == "failed" else None) for each in ended
    ]
    assert [(404, "model_not_found")] * 3 == list(zip((response.status for response in refused), codes, strict=True))
    assert asked == len(up.requests)
    assert [] == list(tmp_path.rglob("ran"))


async def _asked(api: Native, run_id: str) -> str:
    """Wait until a run asks for an approval; its id."""
    reader = await api.events(run_id)
    async with asyncio.timeout(LONG):
        while (frame := await reader.next_event()) is not None and frame.event != "approval.requested":
            pass
    reader.close()
    assert frame is not None
    return str(frame.json()["id"])


@requirement("safe.agent-users")
async def test_without_keys_the_person_at_the_machine_may_use_every_agent(up, tmp_path):
    """There is nobody else."""
    async with serving(up, tmp_path, keys=()) as callers:
        listed = [model["id"] for model in (await callers["bob"].get("/v1/models"))["data"]]

    assert NAMES == sorted(id.removeprefix("agent/") for id in listed if id.startswith("agent/"))


# Who, where the settings do not say.


@pytest.mark.parametrize(
    ("table", "users"),
    [
        ({}, ("*",)),
        ({"tools": ("files",)}, ()),
        ({"tools": ("files",), "approvals": {"files_write": "allow"}}, ()),
        ({"tools": ("files",), "approvals": {"files_write": "deny"}}, ("*",)),
        ({"tools": ("shell",)}, ()),
        ({"tools": ("shell",), "approvals": {"shell": "deny"}}, ("*",)),
        ({"tools": ("mcp:time",)}, ()),
        ({"tools": ("tests.support.agents:add",)}, ()),
        ({"tools": ("shell",), "users": ("*",)}, ("*",)),
        ({"users": ("ada", "bob")}, ("ada", "bob")),
        ({"users": ()}, ()),
    ],
)
def test_an_agent_that_could_write_or_run_something_is_for_admins_by_default(table, users):
    """Nobody believes a tool, or an MCP server, that it only reads: the settings say so, or it is not so."""
    settings = Settings(agents=(AgentSettings("a", model="up/m", **table),), mcp=(McpSettings("time", command="x"),))

    assert {"a": users} == users_of(settings)


async def test_users_of_an_agent_that_is_not_published_are_refused_at_the_start(up, tmp_path):
    """A name that was mistyped would leave an agent open to everyone."""
    with pytest.raises(SettingsError, match="agent_users names 'her', which is not a published agent"):
        async with serving(up, tmp_path, agent_users={"her": ("carol",)}):
            pass
