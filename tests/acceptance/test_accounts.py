"""Accounts: the first admin, signing in and out, roles, and what a change of rights ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from holdfast.server.app import create_app
from holdfast.server.config.settings import Settings
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.http import Client, Incomplete
from tests.support.native import Native
from tests.support.people import PASSWORD, add_person, browser, cookie_of, first_admin, sign_in
from tests.support.served import NO_HOME, Served
from tests.support.server import Server, provider
from tests.support.upstream import Delta, Hang, Headers, Role, Upstream
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class World:
    """A server with an admin, two members and a guest. The cookies are those of their browsers."""

    server: Server
    ada: str
    bob: str
    cleo: str
    guest: str


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with Upstream() as up:
        up.models["hanging"] = [Headers(), Role(), Delta("so far"), Hang()]
        data = tmp_path_factory.mktemp("accounts")
        async with Server(data, [provider(up.base_url, models=None)]) as server:
            ada = await first_admin(server)
            bob, cleo = await add_person(server, ada, "bob"), await add_person(server, ada, "cleo")
            yield World(server, ada, bob, cleo, await add_person(server, ada, "guest", role="guest"))


async def get(world: World, cookie: str, path: str) -> tuple[int, Any]:
    async with browser(world.server, cookie) as client:
        response = await client.get(path)
        return response.status, await response.json()


async def code_of(world: World, cookie: str, method: str, path: str, json: Any = None) -> tuple[int, str]:
    async with browser(world.server, cookie) as client:
        response = await client.request(method, path, json=json)
        return response.status, (await response.json())["error"]["code"] if response.status >= 400 else ""


@requirement("people.first-admin")
async def test_the_first_admin_keeps_what_was_made_before_and_locks_the_server(tmp_path: Path):
    """Someone tries Holdfast alone, then adds accounts: nothing is lost, and nobody is let in without signing in."""
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url, models=None)]) as server:
        async with browser(server) as local:
            session = await Native(local).new_session(title="Before")
            await Native(local).settled(await Native(local).start(session, "Hi", "up/echo:there"))
        ada = await first_admin(server)
        async with browser(server, ada) as client, browser(server) as stranger:
            mine = await Native(client).session(session)
            async with asyncio.timeout(LONG):
                while (refused := await stranger.get("/api/sessions")).status == 200:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)  # another node learns of the first admin within a second
            second = await stranger.post("/api/first-admin", {"name": "eve", "password": PASSWORD})

    assert "there" == mine["messages"][-1]["content"]
    assert (401, 409) == (refused.status, second.status)


@requirement("people.sign-in")
async def test_a_person_signs_in_and_sees_only_what_is_theirs(world: World):
    """By name or e-mail address, in any case; the things of others do not exist."""
    async with browser(world.server, world.bob) as client:
        session = await Native(client).new_session(title="Bob's")
    again = await sign_in(world.server, "BOB")

    assert "bob" == (await get(world, again, "/api/me"))[1]["name"]
    assert session in [it["id"] for it in (await get(world, again, "/api/sessions"))[1]["sessions"]]
    assert 404 == (await get(world, world.cleo, f"/api/sessions/{session}"))[0]
    assert session not in [it["id"] for it in (await get(world, world.cleo, "/api/sessions"))[1]["sessions"]]


@requirement("people.sign-in")
async def test_a_wrong_password_and_an_unknown_name_get_the_same_answer(world: World):
    """Otherwise anyone could find out who has an account."""
    async with browser(world.server) as client:
        wrong = await client.post("/api/sign-in", {"name": "cleo", "password": "not the password"})
        unknown = await client.post("/api/sign-in", {"name": "nobody-here", "password": "not the password"})

        assert 401 == wrong.status == unknown.status
        assert await wrong.json() == await unknown.json()
        assert "set-cookie" not in wrong.headers


@requirement("people.sign-in")
async def test_a_sign_in_ends_for_good_when_one_signs_out(world: World):
    """The cookie of a browser that was lent is worth nothing afterwards."""
    cookie = await sign_in(world.server, "bob")
    async with browser(world.server, cookie) as client:
        out = await client.post("/api/sign-out")

    assert 204 == out.status
    assert "Max-Age=0" in out.headers["set-cookie"]
    assert (401, "signed_out") == await code_of(world, cookie, "GET", "/api/me")


@requirement("people.cookie")
async def test_the_cookie_can_be_read_by_no_script_and_sent_by_no_other_site(world: World):
    """And no other site's page, form or image can use it to change something."""
    async with browser(world.server) as client:
        response = await client.post("/api/sign-in", {"name": "bob", "password": PASSWORD})
        given = str(response.headers["set-cookie"])
        cookie = cookie_of(response)
    async with world.server.client(cookie=cookie) as program:
        without_origin = await program.post("/api/sessions", {"title": "x"})
    async with world.server.client(cookie=cookie, origin="https://evil.example") as elsewhere:
        cross = await elsewhere.post("/api/sessions", {"title": "x"})

    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {part.strip() for part in given.split(";")}
    assert (403, 403) == (without_origin.status, cross.status)


