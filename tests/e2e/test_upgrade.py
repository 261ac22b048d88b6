"""An upgrade: what the first version of the schema wrote is served by this one, and nothing is changed unasked."""

import asyncio
import hashlib
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest

from holdfast.server.config.settings import load
from holdfast.store.opening import open_store
from holdfast.store.rows.migrations import StoreTooNew
from holdfast.store.sqlite.file import migrations
from tests.e2e.test_postgres_server import holdfast
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.people import PASSWORD, browser, sign_in
from tests.support.server import ROOT, Server

FIRST = ROOT / "tests" / "data" / "first_schema"
MADE: dict[str, str] = json.loads((FIRST / "made.json").read_text())
SCRIPTED = {"name": "scripted", "dialect": "scripted"}


@pytest.fixture
def folder(tmp_path) -> Path:
    """A data folder as the first version left it."""
    place = tmp_path / "data"
    place.mkdir(mode=0o700)
    for name in ("holdfast.db", "keys.json"):
        shutil.copyfile(FIRST / name, place / name)
        (place / name).chmod(0o600)
    return place


def answers(session: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the messages of a session, each with its role and its text."""
    return [(message["role"], message["content"]) for message in session["messages"]]


def rows(path: Path, table: str) -> list[Any]:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
        return db.execute(f"SELECT * FROM {table}").fetchall()


@requirement("store.upgrade")
async def test_everything_of_the_first_schema_is_served_by_this_version(folder):
    """Sessions, pictures, partial answers, keys, and what the first version was killed in the middle of."""
    async with Server(folder, [SCRIPTED]) as server, server.client(authorization=f"Bearer {MADE['key']}") as client:
        api = Native(client)
        without_key = await client.get("/api/sessions", headers={"authorization": None})
        queued = await api.settled(MADE["queued_run"])
        killed = await api.run(MADE["killed_run"])
        sessions = {name: await api.session(MADE[name]) for name in ("completed", "picture", "stopped", "killed")}
        found = await api.get(f"/api/sessions?query={quote('Grüße')}")
        (image,) = [part for part in sessions["picture"]["messages"][0]["content"] if part["type"] == "image_url"]
        sha256 = image["image_url"]["url"].removeprefix("holdfast-file:")
        picture = await client.get(f"/api/sessions/{MADE['picture']}/files/{sha256}")
        png = await picture.body()

    assert 401 == without_key.status, "the key was taken over, so that one is needed"
    assert "Résumé of 東京" == sessions["completed"]["title"]
    texts = ("Grüße aus Köln", "And a second question")
    assert [(role, text) for text in texts for role in ("user", "assistant")] == answers(sessions["completed"])
    assert (200, "image/png") == (picture.status, picture.headers["content-type"])
    assert sha256 == hashlib.sha256(png).hexdigest()
    stopped = sessions["stopped"]["messages"][-1]
    assert ("assistant", "stopped") == (stopped["role"], stopped["outcome"])
    assert stopped["content"]
    assert "interrupted" == killed["settlement"]["outcome"]
    assert killed["settlement"]["text"]
    assert "completed" == queued["outcome"]
    assert ("assistant", "Then this") == answers(sessions["killed"])[-1]
    assert MADE["completed"] in {session["id"] for session in found["sessions"]}


@requirement("store.upgrade", "people.first-admin")
async def test_whoever_had_a_key_gets_an_account_with_all_that_the_key_had(folder):
    """Owners keep what is theirs: the account takes over the owner, and the key of the first version works on."""
    made = await asyncio.to_thread(
        lambda: holdfast("user", "new", "Ada.L", "--owner", "ada", "--password-stdin", folder=folder, input=PASSWORD)
    )
    async with Server(folder, [SCRIPTED]) as server:
        cookie = await sign_in(server, "ada.l")
        async with browser(server, cookie) as page, server.client(authorization=f"Bearer {MADE['key']}") as program:
            shown = await Native(page).session(MADE["completed"])
            with_key = await Native(program).session(MADE["completed"])
            me = await Native(page).get("/api/me")

    assert 0 == made.returncode, made.stderr
    assert "Résumé of 東京" == shown["title"] == with_key["title"]
    assert ("Ada.L", "ada", "admin") == (me["name"], me["owner"], me["role"])


@requirement("store.upgrade")
def test_a_dry_run_names_the_steps_and_changes_nothing(folder):
    """And the migration itself leaves a copy with every row of before."""
    path = folder / "holdfast.db"
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    events = rows(path, "events")
    dry = holdfast("db", "migrate", "--dry-run", folder=folder)
    unchanged = hashlib.sha256(path.read_bytes()).hexdigest()
    done = holdfast("db", "migrate", folder=folder)
    again = holdfast("db", "migrate", "--dry-run", folder=folder)

    names = [step.name for step in migrations()[1:]]
    assert [f"would apply {name}" for name in names] == dry.stdout.splitlines()
    assert before == unchanged
    assert (0, [f"applying {name}" for name in names]) == (done.returncode, done.stdout.splitlines())
    assert f"{path} is up to date.\n" == again.stdout
    assert events == rows(folder / "holdfast.db.before-0002", "events")
    assert len(migrations()) == len(rows(path, "migrations"))


@requirement("store.too-new")
def test_a_database_of_a_newer_version_is_refused_before_anything_is_done(folder):
    """Also by a dry run, which called it up to date."""
    holdfast("db", "migrate", folder=folder)
    with closing(sqlite3.connect(folder / "holdfast.db")) as db, db:
        db.execute("INSERT INTO migrations VALUES (9999, '9999_future', 'x', 0)")
    dry = holdfast("db", "migrate", "--dry-run", folder=folder)
    served = holdfast("serve", "--port", "0", folder=folder)

    for shown in (dry, served):
        assert 1 == shown.returncode
        assert "was written by a newer Holdfast (schema 9999; this one knows" in shown.stderr
        assert "Install the newer version, or go back to a backup: holdfast.db.before-NNNN." in shown.stderr


@requirement("store.too-new", "store.upgrade")
async def test_a_postgresql_database_is_migrated_dry_first_and_refused_if_it_is_newer(postgres, tmp_path):
    """The same words and the same command as for a file. The way back is PostgreSQL's own."""
    url = postgres.url(await postgres.new_database())
    dry = holdfast("db", "migrate", "--dry-run", folder=tmp_path, store=url)
    connection = await asyncpg.connect(url)
    tables = await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
    done = holdfast("db", "migrate", folder=tmp_path, store=url)
    again = holdfast("db", "migrate", folder=tmp_path, store=url)
    await connection.execute("INSERT INTO migrations VALUES (9999, '9999_future', 'x', 0)")
    newer = holdfast("db", "migrate", "--dry-run", folder=tmp_path, store=url)
    await connection.close()

    assert dry.stdout.startswith("would apply 0001_")
    assert 0 == tables
    assert dry.stdout.replace("would apply", "applying") == done.stdout
    assert f"{url} is up to date.\n" == again.stdout
    assert (1, True) == (newer.returncode, "restore a backup of the database (pg_restore)" in newer.stderr)
    with pytest.raises(StoreTooNew, match="was written by a newer Holdfast"):
        await asyncio.to_thread(open_store, url)


@requirement("store.upgrade")
def test_every_setting_of_the_first_version_is_understood():
    """None has been renamed so far. One that is has to be accepted under its old name too."""
    variables = {"UP_KEY": "sk-up", "BOBS_KEY": "key-0123456789abcdef"}

    settings = load({}, variables, FIRST / "holdfast.toml")

    assert ("up/m", 100, ["bob"]) == (settings.default_model, settings.max_runs, [key.name for key in settings.keys])
    assert ("up", ("m", "n")) == (settings.providers[0].name, settings.providers[0].models)
