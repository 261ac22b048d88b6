"""The matrix: every route, every caller, every kind of id. What a caller may do follows from the rule of the route."""

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from holdfast.access import AccessRule
from holdfast.error_help.page import error_list_text
from holdfast.server import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.server.kit.feature import Endpoint
from holdfast.store import Store
from holdfast.store.memory import MemoryStore
from holdfast.store.opening import open_store
from tests.acceptance.test_safety import body_for
from tests.acceptance.test_safety import things_of as safety_things
from tests.requirements import requirement
from tests.support.asgi_calls import Answer, ask
from tests.support.http import Client
from tests.support.kept import kept_in
from tests.support.native import Native
from tests.support.people import PASSWORD
from tests.support.served import Served
from tests.support.upstream import Delta, Hang, Headers, Role, Upstream
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")

FEWEST_CALLS = 10_000
"""Calls that the walk makes at least, on one node and on three together: half of them in each."""

KINDS_OF_IDS = ("hers", "deleted", "unknown", "malformed")
"""Ids of Alice's things, of things that she has deleted, of things that never were, and what is no id."""

UNKNOWN = {
    "session_id": "sess_0000000000000000000000",
    "run_id": "run_0000000000000000000000",
    "completion_id": "chatcmpl-run_0000000000000000000000",
    "response_id": "resp_run_0000000000000000000000",
    "answer_id": "msg_run_0000000000000000000000",
    "message_id": "msg_0000000000000000000000",
    "approval_id": "apr_0000000000000000000000",
    "agent": "no-agent-of-anyone",
    "outcome_id": "out_0000000000000000000000",
    "input_id": "inp_0000000000000000000000",
    "preset_id": "pre_0000000000000000000000",
    "prompt_id": "pmt_0000000000000000000000",
    "schedule_id": "sch_0000000000000000000000",
    "trigger_id": "trg_0000000000000000000000",
    "device_id": "dev_0000000000000000000000",
    "webhook_id": "whk_0000000000000000000000",
    "server_name": "no-such-server",
    "agent_name": "no-such-agent",
    "grant_id": "grt_0000000000000000000000",
    "batch_id": "bat_0000000000000000000000",
    "conversation_id": "conv_0000000000000000000000",
    "item_id": "msg_0000000000000000000000",
    "comparison_id": "cmp_0000000000000000000000",
    "chat_id": "a-name-of-no-chat",
    "conv_id": "a-name-of-no-conversation",
    "account_id": "user_0000000000000000000000",
    "group_id": "grp_0000000000000000000000",
    "key_id": "key_00000000000000000000000000000000",
    "erasure_id": "era_0000000000000000000000",
    "sign_in_id": "in_0000000000000000",
    "share_id": "0" * 64,
    "passkey_id": "AAAAAAAAAAAAAAAAAAAAAA",
    "token": "A" * 43,
    "sha256": "0" * 64,
    "n": "7",
    "model": "up/m",
    "name": "index.js",
    "id": "1",
}
"""An id of each kind that the server has never made. A new parameter of a path needs a line here."""

NAMES_OF_THE_CALLER = {"chat_id", "conv_id"}
"""Names that each caller chooses: another's name is the caller's own, and there is nothing to find."""
OF_NO_ONE = {"n", "model", "name", "id", "sha256", "token"}
WRITTEN_ALL_THE_TIME = ("keepers", "holds", "api_keys", "charges", "usage", "group_usage", "audit", "audit_end")
"""Tables that change without a change: the node's lease, when keys were used last, and what was refused."""


@dataclass(frozen=True)
class Caller:
    """Someone who calls: what the request has, and what the matrix expects of the rules."""

    name: str
    headers: dict[str, str]
    role: str | None = None
    """None for those who are not let in at all."""
    scopes: frozenset[str] = frozenset()
    is_person: bool = False
    is_alice: bool = False

    def is_admitted(self, rule: AccessRule) -> bool:
        """What the words of the rule say, written a second time: a fault in the code is not repeated here."""
        ranks = ["guest", "member", "admin"]
        if rule.role is None:
            return True
        if self.role is None or ranks.index(self.role) < ranks.index(rule.role):
            return False
        return self.is_person if rule.person else self.is_person or rule.scope in self.scopes


