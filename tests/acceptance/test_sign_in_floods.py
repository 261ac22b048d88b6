"""Floods of sign-ins: what they leave in the store, and whom they keep out."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.server.features.accounts.people.accounts import Account
from holdfast.server.features.accounts.people.passwords import TooManySignIns
from holdfast.server.features.accounts.people.people import People
from holdfast.server.features.accounts.people.throttle import SignInThrottle, TryLater
from holdfast.store import Document
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.http import Client, Response
from tests.support.people import PASSWORD, add_person, browser, cookies_of, first_admin
from tests.support.server import Server
from tests.support.waiting import LONG

WRONG = "not the password"
OTHER = "another long secret"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with Server(tmp_path) as server:
        yield server


async def counts_in(store: MemoryStore) -> list[Document]:
    return list(await store.list_documents("wrong_tries", limit=1000))


async def full(people: People) -> list[asyncio.Task[object]]:
    """Fill the queue of strangers, and return those who wait in it."""
    tries = (people.check_password(f"flood-{number}", WRONG, "") for number in range(50))
    waiting: list[asyncio.Task[object]] = [asyncio.create_task(each) for each in tries]
    async with asyncio.timeout(LONG):
        while not people.passwords.strangers.is_full:  # noqa: ASYNC110 - nothing tells how many wait
            await asyncio.sleep(0)
    return waiting


async def cancelled(waiting: list[asyncio.Task[object]]) -> None:
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


@requirement("people.attack.flood")
async def test_a_sign_in_that_finds_no_place_writes_nothing():
    """Otherwise whoever sends many leaves hundreds of rows a second, for passwords that nobody has checked."""
    store = MemoryStore()
    people = People(store)
    waiting = await full(people)
    late = (people.check_password(f"late-{number}", WRONG, "203.0.113.9") for number in range(20))
    refused = await asyncio.gather(*late, return_exceptions=True)
    await cancelled(waiting)

    assert {TooManySignIns} == {type(each) for each in refused}
    assert 50 == len(await counts_in(store))


@requirement("people.attack.flood")
async def test_a_count_of_zero_is_no_row():
    """A right password, and a name that is refused, leave nothing for the address that they came from."""
    store = MemoryStore()
    throttle = SignInThrottle(store)
    await throttle.take("ada", "203.0.113.9")
    await throttle.succeeded("ada", "203.0.113.9")
    assert [] == await counts_in(store)

    for _ in range(5):
        await throttle.take("bob", "")
    with pytest.raises(TryLater):
        await throttle.take("bob", "203.0.113.9")
    assert 1 == len(await counts_in(store))


class Interrupted(MemoryStore):
    """A store in which another node counts one more try just before a row is deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.other = SignInThrottle(self)

    async def delete_document(self, kind: str, id: str, version: int | None = None) -> bool:
        if version is not None:
            await self.other.take("someone", "203.0.113.9")
        return await super().delete_document(kind, id, version)


@requirement("people.attack.guessing")
async def test_a_count_that_grows_while_it_is_deleted_stays():
    """Otherwise a right password of one's own, sent together with guesses, would take back what they counted."""
    store = Interrupted()
    throttle = SignInThrottle(store)
    await throttle.take("ada", "203.0.113.9")
    await throttle.succeeded("ada", "203.0.113.9")

    assert [1, 1] == [each.body["count"] for each in await counts_in(store)]


@requirement("people.known-browser")
async def test_a_flood_does_not_keep_out_a_person_in_a_browser_that_has_signed_in_before():
    """Strangers fill their own queue only. Another browser has to wait like them."""
    people = People(MemoryStore())
    ada = await people.add(Account(name="ada", owner=""), PASSWORD)
    token = await people.browsers.remember(ada.id, None)
    waiting = await full(people)
    with pytest.raises(TooManySignIns):
        await people.check_password("ada", PASSWORD, "")
    signed = await people.check_password("ada", PASSWORD, "", browser=token.encode())
    await cancelled(waiting)

    assert ada.id == signed.id


async def tried(client: Client, name: str, password: str) -> Response:
    return await client.post("/api/sign-in", {"name": name, "password": password})


@requirement("people.known-browser")
async def test_wrong_passwords_of_strangers_do_not_lock_a_person_out(server: Server):
    """The browser in which bob has signed in before has a count of its own; any other one waits."""
    ada = await first_admin(server)
    await add_person(server, ada, "bob")
    async with browser(server) as stranger:
        known = cookies_of(await tried(stranger, "bob", PASSWORD))["holdfast-browser"]
        locked = [(await tried(stranger, "bob", WRONG)).status for _ in range(6)]
        elsewhere = (await tried(stranger, "bob", PASSWORD)).status
    async with browser(server, f"holdfast-browser={known}") as own:
        at_home = [(await tried(own, "bob", each)).status for each in (WRONG, PASSWORD)]
        guessing = [(await tried(own, "bob", WRONG)).status for _ in range(6)]
        of_ada = [(await tried(own, "ada", WRONG)).status for _ in range(6)]

    assert [401] * 5 + [429] == locked
    assert 429 == elsewhere
    assert [401, 200] == at_home
    assert [401] * 5 + [429] == guessing
    assert [401] * 5 + [429] == of_ada


@requirement("people.known-browser")
async def test_a_browser_is_known_for_one_person_until_the_password_is_reset(server: Server):
    """A thief who has signed in once keeps no count of his own; and the cookie is no sign-in."""
    ada = await first_admin(server)
    await add_person(server, ada, "bob")
    async with browser(server) as client, browser(server, ada) as admin:
        given = await tried(client, "bob", PASSWORD)
        known = f"holdfast-browser={cookies_of(given)['holdfast-browser']}"
        person = (await (await admin.get("/api/admin/people?name=bob")).json())["people"][0]
        for _ in range(6):
            await tried(client, "bob", WRONG)
        made = await (await admin.post(f"/api/admin/people/{person['id']}/reset-link")).json()
        reset = await client.post("/api/reset-password", {"token": made["reset"]["token"], "password": OTHER})
        locked = [(await tried(client, "bob", WRONG)).status for _ in range(6)]
    async with browser(server, known) as thief:
        late, me = (await tried(thief, "bob", OTHER)).status, (await thief.get("/api/me")).status

    set_again = next(each for each in reset.headers["set-cookie"].split(", ") if each.startswith("holdfast-browser="))
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {part.strip() for part in set_again.split(";")}
    assert [401] * 5 + [429] == locked
    assert (429, 401) == (late, me)


@requirement("people.proxy.address")
async def test_a_forwarded_address_from_an_unknown_proxy_is_warned_of_once(server: Server):
    """Otherwise nobody learns that all clients of the proxy share one address, and its guesses are not counted."""
    async with server.client(**{"x-forwarded-for": "203.0.113.9"}) as proxy:
        for _ in range(3):
            await proxy.get("/health")

    warnings = [line for line in server.log_text().splitlines() if "X-Forwarded-For from" in line]
    assert 1 == len(warnings)
    assert "127.0.0.1" in warnings[0]
    assert "proxy.addresses" in warnings[0]