@requirement("people.sign-in")
async def test_signing_in_again_ends_the_sign_in_that_the_browser_had(world: World):
    """A planted or shared cookie does not become the person's."""
    before = await sign_in(world.server, "bob")
    async with browser(world.server, before) as client:
        response = await client.post("/api/sign-in", {"name": "bob", "password": PASSWORD})

    assert before != cookie_of(response)
    assert 401 == (await get(world, before, "/api/me"))[0]
    assert 200 == (await get(world, cookie_of(response), "/api/me"))[0]


@requirement("people.sign-ins-listed")
async def test_a_person_lists_and_ends_their_sign_ins(world: World):
    """A laptop that was left somewhere can be signed out from here."""
    here, there = await sign_in(world.server, "cleo"), await sign_in(world.server, "cleo", stay=True)
    _, listed = await get(world, here, "/api/account/sign-ins")
    other = next(it for it in listed["sign_ins"] if it["stay"])
    async with browser(world.server, here) as client:
        ended = await client.request("DELETE", f"/api/account/sign-ins/{other['id']}")
        everywhere = await client.request("DELETE", "/api/account/sign-ins")

    assert 1 == sum(it["current"] for it in listed["sign_ins"])
    assert (204, 200) == (ended.status, everywhere.status)
    assert [401, 200] == [(await get(world, cookie, "/api/me"))[0] for cookie in (there, here)]
    world.cleo = here


@requirement("people.password")
async def test_another_password_ends_all_other_sign_ins_and_needs_the_one_so_far(world: World):
    """Whoever knew the old password is out."""
    ada, dora = world.ada, await add_person(world.server, world.ada, "dora")
    other = await sign_in(world.server, "dora")
    change = {"current": "not it", "password": "another long secret"}
    wrong = await code_of(world, dora, "PUT", "/api/account/password", change)
    right = await code_of(world, dora, "PUT", "/api/account/password", {**change, "current": PASSWORD})

    assert (401, "wrong_password") == wrong
    assert (204, "") == right
    assert [401, 200, 200] == [(await get(world, cookie, "/api/me"))[0] for cookie in (other, dora, ada)]
    assert await sign_in(world.server, "dora", "another long secret")


@requirement("people.password")
@pytest.mark.parametrize("password", ["short", "password123", "aaaaaaaaaaaaaaaa", "frederick.of.y", "x" * 300])
async def test_a_password_that_is_easily_guessed_is_refused(world: World, password: str):
    """Too short, too long, a common one with digits, or the person's own name: and no account is left behind."""
    person = {"name": "frederick.of.y", "password": password}

    status, code = await code_of(world, world.ada, "POST", "/api/admin/people", person)
    assert (400, True) == (status, code in ("weak_password", "bad_request", "invalid_request"))
    assert [] == (await get(world, world.ada, "/api/admin/people?name=frederick.of.y"))[1]["people"]


