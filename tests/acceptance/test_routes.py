"""Every route, walked by somebody else: who may call it is declared, and nobody reaches what belongs to another."""

import asyncio
import hashlib
import io
import re
import zipfile
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from holdfast.server.app import create_app
from holdfast.server.config.settings import AgentSettings, KeySettings, ProviderSettings, Settings
from holdfast.server.kit.feature import Endpoint
from tests.acceptance.test_safety import PICTURE, body_for, filled
from tests.requirements import requirement
from tests.support.http import Client, Response
from tests.support.native import Native
from tests.support.served import NO_HOME, Served, protocol
from tests.support.upstream import Delta, Hang, Headers, Role, Upstream, calling

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEYS = {"alice": "alice-key-4f1c9d77aa0142", "bob": "bob-key-77aa014f1c9d42"}
ROUTES: list[Endpoint] = create_app(environ=NO_HOME, store="memory:").state.server.router.endpoints
PUBLISH = "tests.support.agents:publish"

OF_NOBODY = {
    "agent_name": "an agent of the server, which only admins set up",
    "server_name": "an MCP server, likewise",
    "n": "a place in what the path names before it",
    "outcome_id": "a question of the run that the path names before it",
    "input_id": "a question of the run that the path names before it",
    "model": "a model, which has no owner",
    "agent": "an agent, whose folder is that of whoever asks",
    "name": "a file of the page",
    "id": "an address of the page; the page asks for what it shows by other routes",
    "account_id": "a person, whom only admins can see; tests of accounts walk these routes",
    "group_id": "a group, likewise",
    "key_id": "a key, of a person who is signed in or for admins",
    "sign_in_id": "a sign-in, of a person who is signed in",
    "passkey_id": "a passkey, likewise",
    "share_id": "a share, which admins revoke too; the matrix walks it",
    "device_id": "a browser in which its person is told of runs; tests of push walk it",
    "webhook_id": "a webhook of a person, likewise",
    "token": "a link, which anyone may read who has it; tests of sharing walk it",
    "erasure_id": "the deletion of a person, which only admins can see",
}
"""Parameters of paths that name nothing that somebody owns."""

NAMES_WITHIN_AN_OWNER = {"chat_id", "conv_id"}
"""Names that a client chooses: each owner has those of its own, so another's name leads to nothing of another's."""

ELSEWHERE = {
    "session_id": "session_id",
    "session": "session_id",
    "before": "run_id",
    "after": "response_id",
    "conv_id": "conv_id",
    "previous_response_id": "response_id",
    "threadId": "chat_id",
    "runId": "run_id",
    "message_id": "message_id",
    "last_message_id": "message_id",
    "head_id": "message_id",
    "id": "chat_id",
    "messageId": "message_id",
    "conversation_ids": "conv_id",
}
"""Fields of bodies and queries that name something, and which of Alice's things they are given."""


ASKED = {"type": "text", "text": "a kumquat question"}
SHOWN = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{b64encode(PICTURE).decode()}"}}
LISTS = ["/api/sessions", "/api/runs", "/api/grants", "/api/batches", "/api/comparisons", "/api/chat/alices-chat"]


@dataclass
class World:
    """A server with two owners. What Alice has stands in `things`, by the names that paths and bodies use."""

    up: Upstream
    alice: Native
    bob: Client
    stranger: Client
    things: dict[str, str]

    async def hers(self) -> dict[str, Any]:
        """All that Alice has, as she sees it, but for the time that a run has waited."""
        paths = [filled(route.path, self.things) for route in ROUTES if is_owned(route) and is_view(route)]
        return {path: without_waits(await self.alice.get(path)) for path in [*LISTS, *paths]}


