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
from starlette.applications import Starlette

from holdfast.errors import StoreUnavailable
from holdfast.events import Completed
from holdfast.history import Session
from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.server.features.data.bringing_in import Importing
from holdfast.store import RunRecord
from holdfast.store.memory import MemoryStore
from tests.acceptance.test_audit import holdfast
from tests.requirements import requirement
from tests.support.exports import chatgpt
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
"""What a stopped run has used is counted a moment after its end, and loses its owner within a minute.

The sums stay, by the names of the models. The id of a run is there until it is part of a sum.
"""
MODEL = f"up/echo:{WORD} answer"


async def fill(client: Client) -> dict[str, Any]:
    """Let a person use everything that stores something. Returns the ids."""
    api = Native(client)
    session = await api.new_session(title=f"{WORD} title", system=f"{WORD} system")
    picture = [{"type": "text", "text": f"{WORD} picture"}, {"type": "image_url", "image_url": {"url": PNG}}]
    run = await api.start(session, f"{WORD} one", MODEL)
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
    kept = await keep(client, session, edited["message_id"])
    return {
        "kept": kept,
        "session": session,
        "run": run,
        "asked": asked,
        "response": response.get("id"),
        "conversation": conversation.get("id"),
        "comparison": comparison.get("id"),
        "batch": (await made.json()).get("id"),
        "key": key["id"],
    }


async def keep(client: Client, session: str, answer: str) -> list[str]:
    """Let a person keep things besides chats, and file and judge a chat. Returns what their documents have in them."""

    async def made(path: str, body: dict[str, Any], status: int = 201) -> dict[str, Any]:
        response = await client.post(path, body)
        assert status == response.status, await response.text()
        answer: dict[str, Any] = await response.json()
        return answer

    thumb = {"vote": "up", "why": f"{WORD} good"}
    seen = {"seen": 1, "notify": "none"}
    preset = await made("/api/presets", {"name": f"{WORD} preset", "system": f"{WORD} be brief"})
    for path, body in (
        (f"/api/sessions/{session}/messages/{answer}/thumb", thumb),
        (f"/api/sessions/{session}/seen", seen),
        ("/api/presets/default", {"preset": preset["id"]}),
    ):
        assert 200 == (await client.request("PUT", path, json=body)).status
    prompt = await made("/api/prompts", {"name": WORD, "text": f"{WORD} {{{{topic}}}}"})
    late = {"kind": "once", "at": "2999-01-01T00:00"}
    schedule = await made("/api/schedules", {"name": f"{WORD} daily", "prompt": f"{WORD} report", "when": late})
    trigger = await made("/api/triggers", {"name": f"{WORD} hook", "prompt": f"{WORD} {{{{body}}}}"})
    file = await client.request("POST", f"/api/files?name={WORD}.txt", body=f"{WORD} file".encode())
    assert 201 == file.status
    filed = {"sessions": [session], "folder": f"{WORD} folder", "add_tags": [WORD]}
    assert [session] == (await made("/api/sessions/file", filed, 200))["filed"]
    return [preset["id"], prompt["id"], schedule["id"], trigger["id"], f"{WORD} good", f"{WORD}.txt", f"{WORD} folder"]


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
    assert {".png", ".txt"} == {Path(name).suffix for name in names if name.startswith("files/")}
    for kept in made["kept"]:
        assert any(kept in name or kept.encode() in archive.read(name) for name in names), kept
    assert {"seen": 1, "notify": "none"} == json.loads(archive.read("seen.json"))[made["session"]]
    for id in (made["run"], made["comparison"], made["batch"], made["conversation"]):
        assert any(id in name for name in names), (id, names)
    assert sum(row["runs"] for row in json.loads(archive.read("usage.json"))) >= 3
    assert f"{WORD}-laptop" in archive.read("keys.json").decode()
    assert "sign_in" in archive.read("audit.jsonl").decode()
    assert "Ada's own plans" not in text
    assert PASSWORD not in text


async def brought(client: Client, archive: bytes, query: str = "") -> tuple[int, dict[str, Any]]:
    """The status and the answer of an import."""
    headers = {"content-type": "application/zip"}
    response = await client.request("POST", f"/api/account/import{query}", body=archive, headers=headers)
    return response.status, await response.json()