@dataclass
class World:
    """Servers with Alice's things, and those who call."""

    apps: list[Any]
    routes: list[Endpoint]
    things: dict[str, dict[str, str]]
    """By kind of id, then by the parameter of a path."""
    callers: list[Caller]
    data: Path | None
    calls: int = 0
    turn: Any = field(default_factory=itertools.count)

    async def call(self, caller: Caller, route: Endpoint, kind: str) -> Answer:
        self.calls += 1
        app = self.apps[next(self.turn) % len(self.apps)]
        things = {**self.things["hers"], **self.things[kind]}
        path = re.sub(r"\{(\w+)(?::\w+)?\}", lambda match: things[match[1]], route.path)
        if route.path == "/v1/stream":
            path += f"?conv_id={things['conv_id']}"
        if route.path == "/api/events":
            path += f"?session={things['session_id']}"
        return await ask(app, route.method, path, json=body_for(route, things), headers=caller.headers)

    def stored(self) -> dict[str, list[tuple[Any, ...]]]:
        """All that is kept, if it is kept in a file."""
        if self.data is None:
            return {}
        kept = kept_in(self.data / "holdfast.db", but=WRITTEN_ALL_THE_TIME)
        return kept | {"documents": [row for row in kept["documents"] if row[1] not in ("wrong_tries", "sign_in")]}


def parameters(route: Endpoint) -> set[str]:
    return set(re.findall(r"\{(\w+)", route.path))


def name_of(route: Endpoint) -> str:
    return f"{route.method} {route.path}"


def kinds_for(route: Endpoint) -> Iterable[str]:
    return KINDS_OF_IDS if parameters(route) - OF_NO_ONE else ("hers",)


def of_alice(route: Endpoint) -> bool:
    """Whether a path names a thing that belongs to someone."""
    return bool(parameters(route) - OF_NO_ONE - NAMES_OF_THE_CALLER) and route.who.whose != "all"


# The world.


@pytest_asyncio.fixture(loop_scope="module", params=["one node", "three nodes"])  # what may be done is done in it
async def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    data = tmp_path_factory.mktemp("matrix") if request.param == "one node" else None
    async with Upstream() as up, AsyncExitStack() as stack:
        up.models["hanging"] = [Headers(), Role(), Delta("kumquat so far"), Hang()]
        store: Store = MemoryStore() if data is None else await asyncio.to_thread(open_store, f"sqlite:{data}")
        apps, served = [], []
        for _ in range(3 if data is None else 1):
            providers = (ProviderSettings(name="up", base_url=up.base_url, unlisted="pass"),)
            home = {"XDG_DATA_HOME": str(tmp_path_factory.mktemp("home"))}  # what admins set is saved there
            hangs = 3600.0  # one of Alice's runs hangs, and is there for the whole walk of a slow machine
            app = create_app(Settings(providers=providers, default_providers=False, idle_limit=hangs), store, home)
            apps.append(app)
            served.append(await stack.enter_async_context(Served(app)))
        yield await made_world(apps, served, data)


