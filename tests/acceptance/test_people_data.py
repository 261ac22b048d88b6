"""People's own data: exported in one archive, brought in elsewhere, deleted with everything, kept for a set time."""

import asyncio
import io
import json
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast.events import Completed
from holdfast.history import Session
from holdfast.server.accounts.data.retention import delete_old
from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store import RunRecord
from holdfast.store.memory import MemoryStore
from tests.acceptance.test_audit import holdfast
from tests.requirements import requirement
from tests.support.http import Client
from tests.support.native import Native
from tests.support.people import PASSWORD, add_person, browser, cookie_of, first_admin
from tests.support.postgres import shared_postgres
from tests.support.served import NO_HOME, Served
from tests.support.server import Server, provider
from tests.support.upstream import Delta, Done, Finish, Hang, Headers, Role, Upstream
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")

PNG = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)
WORD = "xylophonequartz"
"""A word that is nowhere but in what one person has written."""


AUDIT = ("audit", "audit_end")
"""What keeps ids of a deleted person and of what they had: who did what, until the entries are too old.

The record of an erasure keeps the id of the account for a month, and the log of changed rights for an hour.
"""


COUNTED_LATE = ("charges", "usage")
"""What a stopped run has used is counted a moment after its end, and deleted within a minute."""


async def fill(client: Client) -> dict[str, Any]:
    """Let a person use everything that stores something. Returns the ids."""
    api = Native(client)
    session = await api.new_session(title=f"{WORD} title", system=f"{WORD} system")
    picture = [{"type": "text", "text": f"{WORD} picture"}, {"type": "image_url", "image_url": {"url": PNG}}]
    run = await api.start(session, f"{WORD} one", f"up/echo:{WORD} answer")
    await api.settled(run)
    await api.settled(await api.start(session, picture, "up/echo:second"))
    asked = (await api.session(session))["messages"][0]["id"]
    edit = {"message_id": asked, "input": f"{WORD} edited", "model": "up/echo:third"}
    key = {"idempotency-key": f"{WORD} key"}
    edited = await (await client.post(f"/api/sessions/{session}/edit", edit, headers=key)).json()
    await api.settled(edited["id"])
    asked_for = {"model": "up/echo:kept", "input": WORD, "store": True}
    response = await (await client.post("/v1/responses", asked_for)).json()
    conversation = await (await client.post("/v1/conversations", {"metadata": {"topic": WORD}})).json()
    compared = {"prompt": f"{WORD} prompt", "models": ["up/echo:a", "up/echo:b"], "lifetime": "detached"}
    comparison = await (await client.post("/api/comparisons", compared)).json()
    batch = {"models": ["up/echo:x"], "prompts": [{"id": "p", "prompt": f"{WORD} batch"}]}
    made = await client.post("/api/batches", batch)
    key = await (await client.post("/api/keys", {"name": f"{WORD}-laptop"})).json()
    return {
        "session": session,
        "run": run,
        "asked": asked,
        "response": response.get("id"),
        "conversation": conversation.get("id"),
        "comparison": comparison.get("id"),
        "batch": (await made.json()).get("id"),
        "key": key["id"],
    }


async def archive_of(client: Client) -> zipfile.ZipFile:
    response = await client.get("/api/account/export")
    assert (200, "application/zip") == (response.status, response.headers["content-type"])
    return zipfile.ZipFile(io.BytesIO(await response.body()))


@requirement("people.export")
async def test_all_that_a_person_has_is_in_one_archive_and_nothing_of_others(tmp_path: Path):
    """Chats with every branch and picture, runs, what features keep, keys by name, and the person's audit entries."""
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url, models=None)]) as server:
        ada = await first_admin(server)
        bob = await add_person(server, ada, "bob")
        async with browser(server, ada) as client:
            await Native(client).new_session(title="Ada's own plans")
        async with browser(server, bob) as client:
            made = await fill(client)
            archive = await archive_of(client)
    names = archive.namelist()
    text = b"".join(archive.read(name) for name in names).decode("latin-1")
    session = json.loads(archive.read(f"sessions/{made['session']}.json"))

    assert archive.testzip() is None
    head = json.loads(archive.read("holdfast.json"))
    assert ("holdfast-person", 1, "bob") == (head["format"], head["version"], head["account"]["name"])
    assert ["user", "assistant"] * 3 == [message["role"] for message in session["messages"]]
    assert 1 == len([name for name in names if name.startswith("pictures/")])
    for id in (made["run"], made["comparison"], made["batch"], made["conversation"]):
        assert any(id in name for name in names), (id, names)
    assert sum(row["runs"] for row in json.loads(archive.read("usage.json"))) >= 3
    assert f"{WORD}-laptop" in archive.read("keys.json").decode()
    assert "sign_in" in archive.read("audit.jsonl").decode()
    assert "Ada's own plans" not in text
    assert PASSWORD not in text