async def settled_comparison(client: Client, id: str) -> dict[str, Any]:
    async with asyncio.timeout(LONG):
        found: dict[str, Any] = await Native(client).get(f"/api/comparisons/{id}")
        while "settled" != found["status"]:
            await asyncio.sleep(0.02)
            found = await Native(client).get(f"/api/comparisons/{id}")
    return found


@requirement("people.import")
async def test_an_archive_is_brought_in_elsewhere_once_with_new_ids(tmp_path: Path):
    """Branches, pictures, times and outcomes come along, and comparisons with their votes. Twice adds nothing."""
    async with Upstream() as up, Server(tmp_path / "one", [provider(up.base_url, models=None)]) as server:
        ada = await first_admin(server)
        async with browser(server, ada) as client:
            made = await fill(client)
            await settled_comparison(client, made["comparison"])
            assert 200 == (await client.post(f"/api/comparisons/{made['comparison']}/vote", {"winner": 1})).status
            before = await Native(client).session(made["session"])
            compared = await settled_comparison(client, made["comparison"])
            archive = await (await client.get("/api/account/export")).body()
            at_home = await brought(client, archive)
    async with Upstream() as up, Server(tmp_path / "two", [provider(up.base_url, models=None)]) as server:
        eve = await first_admin(server, "eve")
        async with browser(server, eve) as client:
            dry = await brought(client, archive, "?dry_run=true")
            nothing = (await Native(client).get("/api/sessions"))["sessions"]
            once, twice = [await brought(client, archive) for _ in range(2)]
            listed = (await Native(client).get("/api/sessions"))["sessions"]
            after = await Native(client).session(listed[0]["id"])
            [comparison] = (await Native(client).get("/api/comparisons"))["data"]
            comparison = await Native(client).get(f"/api/comparisons/{comparison['id']}")
            wrong = [await brought(client, data) for data in (archive[:-50], b"PK no zip")]
            again = (await Native(client).get("/api/sessions"))["sessions"]

    counts = {"sessions": 1, "comparisons": 1, "known": 0, "refused": 0, "reason": None}
    assert (200, counts) == dry == once
    assert [] == nothing
    assert (200, {**counts, "sessions": 0, "comparisons": 0, "known": 2}) == twice == at_home
    assert [f"{WORD} title"] == [session["title"] for session in listed]
    assert made["session"] != listed[0]["id"]
    assert _said(before) == _said(after)
    for name in ("folder", "tags", "archived"):
        assert before[name] == after[name]
    for name in ("created_at", "outcome", "partial", "figures", "siblings"):
        kept = [[message.get(name) for message in each["messages"]] for each in (before, after)]
        assert list(map(_shape, kept[0])) == list(map(_shape, kept[1])), name
    assert made["comparison"] != comparison["id"]
    for name in ("prompts", "vote", "status", "blind", "created_at"):
        assert compared[name] == comparison[name]
    for name in ("text", "model", "settlement", "metrics"):
        assert [pane[name] for pane in compared["panes"]] == [pane[name] for pane in comparison["panes"]]
    assert [(400, "bad_archive")] * 2 == [(status, answer["error"]["code"]) for status, answer in wrong]
    assert listed == again


def _shape(value: Any) -> Any:
    """A value without ids, which are other ones elsewhere."""
    return len(value) if isinstance(value, list) else value


def _said(session: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(message["role"], message["content"]) for message in session["messages"]]