async def made_world(apps: list[Any], served: list[Served], data: Path | None) -> World:
    first, url = apps[0], served[0].url
    page = {"origin": "http://127.0.0.1"}
    admin = page | cookie_of(await ask(first, "POST", "/api/first-admin", json=person("ada"), headers=page))
    await in_step(apps)
    group = (await ask(first, "POST", "/api/admin/groups", json={"name": "team"}, headers=admin)).json()["id"]
    cookies = {}
    for name, fields in PEOPLE.items():
        groups = [group] if fields.get("grouped") else []
        given = person(name) | {"role": fields.get("role", "member"), "groups": groups}
        made = await ask(first, "POST", "/api/admin/people", json=given, headers=admin)
        assert 201 == made.status, made.body
        signed_in = await ask(first, "POST", "/api/sign-in", json=person(name), headers=page)
        cookies[name] = page | cookie_of(signed_in)
    keys = await made_keys(first, cookies["alice"], admin)
    hers, deleted = await hers_and_deleted(url, keys["whole"])
    hers |= await ids_of_account(first, cookies["alice"]) | {
        "group_id": group,
        "grant_id": UNKNOWN["grant_id"],
        "erasure_id": UNKNOWN["erasure_id"],
    }
    await put_out(first, admin, cookies["gone"])
    await ask(first, "POST", "/api/sign-out", headers=cookies["left"])
    await expiry(apps, keys["expired"])
    await in_step(apps)
    things = {
        "hers": {**UNKNOWN, **hers},
        "deleted": {**UNKNOWN, **deleted},
        "unknown": UNKNOWN,
        "malformed": dict.fromkeys(UNKNOWN.keys() - OF_NO_ONE, "%00'; -- x"),
    }
    routes = first.state.server.router.endpoints
    unknown = sorted({name for route in routes for name in parameters(route)} - UNKNOWN.keys())
    assert not unknown, f"the matrix has no ids for {unknown}: add them to UNKNOWN, and to Alice's things"
    return World(apps, list(routes), things, callers(cookies, admin, keys), data)


PEOPLE: dict[str, dict[str, Any]] = {
    "alice": {"grouped": True},
    "bob": {},
    "mate": {"grouped": True},
    "guest": {"role": "guest"},
    "gone": {},
    "left": {},
}


def person(name: str) -> dict[str, Any]:
    return {"name": name, "password": PASSWORD}


def cookie_of(answer: Answer) -> dict[str, str]:
    assert 200 == answer.status, answer.body
    return {"cookie": answer.headers["set-cookie"].partition(";")[0]}


async def in_step(apps: list[Any]) -> None:
    """Let every node take in what was changed at another, as it does twice a second."""
    for app in apps:
        await app.state.server.people.callers.refresh()
        await app.state.server.keys.refresh()


async def expiry(apps: list[Any], key: str) -> None:
    """Wait until a key that lasts a tenth of a second has expired."""
    headers = {"authorization": f"Bearer {key}"}
    async with asyncio.timeout(LONG):
        for app in apps:
            while (await ask(app, "GET", "/api/me", headers=headers)).status != 401:  # noqa: ASYNC110 - it polls
                await asyncio.sleep(0.02)


async def put_out(app: Any, admin: dict[str, str], cookie: dict[str, str]) -> None:
    id = (await ask(app, "GET", "/api/account", headers=cookie)).json()["id"]
    answer = await ask(app, "PATCH", f"/api/admin/people/{id}", json={"disabled": True}, headers=admin)
    assert 200 == answer.status


async def ids_of_account(app: Any, cookie: dict[str, str]) -> dict[str, str]:
    """The ids of a person, of one of the person's keys, and of the sign-in."""
    account = (await ask(app, "GET", "/api/account", headers=cookie)).json()
    keys = (await ask(app, "GET", "/api/keys", headers=cookie)).json()["keys"]
    sign_ins = (await ask(app, "GET", "/api/account/sign-ins", headers=cookie)).json()["sign_ins"]
    return {"account_id": account["id"], "key_id": keys[0]["id"], "sign_in_id": sign_ins[0]["id"]}


async def made_keys(app: Any, alice: dict[str, str], admin: dict[str, str]) -> dict[str, str]:
    keys = {}
    for scope in ("read", "chat", "batch"):
        keys[scope] = await made_key(app, "/api/keys", alice, {"name": scope, "scopes": [scope]})
    keys["whole"] = await made_key(app, "/api/keys", alice, {"name": "whole"})
    keys["admins chat"] = await made_key(app, "/api/keys", admin, {"name": "chat", "scopes": ["chat"]})
    keys["admins admin"] = await made_key(app, "/api/keys", admin, {"name": "all", "scopes": ["admin", "chat"]})
    keys["service"] = await made_key(app, "/api/admin/keys", admin, {"name": "service"})
    short = {"name": "short", "expires_in_days": 0.000001}
    keys["expired"] = await made_key(app, "/api/keys", alice, short)
    keys["revoked"] = await made_key(app, "/api/keys", alice, {"name": "revoked"})
    (revoked,) = [
        key for key in (await ask(app, "GET", "/api/keys", headers=alice)).json()["keys"] if key["name"] == "revoked"
    ]
    assert 204 == (await ask(app, "DELETE", f"/api/keys/{revoked['id']}", headers=alice)).status
    return keys