def without_waits(shown: Any) -> Any:
    if isinstance(shown, list):
        return [without_waits(each) for each in shown]
    if isinstance(shown, dict):
        return {name: without_waits(value) for name, value in shown.items() if name != "waits_for"}
    return shown


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder = tmp_path_factory.mktemp("routes")
    digests = {name: hashlib.sha256(key.encode()).hexdigest() for name, key in KEYS.items()}
    async with Upstream() as up, AsyncExitStack() as stack:
        up.models["hanging"] = [Headers(), Role(), Delta("kumquat so far"), Hang()]
        up.models["asks"] = calling(("publish", {"text": "a kumquat"}))
        settings = Settings(
            data=str(folder),
            idle_limit=3600.0,  # one of her runs hangs, and is there for all tests of a slow machine
            providers=(ProviderSettings("up", base_url=up.base_url, unlisted="pass"),),
            keys=tuple(KeySettings(name, sha256=digest) for name, digest in digests.items()),
            agents=(AgentSettings("helper", model="up/asks", tools=(PUBLISH,), users=("*",), max_steps=2),),
        )
        app = await asyncio.to_thread(create_app, settings, environ=NO_HOME)  # opens its store
        served = await stack.enter_async_context(Served(app, http=protocol()))
        alice, bob, stranger = [
            await stack.enter_async_context(served.client(headers={"authorization": f"Bearer {key}"} if key else {}))
            for key in (*KEYS.values(), None)
        ]
        yield World(up, Native(alice), bob, stranger, await _things(Native(alice)))


async def _things(api: Native) -> dict[str, str]:
    """One of each kind of thing that has an owner."""
    chat = {"id": "alices-chat", "model": "up/echo:kumquat", "messages": [_ui_message("a kumquat question")]}
    await (await api.client.post("/api/chat", chat)).body()
    session = await api.new_session(title="a kumquat")
    await api.settled(await api.start(session, [ASKED, SHOWN], "up/echo:a kumquat answer"))
    messages = (await api.session(session))["messages"]
    run = await api.start(session, "more", "up/hanging")
    (await api.shown(run, "kumquat so far")).close()
    await api.start(session, "a kumquat in the queue", "up/echo:later", if_busy="queue")
    said = [{"role": "user", "content": "a kumquat"}]
    named = {"model": "up/echo:kumquat", "messages": said, "background": True}
    headers = {"x-conversation-id": "alices-conversation"}
    completion = (await api.client.post("/v1/chat/completions", named, headers=headers)).headers["x-run-id"]
    await api.settled(completion)
    batch = {"models": ["up/echo:kumquat"], "prompts": [{"prompt": "a kumquat"}]}
    batch_id = (await (await api.client.post("/api/batches", batch)).json())["id"]
    await (await api.client.get(f"/api/batches/{batch_id}/events")).all_events()
    kept = await (await api.client.post("/v1/conversations", {"items": said})).json()
    listed = await (await api.client.get(f"/v1/conversations/{kept['id']}/items")).json()
    panes = {"models": ["up/echo:kumquat", "up/echo:another kumquat"], "prompt": "a kumquat"}
    preset = await (await api.client.post("/api/presets", {"name": "a kumquat"})).json()
    prompt = await (await api.client.post("/api/prompts", {"name": "kumquat", "text": "a kumquat"})).json()
    planned = {"name": "a kumquat", "prompt": "a kumquat", "when": {"kind": "cron", "expression": "0 0 29 2 *"}}
    called = {"name": "a kumquat", "prompt": "a kumquat {{body}}"}
    return {
        "preset_id": preset["id"],
        "prompt_id": prompt["id"],
        **await _asked_for(api),
        "session_id": session,
        "run_id": run,
        "message_id": messages[1]["id"],
        "sha256": hashlib.sha256(PICTURE).hexdigest(),
        "completion_id": completion.replace("run_", "chatcmpl-"),
        "response_id": completion.replace("run_", "resp_"),
        "answer_id": f"msg_{completion}",
        "batch_id": batch_id,
        "schedule_id": (await (await api.client.post("/api/schedules", planned)).json())["id"],
        "trigger_id": (await (await api.client.post("/api/triggers", called)).json())["id"],
        "conversation_id": kept["id"],
        "item_id": listed["data"][0]["id"],
        "comparison_id": (await (await api.client.post("/api/comparisons", panes)).json())["id"],
        "chat_id": "alices-chat",
        "conv_id": "alices-conversation",
        **dict.fromkeys(OF_NOBODY, "1"),
    }