@requirement("people.import")
async def test_an_archive_is_brought_in_elsewhere_with_new_ids(tmp_path: Path):
    """Branches, pictures and titles come along. Doing it twice makes copies, and overwrites nothing."""
    async with Upstream() as up, Server(tmp_path / "one", [provider(up.base_url, models=None)]) as server:
        ada = await first_admin(server)
        async with browser(server, ada) as client:
            made = await fill(client)
            before = await Native(client).session(made["session"])
            archive = await (await client.get("/api/account/export")).body()
    async with Upstream() as up, Server(tmp_path / "two", [provider(up.base_url, models=None)]) as server:
        eve = await first_admin(server, "eve")
        async with browser(server, eve) as client:
            headers = {"content-type": "application/zip"}
            answers = [
                await (await client.request("POST", "/api/account/import", body=archive, headers=headers)).json()
                for _ in range(2)
            ]
            listed = (await Native(client).get("/api/sessions"))["sessions"]
            after = await Native(client).session(listed[0]["id"])
            broken = await client.request("POST", "/api/account/import", body=archive[:-50], headers=headers)
            other = await client.request("POST", "/api/account/import", body=b"PK no zip", headers=headers)
            again = (await Native(client).get("/api/sessions"))["sessions"]

    assert [{"sessions": 1, "refused": 0, "reason": None}] * 2 == answers
    assert made["session"] not in {session["id"] for session in listed}
    assert [f"{WORD} title"] * 2 == [session["title"] for session in listed]
    assert _said(before) == _said(after)
    assert [len(message["siblings"]) for message in before["messages"]] == [
        len(message["siblings"]) for message in after["messages"]
    ]
    assert [(400, "bad_archive")] * 2 == [
        (response.status, (await response.json())["error"]["code"]) for response in (broken, other)
    ]
    assert listed == again


def _said(session: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(message["role"], message["content"]) for message in session["messages"]]


@requirement("people.export", "people.import")
async def test_a_person_is_exported_and_imported_by_command(tmp_path: Path):
    """Beside a server that runs, into a file that only its user can read."""
    file = tmp_path / "bob.zip"
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url, models=None)], nodes=1) as server:
        ada = await first_admin(server)
        bob = await add_person(server, ada, "bob")
        async with browser(server, bob) as client:
            made = await fill(client)
        exported = await holdfast(tmp_path, "user", "export", "bob", str(file))
        again = await holdfast(tmp_path, "user", "export", "bob", str(file))
        imported = await holdfast(tmp_path, "user", "import", "ada", str(file))
        async with browser(server, ada) as client:
            listed = (await Native(client).get("/api/sessions"))["sessions"]

    assert (0, 1, 0) == (exported[0], again[0], imported[0]), (exported, again, imported)
    assert 0o600 == file.stat().st_mode & 0o777
    with zipfile.ZipFile(file) as archive:
        assert f"sessions/{made['session']}.json" in archive.namelist()
    assert [f"{WORD} title"] == [session["title"] for session in listed]


@requirement("people.import")
async def test_one_damaged_chat_is_left_out_and_the_others_come(tmp_path: Path):
    """A circle of messages, a missing picture and wrong types are refused, with the reason."""
    message = {"id": "a", "role": "user", "content": "Hi", "parent_id": None}
    circle = [message | {"parent_id": "b"}, message | {"id": "b", "parent_id": "a"}]
    lost = [{"type": "image_url", "image_url": {"url": "holdfast-file:" + "0" * 64}}]
    sessions = {"good": [message], "circle": circle, "lost": [message | {"content": lost}], "wrong": [{"id": 1}]}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("holdfast.json", json.dumps({"format": "holdfast-person", "version": 1}))
        for name, messages in sessions.items():
            archive.writestr(f"sessions/{name}.json", json.dumps({"title": name, "messages": messages}))
    async with Server(tmp_path, [provider("http://127.0.0.1:9")]) as server:
        ada = await first_admin(server)
        async with browser(server, ada) as client:
            response = await client.request(
                "POST", "/api/account/import", body=file.getvalue(), headers={"content-type": "application/zip"}
            )
            answer = await response.json()
            listed = (await Native(client).get("/api/sessions"))["sessions"]

    assert (1, 3) == (answer["sessions"], answer["refused"])
    assert answer["reason"].startswith("sessions/circle.json: ")
    assert ["good"] == [session["title"] for session in listed]


