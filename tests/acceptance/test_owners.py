"""Who an owner is: a person, a service, a key of the settings file, or the local user. No two of them are one."""

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from holdfast.server.features.accounts.made_keys import new_key
from tests.acceptance.test_keys import holdfast, keys_of
from tests.requirements import requirement
from tests.support.http import Client
from tests.support.native import Native
from tests.support.people import PASSWORD, add_person, browser, sign_in
from tests.support.routes import ENDPOINTS
from tests.support.server import Server
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOSS = "boss-key-4f1c9d77aa0142"
CONFIG = '[[keys]]\nname = "boss"\nkey_env = "BOSS_KEY"\nadmin = true\n'
SCRIPTED = {"name": "scripted", "dialect": "scripted"}
SECRET = "Grandmother's recipe"
"""The title of Alice's chat."""


@dataclass
class World:
    """A server with a key in its settings, an admin, and Alice, who has a chat and a key."""

    server: Server
    ada: str
    alice: str
    account: str
    chat: str
    key: dict[str, Any]

    def with_key(self, key: str) -> Client:
        return self.server.client(authorization=f"Bearer {key}")


async def made(client: Client, path: str, body: Any) -> dict[str, Any]:
    response = await client.post(path, body)
    assert 201 == response.status, await response.text()
    return dict(await response.json())


async def new_world(server: Server) -> World:
    async with server.client(authorization=f"Bearer {BOSS}") as boss:
        await made(boss, "/api/admin/people", {"name": "ada", "password": PASSWORD, "role": "admin"})
    ada = await sign_in(server, "ada")
    return World(server, ada, *await new_person(server, ada, "alice"))


async def new_person(server: Server, ada: str, name: str) -> tuple[str, str, str, dict[str, Any]]:
    """A person with a chat, a link to it, and a key: the cookie, and the ids of the account and the chat."""
    cookie = await add_person(server, ada, name)
    async with browser(server, cookie) as page:
        account = (await Native(page).get("/api/me"))["account"]
        chat = await Native(page).new_session(title=SECRET, system=f"{SECRET}: system")
        run = await Native(page).start(chat, f"{SECRET}: question", "scripted/echo")
        await Native(page).settled(run)
        await made(page, f"/api/sessions/{chat}/shares", {})
        return cookie, account, chat, await made(page, "/api/keys", {"name": "laptop"})


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[1, 3], ids=["one node", "three nodes"])
async def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    data = tmp_path_factory.mktemp("owners")
    async with Server(data, [SCRIPTED], config=CONFIG, env={"BOSS_KEY": BOSS}, nodes=request.param) as server:
        yield await new_world(server)


async def owner_and_titles(client: Client) -> tuple[str, list[str]]:
    api = Native(client)
    sessions = (await api.get("/api/sessions"))["sessions"]
    return (await api.get("/api/me"))["owner"], [session["title"] for session in sessions]


@requirement("safe.owners")
async def test_a_key_that_is_called_like_a_person_is_not_that_person(world: World):
    """An admin knows the ids of people. A service that is named after one has an owner of its own."""
    async with browser(world.server, world.ada) as admin:
        twin = await made(admin, "/api/admin/keys", {"name": world.account})
    async with world.with_key(twin["key"]) as client:
        owner, titles = await owner_and_titles(client)
        hers = await client.get(f"/api/sessions/{world.chat}")

    assert ([], 404) == (titles, hers.status)
    assert (True, twin["owner"]) == (owner.startswith("svc_"), owner)


@requirement("safe.owners")
async def test_a_key_that_a_command_makes_is_not_the_key_of_the_settings_with_its_name(world: World):
    """The command may not know the settings file of the server."""
    async with world.with_key(BOSS) as boss:
        await Native(boss).new_session(title="Salaries")
        of_boss = await owner_and_titles(boss)
    printed = await holdfast("key new", "boss", data=world.server.data, HOLDFAST_CONFIG="")
    async with world.with_key(printed.out.strip()) as client:
        owner, titles = await owner_and_titles(client)

    assert ("conf_boss", ["Salaries"]) == of_boss
    assert ([], True) == (titles, owner.startswith("svc_")), printed