async def _asked_for(api: Native) -> dict[str, str]:
    """A grant for one session, and an approval that is waited for in another."""
    asked: list[tuple[str, str]] = []
    for _ in range(2):
        run = await api.start(await api.new_session(), "Publish it", "agent/helper")
        reader = await api.events(run)
        while (frame := await reader.next_event()) is not None and frame.event != "approval.requested":
            pass
        assert frame is not None
        asked.append((run, frame.json()["id"]))
        reader.close()
    granted = {"decision": "allow", "scope": "session"}
    answer = await api.client.post("/api/runs/{}/approvals/{}".format(*asked[0]), granted)
    assert 200 == answer.status, await answer.text()
    await api.settled(asked[0][0])
    (grant,) = (await api.get("/api/grants"))["grants"]
    return {"grant_id": grant["id"], "waiting_run": asked[1][0], "approval_id": asked[1][1]}


def _ui_message(text: str) -> dict[str, Any]:
    return {"id": "m1", "role": "user", "parts": [{"type": "text", "text": text}]}


# Which routes, and what they name.


def parameters(route: Endpoint) -> set[str]:
    return set(re.findall(r"\{(\w+)", route.path))


def fields(route: Endpoint) -> list[str]:
    """What a route takes in its body and its query."""
    taken = [] if route.takes is None else [field.encode_name for field in msgspec.structs.fields(route.takes)]
    return [*taken, *route.query]


def names_of(route: Endpoint) -> str:
    return f"{route.method} {route.path}"


def is_owned(route: Endpoint) -> bool:
    return bool(parameters(route) - OF_NOBODY.keys() - NAMES_WITHIN_AN_OWNER)


def is_view(route: Endpoint) -> bool:
    """Whether a route shows something as one JSON object, which stays as it is while nothing happens."""
    return (
        route.method == "GET"
        and not route.path.endswith(("/events", "/timeline", "{sha256}"))
        and "/ag-ui" not in route.path
    )


by_route = {"argvalues": ROUTES, "ids": names_of}
elsewhere = [(route, field) for route in ROUTES for field in fields(route) if field in ELSEWHERE]


async def call(client: Client, route: Endpoint, things: dict[str, str], **more: Any) -> Response:
    body = body_for(route, things)
    if route.path == "/api/chat":
        body = {"messages": [_ui_message("Hi")], "model": "up/echo:hi"}
    query = "".join(f"&{name}={value}" for name, value in more.items() if name in route.query)
    path = filled(route.path, things)
    path += query if "?" in path else query.replace("&", "?", 1)
    if body is not None:
        body |= {name: [value] if name.endswith("ids") else value for name, value in more.items()}
    return await client.request(route.method, path, json=body)


async def code_of(refusal: Response) -> str:
    """Return the code of an error. In Ollama's form the error itself is a text."""
    told = await refusal.json()
    return str((told["holdfast"] if isinstance(told["error"], str) else told["error"])["code"])


@requirement("safe.owner-404")
async def test_every_parameter_of_every_route_is_known_here():
    """A new kind of thing is walked below from its first day, or is named as one that nobody owns."""
    looks_like_a_name = re.compile(r"(?:^|_)ids?$|Ids?$")
    unknown = {
        f"{names_of(route)}: {name}"
        for route in ROUTES
        for name in [*fields(route)]
        if looks_like_a_name.search(name) and name not in ELSEWHERE
    }

    assert set() == unknown


@requirement("safe.routes", "safe.key")
@pytest.mark.parametrize("route", **by_route)
async def test_a_route_answers_those_who_may_call_it_and_nobody_else(world, route):
    """Who may call a route is said where it is made; without a word it needs a key."""
    before = await world.hers()
    unknown = await call(world.stranger, route, world.things)
    refusal = {"admin": "admin_only", "person": "sign_in_needed", "person_fresh": "sign_in_needed"}.get(route.who.name)
    with_key = await call(world.bob, route, world.things) if refusal else None
    is_refused = unknown.status == 401 and await code_of(unknown) == "unauthorized"

    assert (route.who.role is not None) == is_refused
    assert with_key is None or (403, refusal) == (with_key.status, (await with_key.json())["error"]["code"])
    assert before == await world.hers()


@requirement("safe.owner-404")
@pytest.mark.parametrize("route", [route for route in ROUTES if is_owned(route)], ids=names_of)
async def test_what_a_path_names_of_another_is_not_there_and_stays_as_it_is(world, route):
    """Approvals, grants and places in a queue too: whatever stands in a path belongs to its owner."""
    things = world.things
    if "approval_id" in parameters(route):
        things = {**things, "run_id": things["waiting_run"]}
    before = await world.hers()
    response = await call(world.bob, route, things)

    assert 404 == response.status, await response.text()
    assert "kumquat" not in await response.text()
    assert before == await world.hers()