async def erased(client: Client, id: str) -> dict[str, Any]:
    """The record of an erasure that is done."""
    async with asyncio.timeout(LONG):
        while True:
            found: dict[str, Any] = await Native(client).get(f"/api/admin/erasures/{id}")
            if found["state"] == "done":
                return found
            await asyncio.sleep(0.05)


def texts_in_sqlite(file: Path) -> dict[str, str]:
    """All that each table has, as text; of the documents all that each kind has."""
    with closing(sqlite3.connect(file)) as db:
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        kinds = [row[0] for row in db.execute("SELECT DISTINCT kind FROM documents")]
        db.text_factory = bytes
        texts = {table: _text(db.execute(f'SELECT * FROM "{table}"')) for table in tables if table != "documents"}
        return texts | {kind: _text(db.execute("SELECT * FROM documents WHERE kind = ?", [kind])) for kind in kinds}


async def texts_in_postgres(url: str) -> dict[str, str]:
    """All that each table has, as text; of the documents all that each kind has."""
    db = await asyncpg.connect(url)
    try:
        named = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        tables = [row[0] for row in await db.fetch(named)]
        kinds = [row[0] for row in await db.fetch("SELECT DISTINCT kind FROM documents")]
        texts = {table: _text(await db.fetch(f'SELECT * FROM "{table}"')) for table in tables if table != "documents"}
        of_kind = "SELECT * FROM documents WHERE kind = $1"
        return texts | {kind: _text(await db.fetch(of_kind, kind)) for kind in kinds}
    finally:
        await db.close()


def _text(rows: Any) -> str:
    values = (value for row in rows for value in row)
    return " ".join(it.decode("utf-8", "replace") if isinstance(it, bytes) else str(it) for it in values)


@requirement("people.delete")
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_a_person_is_deleted_with_everything(tmp_path: Path, database: str):
    """No table has a word of theirs, or an id. Their running runs are stopped. Others keep what is theirs."""
    url = shared_postgres().new_url() if database == "postgres" else ""
    env = {"HOLDFAST_STORE": url} if url else {}
    async with Upstream() as up:
        up.models["hanging"] = [Headers(), Role(), Delta(f"{WORD} so far"), Hang()]
        async with Server(tmp_path, [provider(up.base_url, models=None)], nodes=1, env=env) as server:
            ada = await first_admin(server)
            bob = await add_person(server, ada, "bobwithalongname", email="bob@example.org")
            async with browser(server, bob) as client, browser(server, ada) as admin:
                mine = await Native(admin).new_session(title="Ada's own plans")
                made = await fill(client)
                running = await Native(client).start(await Native(client).new_session(), WORD, "up/hanging")
                await Native(client).shown(running, WORD)
                outside = {"model": "up/hanging", "input": WORD, "store": True, "stream": True}
                held = await client.post("/v1/responses", outside)
                person = (await Native(admin).get("/api/admin/people?name=bobwithalongname"))["people"][0]["id"]
                unclear = await admin.request("DELETE", f"/api/admin/people/{person}")
                deleted = await admin.request("DELETE", f"/api/admin/people/{person}?data=delete")
                ended = await erased(admin, (await deleted.json())["id"])
                refused = await client.get("/api/sessions")
                held.close()
                kept = await Native(admin).session(mine)
            await server.terminate()
        tables = await texts_in_postgres(url) if url else texts_in_sqlite(tmp_path / "holdfast.db")
    ids = [made[name] for name in ("session", "run", "comparison", "batch", "conversation")]

    assert (400, 202, 401) == (unclear.status, deleted.status, refused.status)
    assert ended["deleted"]["sessions"] >= 2
    assert {"comparisons", "batches", "sessions", "runs", "keys"} <= ended["deleted"].keys()
    assert "Backups" in ended["note"]
    assert "Ada's own plans" == kept["title"]
    assert "Ada's own plans" in tables["sessions"]
    for table, text in tables.items():
        for found in (WORD, "bobwithalongname", "bob@example.org", PNG[30:60], *ids):
            assert found not in text or (table in AUDIT and found in ids), (table, found)
        assert person not in text or table in (*AUDIT, "erasure", "access_change", *COUNTED_LATE), table


