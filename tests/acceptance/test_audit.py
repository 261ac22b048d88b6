"""The audit log: who did what to what, from where, with which result; complete, unchanged, and without contents."""

import asyncio
import hashlib
import json
import re
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from starlette.requests import Request

from holdfast.access import ACCESS, ADMIN, PERSON
from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.server.app import create_app
from holdfast.server.config.settings import Settings
from holdfast.server.features.accounts.auth import ANONYMOUS
from holdfast.server.features.accounts.people.one_time import LinkUsed
from holdfast.server.features.accounts.people.people import WrongPassword
from holdfast.server.features.audit.audit import REFUSALS_A_MINUTE, Audit, AuditUnavailable
from holdfast.server.features.audit.refused_keys import GateRefusal, RefusedKeys
from holdfast.store.memory import MemoryStore
from holdfast.store.people.audit import AuditEntry, AuditFilter, ChainCheck
from tests.requirements import requirement
from tests.support.http import Client
from tests.support.native import Native
from tests.support.people import PASSWORD, add_person, browser, cookie_of, first_admin, sign_in
from tests.support.routes import ENDPOINTS
from tests.support.served import NO_HOME, Served
from tests.support.server import ROOT, Server, clean_environment, provider
from tests.support.upstream import Upstream
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOT_ABOUT_PEOPLE = {"/metrics", "/api/nodes"}
"""What programs ask for every few seconds, and what says nothing about a person."""


@dataclass
class World:
    """A server with an admin and a member."""

    server: Server
    data: Path
    ada: str
    bob: str


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with Upstream() as up:
        data = tmp_path_factory.mktemp("audit")
        async with Server(data, [provider(up.base_url, models=None)]) as server:
            ada = await first_admin(server)
            yield World(server, data, ada, await add_person(server, ada, "bob"))


async def entries(world: World, **query: str) -> list[dict[str, Any]]:
    """The entries that a query finds, the newest first."""
    async with browser(world.server, world.ada) as client:
        asked = "&".join(f"{name}={value}" for name, value in query.items())
        response = await client.get(f"/api/admin/audit?{asked}")
        assert 200 == response.status, await response.text()
        return list((await response.json())["entries"])


async def id_of(world: World, name: str) -> str:
    async with browser(world.server, world.ada) as client:
        return str((await Native(client).get(f"/api/admin/people?name={name}"))["people"][0]["id"])


@requirement("people.audit")
async def test_an_entry_has_who_did_what_to_what_from_where_and_how_it_ended(world: World):
    """A change has an entry before it takes effect and one with its result. A failure has its reason."""
    async with browser(world.server, world.ada) as client:
        made = await (await client.post("/api/admin/keys", {"name": "ci"})).json()
        await client.request("DELETE", f"/api/admin/keys/{made['id']}")
        missing = await client.request("DELETE", "/api/admin/keys/key_missing")
    revoked = await entries(world, action="key.revoke")
    ada = await id_of(world, "ada")

    assert 404 == missing.status
    assert ["refused", "begun", "done", "begun"] == [entry["result"] for entry in revoked]
    assert ["key_missing"] * 2 + [made["id"]] * 2 == [entry["target"] for entry in revoked]
    assert "not_found" == revoked[0]["code"]
    assert revoked[3]["id"] == revoked[2]["of"]
    assert {("ada", ada, "sign_in", "127.0.0.1")} == {
        (entry["actor"], entry["actor_id"], entry["via"], entry["address"]) for entry in revoked
    }


@requirement("people.audit")
async def test_sign_ins_and_wrong_passwords_are_written(world: World):
    """With the id of the account that was tried, and never with what was typed."""
    await sign_in(world.server, "bob")
    async with browser(world.server) as stranger:
        typed = "a password in the wrong field"
        await stranger.post("/api/sign-in", {"name": "bob", "password": "not bob's password"})
        await stranger.post("/api/sign-in", {"name": typed, "password": "wrong"})
    unknown, wrong, right = (await entries(world, action="sign_in"))[:3]
    bob = await id_of(world, "bob")

    ended = [(it["result"], it["code"], it["target"], it["actor_id"]) for it in (unknown, wrong, right)]
    assert ("refused", "wrong_password", "", "") == ended[0]
    assert ("refused", "wrong_password", bob, "") == ended[1]
    assert ("done", "", bob, bob) == ended[2]
    assert typed not in json.dumps(await entries(world))


