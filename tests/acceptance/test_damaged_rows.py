"""Rows of the database that cannot be decoded: they are shown as such, and hide nothing else."""

import asyncio
import sqlite3
from contextlib import closing

from tests.e2e.test_cli import Shell, here
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.server import Server

SCRIPTED = {"name": "scripted", "dialect": "scripted"}


def damage(path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            assert 1 == db.execute(statement).rowcount
        db.commit()


@requirement("store.damaged-rows")
async def test_a_damaged_row_is_shown_as_unreadable_and_the_others_are_right(tmp_path):
    """One damaged settlement or message made the whole list, and the session, a 500."""
    async with Server(tmp_path / "data", [SCRIPTED]) as server, server.client() as client:
        api = Native(client)
        damaged, whole = await api.new_session(title="damaged"), await api.new_session(title="whole")
        runs = [await api.start(session, "hello", "scripted/echo") for session in (damaged, whole)]
        for run in runs:
            await api.settled(run)
        (asked, _), (_, answered) = [(await api.session(session))["messages"] for session in (damaged, whole)]
        await asyncio.to_thread(
            damage,
            server.data / "holdfast.db",
            f"UPDATE runs SET settlement = x'ff00' WHERE id = '{runs[0]}'",
            f"UPDATE messages SET body = x'7b22' WHERE id = '{asked['id']}'",
            f"UPDATE sessions SET params = x'00' WHERE id = '{damaged}'",
        )
        listed = {run["id"]: run for run in (await api.get("/api/runs"))["runs"]}
        session = await api.session(damaged)
        sessions = await api.get("/api/sessions")
        found = await api.get("/api/sessions?query=hello")
        checked = await Shell(tmp_path, here(server))("db", "check", "--data", str(server.data))

    assert "store_damaged" == listed[runs[0]]["settlement"]["error"]["code"]
    assert "hello" == listed[runs[1]]["text"] == answered["content"]
    first, last = session["messages"]
    assert (asked["id"], True) == (first["id"], "cannot be read" in first["content"])
    assert ("assistant", "hello") == (last["role"], last["content"])
    assert {"damaged", "whole"} == {each["title"] for each in sessions["sessions"]}
    assert whole in [each["id"] for each in found["sessions"]]
    assert 1 == checked.code
    for name in (f"sessions.params of {damaged}", f"messages.body of {asked['id']}", f"runs.settlement of {runs[0]}"):
        assert name in checked.err.replace("\n", " ")


@requirement("store.damaged-rows")
async def test_a_run_whose_request_is_damaged_ends_after_a_crash(tmp_path):
    """No source can be made of it again, and the server must end it as every run that has lost its source."""
    async with Server(tmp_path / "data", [SCRIPTED]) as server:
        async with server.client() as client:
            api = Native(client)
            run = await api.start(await api.new_session(), "hello", "scripted/hang")
        await server.kill9()
        unknown = f"""UPDATE runs SET ask = CAST('{{"type":"unknown"}}' AS BLOB) WHERE id = '{run}'"""
        await asyncio.to_thread(damage, server.data / "holdfast.db", unknown)
        await server.restart()
        async with server.client() as client:
            ended = await Native(client).settled(run)
        checked = await Shell(tmp_path, here(server))("db", "check", "--data", str(server.data))

    assert "interrupted" == ended["outcome"]
    assert f"runs.ask of {run}" in checked.err.replace("\n", " ")