async def made_key(app: Any, path: str, headers: dict[str, str], asked: dict[str, Any]) -> str:
    answer = await ask(app, "POST", path, json=asked, headers=headers)
    assert 201 == answer.status, answer.body
    return str(answer.json()["key"])


async def hers_and_deleted(url: str, key: str) -> tuple[dict[str, str], dict[str, str]]:
    """Alice's things, and the ids of things like them that she has deleted."""
    async with Client(url, {"authorization": f"Bearer {key}"}) as client:
        hers = await safety_things(Native(client)) | {"token": UNKNOWN["token"]}  # a link is for whoever has it
        session = await Native(client).new_session(title="a kumquat that is gone")
        run = await Native(client).start(session, "a kumquat", "up/echo:a kumquat")
        await Native(client).settled(run)
        assert 204 == (await client.request("DELETE", f"/api/sessions/{session}")).status
    return hers, {"session_id": session, "chat_id": session, "run_id": run}


def callers(cookies: dict[str, dict[str, str]], admin: dict[str, str], keys: dict[str, str]) -> list[Caller]:
    every = frozenset(("read", "chat", "batch"))

    def key(name: str) -> dict[str, str]:
        return {"authorization": f"Bearer {keys[name]}"}

    return [
        Caller("nobody", {}),
        Caller("a wrong key", {"authorization": "Bearer hf-0000000000000000000000000000000000000000000"}),
        Caller("a wrong cookie", {"cookie": "holdfast=0000000000000000000000000000000000000000000"}),
        Caller("an expired key", key("expired")),
        Caller("a revoked key", key("revoked")),
        Caller("one who signed out", cookies["left"]),
        Caller("one who was disabled", cookies["gone"]),
        Caller("a guest", cookies["guest"], "guest", is_person=True),
        Caller("Alice", cookies["alice"], "member", is_person=True, is_alice=True),
        Caller("Alice's key for reading", key("read"), "member", frozenset({"read"}), is_alice=True),
        Caller("Alice's key for chats", key("chat"), "member", frozenset({"read", "chat"}), is_alice=True),
        Caller("Alice's key for batches", key("batch"), "member", frozenset({"read", "batch"}), is_alice=True),
        Caller("another member", cookies["bob"], "member", is_person=True),
        Caller("a member of Alice's group", cookies["mate"], "member", is_person=True),
        Caller("a service", key("service"), "member", every),
        Caller("an admin", admin, "admin", is_person=True),
        Caller("an admin's key for chats", key("admins chat"), "admin", frozenset({"read", "chat"})),
        Caller("an admin's key", key("admins admin"), "admin", frozenset({"read", "chat", "admin"})),
    ]


# What it must show.


@requirement("people.matrix", "safe.owner-404")
async def test_no_caller_gets_past_the_rule_of_a_route_and_no_one_else_finds_what_is_hers(world: World):
    """The expectation comes from the rule; a refusal leaves no trace, shows no text, and is the same for any id."""
    faults: list[str] = []
    for route in world.routes:
        before = await asyncio.to_thread(world.stored)
        for caller in world.callers:
            if caller.is_admitted(route.who) and not is_harmless(caller, route):
                continue  # what may be done is done last, below
            faults += await walk(world, caller, route)
        if before != await asyncio.to_thread(world.stored):
            faults.append(f"{name_of(route)}: something was written for a caller who was refused")

    assert [] == faults
    assert world.calls >= FEWEST_CALLS / 2


