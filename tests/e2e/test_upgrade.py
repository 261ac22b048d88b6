"""An upgrade: the next version serves what this one wrote, and nothing is changed unasked."""

import asyncio
import hashlib
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast.store.opening import open_store
from holdfast.store.rows.migrations import StoreTooNew
from holdfast.store.sqlite.file import migrations
from tests.e2e.test_postgres_server import holdfast
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.newer_version import newer_version
from tests.support.server import Server

NEXT = len(migrations()) + 1
"""The number of the migration that only the next version has."""
SCRIPTED = {"name": "scripted", "dialect": "scripted"}


@pytest.fixture(scope="module")
def newer(tmp_path_factory) -> Path:
    """The folder of the next version."""
    return newer_version(tmp_path_factory.mktemp("newer"))


@pytest.fixture
def folder(tmp_path) -> Path:
    """A data folder of this version, with a key."""
    place = tmp_path / "data"
    place.mkdir(mode=0o700)
    assert 0 == holdfast("key", "new", "ada", folder=place).returncode
    return place


def rows(path: Path, table: str) -> list[Any]:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
        return db.execute(f"SELECT * FROM {table}").fetchall()


@requirement("store.upgrade")
@pytest.mark.one_server("it upgrades a SQLite file")
async def test_everything_of_this_version_is_served_by_the_next_one(tmp_path, newer):
    """Sessions, partial answers and keys, and a message that waits behind an answer that is cut off by `kill -9`."""
    key = (await asyncio.to_thread(lambda: holdfast("key", "new", "ada", folder=tmp_path))).stdout.strip()
    async with Server(tmp_path, [SCRIPTED]) as server:
        async with server.client(authorization=f"Bearer {key}") as client:
            api = Native(client)
            completed, killed = await api.new_session(title="Résumé of 東京"), await api.new_session()
            await api.settled(await api.start(completed, "Grüße aus Köln", "scripted/echo"))
            cut_off = await api.start(killed, "Go on", "scripted/lorem:1000:1")
            waiting = await api.start(killed, "Then this", "scripted/echo", if_busy="queue")
            await server.kill9()
            await server.restart({"PYTHONPATH": os.pathsep.join([str(newer), server.environment["PYTHONPATH"]])})
            queued = await api.settled(waiting)
            interrupted = await api.run(cut_off)
            session = await api.session(completed)
            transcript = await api.transcript(completed)
            unknown = await client.get("/api/sessions", headers={"authorization": None})

    assert ("Résumé of 東京", None) == (session["title"], session.get("colour"))
    assert [("user", "Grüße aus Köln"), ("assistant", "Grüße aus Köln")] == transcript
    assert ("interrupted", "completed") == (interrupted["settlement"]["outcome"], queued["outcome"])
    assert 401 == unknown.status
    assert (tmp_path / f"holdfast.db.before-{NEXT:04}").exists()


@requirement("store.upgrade")
def test_a_dry_run_names_the_steps_and_changes_nothing(folder, newer):
    """And the migration itself leaves a copy with every row of before."""
    path = folder / "holdfast.db"
    before, keys = hashlib.sha256(path.read_bytes()).hexdigest(), rows(path, "api_keys")
    dry = holdfast("db", "migrate", "--dry-run", folder=folder, version=newer)
    unchanged = hashlib.sha256(path.read_bytes()).hexdigest()
    done = holdfast("db", "migrate", folder=folder, version=newer)
    again = holdfast("db", "migrate", "--dry-run", folder=folder, version=newer)

    assert f"would apply {NEXT:04}_colour\n" == dry.stdout
    assert before == unchanged
    assert (0, f"applying {NEXT:04}_colour\n") == (done.returncode, done.stdout)
    assert f"{path} is up to date.\n" == again.stdout
    assert keys == rows(folder / f"holdfast.db.before-{NEXT:04}", "api_keys")
    assert NEXT == len(rows(path, "migrations"))


@requirement("store.too-new")
def test_a_database_of_a_newer_version_is_refused_before_anything_is_done(folder, newer):
    """Also by a dry run."""
    holdfast("db", "migrate", folder=folder, version=newer)
    dry = holdfast("db", "migrate", "--dry-run", folder=folder)
    served = holdfast("serve", "--port", "0", folder=folder)

    for shown in (dry, served):
        assert 1 == shown.returncode
        assert f"was written by a newer Holdfast (schema {NEXT}; this one knows {NEXT - 1})" in shown.stderr
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
