"""Who may do what, how much of it, and what nobody can smuggle in."""

import base64
import hashlib
import json
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from holdfast.access import ADMIN, ANYONE, LINK
from holdfast.ids import new_id
from holdfast.server.kit.feature import Endpoint
from tests.requirements import requirement
from tests.support.http import Client, Frame, Response
from tests.support.native import Native
from tests.support.routes import ENDPOINTS
from tests.support.server import NODES, Server, provider
from tests.support.upstream import Delta, Hang, Headers, Role, Upstream, answer

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEYS = {"alice": "alice-key-4f1c9d", "bob": "bob-key-77aa01", "ada": "ada-key-90cd12"}
"""Ada is the admin."""
BODY_LIMIT = 20_000
HANGS = "idle_limit = 3600\n"
"""One of Alice's runs hangs, and is there for all tests of a slow machine."""
PICTURE = b"\x89PNG\r\n\x1a\n of a kumquat"
TWO_OWNERS = f"""
{HANGS}body_limit = {BODY_LIMIT}
metrics = true
[[keys]]
name = "alice"
key_env = "ALICE"
[[keys]]
name = "bob"
key_env = "BOB"
[[keys]]
name = "ada"
key_env = "ADA"
admin = true
"""
HELPER = """
[[agents]]
name = "helper"
model = "up/m"
users = ["*"]
tools = ["files"]
folder = "{folder}"
"""
"""An agent whose folder has a file."""

OF_PEOPLE = (".accounts.", ".data.")
WITH_KEYS = [each for each in ENDPOINTS if not any(part in each.handler.__module__ for part in OF_PEOPLE)]
"""Endpoints for callers with keys. Those of accounts are tested with people: see test_matrix.py."""
by_name = {"argvalues": ENDPOINTS, "ids": [f"{endpoint.method} {endpoint.path}" for endpoint in ENDPOINTS]}


def two_owners(data: Path, up: Upstream, settings: str = "", tables: str = "") -> Server:
    env = {name.upper(): key for name, key in KEYS.items()}
    return Server(data, [provider(up.base_url, models=None)], config=settings + TWO_OWNERS + tables, env=env)


def bearer(owner: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[owner]}"}


def rightly(endpoint: Endpoint) -> dict[str, str]:
    """Return the key of somebody who may call an endpoint."""
    return bearer("ada" if endpoint.who is ADMIN else "alice")


@dataclass
class World:
    """A server with two owners. What Alice has stands in `things`, by the names that paths and bodies use."""

    server: Server
    up: Upstream
    alice: Native
    bob: Native
    stranger: Client
    """Someone without a key."""
    things: dict[str, str]

    def stored(self) -> dict[str, list[tuple[Any, ...]]]:
        """All that is kept, but for the nodes' leases, which are renewed now and then."""
        return self.server.stored()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder = tmp_path_factory.mktemp("helper")
    (folder / "kumquat.txt").write_text("a kumquat")
    data, helper = tmp_path_factory.mktemp("safety"), HELPER.format(folder=folder)
    async with Upstream() as up, two_owners(data, up, tables=helper) as server:
        up.models["hanging"] = [Headers(), Role(), Delta("kumquat so far"), Hang()]
        async with server.client(**bearer("alice")) as alice, server.client(**bearer("bob")) as bob:
            async with server.client() as stranger:
                things = await things_of(Native(alice))
                yield World(server, up, Native(alice), Native(bob), stranger, things)


async def things_of(api: Native) -> dict[str, str]:
    """A session with an answer, a run that goes on and a message that waits; and a completion of its own."""
    session = await api.new_session(title="Alice's")
    await api.settled(await api.start(session, "a kumquat question", "up/echo:a kumquat answer"))
    shown = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"}}
    await api.settled(await api.start(session, [shown], "up/echo:a kumquat picture"))
    run = await api.start(session, "more", "up/hanging")
    await api.shown(run, "kumquat so far")
    await api.start(session, "a kumquat in the queue", "up/echo:later", if_busy="queue")
    messages = [{"role": "user", "content": "a kumquat"}]
    body = {"model": "up/echo:kumquat", "messages": messages, "background": True}
    completion = await api.client.post("/v1/chat/completions", body)
    await api.settled(completion.headers["x-run-id"])
    named = await api.client.post("/v1/chat/completions", body, headers={"x-conversation-id": "a-kumquat-name"})
    await api.settled(named.headers["x-run-id"])
    asked = {"models": ["up/echo:kumquat"], "prompts": [{"prompt": "a kumquat"}]}
    batch = (await (await api.client.post("/api/batches", asked)).json())["id"]
    await (await api.client.get(f"/api/batches/{batch}/events")).all_events()
    kept = await (await api.client.post("/v1/conversations", {"items": messages})).json()
    listed = await (await api.client.get(f"/v1/conversations/{kept['id']}/items")).json()
    panes = {"models": ["up/echo:kumquat", "up/echo:another kumquat"], "prompt": "a kumquat"}
    comparison = (await (await api.client.post("/api/comparisons", panes)).json())["id"]
    shared = await (await api.client.post(f"/api/sessions/{session}/shares", {"follow": True})).json()
    preset = await (await api.client.post("/api/presets", {"name": "a kumquat preset"})).json()
    prompt = await (await api.client.post("/api/prompts", {"name": "a-kumquat", "text": "a kumquat"})).json()
    planned = {"name": "a kumquat", "prompt": "a kumquat", "when": {"kind": "cron", "expression": "0 0 29 2 *"}}
    schedule = await (await api.client.post("/api/schedules", planned)).json()
    trigger = await (await api.client.post("/api/triggers", {"name": "a kumquat", "prompt": "a kumquat"})).json()
    return {
        "session_id": session,
        "run_id": run,
        "completion_id": (await completion.json())["id"],
        "response_id": (await completion.json())["id"].replace("chatcmpl-", "resp_"),
        "answer_id": f"msg_{completion.headers['x-run-id']}",
        "message_id": (await api.session(session))["messages"][1]["id"],
        "n": "1",
        "approval_id": "apr_1",
        "grant_id": "grt_1",
        "agent_name": "no-agent",
        "server_name": "no-server",
        "account_id": "user_1",
        "group_id": "grp_1",
        "key_id": "key_1",
        "sign_in_id": "in_1",
        "passkey_id": "AAAAAAAAAAAAAAAAAAAAAA",
        "share_id": shared["id"],
        "preset_id": preset["id"],
        "prompt_id": prompt["id"],
        "schedule_id": schedule["id"],
        "trigger_id": trigger["id"],
        "device_id": "dev_1",
        "webhook_id": "whk_1",
        "token": shared["token"],
        "erasure_id": "era_1",
        "outcome_id": "out_1",
        "agent": "helper",
        "input_id": "inp_1",
        "batch_id": batch,
        "conversation_id": kept["id"],
        "item_id": listed["data"][0]["id"],
        "comparison_id": comparison,
        "chat_id": session,
        "conv_id": "a-kumquat-name",
        "model": "up/m",
        "sha256": hashlib.sha256(PICTURE).hexdigest(),
    }


