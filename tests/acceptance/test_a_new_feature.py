"""A feature that is not Holdfast's own, as docs/extending/feature.md builds it: its calls, its rules and its chore."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.types import ASGIApp

from holdfast.access import ADMIN, READ
from holdfast.server.app import HoldfastServer, application
from holdfast.server.config.settings import Settings
from holdfast.server.config.sign_in_settings import KeySettings
from holdfast.server.kit.chores import Chores
from holdfast.server.kit.feature import Endpoint, Feature
from holdfast.server.kit.http.errors import Json
from holdfast.server.kit.request import Bodies, decode
from holdfast.server.opening import open_server
from holdfast.store import Store
from holdfast.store.documents import Documents
from holdfast.store.opening import open_store
from tests.acceptance.test_matrix import Caller
from tests.support.asgi_calls import ask
from tests.support.waiting import LONG


class Notice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the admins tell everyone who uses the server."""

    text: str


class Notices(Feature):
    """The notice of the admins."""

    def __init__(self, bodies: Bodies, store: Store) -> None:
        self._bodies, self._notices = bodies, Documents(store, "notice", Notice)

    @Endpoint("GET", "/api/notice", who=READ)
    async def get_notice(self, request: Request) -> ASGIApp:
        """Return the notice; an empty one if there is none."""
        stored = await self._notices.get("current")
        return Json(Notice("") if stored is None else stored.body)

    @Endpoint("PUT", "/api/notice", who=ADMIN, takes=Notice, audit="notice.set")
    async def put_notice(self, request: Request) -> ASGIApp:
        """Replace the notice."""
        notice = decode(await self._bodies.read(request), Notice)
        await self._notices.put("current", notice)
        return Json(notice)

    def begin(self, chores: Chores) -> None:
        """Delete a notice that says nothing."""
        chores.by_one_node("empty notices", 60.0, self._delete_empty)

    async def _delete_empty(self) -> None:
        stored = await self._notices.get("current")
        if stored is not None and not stored.body.text:
            await self._notices.delete("current")


KEYS = {"ADA": "a" * 40, "BOB": "b" * 40}
SETTINGS = Settings(keys=(KeySettings("ada", key_env="ADA", admin=True), KeySettings("bob", key_env="BOB")))
ADA, BOB = ({"authorization": f"Bearer {key}"} for key in KEYS.values())


@asynccontextmanager
async def with_notices(store: str = "memory:") -> AsyncIterator[Starlette]:
    base = open_server(SETTINGS, await asyncio.to_thread(open_store, store), KEYS)
    server = HoldfastServer(base)
    server.features.append(Notices(Bodies(base.current), base.running.store))
    app = application(server)
    async with app.router.lifespan_context(app):
        yield app


async def test_what_an_admin_writes_is_what_everyone_reads():
    """Its handlers get the two services that it was built with, and nothing else."""
    async with with_notices() as app:
        before = await ask(app, "GET", "/api/notice", headers=BOB)
        put = await ask(app, "PUT", "/api/notice", json={"text": "Down on Sunday."}, headers=ADA)
        after = await ask(app, "GET", "/api/notice", headers=BOB)
        wrong = await ask(app, "PUT", "/api/notice", json={"words": "?"}, headers=ADA)

    assert [{"text": ""}, {"text": "Down on Sunday."}, {"text": "Down on Sunday."}] == [
        answer.json() for answer in (before, put, after)
    ]
    assert (400, "invalid_request") == (wrong.status, wrong.code)


CALLERS = [
    Caller("nobody", {}),
    Caller("a wrong key", {"authorization": "Bearer wrong"}),
    Caller("a key", BOB, "member", frozenset(("read", "chat", "batch"))),
    Caller("an admin's key", ADA, "admin", frozenset(("read", "chat", "batch", "admin"))),
]


@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.name)
async def test_its_rules_are_those_of_the_matrix(caller):
    """The router checks a rule before it calls a handler, so a feature cannot forget to."""
    refused: dict[str, Any] = {}
    async with with_notices() as app:
        routes = [route for route in app.state.server.router.endpoints if route.path == "/api/notice"]
        for route in routes:
            answer = await ask(app, route.method, route.path, json={"text": "Hi."}, headers=caller.headers)
            refused[route.method] = answer.status in (401, 403)

    assert {route.method: not caller.is_admitted(route.who) for route in routes} == refused
    assert {"GET", "PUT"} == refused.keys()


async def test_its_changes_are_in_the_audit_log():
    """The name in its endpoint is all that this takes."""
    async with with_notices() as app:
        await ask(app, "PUT", "/api/notice", json={"text": "Hi."}, headers=ADA)
        written = (await ask(app, "GET", "/api/admin/audit?action=notice.set", headers=ADA)).json()

    assert ["done"] == [entry["result"] for entry in written["entries"] if entry["result"] != "begun"]


async def test_its_chore_begins_with_the_server(tmp_path):
    """A notice that was emptied is deleted at the next start."""
    async with with_notices(f"sqlite:{tmp_path}") as app:
        await ask(app, "PUT", "/api/notice", json={"text": ""}, headers=ADA)
    async with with_notices(f"sqlite:{tmp_path}") as app:
        store = app.state.server.store
        async with asyncio.timeout(LONG):
            while await store.get_document("notice", "current") is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