@requirement("people.matrix")
async def test_whoever_a_rule_admits_is_let_in(world: World):
    """A rule that refuses everyone would be safe, and useless."""
    faults: list[str] = []
    routes = sorted(world.routes, key=lambda route: (route.method == "DELETE", "sign-out" in route.path))
    for route, caller in itertools.product(routes, world.callers):
        if caller.is_admitted(route.who) and (caller.is_alice or route.who.role in (None, "admin")):
            if "sign-ins" in route.path or "sign-out" in route.path or "password" in route.path:
                continue  # it would end the caller's own sign-in: tests of accounts do that
            answer = await world.call(caller, route, "hers")
            if answer.status in (401, 403) and answer.code in ("unauthorized", *REFUSALS):
                faults.append(f"{name_of(route)}: {caller.name} got {answer.status} {answer.code}")

    assert [] == faults


FOR_ADMINS = {"/api/admin/usage": "the names of models, which say a kumquat here"}
"""Routes that show admins something of everyone, and what that is."""
REFUSALS = ("admin_only", "guests_only_read", "scope_missing", "sign_in_needed")


def is_harmless(caller: Caller, route: Endpoint) -> bool:
    """Whether an admitted caller's call can be made here: it reads, or names things that are not the caller's."""
    if route.method in ("GET", "HEAD"):
        return True
    return of_alice(route) and not caller.is_alice


async def walk(world: World, caller: Caller, route: Endpoint) -> list[str]:
    """Make one caller's calls of one route, with each kind of id; return what was wrong."""
    faults, answers = [], {}
    for kind in kinds_for(route):
        answer = answers[kind] = await world.call(caller, route, kind)
        where = f"{name_of(route)}, {caller.name}, id {kind}: {answer.status} {answer.code}"
        if not caller.is_admitted(route.who):
            wanted = 401 if caller.role is None else 403
            if wanted != answer.status:
                faults.append(f"{where}, expected {wanted}")
        elif of_alice(route) and not (caller.is_alice and kind == "hers") and answer.status not in (400, 404, 405):
            faults.append(f"{where}, expected 404")
        is_for_admins = route.path in FOR_ADMINS and caller.is_admitted(route.who)
        if not caller.is_alice and not is_for_admins and "kumquat" in without_ids(world, kind, answer)[2]:
            faults.append(f"{where}: it shows what is hers")
    if caller.is_admitted(route.who) and of_alice(route) and not caller.is_alice:
        faults += differences(route, caller, world, answers)
    return faults


def differences(route: Endpoint, caller: Caller, world: World, answers: dict[str, Answer]) -> list[str]:
    """Return where the answer for her things differs from that for things that never were."""
    shown = {kind: without_ids(world, kind, answers[kind]) for kind in ("hers", "deleted", "unknown")}
    return [
        f"{name_of(route)}, {caller.name}: {kind} and unknown differ: {shown[kind]} {shown['unknown']}"
        for kind in ("hers", "deleted")
        if shown[kind] != shown["unknown"]
    ]


def without_ids(world: World, kind: str, answer: Answer) -> tuple[int, dict[str, str], str]:
    """Return an answer without the id that was asked for, and without what differs in every answer."""
    text = answer.body.decode(errors="replace")  # an export is no text
    text = text.replace(error_list_text(), "<error codes>")  # public
    for id in sorted({**world.things["hers"], **world.things[kind]}.values(), key=len, reverse=True):
        text = text.replace(id, "<id>") if len(id) > 4 else text
    headers = {name: value for name, value in answer.headers.items() if name not in ("x-request-id", "content-length")}
    return answer.status, headers, re.sub(r"req_\w+", "<request>", text)


@requirement("people.matrix")
async def test_a_route_without_a_rule_is_no_route():
    """Nobody can forget to say who may call: there is no default."""
    with pytest.raises(TypeError, match="who"):
        Endpoint("GET", "/api/forgotten")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="/api/forgotten"):
        Endpoint("GET", "/api/forgotten", who=AccessRule("mine"))