@requirement("people.reset")
async def test_an_admins_link_sets_a_password_once(world: World):
    """A new person sets the password; an older link is withdrawn by a newer one."""
    async with browser(world.server, world.ada) as client:
        made = await (await client.post("/api/admin/people", {"name": "erik"})).json()
        newer = await (await client.post(f"/api/admin/people/{made['id']}/reset-link")).json()
    async with browser(world.server) as stranger:
        new = await (await stranger.post("/api/reset-password/person", {"token": newer["reset"]["token"]})).json()
        old = await stranger.post("/api/reset-password", {"token": made["reset"]["token"], "password": PASSWORD})
        used = await stranger.post("/api/reset-password", {"token": newer["reset"]["token"], "password": PASSWORD})
        twice = await stranger.post("/api/reset-password", {"token": newer["reset"]["token"], "password": PASSWORD})
    async with browser(world.server, world.ada) as client:
        again = await (await client.post(f"/api/admin/people/{made['id']}/reset-link")).json()
    async with browser(world.server) as stranger:
        known = await (await stranger.post("/api/reset-password/person", {"token": again["reset"]["token"]})).json()

    assert (403, 200, 403) == (old.status, used.status, twice.status)
    assert ({"name": "erik", "new": True}, {"name": "erik", "new": False}) == (new, known)
    assert "erik" == (await get(world, cookie_of(used), "/api/me"))[1]["name"]


@requirement("people.roles")
async def test_a_guest_only_reads_and_a_member_changes_no_settings(world: World):
    """The rule of each endpoint says so, and the answer says what is missing."""
    assert (403, "guests_only_read") == await code_of(world, world.guest, "POST", "/api/sessions", {"title": "x"})
    assert (200, "") == await code_of(world, world.guest, "GET", "/api/sessions")
    assert (403, "admin_only") == await code_of(world, world.bob, "GET", "/api/admin/people")
    assert (403, "admin_only") == await code_of(world, world.bob, "PUT", "/api/settings", {})


@requirement("people.roles")
async def test_the_last_admin_stays_one(world: World):
    """Otherwise nobody could let anyone in again."""
    _, me = await get(world, world.ada, "/api/me")
    path = f"/api/admin/people/{me['account']}"

    for change in ({"role": "member"}, {"disabled": True}):
        assert (409, "last_admin") == await code_of(world, world.ada, "PATCH", path, change)
    assert (409, "last_admin") == await code_of(world, world.ada, "DELETE", f"{path}?data=keep")


@requirement("people.rights-change")
@pytest.mark.parametrize("change", [{"disabled": True}, None], ids=["disabled", "deleted"])
async def test_a_person_who_is_put_out_loses_open_streams_and_keys(world: World, change: dict[str, Any] | None):
    """Within a second, not when the page is loaded again."""
    name = f"leaver-{'x' if change else 'y'}"
    cookie = await add_person(world.server, world.ada, name)
    _, me = await get(world, cookie, "/api/me")
    async with browser(world.server, cookie) as client:
        key = (await (await client.post("/api/keys", {"name": "laptop"})).json())["key"]
        run = await Native(client).start(await Native(client).new_session(), "Hi", "up/hanging")
        stream = await Native(client).events(run)
        await stream.next_event()
        with_key = await client.get("/api/sessions", headers={"authorization": f"Bearer {key}"})
        path = f"/api/admin/people/{me['account']}"
        async with browser(world.server, world.ada) as admin:
            put_out = await (
                admin.request("PATCH", path, json=change) if change else admin.request("DELETE", f"{path}?data=keep")
            )
        async with asyncio.timeout(LONG):
            with suppress(Incomplete):  # a stream of ours is cut, so that no client takes it for the end of the run
                await stream.all_events()
        after = await refused_at_last(client, authorization=f"Bearer {key}")

    assert (200, True, 401) == (with_key.status, put_out.status < 300, after)
    async with browser(world.server, cookie) as client:
        assert 401 == await refused_at_last(client)


async def refused_at_last(client: Client, **headers: str) -> int:
    """The status of a refusal. Another node than that of an ended stream learns of it within a second."""
    async with asyncio.timeout(LONG):
        while (answer := await client.get("/api/me", headers=headers)).status == 200:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return answer.status


@requirement("people.keys")
async def test_a_persons_key_opens_the_persons_things_and_no_more_than_its_scopes(world: World):
    """A key for reading starts nothing, a key of a member is never an admin's."""
    async with browser(world.server, world.bob) as client:
        session = await Native(client).new_session(title="For the key")
        asked = {"name": "reader", "scopes": ["read"], "expires_in_days": 1}
        made = await (await client.post("/api/keys", asked)).json()
        admins = await client.post("/api/keys", {"name": "root", "scopes": ["admin"]})
        listed = (await (await client.get("/api/keys")).json())["keys"]
    async with world.server.client(authorization=f"Bearer {made['key']}") as program:
        read = await program.get(f"/api/sessions/{session}")
        wrote = await program.post("/api/sessions", {"title": "x"})
        person = await program.get("/api/account")

    assert (400, 200, 403, 403) == (admins.status, read.status, wrote.status, person.status)
    assert "scope_missing" == (await wrote.json())["error"]["code"]
    assert made["key"].startswith(made["prefix"])
    assert made["key"] not in str(listed)


