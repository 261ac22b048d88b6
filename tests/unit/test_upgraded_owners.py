"""Owners of a database from before they had rows of their own: each keeps what it has, and a twin opens nothing."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import asyncpg

from holdfast.store import Document, Store
from holdfast.store.opening import open_store
from tests.requirements import requirement

BEFORE = """
DROP TABLE owners;
DROP INDEX api_keys_by_owner;
DELETE FROM migrations WHERE name LIKE '%_owners';
INSERT INTO api_keys (id, name, sha256, created_at, admin, owner, account, changed) VALUES
    ('key_1', 'ci', '1', 1.0, {no}, '', '', 1),
    ('key_2', 'ci-2', '2', 1.0, {no}, 'ci', '', 2),
    ('key_3', 'laptop', '3', 1.0, {no}, 'user_1', 'user_1', 3),
    ('key_4', 'user_1', '4', 1.0, {no}, '', '', 4);
"""
"""A database as it was: a service with two keys, a person's key, and a service that is called like the person."""


async def person(store: Store) -> None:
    await store.put_document(Document(kind="account", id="user_1", body={"name": "ada", "owner": "user_1"}))
    await store.put_document(Document(kind="account", id="user_2", body={"name": "Zoë", "owner": "local"}))
    await store.put_document(Document(kind="account_index", id="owner user_1", body={"account": "user_1"}))
    await store.close()


async def check(store: Store) -> None:
    try:
        owners = {owner: await store.account_of(owner) for owner in ("ci", "user_1", "local", "")}
        keys = {key.id: (key.owner, key.account) for key in await store.list_keys()}
        misplaced = await store.misplaced_keys()
        index = await store.list_documents("account_index")
    finally:
        await store.close()

    assert {"ci": "", "user_1": "user_1", "local": "user_2", "": None} == owners
    assert {
        "key_1": ("ci", ""),
        "key_2": ("ci", ""),
        "key_3": ("user_1", "user_1"),
        "key_4": ("user_1", ""),
    } == keys
    assert (["key_4"], []) == (misplaced, list(index))


@requirement("store.upgrade", "safe.owners")
async def test_the_owners_of_an_older_sqlite_file_are_those_of_its_accounts_and_keys(tmp_path: Path):
    """A key that had the name of a person's owner is named, so that the server refuses it."""
    url = f"sqlite:{tmp_path}"
    await person(await asyncio.to_thread(open_store, url))

    def turn_back() -> None:
        with closing(sqlite3.connect(tmp_path / "holdfast.db")) as db:
            db.executescript(BEFORE.format(no="0"))

    await asyncio.to_thread(turn_back)

    await check(await asyncio.to_thread(open_store, url))


@requirement("store.upgrade", "safe.owners")
async def test_the_owners_of_an_older_postgresql_database_are_those_of_its_accounts_and_keys(postgres):
    """The same, in the words of PostgreSQL."""
    url = postgres.url(await postgres.new_database())
    await person(await asyncio.to_thread(open_store, url))
    connection = await asyncpg.connect(url)
    await connection.execute(BEFORE.format(no="false"))
    await connection.close()

    await check(await asyncio.to_thread(open_store, url))