@requirement("safe.owners")
async def test_an_owner_that_is_no_service_gets_no_key_of_a_service(world: World):
    """Not the id of a person, of the local user, of a key of the settings, or one that nobody has."""
    async with browser(world.server, world.ada) as admin:
        others = [world.account, "local", "conf_boss", "svc_of_nobody", "user_of_nobody"]
        answers = [await admin.post("/api/admin/keys", {"name": "twin", "owner": owner}) for owner in others]
        codes = [(answer.status, (await answer.json())["error"]["code"]) for answer in answers]
        ci = await made(admin, "/api/admin/keys", {"name": "ci"})
        more = await made(admin, "/api/admin/keys", {"name": "ci-spare", "owner": ci["owner"]})
    printed = await holdfast("key new", "twin", "--owner", world.account, data=world.server.data)

    assert [(404, "not_found")] * 5 == codes
    assert ci["owner"] == more["owner"]
    assert (1, True) == (printed.code, "No service" in printed.err)


@requirement("safe.owners")
async def test_of_keys_with_one_name_that_are_made_at_once_one_is_made(world: World):
    """On whichever nodes. Those that were refused leave no owner behind."""
    before = owners_in(world)
    async with browser(world.server, world.ada) as admin:
        answers = await asyncio.gather(*(admin.post("/api/admin/keys", {"name": "deploy"}) for _ in range(6)))
        keys = (await Native(admin).get("/api/admin/keys"))["keys"]

    assert [201] + [409] * 5 == sorted(answer.status for answer in answers)
    assert {key["owner"] for key in keys if key["name"] == "deploy"} == owners_in(world) - before


def owners_in(world: World) -> set[str]:
    return {row[0] for row in world.server.stored()["owners"]}


@requirement("safe.owners")
@pytest.mark.one_server("it writes into the SQLite file of a server")
async def test_a_stored_key_whose_owner_is_a_person_opens_nothing(tmp_path: Path):
    """No call makes one. A database that was changed by other means may have one: at the start, and while it runs."""
    async with Server(tmp_path, [SCRIPTED], config=CONFIG, env={"BOSS_KEY": BOSS}, nodes=1) as server:
        world = await new_world(server)
        early, late = new_key("early"), new_key("late")
        await asyncio.to_thread(lambda: keys_of(tmp_path).add(early.record))
        await server.terminate()
        await asyncio.to_thread(_give, tmp_path, early.record.id, world.account)
        await server.restart()
        await asyncio.to_thread(lambda: keys_of(tmp_path).add(late.record))
        await asyncio.to_thread(_give, tmp_path, late.record.id, "conf_boss")
        async with asyncio.timeout(LONG):
            while late.record.id not in server.log_text():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        statuses = []
        for key in (early.key, late.key, world.key["key"], BOSS):
            async with world.with_key(key) as client:
                statuses.append((await client.get("/api/sessions")).status)

    assert [401, 401, 200, 200] == statuses
    assert f"refused the key {early.record.id}: its owner '{world.account}' belongs to another" in server.log_text()


def _give(data: Path, key: str, owner: str) -> None:
    with closing(sqlite3.connect(data / "holdfast.db", timeout=LONG)) as db, db:
        changed = "(SELECT max(changed) + 1 FROM api_keys)"
        db.execute(f"UPDATE api_keys SET owner = ?, changed = {changed} WHERE id = ?", (owner, key))


@requirement("safe.persons-key")
async def test_nobody_gets_a_secret_that_acts_for_another_person(world: World):
    """An admin who rotated a person's key would get one. The key of a service is the admins'."""
    async with browser(world.server, world.ada) as admin:
        service = await made(admin, "/api/admin/keys", {"name": "admin-bot", "scopes": ["admin"]})
        tries = [await admin.post(f"/api/admin/keys/{world.key['id']}/rotate", {})]
        async with world.with_key(service["key"]) as bot:
            tries.append(await bot.post(f"/api/admin/keys/{world.key['id']}/rotate", {}))
            rotated = await made(bot, f"/api/admin/keys/{service['id']}/rotate", {})
        told = [(answer.status, await answer.text()) for answer in tries]
    async with browser(world.server, world.alice) as page:
        hers = await Native(page).get("/api/keys")

    assert [403, 403] == [status for status, _ in told]
    assert ["persons_key" in text and "hf-" not in text for _, text in told] == [True, True]
    assert service["owner"] == rotated["owner"]
    assert [None] == [key["expires_at"] for key in hers["keys"] if key["name"] == "laptop"]