@requirement("people.delete")
async def test_a_person_deletes_their_own_account_with_the_password(tmp_path: Path):
    """At once for the sign-in and the keys. The last admin cannot."""
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url, models=None)]) as server:
        ada = await first_admin(server)
        bob = await add_person(server, ada, "bob")
        async with browser(server, bob) as client, browser(server, ada) as admin:
            key = await (await client.post("/api/keys", {"name": "laptop"})).json()
            wrong = await client.request("DELETE", "/api/account", json={"password": "no"})
            still = await client.get("/api/account")
            last = await admin.request("DELETE", "/api/account", json={"password": PASSWORD})
            deleted = await client.request("DELETE", "/api/account", json={"password": PASSWORD})
            ended = await erased(admin, (await deleted.json())["id"])
            after = await client.get("/api/account")
            people = (await Native(admin).get("/api/admin/people"))["people"]
        async with server.client(authorization=f"Bearer {key['key']}") as client:
            with_key = await client.get("/api/sessions")

    assert (401, 200, 409, 202) == (wrong.status, still.status, last.status, deleted.status)
    assert "Max-Age=0" in deleted.headers["set-cookie"]
    assert (401, 401) == (after.status, with_key.status)
    assert "done" == ended["state"]
    assert ["ada"] == [person["name"] for person in people]


@requirement("people.delete")
async def test_an_erasure_continues_after_a_crash(tmp_path: Path):
    """The account is gone at once; what the kill left is deleted by the next start."""
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url, models=None)]) as server:
        ada = await first_admin(server)
        bob = await add_person(server, ada, "bob")
        async with browser(server, bob) as client, browser(server, ada) as admin:
            for n in range(150):
                await Native(client).new_session(title=f"{WORD} {n}")
            person = (await Native(admin).get("/api/admin/people?name=bob"))["people"][0]["id"]
            deleted = await admin.request("DELETE", f"/api/admin/people/{person}?data=delete")
            id = (await deleted.json())["id"]
        await server.kill9()
        await server.restart()
        async with browser(server, ada) as admin:
            ended = await erased(admin, id)

    assert "done" == ended["state"]


async def gone(client: Client, path: str) -> None:
    """Wait until something is no longer there."""
    async with asyncio.timeout(LONG):
        response = await client.get(path)
        while response.status != 404:
            await asyncio.sleep(0.05)
            response = await client.get(path)


@requirement("people.retention")
async def test_old_chats_are_deleted_and_pinned_ones_stay(tmp_path: Path):
    """After `session_days` without a change. A start looks at once."""
    config = "session_days = 0.00001"
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url, models=None)], config=config) as server:
        async with server.client() as client:
            old = await Native(client).new_session(title="Old")
            pinned = await Native(client).new_session(title="Pinned")
            await client.request("PATCH", f"/api/sessions/{pinned}", json={"pinned": True})
        await asyncio.sleep(1.0)  # the age that is set
        await server.restart()
        async with server.client() as client:
            await gone(client, f"/api/sessions/{old}")
            left = (await Native(client).get("/api/sessions"))["sessions"]

    assert ["Pinned"] == [session["title"] for session in left]