@requirement("people.export")
async def test_a_key_exports_the_chats_of_its_person_and_no_secrets(tmp_path: Path):
    """What it may read by other calls too; not the keys, the audit log, or the secrets of triggers."""
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url, models=None)]) as server:
        ada = await first_admin(server)
        async with browser(server, ada) as client:
            made = await fill(client)
            key = (await (await client.post("/api/keys", {"name": "reader", "scopes": ["read"]})).json())["key"]
        async with Client(server.url, {"authorization": f"Bearer {key}"}) as program:
            names = set((await archive_of(program)).namelist())
    kinds = {name.split("/")[1] for name in names if name.startswith("documents/")}

    assert f"sessions/{made['session']}.json" in names
    assert {"comparison", "preset", "prompt", "default_preset", "schedule", "trigger", "thumb"} == kinds
    assert not {"keys.json", "audit.jsonl"} & names


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
async def test_an_archive_with_one_damaged_chat_brings_in_nothing(tmp_path: Path):
    """A circle of messages, a missing picture, wrong types, a vote for no pane: refused as a whole, with the reason."""
    message = {"id": "a", "role": "user", "content": "Hi", "parent_id": None}
    circle = [message | {"parent_id": "b"}, message | {"id": "b", "parent_id": "a"}]
    lost = [{"type": "image_url", "image_url": {"url": "holdfast-file:" + "0" * 64}}]
    sessions = {"good": [message], "circle": circle, "lost": [message | {"content": lost}], "wrong": [{"id": 1}]}
    pane = {"pane": 0, "model": "m", "session_id": "s", "status": "settled", "outcome": "completed"}
    comparison = {"id": "c", "owner": "x", "prompts": ["p"], "panes": [pane], "status": "settled"}
    vote = {"vote": {"winner": 7, "at": 1.0}}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("holdfast.json", json.dumps({"format": "holdfast-person", "version": 1}))
        for name, messages in sessions.items():
            archive.writestr(f"sessions/{name}.json", json.dumps({"title": name, "messages": messages}))
        for name, body in (("c", comparison), ("voted", comparison | vote), ("half", {"status": "settled"})):
            archive.writestr(f"documents/comparison/{name}.json", json.dumps({"id": name, "body": body}))
    async with Server(tmp_path, [provider("http://127.0.0.1:9")]) as server:
        ada = await first_admin(server)
        async with browser(server, ada) as client:
            dry = await brought(client, file.getvalue(), "?dry_run=true")
            refused = await brought(client, file.getvalue())
            odd = await brought(client, file.getvalue(), "?dry_run=maybe")
            listed = (await Native(client).get("/api/sessions"))["sessions"]
            compared = (await Native(client).get("/api/comparisons"))["data"]

    assert 200 == dry[0]
    assert (1, 1, 5) == (dry[1]["sessions"], dry[1]["comparisons"], dry[1]["refused"])
    assert dry[1]["reason"].startswith("sessions/circle.json: ")
    assert (400, "bad_archive") == (refused[0], refused[1]["error"]["code"])
    assert "sessions/circle.json: " in refused[1]["error"]["message"]
    assert 400 == odd[0]
    assert [] == listed == compared


@requirement("people.import")
async def test_an_import_that_fails_in_the_middle_leaves_nothing():
    """The store is away after the second chat, or the owner has no room for it: the first one is taken back."""

    class FailsLater(MemoryStore):
        copied = 0

        async def copy_session(self, session: Session, messages: Any) -> Session:
            self.copied += 1
            if self.copied == 2:
                raise StoreUnavailable("away")
            return await super().copy_session(session, messages)

    file, store = chats("one", "two"), FailsLater()
    with pytest.raises(StoreUnavailable):
        await Importing(file, store, "ada", lambda: 1.0).bring_in()
    left = await store.sessions_of("ada")
    result = await Importing(file, store, "ada", lambda: 1.0).bring_in()

    assert [] == left
    assert (2, 2) == (result.sessions, len(await store.sessions_of("ada")))