# Any endpoint, with something in each of its places.


QUERIES = {
    "/v1/stream": "?conv_id={conv_id}",
    "/api/events": "?session={session_id}",
    "/api/agents/{agent}/files/content": "?path=kumquat.txt",
    "/api/qr": "?text=https://example.com",
}
"""What an endpoint insists on in its query."""


def filled(path: str, things: Mapping[str, str]) -> str:
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda match: things[match[1]], path + QUERIES.get(path, ""))


def body_for(endpoint: Endpoint, things: Mapping[str, str]) -> dict[str, Any] | None:
    """A body that the endpoint takes: each field that it insists on, and one at least."""
    if endpoint.takes is None:
        return None
    values = {
        "budget": {"tokens_per_day": 100},
        "input": "Hi",
        "message_id": things["message_id"],
        "messages": [{"role": "user", "content": "Hi"}],
        "decision": "deny",
        "title": "Hi",
        "model": "up/echo:hi",
        "models": ["up/echo:hi"],
        "prompts": [{"prompt": "Hi"}],
        "prompt": "Hi",
        "winner": 0,
        "vote": "up",
        "threadId": "t",
        "runId": "r",
        "name": "tried",
        "items": [{"role": "user", "content": "Hi"}],
        "metadata": {},
        "password": "a password that is wrong",
        "current": "another one",
        "code": "000000",
        "sealed": "AAAA",
        "answer": {},
        "token": "no token",
        "state": "no state",
        "preset": None,
        "when": {"kind": "every", "seconds": 86400},
        "text": "Hi",
        "format": "holdfast-presets",
        "version": 1,
        "sessions": ["ses_0000000000000000000000"],
        "kind": "folder",
        "endpoint": "https://192.0.2.1/push",
        "keys": {"p256dh": "AAAA", "auth": "AAAA"},
        "url": "https://93.184.215.14/hook",
        "tool": "add",
    }
    fields = [field for field in msgspec.structs.fields(endpoint.takes) if field.required]
    body = {field.encode_name: values[field.encode_name] for field in fields}
    return body or {"title": "Hi"}


async def call(client: Client, endpoint: Endpoint, things: Mapping[str, str], **options: Any) -> Response:
    path = filled(endpoint.path, things)
    return await client.request(endpoint.method, path, json=body_for(endpoint, things), **options)


async def error_of(response: Response) -> dict[str, Any]:
    """The error object of an answer, in the shape that its dialect has; the same request is not to be repeated."""
    told = await response.json()
    error: dict[str, Any] = told["error"]
    if isinstance(error, str):  # in Ollama's dialect, which has no types of errors
        error = {"message": error, "type": None, **told["holdfast"]}
    assert {"message", "type", "code", "param", "help"} == error.keys()
    assert (None if response.status == 429 else "false") == response.headers.get("x-should-retry")
    return error


# The key.


@requirement("safe.key", "wire.no-useless-retry")
@pytest.mark.parametrize("endpoint", **by_name)
async def test_without_a_key_nothing_but_the_health_checks_answers(world: World, endpoint: Endpoint):
    """Each new endpoint is behind the key from its first day: the list of them is the server's own."""
    before = world.stored()

    response = await call(world.stranger, endpoint, world.things)

    if endpoint.path in ("/health", "/ready"):
        assert 200 == response.status
    elif endpoint.who is ANYONE:
        assert endpoint.path in WAYS_IN
    elif endpoint.who is LINK:
        assert (200, before) == (response.status, world.stored())  # the token in the path is the key
    else:
        assert (401, "unauthorized") == (response.status, (await error_of(response))["code"])
        assert before == world.stored()


@requirement("safe.key")
@pytest.mark.parametrize(
    ("path", "authorization"),
    [
        ("/api/me", "Bearer wrong"),
        ("/api/me", f"Bearer {KEYS['alice']}x"),
        ("/api/me", f"Bearer {KEYS['alice'][:-1]}"),
        ("/api/me", f"Basic {KEYS['alice']}"),
        ("/api/me", KEYS["alice"]),
        ("/api/me", "Bearer"),
        ("/api/me", "Bearer "),
        (f"/api/me?key={KEYS['alice']}", None),
        (f"/api/me?api_key={KEYS['alice']}", None),
        (f"/api/me?authorization=Bearer%20{KEYS['alice']}", None),
        ("/health/../api/me", None),
        ("//health", None),
        ("/nothing-here", None),
        ("/openapi.json", None),
    ],
)
async def test_only_the_whole_key_in_its_place_opens_the_door(world: World, path: str, authorization: str | None):
    """A key in a query ends up in logs and histories, so it opens nothing; and no path gets around the check."""
    response = await world.stranger.get(path, headers={"authorization": authorization})

    assert (401, "unauthorized") == (response.status, (await error_of(response))["code"])