async def text_of(response: Response) -> str:
    """A response as text; an archive with all of its files."""
    if response.headers.get("content-type") != "application/zip":
        return (await response.body()).decode(errors="replace")  # a picture is no text
    with zipfile.ZipFile(io.BytesIO(await response.body())) as archive:
        return "".join(archive.read(name).decode("latin-1") for name in archive.namelist())


@requirement("safe.owner-404")
@pytest.mark.parametrize("route", [route for route in ROUTES if not is_owned(route)], ids=names_of)
async def test_what_a_route_shows_or_makes_is_the_callers_own(world, route):
    """Lists, names that a client chooses, and whatever begins something: nothing of another is shown or changed."""
    before = await world.hers()
    response = await call(world.bob, route, world.things)
    told = await response.next_event() if is_stream(response) else await text_of(response)
    response.leave()

    assert response.status in (200, 201, 202, 204, 400, 401, 403, 404), await response.text()
    assert "kumquat" not in str(told)
    assert before == await world.hers()


@requirement("safe.owner-404")
@pytest.mark.parametrize(
    ("route", "field"), elsewhere, ids=[f"{names_of(route)} {field}" for route, field in elsewhere]
)
async def test_an_id_of_another_in_a_body_or_a_query_opens_nothing(world, route, field):
    """An id is checked wherever it stands, not only in a path."""
    before = await world.hers()
    response = await call(world.bob, route, world.things, **{field: world.things[ELSEWHERE[field]]})
    told = await response.next_event() if is_stream(response) else await response.text()
    response.leave()

    assert response.status < 500
    assert "kumquat" not in str(told)
    assert before == await world.hers()


SAID = [{"role": "user", "content": "Hi"}]
CHAT = {"model": "up/echo:hi", "messages": SAID}
INSIDE: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "a thread of Anthropic's": (
        "/v1/messages",
        {**CHAT, "max_tokens": 9, "thread": {"type": "continue", "previous_message_id": "{answer_id}"}},
        {},
    ),
    "an item of a response": (
        "/v1/responses",
        {"model": "up/echo:hi", "input": [{"type": "item_reference", "id": "msg_{completion}"}, *SAID]},
        {},
    ),
    "a call of a response": (
        "/v1/responses",
        {
            "model": "up/echo:hi",
            "previous_response_id": "{response_id}",
            "input": [{"type": "function_call_output", "call_id": "call_0", "output": "x"}],
        },
        {},
    ),
    "a conversation of a response": (
        "/v1/responses",
        {"model": "up/echo:hi", "input": "Hi", "conversation": "{conversation_id}"},
        {},
    ),
    "the header of a session": ("/v1/chat/completions", CHAT, {"x-session-id": "{session_id}"}),
    "the header of a conversation": ("/v1/chat/completions", CHAT, {"x-conversation-id": "{conv_id}"}),
    "the header of a session, Anthropic's": ("/v1/messages", {**CHAT, "max_tokens": 9}, {"x-session-id": "{chat_id}"}),
    "the cursor of a stream": ("/api/chat", {"id": "{run_id}", "messages": [], "model": "up/echo:hi"}, {}),
}
"""Ids that stand deeper in a body, and in headers."""


@requirement("safe.owner-404")
@pytest.mark.parametrize("place", INSIDE)
async def test_an_id_of_another_deep_in_a_body_or_in_a_header_opens_nothing(world, place):
    """The model is shown nothing of it, and neither is the caller."""
    path, body, headers = msgspec.json.decode(
        re.sub(
            r"\{(\w+)\}",
            lambda match: world.things.get(match[1], world.things["response_id"].removeprefix("resp_")),
            msgspec.json.encode(INSIDE[place]).decode(),
        )
    )
    before, asked = await world.hers(), len(world.up.requests)
    response = await world.bob.post(path, body, headers=headers)

    assert response.status < 500
    assert "kumquat" not in await response.text()
    assert "kumquat" not in str([request.body for request in world.up.requests[asked:]])
    assert before == await world.hers()


def is_stream(response: Response) -> bool:
    return "text/event-stream" in response.headers.get("content-type", "")