@requirement("people.keys")
async def test_a_key_that_is_rotated_works_beside_its_successor(world: World):
    """So that a program can be given the new one without an outage."""
    async with browser(world.server, world.bob) as client:
        old = await (await client.post("/api/keys", {"name": "ci"})).json()
        new = await (await client.post(f"/api/keys/{old['id']}/rotate", {"overlap_hours": 1})).json()
        both = [await client.get("/api/me", headers={"authorization": f"Bearer {it['key']}"}) for it in (old, new)]
        await client.post(f"/api/keys/{new['id']}/rotate", {"overlap_hours": 0})
        after = await refused_at_last(client, authorization=f"Bearer {new['key']}")

    assert ["ci", "ci-2"] == [old["name"], new["name"]]
    assert [200, 200, 401] == [*(each.status for each in both), after]


class Meanwhile(MemoryStore):
    """A store on which something may happen before a list of all keys arrives."""

    then: Any = None

    async def list_keys(self, **of: Any) -> Any:
        listed = await super().list_keys(**of)
        if self.then is not None and not of:
            then, self.then = self.then, None
            await then()
        return listed


@requirement("people.keys")
async def test_a_key_that_is_rotated_ends_though_an_admin_changes_it_at_the_same_moment():
    """The admin has read it without an end. With that written back the old key would be in force for ever."""
    async with Served(create_app(Settings(), store := Meanwhile(), NO_HOME)) as served:
        headers = {"origin": served.url}
        async with Client(served.url, headers) as client:
            cookie = cookie_of(await client.post("/api/first-admin", {"name": "ada", "password": PASSWORD}))
        async with Client(served.url, headers | {"cookie": cookie}) as client:
            key = await (await client.post("/api/keys", {"name": "ci"})).json()
            store.then = lambda: client.post(f"/api/keys/{key['id']}/rotate", {"overlap_hours": 1})
            change = {"budget": {"runs_at_once": 1}}
            changed = await client.request("PATCH", f"/api/admin/keys/{key['id']}", json=change)
            shown = await changed.json()

    assert 200 == changed.status
    assert 1 == shown["budget"]["runs_at_once"]
    assert shown["expires_at"] is not None


@requirement("people.keys")
async def test_the_successor_of_a_key_lasts_as_long_and_counts_for_the_limit(world: World):
    """A key that was to end does not become one that never does, and no one has keys without number."""
    cookie = await add_person(world.server, world.ada, "rotating")
    async with browser(world.server, cookie) as client:
        short = await (await client.post("/api/keys", {"name": "short", "expires_in_days": 7})).json()
        heir = await (await client.post(f"/api/keys/{short['id']}/rotate", {"overlap_hours": 1})).json()
        made = [await client.post("/api/keys", {"name": f"key {n}"}) for n in range(48)]
        refused = await client.post(f"/api/keys/{heir['id']}/rotate", {"overlap_hours": 1})

    lasted = [
        datetime.fromisoformat(key["expires_at"]) - datetime.fromisoformat(key["created_at"]) for key in (short, heir)
    ]
    assert [7, 7] == [round(each.total_seconds() / 86400, 2) for each in lasted]
    assert {201} == {each.status for each in made}
    assert 409 == refused.status


@requirement("people.throttle")
async def test_who_guesses_a_password_has_to_wait_and_so_does_who_knows_it(world: World):
    """The wait is for the name, known or not: a correct password does not tell that it is one."""
    await add_person(world.server, world.ada, "guessed")
    for name in ("guessed", "not-there"):
        async with browser(world.server) as client:
            guess = {"name": name, "password": "not the password"}
            for _ in range(5):
                assert 401 == (await client.post("/api/sign-in", guess)).status
            refused = await client.post("/api/sign-in", {"name": name, "password": PASSWORD})

        assert 429 == refused.status
        assert int(refused.headers["retry-after"]) >= 1