@requirement("safe.ready")
async def test_whoever_has_no_key_learns_nothing_of_the_runs(world: World, local: World):
    """How much is going on is for those who may know who goes on."""
    told = await (await world.stranger.get("/ready")).json()
    here = await (await local.stranger.get("/ready")).json()

    assert {"status": "ready"} == told
    assert {"status", "runs"} == here.keys()


@requirement("safe.key")
async def test_the_key_says_who_is_asking(world: World):
    """Each key is an owner with sessions of its own."""
    assert "conf_alice" == (await world.alice.get("/api/me"))["owner"]
    assert "conf_bob" == (await world.bob.get("/api/me"))["owner"]


# The bind.


@requirement("safe.bind")
@pytest.mark.parametrize(("host", "way"), [("0.0.0.0", "flag"), ("::", "environment"), ("0.0.0.0", "file")])
async def test_a_bind_that_others_can_reach_is_closed_until_there_is_an_admin(tmp_path: Path, host: str, way: str):
    """An open server on a network would let anyone spend the owner's money: it answers only whoever has its code.

    Of several nodes each has a code, which is good at all of them.
    """
    server = Server(
        tmp_path,
        args=["--host", host] if way == "flag" else [],
        env={"HOLDFAST_HOST": host} if way == "environment" else {},
        config=f'host = "{host}"' if way == "file" else "",
    )
    admin = {"name": "ada", "password": "a long enough secret"}
    async with server, server.client(host="my-box.lan:8787", origin="http://my-box.lan:8787") as client:
        codes = dict(re.findall(r"first admin at (\S+) with this code: (\S+)", server.log_text()))
        here = "[::1]" if host == "::" else "127.0.0.1"
        assert NODES == len(codes)
        code = codes[f"http://{here}:{server.port}/first-admin"]
        assert f"ready on http://{here}:{server.port}, from other machines http://" in server.log_text()
        closed = await client.get("/api/me")
        guessed = await client.post("/api/first-admin", {**admin, "code": "a guess"})
        made = await client.post("/api/first-admin", {**admin, "code": code})
        cookie = made.headers["set-cookie"].partition(";")[0]
        me = await (await client.get("/api/me", headers={"cookie": cookie})).json()
        again = await client.post("/api/first-admin", {**admin, "name": "eve", "code": code})

        assert (401, 403, 200, 409) == (closed.status, guessed.status, made.status, again.status)
        assert ("ada", "admin", True) == (me["name"], me["role"], me["admin"])


@requirement("safe.bind")
async def test_with_a_key_it_may_listen_everywhere_and_asks_for_it(tmp_path: Path):
    """The same bind is fine behind a key, and a name of the network is then a name of the server."""
    async with Server(
        tmp_path, args=["--host", "0.0.0.0"], env={"HOLDFAST_API_KEY": "the-key-of-sixteen-and-more"}
    ) as server:
        async with server.client(host="my-box.lan:8787") as client:
            without = await client.get("/api/me")
            with_key = await client.get("/api/me", headers={"authorization": "Bearer the-key-of-sixteen-and-more"})

            assert (401, 200) == (without.status, with_key.status)