@requirement("people.audit")
async def test_changes_of_people_deletions_and_an_admins_reads_are_written(world: World):
    """A role is part of the entry. Whoever reads about others leaves an entry too, and who was refused as well."""
    bob = await id_of(world, "bob")
    async with browser(world.server, world.ada) as client:
        await client.request("PATCH", f"/api/admin/people/{bob}", json={"role": "guest"})
        await client.request("PATCH", f"/api/admin/people/{bob}", json={"role": "member"})
        await client.get(f"/api/admin/people/{bob}")
    async with browser(world.server, world.bob) as client:
        session = await Native(client).new_session(title="To be deleted")
        await client.request("DELETE", f"/api/sessions/{session}")
        refused = await client.get("/api/admin/people")
    changed, read = (await entries(world, action="person.change"))[0], (await entries(world, action="person.read"))[0]
    deleted = (await entries(world, actor="bob", action="session.delete"))[0]
    tried = (await entries(world, actor="BOB", action="person.list"))[0]

    assert 403 == refused.status
    assert ({"changed": "role", "role": "member"}, bob) == (changed["details"], changed["target"])
    assert ("done", bob) == (read["result"], read["target"])
    assert ("done", session, bob) == (deleted["result"], deleted["target"], deleted["actor_id"])
    assert ("refused", "admin_only") == (tried["result"], tried["code"])


@requirement("people.audit-contents")
async def test_the_log_has_no_contents_and_no_secrets(world: World):
    """No passwords, keys, links, prompts, names or e-mail addresses: what stays of a person is an id."""
    secret, email = "The moon is made of tin.", "cleo@example.org"
    async with browser(world.server, world.ada) as client:
        added = await (await client.post("/api/admin/people", {"name": "cleo", "email": email})).json()
        key = await (await client.post("/api/keys", {"name": "laptop"})).json()
        session = await Native(client).new_session(title=secret)
        await Native(client).settled(await Native(client).start(session, secret, "up/echo:there"))
        await client.request("DELETE", f"/api/sessions/{session}")
        lines = await (await client.get("/api/admin/audit?format=jsonl")).text()

    assert key["id"] in lines
    for text in (PASSWORD, key["key"], added["reset"]["token"], secret, "cleo", email, world.ada.partition("=")[2]):
        assert text not in lines, text


@requirement("people.audit-all")
async def test_every_call_of_admins_and_every_change_of_an_account_is_audited():
    """A route that is added without a thought is audited under its path."""
    must = [it for it in ENDPOINTS if it.who is ADMIN or (it.who is PERSON and it.method != "GET")]
    forgotten = {it.path for it in must if not it.audit}
    deletions = [it for it in ENDPOINTS if it.method == "DELETE" and it.path.startswith(("/api/", "/v1/responses/"))]

    assert len(must) > 25
    assert NOT_ABOUT_PEOPLE == forgotten
    undone = {f"/api/sessions/{{session_id}}/messages/{{message_id}}{thing}" for thing in ("", "/thumb")}
    assert {"/api/sessions/{session_id}/queue/{n}", "/api/files/{sha256}"} | undone == {
        it.path for it in deletions if not it.audit
    }


@requirement("people.audit-all")
async def test_every_action_of_a_call_is_described_and_can_be_asked_for_on_the_page():
    """Schedules, triggers, agents and MCP servers were in the log, and in no list of its kinds."""
    actions = {it.audit for it in ENDPOINTS if it.audit and "/" not in it.audit}
    described = (ROOT / "docs/audit.md").read_text()
    offered = (ROOT / "web/src/admin/audit.tsx").read_text()

    assert len(actions) > 60
    assert set() == {action for action in actions if not re.search(rf"[`>]{action}[`<]", described)}
    assert set() == {action for action in actions if f'"{action.partition(".")[0]}"' not in offered}