@requirement("people.retention-groups")
async def test_a_group_sets_how_long_what_its_people_have_is_kept():
    """Shorter or longer than the settings. Of two groups the fewest days count; others keep what the settings say."""
    app = create_app(Settings(session_days=10, retention_days=10), MemoryStore(), NO_HOME)
    async with Served(app) as served, Client(served.url, {"origin": served.url}) as client:
        root = {"cookie": cookie_of(await client.post("/api/first-admin", {"name": "root", "password": PASSWORD}))}

        async def made(path: str, body: dict[str, Any]) -> str:
            response = await client.post(path, body, headers=root)
            assert 201 == response.status, await response.text()
            return str((await response.json())["id"])

        days = {"brief": 2, "long": 100}
        groups = {
            name: await made("/api/admin/groups", {"name": name, "session_days": it, "retention_days": it})
            for name, it in days.items()
        }
        people = {"ann": ["brief", "long"], "bob": ["long"], "eve": []}
        for name, names in people.items():
            await made("/api/admin/people", {"name": name, "groups": [groups[each] for each in names]})
        parts = app.state.parts
        now = parts.engine.now()
        for name in people:
            account = await parts.people.accounts.find(name)
            assert account is not None
            for age in (1, 5, 50, 500):
                at = now - age * 86400
                session = Session(id=f"ses_{name}_{age}", owner=account.body.owner, created_at=at, updated_at=at)
                await parts.store.create_session(session)
                run = RunRecord(id=f"run_{name}_{age}", owner=account.body.owner, model="m", created_at=at)
                run = await parts.store.create_run(run)
                await parts.store.settle(run.id, run.epoch, seq=1, settlement=Completed(text=""), message=None, now=at)
        await delete_old(parts)
        left = {
            kind: [
                f"{name} {age}"
                for name in people
                for age in (1, 5, 50, 500)
                if await find(f"{kind}_{name}_{age}") is not None
            ]
            for kind, find in (("ses", parts.store.get_session), ("run", parts.store.get_run))
        }
        change = {"session_days": None, "retention_days": 3}
        changed = await client.request("PATCH", f"/api/admin/groups/{groups['brief']}", json=change, headers=root)
        zero = {"session_days": 0}
        bad = await client.request("PATCH", f"/api/admin/groups/{groups['brief']}", json=zero, headers=root)
        shown = await changed.json()

    kept = ["ann 1", "bob 1", "bob 5", "bob 50", "eve 1", "eve 5"]
    assert {"ses": kept, "run": kept} == left
    assert (200, None, 3, 400) == (changed.status, shown["session_days"], shown["retention_days"], bad.status)


@requirement("people.retention-keys")
async def test_idempotency_keys_of_every_kind_are_forgotten_after_their_days():
    """A run outside of a session, a batch and a comparison: a repeated request then makes another one."""
    async with Upstream() as up:
        settings = Settings(
            providers=(ProviderSettings("up", base_url=up.base_url, models=("m",)),), idempotency_days=1e-9
        )
        app = create_app(settings, MemoryStore(), NO_HOME)
        async with Served(app) as served, Client(served.url) as client:
            calls = {
                "/v1/chat/completions": {"model": "up/m", "messages": [{"role": "user", "content": "hi"}]},
                "/api/batches": {"models": ["up/m"], "prompts": [{"prompt": "hi"}]},
                "/api/comparisons": {"models": ["up/m", "up/m"], "prompt": "hi", "lifetime": "detached"},
            }

            async def asked() -> list[str]:
                answers = [
                    await client.post(path, body, headers={"idempotency-key": "once"}) for path, body in calls.items()
                ]
                return [(await answer.json())["id"] for answer in answers]

            first, repeated = await asked(), await asked()
            await delete_old(app.state.parts)
            later = await asked()

    assert first == repeated
    assert not {*first} & {*later}


@requirement("people.nothing-stored")
async def test_a_request_without_a_session_leaves_no_word_in_the_files(tmp_path: Path):
    """Streamed or not, completed or stopped by its client: the database, its journal and the log have nothing of it."""
    async with Upstream() as up:
        up.models["hanging"] = [Headers(), Role(), Delta(f"{WORD} so far"), Hang()]
        up.models["word"] = [Role(), Delta(WORD), Finish(), Done()]
        async with Server(tmp_path, [provider(up.base_url, models=None)], nodes=1) as server:
            asked = [{"role": "user", "content": f"{WORD} question"}]
            async with server.client() as client:
                chat = {"model": "up/word", "messages": asked}
                plain = await (await client.post("/v1/chat/completions", chat)).json()
                streamed = await (await client.post("/v1/chat/completions", chat | {"stream": True})).all_events()
                response = {"model": "up/word", "input": WORD, "store": False}
                unstored = await client.post("/v1/responses", response)
                left = await client.post("/v1/chat/completions", chat | {"model": "up/hanging", "stream": True})
                while WORD not in (await left.next_event()).data:
                    pass
                left.leave()
                kept = await Native(client).new_session(title="control")
            await server.terminate()
        files = {file.name: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}

    assert WORD == plain["choices"][0]["message"]["content"]
    assert any(WORD in frame.data for frame in streamed)
    assert 200 == unstored.status
    assert any(kept.encode() in data for data in files.values())
    assert [] == [name for name, data in files.items() if WORD.encode() in data]