# Pages elsewhere: Origin and Host.


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A server as most people run it: on this machine, without a key."""
    async with Upstream() as up:
        data, providers = tmp_path_factory.mktemp("local"), [provider(up.base_url, models=None)]
        config = f'{HANGS}allowed_hosts = ["chat.home.arpa"]\nallowed_origins = ["https://app.example"]'
        async with Server(data, providers, config=config) as server, server.client() as client:
            api = Native(client)
            up.models["hanging"] = [Headers(), Role(), Delta("kumquat so far"), Hang()]
            yield World(server, up, api, api, client, await things_of(api))


FOREIGN_ORIGINS = {
    "another site": "https://evil.example",
    "a site with our name in its own": "http://127.0.0.1.evil.example",
    "another port of this machine": "http://127.0.0.1:1",
    "a sandboxed frame or a file": "null",
    "an extension": "chrome-extension://abcdefgh",
    "our allowed site with another port": "https://app.example:8443",
    "our allowed site without encryption": "http://app.example",
    "a site under our allowed one": "https://evil.app.example",
    "our address without a scheme": "://127.0.0.1:{port}",
    "our address with another scheme": "ftp://127.0.0.1:{port}",
}


@requirement("safe.origin")
@pytest.mark.parametrize("origin", FOREIGN_ORIGINS.values(), ids=FOREIGN_ORIGINS)
async def test_a_page_from_elsewhere_can_neither_start_nor_read_anything(local: World, origin: str):
    """A browser lets every page call 127.0.0.1: without this check a visit to a site would be enough."""
    origin = origin.format(port=local.server.port)
    before = local.stored()
    body = {"model": "up/m", "messages": [{"role": "user", "content": "Hi"}]}

    answers = [
        await local.alice.client.post("/v1/chat/completions", body, headers={"origin": origin}),
        await local.alice.client.request(
            "POST",
            "/api/sessions",
            body=b"{}",
            headers={"origin": origin, "content-type": "text/plain"},  # what a form can send without asking first
        ),
        await local.alice.client.get("/api/sessions", headers={"origin": origin}),
        await local.alice.client.request("OPTIONS", "/api/sessions", headers={"origin": origin}),
    ]

    assert [(403, "origin_not_allowed")] * 4 == [
        (response.status, (await error_of(response))["code"]) for response in answers
    ]
    assert not any("access-control-allow-origin" in response.headers for response in answers)
    assert before == local.stored()


SITES = {
    "another site": ["cross-site"],
    "another name of ours": ["same-site"],
    "in other letters": ["Cross-Site"],
    "twice": ["same-origin", "cross-site"],
    "joined by a proxy": ["same-origin, cross-site"],
    "what nobody knows": ["somewhere"],
}


@requirement("safe.origin")
@pytest.mark.parametrize("sites", SITES.values(), ids=SITES)
@pytest.mark.parametrize(
    "asked",
    ["POST /api/sessions", "GET /api/sessions?query=kumquat", "HEAD /v1/models", "GET /ag-ui", "GET /openapi.json"],
)
async def test_a_page_that_sends_no_origin_is_known_by_what_the_browser_adds(
    local: World, sites: list[str], asked: str
):
    """An image or a frame of another site cannot read an answer, but it can measure how long and large it is."""
    before = local.stored()
    lines = [f"{asked} HTTP/1.1", "Host: 127.0.0.1", *(f"Sec-Fetch-Site: {site}" for site in sites)]

    response = await local.stranger.send_raw("\r\n".join([*lines, "", ""]).encode(), method=asked.split()[0])
    await response.head()

    assert 403 == response.status
    assert asked.startswith("HEAD") or "origin_not_allowed" == (await error_of(response))["code"]
    assert before == local.stored()


@requirement("safe.origin")
@pytest.mark.parametrize("path", ["/", "/s/ses_1", "/compare", "/icon.svg", "/health"])
async def test_another_site_may_link_to_the_page(local: World, path: str):
    """A link in a chat or a bookmark page leads there: the page itself holds no secret."""
    response = await local.stranger.get(path, headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"})

    assert 200 == response.status


@requirement("safe.origin")
@pytest.mark.parametrize("path", ["/", "/assets/index.js", "/icon.svg"])
async def test_the_files_of_the_page_load_with_any_origin_and_no_other_page_can_read_them(local: World, path: str):
    """Module scripts carry an Origin. Behind a proxy that drops the port from the Host, the page stayed blank."""
    response = await local.stranger.get(path, headers={"origin": "https://chat.example.com:8443"})

    assert 200 == response.status
    assert "access-control-allow-origin" not in response.headers


@requirement("safe.origin")
async def test_our_own_page_and_programs_without_an_origin_may_call(local: World):
    """The check must not keep out those for whom the server is there."""
    host = f"127.0.0.1:{local.server.port}"
    own = {"origin": f"http://{host}", "sec-fetch-site": "same-origin"}

    answers = [
        await local.alice.client.post("/api/sessions", {}, headers=own),
        await local.alice.client.post("/api/sessions", {}),
        await local.alice.client.get("/api/sessions", headers={"sec-fetch-site": "none"}),
    ]

    assert [201, 201, 200] == [response.status for response in answers]


@requirement("safe.host")
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1.evil.example:{port}",
        "localhost.evil.example",
        "localhost@evil.example",
        "evil.example/127.0.0.1",
        "evil.example#localhost",
        "evil.example\\localhost",
        "0.0.0.0:{port}",
        "192.168.1.7:{port}",
        "[::2]:{port}",
        "notlocalhost",
        "localhost:80:80",
        "127.0.0.1:abc",
        "127.0.0.1:",
        "127.0.0.1:99999",
        "127.0.0.1,127.0.0.1",
        "lo\tcalhost",
        "[127.0.0.1",
        "::1",
        "",
        None,
    ],
)
async def test_a_name_that_is_not_ours_is_refused(local: World, host: str | None):
    """DNS rebinding: an attacker's own name can point to 127.0.0.1, and then a page of his shares our origin."""
    before = local.stored()
    named = None if host is None else host.format(port=local.server.port)
    body = b'{"model": "up/m", "messages": [{"role": "user", "content": "Hi"}]}'
    headers = {"host": named, "origin": f"http://{named}", "content-type": "application/json"}

    answers = [
        await local.alice.client.request("POST", "/v1/chat/completions", body=body, headers=headers),
        await local.alice.client.get("/api/sessions", headers={"host": named}),
    ]

    assert {400, 403} >= {response.status for response in answers}
    assert b"kumquat" not in b"".join([await response.body() for response in answers])
    assert before == local.stored()


@requirement("safe.host")
@pytest.mark.parametrize("name", ["Host", "Origin", "Authorization", "X-Api-Key"])
async def test_a_header_that_says_who_calls_is_given_once(local: World, name: str):
    """A proxy in front may check the one and we the other."""
    own = {"Host": f"127.0.0.1:{local.server.port}", "Origin": local.server.url}
    twice = [f"{name}: {own.get(name, 'Bearer x')}", f"{name}: {own.get(name, 'Bearer y')}"]
    lines = ["POST /api/sessions HTTP/1.1", *twice, *([f"Host: {own['Host']}"] if name != "Host" else [])]
    head = "\r\n".join([*lines, "Content-Length: 2", "Content-Type: application/json", "", "{}"])
    before = local.stored()

    response = await local.alice.client.send_raw(head.encode(), method="POST")

    error = (await response.json())["error"]
    assert (400, "invalid_http") == (response.status, error["code"])
    assert name.lower() in error["message"]
    assert before == local.stored()