def chats(*names: str) -> io.BytesIO:
    """An archive of chats."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("holdfast.json", json.dumps({"format": "holdfast-person", "version": 1}))
        for name in names:
            said = [{"id": "a", "role": "user", "content": name}]
            archive.writestr(f"sessions/{name}.json", json.dumps({"title": name, "messages": said}))
    return file


@requirement("people.import")
async def test_an_import_that_fails_takes_back_nothing_that_another_has_brought_in():
    """Two archives of one person have a chat in common, and the import of one of them was answered with success."""

    class OneComesFirst(MemoryStore):
        first: Importing | None = None
        is_full = False

        async def copy_session(self, session: Session, messages: Any) -> Session:
            if self.is_full:
                raise StoreUnavailable("away")
            if self.first is None:
                return await super().copy_session(session, messages)
            first, self.first = self.first, None
            await first.bring_in()
            added = await super().copy_session(session, messages)
            self.is_full = True
            return added

    store = OneComesFirst()
    store.first = Importing(chats("one"), store, "ada", lambda: 1.0)
    with pytest.raises(StoreUnavailable):
        await Importing(chats("one", "two"), store, "ada", lambda: 1.0).bring_in()

    assert 1 == len(await store.sessions_of("ada"))


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


def spent(usage: dict[str, Any]) -> float:
    """What all owners together have used."""
    cost = sum(row["cost"] for row in usage["usage"])
    assert cost > 0
    return float(cost)


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
        config = '[prices]\n"up/*" = { input = 1e6, output = 1e6 }'
        async with Server(tmp_path, [provider(up.base_url, models=None)], config=config, nodes=1, env=env) as server:
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
                used = await Native(admin).get("/api/admin/usage?by=owner")
                unclear = await admin.request("DELETE", f"/api/admin/people/{person}")
                deleted = await admin.request("DELETE", f"/api/admin/people/{person}?data=delete")
                ended = await erased(admin, (await deleted.json())["id"])
                refused = await client.get("/api/sessions")
                held.close()
                kept = await Native(admin).session(mine)
                bill = await Native(admin).get("/api/admin/usage?by=owner")
            await server.terminate()
        tables = await texts_in_postgres(url) if url else texts_in_sqlite(tmp_path / "holdfast.db")
    ids = [made[name] for name in ("session", "run", "comparison", "batch", "conversation")]

    assert (400, 202, 401) == (unclear.status, deleted.status, refused.status)
    assert ended["deleted"]["sessions"] >= 2
    assert {"comparisons", "batches", "sessions", "runs", "keys"} <= ended["deleted"].keys()
    assert "Backups" in ended["note"]
    assert "Ada's own plans" == kept["title"]
    assert "Ada's own plans" in tables["sessions"]
    assert MODEL in tables["charges"] + tables["usage"]
    assert person in {row["owner"] for row in used["usage"]}
    assert spent(used) <= spent(bill), "what was used stays in the sums, without the person"
    for table, text in tables.items():
        without_models = text.replace(MODEL, "") if table in COUNTED_LATE else text
        for found in (WORD, "bobwithalongname", "bob@example.org", PNG[30:60], *ids):
            assert found not in without_models or (table in (*AUDIT, "charges") and found in ids), (table, found)
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
            async with asyncio.timeout(LONG):
                while (after := await client.get("/api/account")).status == 404:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)  # another node knows the sign-in for up to a second
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


@requirement("people.retention")
async def test_an_imported_chat_keeps_its_times_in_lists_and_is_not_old_at_once():
    """What came from an own export was from "Today"; what came from another program's was deleted within the hour."""
    app = create_app(Settings(session_days=10), MemoryStore(), NO_HOME)
    async with Served(app) as served, Client(served.url) as client:
        api = Native(client)
        assert 200 == (await client.post("/api/imports", [chatgpt()])).status
        [other] = (await api.get("/api/sessions"))["sessions"]
        one = await api.get(f"/api/sessions/{other['id']}?files=inline")
        assert 201 == (await client.post("/api/sessions/import", one)).status
        archive = await (await client.get("/api/account/export")).body()
        imported = await kept_by_retention(app, api)
        await client.post("/api/sessions/delete", {"sessions": [session["id"] for session in imported]})
        await brought(client, archive)
        again = await kept_by_retention(app, api)

    assert ["2023-11-14T22:13:20.500Z"] * 4 == [session["updated_at"] for session in (*imported, *again)]
    assert all(session["created_at"] > "2024" for session in (*imported, *again))


async def kept_by_retention(app: Starlette, api: Native) -> list[dict[str, Any]]:
    """The chats that are left after a look for old ones."""
    await app.state.server.data.retention.delete_old()
    found: list[dict[str, Any]] = (await api.get("/api/sessions"))["sessions"]
    return found


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
        server = app.state.server
        now = server.engine.now()
        for name in people:
            account = await server.people.accounts.find(name)
            assert account is not None
            for age in (1, 5, 50, 500):
                at = now - age * 86400
                session = Session(id=f"ses_{name}_{age}", owner=account.body.owner, created_at=at, updated_at=at)
                await server.store.create_session(session)
                run = RunRecord(id=f"run_{name}_{age}", owner=account.body.owner, model="m", created_at=at)
                run = await server.store.create_run(run)
                await server.store.settle(run.id, run.epoch, seq=1, settlement=Completed(text=""), message=None, now=at)
        await server.data.retention.delete_old()
        left = {
            kind: [
                f"{name} {age}"
                for name in people
                for age in (1, 5, 50, 500)
                if await find(f"{kind}_{name}_{age}") is not None
            ]
            for kind, find in (("ses", server.store.get_session), ("run", server.store.get_run))
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
            await app.state.server.data.retention.delete_old()
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