@requirement("safe.persons-key")
async def test_an_admin_lets_a_persons_key_end_earlier_and_never_later(world: World):
    """Without getting it. An end that could be moved on would keep a key alive that its person has let end."""
    async with browser(world.server, world.alice) as page:
        hers = await made(page, "/api/keys", {"name": "tablet"})
    path, moment = f"/api/admin/keys/{hers['id']}", 1e-9
    async with browser(world.server, world.ada) as admin:
        answers = [await admin.request("PATCH", path, json={"expires_in_days": days}) for days in (5, 1, 2, moment)]
        listed = (await (await admin.get("/api/admin/keys")).json())["keys"]
    told = [await each.json() for each in answers]
    async with world.with_key(hers["key"]) as program:
        async with asyncio.timeout(LONG):  # another node may hear of it a moment later
            while True:
                if (await program.get("/api/me")).status == 401:
                    break
                await asyncio.sleep(0.05)

    assert [200, 200, 400, 200] == [each.status for each in answers]
    assert "expires_in_days" == told[2]["error"]["param"]
    assert told[0]["expires_at"] > told[1]["expires_at"] > told[3]["expires_at"]
    assert "hf-" not in str([each.get("key") for each in told])
    assert hers["id"] not in {key["id"] for key in listed}


@requirement("safe.persons-key", "people.audit")
async def test_the_audit_log_says_whose_key_was_made_rotated_and_revoked(world: World):
    """The id of a key says nothing to who reads the log later, when the key is forgotten."""
    async with browser(world.server, world.alice) as page:
        old = await made(page, "/api/keys", {"name": "phone"})
        new = await made(page, f"/api/keys/{old['id']}/rotate", {})
    async with browser(world.server, world.ada) as admin:
        assert 204 == (await admin.request("DELETE", f"/api/admin/keys/{new['id']}")).status
        listed = (await Native(admin).get("/api/admin/audit?limit=50"))["entries"]
    done = {entry["action"]: entry for entry in reversed(listed) if entry["result"] == "done"}

    for action in ("key.new", "key.rotate", "key.revoke"):
        assert world.account == done[action]["details"]["owner"]


ADMINS = sorted((route for route in ENDPOINTS if route.who.name == "admin"), key=lambda route: route.method == "DELETE")
"""The calls of admins. Those that delete something are the last."""
BODIES: dict[str, Any] = {
    "POST /api/admin/keys": {"name": "contract"},
    "POST /api/admin/people": {"name": "eve", "password": PASSWORD},
    "POST /api/admin/groups": {"name": "all"},
    "PATCH /api/admin/keys/{key_id}": {"budget": {"runs_at_once": 5}},
}
HER_LINK = "POST /api/admin/people/{account_id}/reset-link"
"""What an admin gets to give it to the person: with it a password is set. It is in the audit log, and ends sign-ins."""


@requirement("safe.admins")
async def test_no_answer_to_an_admin_has_words_of_a_person_or_a_secret_that_acts_for_one(world: World):
    """Titles are the first words of a chat. A key that an answer has belongs to no person."""
    _, account, _, key_of_hers = await new_person(world.server, world.ada, "anna")  # the calls delete her
    async with browser(world.server, world.ada) as admin:
        shares = (await Native(admin).get("/api/admin/shares"))["shares"]
        share = next(each for each in shares if each["person"] == "anna")
        group = await made(admin, "/api/admin/groups", {"name": "team"})
        ids = {"account_id": account, "key_id": key_of_hers["id"], "share_id": share["id"], "group_id": group["id"]}
        ids |= {"erasure_id": "era_0", "server_name": "no-server", "agent_name": "no-agent"}
        told: dict[str, str] = {}
        for route in ADMINS:
            name, path = f"{route.method} {route.path}", route.path.format(**ids)
            query = "?data=delete" if name == "DELETE /api/admin/people/{account_id}" else ""
            body = BODIES.get(name, {} if route.takes is not None else None)
            answer = await admin.request(route.method, path + query, json=body)
            told[name] = await answer.text()
            assert answer.status < 500, (name, told[name])
    keys = {key for text in told.values() for key in re.findall(r"hf-[\w-]{20,}", text)}
    accounts = []
    for key in keys:
        async with world.with_key(key) as client:
            accounts.append((await Native(client).get("/api/me"))["account"])

    assert [] == [name for name, text in told.items() if "Grandmother" in text]
    assert [None] == accounts, "the key of the service that the contract has made"
    assert [HER_LINK] == [name for name, text in told.items() if re.search(r'"(token|reset)":\s*[^n]', text)]