@requirement("safe.host")
@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:{port}", "127.0.0.1", "[::1]:{port}", "chat.home.arpa"])
async def test_the_names_of_this_machine_and_those_that_were_allowed_are_ours(local: World, host: str):
    """The check must not depend on how its owner spells the address."""
    response = await local.alice.client.get("/api/me", headers={"host": host.format(port=local.server.port)})

    assert 200 == response.status


# CORS.


@requirement("safe.origin")
async def test_an_allowed_page_may_call_and_read_streams_and_errors_too(local: World):
    """Without these headers a browser hides the answer from the page, the reason of a refusal included."""
    page = {"origin": "https://app.example"}
    asking = {**page, "access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    session = await local.alice.new_session()
    run = await local.alice.start(session, "Hi", "up/echo:Hello")
    body = {"model": "up/echo:Hi", "messages": [{"role": "user", "content": "Hi"}], "stream": True}

    preflight = await local.alice.client.request("OPTIONS", "/v1/chat/completions", headers=asking)
    answers = [
        preflight,
        await local.alice.client.post("/v1/chat/completions", body, headers=page),
        await local.alice.client.get(f"/api/runs/{run}/events", headers=page),
        await local.alice.client.get("/api/runs/run_none", headers=page),
        await local.alice.client.get("/no/such/path", headers=page),
    ]
    frames = [frame.event for frame in await answers[2].all_events()]

    assert [204, 200, 200, 404, 404] == [response.status for response in answers]
    assert {"https://app.example"} == {response.headers["access-control-allow-origin"] for response in answers}
    assert all("origin" in response.headers["vary"].lower() for response in answers)
    assert "POST" in preflight.headers["access-control-allow-methods"]
    allowed = preflight.headers["access-control-allow-headers"]
    assert {"authorization", "content-type", "idempotency-key", "last-event-id"} <= set(allowed.split(", "))
    assert "x-run-id" in answers[1].headers["access-control-expose-headers"]
    assert "run.settled" == frames[-1]


@requirement("safe.origin", "safe.key")
async def test_an_allowed_page_without_the_key_can_read_that_it_needs_one(tmp_path: Path):
    """A 401 that the browser hides looks like a broken network, and nobody would think of the key."""
    config = 'allowed_origins = ["https://app.example"]'
    async with Server(tmp_path, config=config, env={"HOLDFAST_API_KEY": "the-key"}) as server, server.client() as page:
        response = await page.get("/api/me", headers={"origin": "https://app.example"})

        assert (401, "unauthorized") == (response.status, (await error_of(response))["code"])
        assert "https://app.example" == response.headers["access-control-allow-origin"]


# Owners.


OWNED = {
    *("session_id", "run_id", "completion_id", "answer_id", "response_id", "conversation_id", "batch_id"),
    "comparison_id",
}


WAYS_IN = (
    "/api/sign-in",
    "/api/sign-in/passkey",
    "/api/sign-in/passkey/options",
    "/api/first-admin",
    "/api/reset-password",
    "/api/reset-password/person",
    "/api/oidc/start",
    "/api/oidc/callback",
    "/api/triggers/{trigger_id}/call",
    "/api/triggers/{trigger_id}/call/{token}",
)
"""What people call to be let in, and what is called with a secret of its own."""


def owned(endpoint: Endpoint) -> bool:
    return bool(OWNED & set(re.findall(r"\{(\w+)", endpoint.path)))


of_someone = [endpoint for endpoint in WITH_KEYS if owned(endpoint)]


@requirement("safe.owner-404")
@pytest.mark.parametrize("endpoint", of_someone, ids=lambda endpoint: f"{endpoint.method} {endpoint.path}")
async def test_what_belongs_to_another_is_not_there(world: World, endpoint: Endpoint):
    """Not even that it exists can be learned: another's id is answered as one that never was, word for word."""
    never = {name: new_id(id.partition("_")[0]) if "_" in id else id for name, id in world.things.items()}
    never["completion_id"] = f"chatcmpl-{new_id('run').removeprefix('run_')}"
    never["answer_id"] = f"msg_{new_id('run')}"
    before = world.stored()

    theirs, nobodys = [await call(world.bob.client, endpoint, things) for things in (world.things, never)]

    assert (404, 404) == (theirs.status, nobodys.status)
    assert (await error_of(theirs))["code"].endswith("_not_found")
    assert _without(await theirs.text(), world.things) == _without(await nobodys.text(), never)
    assert sorted(theirs.headers) == sorted(nobodys.headers)
    assert "kumquat" not in await theirs.text()
    assert before == world.stored()


def _without(text: str, things: Mapping[str, str]) -> str:
    """The text with a placeholder for each id."""
    for name, id in things.items():
        if len(id) > 8:
            text = text.replace(id, name)
    return text


@requirement("safe.owner-404")
@pytest.mark.parametrize(
    ("method", "path", "field"),
    [
        ("POST", "regenerate", "message_id"),
        ("POST", "continue", "message_id"),
        ("POST", "edit", "message_id"),
        ("POST", "fork", "message_id"),
        ("PATCH", "", "head_id"),
    ],
)
async def test_anothers_message_cannot_be_named_in_ones_own_session(world: World, method: str, path: str, field: str):
    """An id in a body is checked as one in a path is."""
    session = await world.bob.new_session()
    await world.bob.settled(await world.bob.start(session, "mine", "up/echo:mine"))
    body = {field: world.things["message_id"]} | ({"input": "x"} if path == "edit" else {})

    response = await world.bob.client.request(method, f"/api/sessions/{session}/{path}".rstrip("/"), json=body)

    assert (404, "message_not_found") == (response.status, (await error_of(response))["code"])
    assert "kumquat" not in await response.text()


@requirement("safe.owner-404")
@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/api/runs?session_id={session_id}", "runs"),
        ("/api/runs?before={run_id}", "runs"),
        ("/api/sessions?before={session_id}", "sessions"),
        ("/api/sessions?query=kumquat", "sessions"),
    ],
)
async def test_lists_and_searches_show_ones_own_and_nothing_by_anothers_id(world: World, path: str, name: str):
    """A cursor that names another's row would tell that it is there, and when it was made."""
    never = {"session_id": new_id("ses"), "run_id": new_id("run")}
    await world.bob.settled(await world.bob.start(await world.bob.new_session(), "mine", "up/echo:mine"))

    theirs, nobodys = [await world.bob.get(path.format(**things)) for things in (world.things, never)]
    for each in (theirs, nobodys):
        each.pop("feed", None)  # of several nodes each counts the changes that it has seen

    assert [] == theirs[name]
    assert theirs == nobodys