@requirement("people.audit-export")
async def test_the_log_is_exported_as_lines_that_anyone_can_verify(world: World):
    """In order, with a cursor, filtered by actor, action and time; each digest covers the line and the one before."""
    async with browser(world.server, world.ada) as client:
        text = await (await client.get("/api/admin/audit?format=jsonl")).text()
        lines = [json.loads(line) for line in text.splitlines()]
        half = lines[len(lines) // 2]["n"]
        rest = await (await client.get(f"/api/admin/audit?format=jsonl&after={half}")).text()
        none = await (await client.get("/api/admin/audit?until=2020-01-01T00:00:00Z")).json()
        bad = await client.get("/api/admin/audit?since=yesterday")
    previous = ""
    for line in text.splitlines():
        body, _, digest = line.rpartition(',"hash":"')
        assert hashlib.sha256(f"{previous}\n{body}}}".encode()).hexdigest() == digest.rstrip('"}')
        previous = digest.rstrip('"}')

    assert list(range(1, len(lines) + 1)) == [line["n"] for line in lines]
    assert half + 1 == json.loads(rest.splitlines()[0])["n"]
    assert [] == none["entries"]
    assert 400 == bad.status


@requirement("people.audit-refuses")
async def test_an_admins_change_is_refused_if_it_cannot_be_written(tmp_path: Path):
    """Nothing is changed that leaves no trace. People go on chatting."""
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url, models=None)], nodes=1) as server:
        ada = await first_admin(server)
        bob = await add_person(server, ada, "bob")
        with closing(sqlite3.connect(tmp_path / "holdfast.db")) as db:
            db.execute("CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'the disk is full'); END")
            db.commit()
        async with browser(server, ada) as client, browser(server, bob) as member:
            made = await client.post("/api/admin/keys", {"name": "ci"})
            read = await client.get("/api/admin/people")
            session = await Native(member).new_session(title="Meanwhile")
            run = await Native(member).settled(await Native(member).start(session, "Hi", "up/echo:there"))
        with closing(sqlite3.connect(tmp_path / "holdfast.db")) as db:
            db.execute("DROP TRIGGER full")
            db.commit()
        async with browser(server, ada) as client:
            keys = (await Native(client).get("/api/admin/keys"))["keys"]

    assert [(503, "audit_unavailable")] * 2 == [
        (response.status, (await response.json())["error"]["code"]) for response in (made, read)
    ]
    assert "completed" == run["outcome"]
    assert [] == keys