@requirement("safe.owner-404")
@pytest.mark.parametrize("place", ["body", "header"])
async def test_anothers_session_id_on_chat_completions_opens_a_session_of_ones_own(world: World, place: str):
    """A name is a name within one's own: the model is shown nothing that another has said."""
    model, session = f"echo:of {place}", world.things["session_id"]
    before = await world.alice.transcript(session)
    body = {"model": f"up/{model}", "messages": [{"role": "user", "content": "Hi"}]}
    if place == "body":
        body["session_id"] = session
    headers = {"x-session-id": session} if place == "header" else {}

    response = await world.bob.client.post("/v1/chat/completions", body, headers=headers)
    (asked,) = [request for request in world.up.requests if request.model == model]

    assert 200 == response.status
    assert {"role": "user", "content": "Hi"} == asked.body["messages"][-1]
    assert "kumquat" not in json.dumps(asked.body)
    assert before == await world.alice.transcript(session)


@requirement("safe.owner-404")
async def test_two_owners_may_use_the_same_idempotency_key(world: World):
    """Otherwise one could learn, or block, what another starts."""
    key = {"Idempotency-Key": "same"}
    body = {"model": "up/echo:Hi", "messages": [{"role": "user", "content": "Hi"}], "background": True}

    runs: list[str] = []
    for api in (world.alice, world.bob, world.alice):
        started = await api.client.post("/v1/chat/completions", body, headers=key)
        runs.append(started.headers["x-run-id"])
        await api.settled(runs[-1])

    assert runs[0] == runs[2] != runs[1]


# GET changes nothing.


changing = sorted({endpoint.path for endpoint in WITH_KEYS if endpoint.method != "GET"})
reading = [endpoint for endpoint in WITH_KEYS if endpoint.method == "GET"]
LOOKS_LIKE_AN_ID = {
    "/api/sessions/delete": (404, "session_not_found"),
    "/api/sessions/file": (404, "session_not_found"),
    "/api/sessions/import": (404, "session_not_found"),
    "/v1/messages/count_tokens": (404, "run_not_found"),
    "/v1/responses/compact": (404, "response_not_found"),
    "/v1/responses/input_tokens": (404, "response_not_found"),
}


@requirement("safe.post-only")
@pytest.mark.parametrize("path", changing)
async def test_what_changes_something_cannot_be_done_by_get(world: World, path: str):
    """A link, an image or a prefetching browser sends GET: it must never start, stop or delete anything."""
    before = world.stored()
    readable = next((endpoint for endpoint in reading if endpoint.path == path), None)
    caller = bearer("alice") if readable is None else rightly(readable)

    response = await world.alice.client.get(filled(path, world.things), headers=caller)

    refused = LOOKS_LIKE_AN_ID.get(path, (405, "method_not_allowed"))
    assert readable is not None or refused == (response.status, (await error_of(response))["code"])
    assert readable is None or 200 == response.status
    assert before == world.stored()


def is_private(response: Response) -> bool:
    kept, sniffed, embedded = (
        response.headers.get(name, "")
        for name in ("cache-control", "x-content-type-options", "cross-origin-resource-policy")
    )
    return ("no-store", "nosniff", "same-origin") == (kept.split(",")[0], sniffed, embedded)


@requirement("safe.private-answers")
@pytest.mark.parametrize("endpoint", [one for one in reading if not one.files], ids=lambda endpoint: endpoint.path)
async def test_an_answer_is_kept_by_nobody_and_embedded_nowhere(world: World, endpoint: Endpoint):
    """A shared browser or a proxy would show it to the next person, and another site's page could load it."""
    response = await call(world.alice.client, endpoint, world.things, headers=rightly(endpoint))
    response.leave()

    assert 200 == response.status
    assert is_private(response)


@requirement("safe.private-answers")
async def test_errors_files_and_empty_answers_are_kept_by_nobody_either(world: World):
    """Each kind of answer that is no plain JSON of 200."""
    client, session = world.alice.client, await world.alice.new_session()

    answers = [
        await world.stranger.get("/api/me"),
        await client.get("/api/runs/run_none"),
        await client.get("/no/such/path"),
        await client.get("/api/comparisons/scores?format=csv"),
        await client.request("DELETE", f"/api/sessions/{session}"),
        await client.post("/v1/chat/completions", _chat("echo:hi", stream=True)),
    ]

    assert [401, 404, 404, 200, 204, 200] == [response.status for response in answers]
    assert [True] * 6 == [is_private(response) for response in answers]


@requirement("safe.post-only")
@pytest.mark.parametrize("endpoint", reading, ids=lambda endpoint: endpoint.path)
async def test_reading_leaves_no_trace(world: World, endpoint: Endpoint):
    """Whoever looks, as often as they like and however they leave, changes nothing that is kept, nor what runs."""
    before = world.stored()

    response = await call(world.alice.client, endpoint, world.things, headers=rightly(endpoint))
    if response.headers["content-type"] == "text/event-stream":
        await response.next_event()
    response.leave()
    running = await world.alice.run(world.things["run_id"])

    assert 200 == response.status
    assert "running" == running["status"]
    assert before == world.stored()


# Limits.


def _chat(model: str, **more: Any) -> dict[str, Any]:
    return {"model": f"up/{model}", "messages": [{"role": "user", "content": "Hi"}], **more}


@requirement("safe.run-limit")
async def test_above_the_limit_of_runs_every_start_is_429_until_there_is_room(tmp_path: Path):
    """A limit keeps one owner's loop from taking the machine, or the budget, from everybody."""
    limits = "max_runs = 3\nmax_runs_per_owner = 2\n"
    async with Upstream() as up, two_owners(tmp_path, up, limits) as server:
        async with server.client(**bearer("alice")) as alice_client, server.client(**bearer("bob")) as bob_client:
            alice, bob = Native(alice_client), Native(bob_client)
            sessions = [await alice.new_session() for _ in range(3)]
            runs = [await alice.start(session, "Hi", "up/silent") for session in sessions[:2]]
            for _ in runs:
                await up.next_request()

            refused = [
                await alice.send(sessions[2], "Hi", "up/silent"),
                await alice_client.post("/v1/chat/completions", _chat("silent")),
                await alice_client.post("/v1/chat/completions", _chat("silent", stream=True)),
                await alice_client.post("/v1/chat/completions", _chat("silent", background=True)),
            ]
            await bob.start(await bob.new_session(), "Hi", "up/silent")
            refused.append(await bob.send(await bob.new_session(), "Hi", "up/silent"))
            calls = len(up.requests)
            await alice.stop(runs[0])
            after = await alice.send(sessions[2], "Hi again", "up/echo:ok")
            await alice.settled((await after.json())["id"])

            assert [(429, "run_limit")] * 5 == [
                (response.status, (await error_of(response))["code"]) for response in refused
            ]
            assert all(int(response.headers["retry-after"]) >= 1 for response in refused)
            assert calls <= 3
            assert 202 == after.status
            assert [("user", "Hi again"), ("assistant", "ok")] == await alice.transcript(sessions[2])


@requirement("safe.run-limit")
async def test_more_starts_in_a_minute_than_allowed_are_429_and_say_how_long_to_wait(tmp_path: Path):
    """Short runs never fill the places; a script in a loop is stopped by how often it starts."""
    async with Upstream() as up, two_owners(tmp_path, up, "starts_per_minute = 4\n") as server:
        async with server.client(**bearer("alice")) as alice, server.client(**bearer("bob")) as bob:
            session = await Native(alice).new_session()
            allowed = [await alice.post("/v1/chat/completions", _chat("echo:ok")) for _ in range(4)]

            refused = [
                await alice.post("/v1/chat/completions", _chat("echo:ok")),
                await Native(alice).send(session, "Hi", "up/echo:ok"),
            ]
            others = await bob.post("/v1/chat/completions", _chat("echo:ok"))

            assert [200] * 4 == [response.status for response in allowed]
            assert [(429, "rate_limited")] * 2 == [
                (response.status, (await error_of(response))["code"]) for response in refused
            ]
            assert all(1 <= int(response.headers["retry-after"]) <= 15 for response in refused)
            assert 200 == others.status
            assert 5 == len(up.requests)
            assert [] == await Native(alice).transcript(session)


taking = [endpoint for endpoint in WITH_KEYS if endpoint.takes is not None]


@requirement("safe.body-limit")
@pytest.mark.parametrize("endpoint", taking, ids=lambda endpoint: f"{endpoint.method} {endpoint.path}")
@pytest.mark.parametrize("way", ["announced", "chunked"])
async def test_a_body_above_the_limit_is_refused_before_it_is_read(world: World, endpoint: Endpoint, way: str):
    """The answer comes while the body is still on its way: a server that waited for it could be filled up."""
    before = world.stored()
    lines = [
        f"{endpoint.method} {filled(endpoint.path, world.things)} HTTP/1.1",
        f"Host: 127.0.0.1:{world.server.port}",
        f"Authorization: {rightly(endpoint)['authorization']}",
        "Content-Type: application/json",
        f"Content-Length: {BODY_LIMIT + 1}" if way == "announced" else "Transfer-Encoding: chunked",
    ]
    head = ("\r\n".join(lines) + "\r\n\r\n").encode()
    some = b"" if way == "announced" else b"%x\r\n%b\r\n" % (BODY_LIMIT + 1, b" " * (BODY_LIMIT + 1))

    response = await (await world.alice.client.send_raw(head + some, method=endpoint.method)).head()

    told = (await response.json())["error"]
    assert 413 == response.status
    assert "larger than the limit" in (told if isinstance(told, str) else told["message"])  # Ollama's is a text alone
    assert before == world.stored()


@requirement("safe.body-limit")
async def test_a_body_of_exactly_the_limit_is_taken(world: World):
    """A limit that refuses too early is a bug as well."""
    empty = len(json.dumps(_chat("echo:ok", user="")))

    answers = [
        await world.alice.client.post("/v1/chat/completions", _chat("echo:ok", user="x" * (BODY_LIMIT - empty + more)))
        for more in (0, 1)
    ]

    assert [200, 413] == [response.status for response in answers]


# What could break out of a frame or a header.