async def holdfast(data: Path, *args: str) -> tuple[int, str]:
    """Run a command beside the server, and return its exit code and output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", *args, "--data", str(data), "--config", str(data / "holdfast.toml")),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=clean_environment(),
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


@requirement("people.audit-verify", "people.audit")
async def test_a_changed_a_removed_and_a_cut_off_entry_are_found(tmp_path: Path):
    """Commands beside the server are written too. The head of an earlier check shows a log that was made anew."""
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url, models=None)], nodes=1) as server:
        await first_admin(server)
        made = await holdfast(tmp_path, "user", "new", "dora")
        exported = await holdfast(tmp_path, "audit", "export", "--action", "person.new")
        intact = await holdfast(tmp_path, "audit", "verify")
        head = intact[1].split("Head: ")[1].strip()
        found = await holdfast(tmp_path, "audit", "verify", "--head", head)
        other = await holdfast(tmp_path, "audit", "verify", "--head", head[:-1] + "x")
        damaged = []
        for damage in (
            "UPDATE audit SET actor = 'eve' WHERE n = 1",
            "DELETE FROM audit WHERE n = 2",
            "DELETE FROM audit WHERE n = (SELECT max(n) FROM audit)",
        ):
            with closing(sqlite3.connect(tmp_path / "holdfast.db")) as db:
                rows = db.execute("SELECT * FROM audit").fetchall()
                db.execute(damage)
                db.commit()
                damaged.append(await holdfast(tmp_path, "audit", "verify"))
                db.execute("DELETE FROM audit")
                db.executemany("INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
                db.commit()
        again = await holdfast(tmp_path, "audit", "verify")

    assert 0 == made[0], made[1]
    lines = [json.loads(line) for line in exported[1].splitlines()]
    assert ["begun", "done"] == [line["result"] for line in lines]
    assert {"command"} == {line["via"] for line in lines}
    assert lines[0]["actor"].startswith("os:")
    assert (0, 0, 1, 0) == (intact[0], found[0], other[0], again[0])
    assert [1, 1, 1] == [code for code, _ in damaged]
    assert ["was changed", "are missing", "are missing"] == [
        "was changed" if "was changed" in text else "are missing" if "are missing" in text else text
        for _, text in damaged
    ]


@requirement("people.audit-retention")
async def test_old_entries_go_and_the_rest_can_still_be_verified():
    """The log names what was deleted because of its age. Anything else that is missing shows."""
    store, clock = MemoryStore(), [0.0]
    audit = Audit(store, now=lambda: clock[0])
    for _ in range(5):
        await audit.by_server("test", "x")
        clock[0] += 86400.0
    deleted = await audit.trim(store, 3 * 86400.0 - 1)
    left = await store.read_audit(AuditFilter())
    whole, cut = ChainCheck(), ChainCheck()
    whole.add(left)
    cut.add(left[1:])

    assert (3, [4, 5, 6]) == (deleted, [entry.n for entry in left])
    assert "" == whole.end(await store.audit_end())
    assert "Entries 4 to 4 are missing." == cut.end(await store.audit_end())


@requirement("people.audit-keys")
async def test_refused_keys_are_in_the_audit_log_by_address_reason_and_minute():
    """Wrong, expired, revoked, of a disabled person: the caller gets one answer, the admin learns the difference."""
    app = create_app(Settings(), MemoryStore(), NO_HOME)
    async with Served(app) as served, Client(served.url, {"origin": served.url}) as client:
        root = {"cookie": cookie_of(await client.post("/api/first-admin", {"name": "root", "password": PASSWORD}))}
        bob = await _made(client, root, "/api/admin/people", {"name": "bob", "password": PASSWORD})
        his = {"cookie": cookie_of(await client.post("/api/sign-in", {"name": "bob", "password": PASSWORD}))}
        keys = {
            "revoked_key": await _made(client, root, "/api/admin/keys", {"name": "old"}),
            "expired_key": await _made(client, root, "/api/admin/keys", {"name": "short", "expires_in_days": 1e-5}),
            "key_of_disabled": await _made(client, his, "/api/keys", {"name": "bobs"}),
            "wrong_key": {"key": "hf-wrong", "id": ""},
        }
        await client.request("DELETE", f"/api/admin/keys/{keys['revoked_key']['id']}", headers=root)
        await client.request("PATCH", f"/api/admin/people/{bob['id']}", json={"disabled": True}, headers=root)
        asked = [{"authorization": f"Bearer {key['key']}"} for key in keys.values()]
        async with asyncio.timeout(LONG):
            while 401 != (await client.get("/api/sessions", headers=asked[1])).status:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        app.state.server.auditing.refused_keys.count(GateRefusal("expired_key", "192.0.2.1"))
        await app.state.server.auditing.refused_keys.write()
        answers = [await client.get("/api/sessions", headers=headers) for headers in asked for _ in range(2)]
        bodies = {(answer.status, await answer.text()) for answer in answers}
        await app.state.server.auditing.refused_keys.write()
        page = await client.get("/api/admin/audit?action=key.refused", headers=root)
        found = (await page.json())["entries"]

    assert 1 == len(bodies)
    assert {401} == {status for status, _ in bodies}
    assert {(reason, key["id"], "127.0.0.1", "2") for reason, key in keys.items()} == {
        (entry["code"], entry["credential"], entry["address"], entry["details"]["count"]) for entry in found[:4]
    }
    assert {"refused"} == {entry["result"] for entry in found}
    assert ("expired_key", "192.0.2.1") in [(entry["code"], entry["address"]) for entry in found[4:]]
    assert not any(key["key"] in json.dumps(found) for key in keys.values())


@requirement("people.audit-keys")
async def test_refusals_that_are_too_many_for_the_audit_log_are_counted_there():
    """A flood would otherwise hide what else was tried: how often each call was refused, and why, is in the log."""
    store = MemoryStore()
    audit = Audit(store, now=lambda: 0.0)
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "path_params": {}, ACCESS: ANONYMOUS}

    async def refused(error: HoldfastError) -> None:
        raise error

    for n in range(REFUSALS_A_MINUTE + 70):
        error = LinkUsed() if n % 7 else WrongPassword()
        with suppress(HoldfastError):
            await audit.noted(Request(scope), "tried", lambda: refused(error))  # noqa: B023
    for _ in range(2):
        await RefusedKeys(audit).write()
    found = await store.read_audit(AuditFilter(action="tried"), limit=10_000)
    counted = {entry.code: int(entry.details["count"]) for entry in found if "count" in entry.details}

    assert REFUSALS_A_MINUTE + 2 == len(found)
    assert {"link_not_valid", "wrong_password"} == counted.keys()
    assert 70 == sum(counted.values())


@requirement("people.audit-keys")
async def test_refused_keys_from_everywhere_do_not_fill_the_audit_log():
    """A minute has a bounded number of entries, however many addresses there are; nothing of the count is lost."""
    store = MemoryStore()
    refused = RefusedKeys(Audit(store))
    for n in range(10 * REFUSALS_A_MINUTE):
        refused.count(GateRefusal("wrong_key", f"192.0.2.{n}"))
    await refused.write()
    await refused.write()
    found = await store.read_audit(AuditFilter(action="key.refused"), limit=10_000)

    assert REFUSALS_A_MINUTE + 1 == len(found)
    assert 10 * REFUSALS_A_MINUTE == sum(int(entry.details["count"]) for entry in found)


@requirement("people.audit-keys")
async def test_refused_keys_that_cannot_be_written_are_written_later():
    """The log is away for a moment: the counts are not."""

    class Away(MemoryStore):
        is_away = True

        async def add_audit(self, entry: AuditEntry) -> AuditEntry:
            if self.is_away:
                raise StoreUnavailable("away")
            return await super().add_audit(entry)

    store = Away()
    refused = RefusedKeys(Audit(store))
    for address in ("192.0.2.1", "192.0.2.2", "192.0.2.2"):
        refused.count(GateRefusal("wrong_key", address))
    with pytest.raises(AuditUnavailable):
        await refused.write()
    refused.count(GateRefusal("wrong_key", "192.0.2.1"))
    store.is_away = False
    await refused.write()
    found = await store.read_audit(AuditFilter())

    assert {("192.0.2.1", "2"), ("192.0.2.2", "2")} == {(entry.address, entry.details["count"]) for entry in found}


async def _made(client: Client, headers: dict[str, str], path: str, body: dict[str, Any]) -> dict[str, Any]:
    response = await client.post(path, body, headers=headers)
    assert 201 == response.status, await response.text()
    made: dict[str, Any] = await response.json()
    return made


@requirement("people.audit-verify")
async def test_the_head_of_the_log_is_in_the_servers_log_every_hour(caplog):
    """A log that is kept elsewhere shows that the newest entries were cut off, even if nobody has noted a head."""
    store = MemoryStore()
    entry = AuditEntry(id="aud_1", at=1.0, actor="ada", action="key.create", result="done")
    await store.add_audit(entry)
    caplog.set_level("INFO", logger="holdfast")
    async with Served(create_app(Settings(), store, NO_HOME)), asyncio.timeout(LONG):
        while not (heads := re.findall(r"the head of the audit log is (\d+):(\w+)", caplog.text)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        known = {(str(each.n), each.hash) for each in await store.read_audit(AuditFilter())}

    assert set(heads) <= known