NASTY = [
    "\n\ndata: forged\n\n",
    "\r\n\r\nevent: run.settled\r\ndata: {}\r\n\r\n",
    "\rid: 99\r\r",
    "\nretry: 1\n",
    ": comment\n\n",
    "\x00\x01\x1b[31m\x7f",
    "\u2028\u2029\u0085\x0b\x0c\x1c\x1d\x1e",
    "data: [DONE]\n\n",
    '"}\n\n{"',
    "\ufeff\u202e",
]


def _text(frames: list[Frame]) -> str:
    """The visible text of a stream in any of our dialects."""
    text = ""
    for frame in frames:
        told = {} if frame.data == "[DONE]" else frame.json()
        if frame.event == "text.delta":
            text += told["text"]
        for choice in told.get("choices", ()):
            text += choice["delta"].get("content") or ""
    return text


def _fields(frames: list[Frame]) -> set[str]:
    return {line.partition(":")[0] for frame in frames for line in frame.lines}


@requirement("safe.sse-injection")
async def test_no_text_of_a_model_can_forge_a_frame(world: World):
    """A model, or whoever writes to it, must not be able to end a run, say [DONE] or move a cursor."""
    api = world.alice
    world.up.models["nasty"] = answer(*NASTY)
    session = await api.new_session()
    started = await api.send(session, "Hi", "up/nasty", headers={"accept": "text/event-stream"})
    native = await started.all_events(comments=True)
    replay = await api.replay(started.headers["x-run-id"])
    stream = await api.client.post("/v1/chat/completions", _chat("nasty", stream=True))
    chunks = await stream.all_events(comments=True)
    feed = await _feed_until(api, session, "run.settled")

    whole = "".join(NASTY)
    assert [whole] * 4 == [_text(frames) for frames in (native, replay, chunks, feed)]
    assert {"id", "event", "data"} == _fields(native) == _fields(replay) == _fields(feed)
    assert {"data"} == _fields(chunks)
    assert [str(n) for n in range(1, len(NASTY) + 4)] == [frame.id for frame in replay]
    assert ["run.settled"] == [frame.event for frame in replay if frame.event not in ("text.delta", "usage")][1:]
    assert 1 == sum(frame.data == "[DONE]" for frame in chunks)
    assert whole == (await api.session(session))["messages"][-1]["content"]


async def _feed_until(api: Native, session: str, event: str) -> list[Frame]:
    reader = await api.client.get(f"/api/sessions/{session}/events")
    frames: list[Frame] = []
    while not frames or frames[-1].event != event:
        frame = await reader.next_event()
        assert frame is not None
        frames.append(frame)
    reader.leave()
    return frames


@requirement("safe.sse-injection")
@pytest.mark.parametrize("nasty", NASTY, ids=range(len(NASTY)))
async def test_no_title_model_prompt_or_message_can_forge_a_frame(world: World, nasty: str):
    """What people and programs choose freely comes back in feeds and events: always as data."""
    api = world.alice
    session = await api.new_session(title=f"a{nasty}b")
    await api.client.request("PATCH", f"/api/sessions/{session}", json={"title": f"c{nasty}d", "system": nasty})
    said = nasty if nasty.strip() else f"{nasty}."  # an answer of spaces alone has failed
    run = await api.start(session, f"x{nasty}y", f"up/echo:{said}")

    frames = await api.replay(run)
    feed = await _feed_until(api, session, "run.settled")
    stream = await api.client.post("/v1/chat/completions", _chat(f"echo:{said}", stream=True))
    chunks = await stream.all_events(comments=True)
    kept = await api.session(session)

    assert {"id", "event", "data"} == _fields(frames) == _fields(feed)
    assert {"data"} == _fields(chunks)
    assert ["run.started", "text.delta", "usage", "run.settled"] == [frame.event for frame in frames]
    assert f"up/echo:{said}" == frames[0].json()["model"]
    assert {f"up/echo:{said}"} == {frame.json()["model"] for frame in chunks[:-1]}
    assert [f"x{nasty}y", said] == [message["content"] for message in kept["messages"]]
    assert not set("\r\n") & set(kept["title"])
    assert 1 == sum(frame.event == "run.settled" for frame in feed)


@requirement("safe.sse-injection")
@pytest.mark.parametrize("id", ["run_%0d%0aX-Injected:%20yes", "run_%0a%0adata:%20forged", "run_%00", "%e2%80%a8"])
async def test_no_id_in_a_path_gets_into_the_headers_or_ends_the_message(world: World, id: str):
    """An id that does not exist is told back in the error, and only there."""
    answers = [
        await world.alice.client.get(f"/api/runs/{id}"),
        await world.alice.client.get(f"/api/runs/{id}/events", headers={"last-event-id": "1\u00850"}),
        await world.alice.client.post(f"/api/sessions/{id}/runs", {"input": "Hi"}),
    ]

    assert [404] * 3 == [response.status for response in answers]
    assert all("x-injected" not in response.headers for response in answers)
    assert {"run_not_found", "session_not_found"} == {(await error_of(response))["code"] for response in answers}


@requirement("safe.sse-injection")
@pytest.mark.parametrize("cursor", ["1: 2", "data: x", "99999999999999999999", "-1", "\u00b2"])
async def test_a_cursor_is_a_number_or_it_is_not_repeated(world: World, cursor: str):
    """What a client sends as its cursor is never written into the stream."""
    api = world.alice
    run = await api.start(await api.new_session(), "Hi", "up/echo:Hello")
    await api.settled(run)

    reader = await api.client.get(f"/api/runs/{run}/events", headers={"last-event-id": cursor})
    frames = await reader.all_events()

    assert cursor.encode() not in bytes(reader.raw_bytes)
    assert [None, "1", "2", "3", "4"] == [frame.id for frame in frames]
    assert "cursor_reset" == frames[0].json()["code"]
