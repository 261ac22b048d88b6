"""Attacks on the sign-in: fixation, forged requests, replay, guessing, timing, enumeration, odd names, floods."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from holdfast.errors import HoldfastError
from holdfast.server.features.accounts.people.accounts import Account
from holdfast.server.features.accounts.people.client_addresses import TrustedProxies
from holdfast.server.features.accounts.people.passwords import PasswordQueue
from holdfast.server.features.accounts.people.people import People, WrongPassword
from holdfast.server.features.accounts.people.sign_ins import MOST_SIGN_INS
from holdfast.server.features.accounts.people.throttle import LONGEST_WAIT, SignInThrottle, TryLater, target_of
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.people import PASSWORD, add_person, browser, cookie_of, first_admin, sign_in
from tests.support.server import Server, provider
from tests.support.upstream import Upstream

pytestmark = pytest.mark.asyncio(loop_scope="module")

WRONG = "not the password"
OTHER = "another long secret"
CONFIG = 'allowed_origins = ["http://localhost:3000"]\n\n[proxy]\naddresses = ["127.0.0.0/8"]\n'


@dataclass
class World:
    """A server behind a trusted proxy on loopback, with an admin and a member. `names` are new ones for each test."""

    server: Server
    ada: str
    bob: str


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with Upstream() as up:
        data = tmp_path_factory.mktemp("attacks")
        async with Server(data, [provider(up.base_url, models=None)], config=CONFIG) as server:
            ada = await first_admin(server)
            yield World(server, ada, await add_person(server, ada, "bob"))


async def status(world: World, cookie: str, path: str = "/api/me") -> int:
    async with browser(world.server, cookie) as client:
        return (await client.get(path)).status


async def tried(world: World, name: str, password: str, **headers: str) -> tuple[int, Any]:
    async with browser(world.server, **headers) as client:
        response = await client.post("/api/sign-in", {"name": name, "password": password})
        return response.status, await response.json()


async def link_of(world: World, name: str, **fields: Any) -> str:
    async with browser(world.server, world.ada) as client:
        made = await (await client.post("/api/admin/people", {"name": name, **fields})).json()
        return str(made["reset"]["token"])


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


# fixation and replay


@requirement("people.attack.fixation")
async def test_a_planted_cookie_never_becomes_a_sign_in(world: World):
    """An attacker who sets a cookie in someone's browser knows it: signing in must give another one."""
    planted = "holdfast=chosen-by-the-attacker"
    async with browser(world.server, planted) as client:
        response = await client.post("/api/sign-in", {"name": "bob", "password": PASSWORD})

    assert 200 == response.status
    assert planted != cookie_of(response)
    assert 401 == await status(world, planted)


@requirement("people.attack.replay")
async def test_a_token_is_worth_nothing_after_a_reset(world: World):
    """Also on the other sign-ins of the person; and the reset gives a new one."""
    cookie = await add_person(world.server, world.ada, "replayed")
    async with browser(world.server, world.ada) as admin, browser(world.server) as stranger:
        people = await (await admin.get("/api/admin/people?name=replayed")).json()
        made = await (await admin.post(f"/api/admin/people/{people['people'][0]['id']}/reset-link")).json()
        reset = await stranger.post("/api/reset-password", {"token": made["reset"]["token"], "password": OTHER})

    assert 200 == reset.status
    assert [401, 200] == [await status(world, it) for it in (cookie, cookie_of(reset))]


@requirement("people.attack.replay")
async def test_of_two_who_use_a_link_at_once_one_does(world: World):
    """Otherwise who has read the link over someone's shoulder sets the password a moment later."""
    token = await link_of(world, "raced")
    async with browser(world.server) as client:
        asked = [client.post("/api/reset-password", {"token": token, "password": OTHER}) for _ in range(8)]
        answers = Counter(response.status for response in await asyncio.gather(*asked))

    assert {200: 1, 403: 7} == answers


@requirement("people.reset")
async def test_a_refused_password_does_not_use_the_link_up(world: World):
    """Bad input leaves nothing behind: the person chooses another password, and needs no other link."""
    token = await link_of(world, "chooser")
    async with browser(world.server) as client:
        weak = await client.post("/api/reset-password", {"token": token, "password": "password123"})
        good = await client.post("/api/reset-password", {"token": token, "password": OTHER})

    assert (400, 200) == (weak.status, good.status)


@requirement("people.reset")
async def test_the_link_of_a_disabled_account_is_not_valid(world: World):
    """Whoever is put out does not come back with a link from before."""
    token = await link_of(world, "put-out")
    async with browser(world.server, world.ada) as admin, browser(world.server) as client:
        people = await (await admin.get("/api/admin/people?name=put-out")).json()
        await admin.request("PATCH", f"/api/admin/people/{people['people'][0]['id']}", json={"disabled": True})
        refused = await client.post("/api/reset-password", {"token": token, "password": OTHER})

    assert 403 == refused.status


@requirement("people.attack.replay")
async def test_a_sign_in_with_a_password_that_is_changed_meanwhile_is_refused():
    """A thief who signs in at the moment when the password is changed would stay signed in."""
    people = People(MemoryStore())
    await people.add(Account(name="eve", owner=""), PASSWORD)
    recognised = await people.check_password("eve", PASSWORD, "")
    await people.set_password(recognised.id, OTHER)

    with pytest.raises(WrongPassword):
        await people.begin(recognised, idle=60.0, stay=False, address="", agent="")
    assert [] == [it async for it in people.sign_ins.of(recognised.id)]


# forged requests


@requirement("people.attack.csrf")
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "null"},
        {"origin": "https://evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"origin": "http://localhost:3000"},
        {"origin": "http://localhost:3000", "sec-fetch-site": "same-site"},
    ],
    ids=["no-origin", "null", "other-site", "fetch-cross-site", "allowed-origin", "same-site"],
)
@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/x-www-form-urlencoded"])
async def test_no_other_page_changes_something_with_a_cookie(world: World, headers: dict[str, str], kind: str):
    """Not with a form, which needs no permission, and not from an allowed origin, which has to use a key.

    An allowed origin without `Sec-Fetch-Site` is a proxy that has changed the Host: only then the Origin decides.
    """
    title = f"forged-{kind}-{'-'.join(headers.values())}"
    async with world.server.client(cookie=world.bob, **headers) as client:
        response = await client.request(
            "POST", "/api/sessions", body=f'{{"title": "{title}"}}'.encode(), headers={"content-type": kind}
        )
        out = await client.post("/api/sign-out") if headers != {"origin": "http://localhost:3000"} else None
    async with browser(world.server, world.bob) as client:
        titles = [it["title"] for it in (await (await client.get("/api/sessions")).json())["sessions"]]

    if out is None:
        assert 201 == response.status
    else:
        assert (403, 403) == (response.status, out.status)
        assert title not in titles
    assert 200 == await status(world, world.bob)


@requirement("people.attack.csrf", "safe.websocket")
async def test_no_websocket_opens_with_a_cookie_from_nowhere(world: World):
    """A handshake is a GET, and what follows it changes something: our page must have sent it."""
    handshake = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    statuses = []
    for sender in ({}, {"sec-fetch-site": "same-site"}):
        async with world.server.client(cookie=world.bob, **sender) as client:
            response = await client.get("/v1/responses", headers=handshake)
            statuses.append(response.status)
            response.leave()

    assert [403, 403] == statuses


@requirement("people.attack.csrf")
async def test_no_get_changes_something(world: World):
    """A link or a picture of another site is a GET, and browsers send the cookie with some of them."""
    paths = ("/api/sign-out", "/api/first-admin", "/api/reset-password", "/api/account/password")
    async with browser(world.server, world.bob) as client:
        answers = [(await client.get(path)).status for path in paths]

    assert [405] * 4 == answers
    assert 200 == await status(world, world.bob)


# guessing


@requirement("people.attack.guessing")
async def test_a_million_guesses_take_decades():
    """Counted with the throttle's own rule: a guesser who always comes at the first allowed moment."""
    clock = Clock()
    throttle, guesses = SignInThrottle(MemoryStore(), now=clock), 0
    began = clock.now
    while guesses < 200:
        try:
            await throttle.take("ada", "")
            guesses += 1
        except TryLater as refused:
            clock.now += refused.retry_after or 1.0
    at_the_end = clock.now
    await throttle.take("someone-else", "")
    for _ in range(10):
        with pytest.raises(TryLater):
            await throttle.take("ada", "")

    a_guess = LONGEST_WAIT
    years = ((at_the_end - began) + (1_000_000 - guesses) * a_guess) / (365 * 86400)
    assert at_the_end - began >= (guesses - 12) * LONGEST_WAIT
    assert years > 28


@requirement("people.attack.guessing")
async def test_the_name_and_the_address_of_an_account_have_one_count(world: World):
    """Otherwise whoever knows both has twice as many guesses. Names that no account has are counted by themselves."""
    await add_person(world.server, world.ada, "twice", email="twice@example.com")
    known = [(await tried(world, name, WRONG))[0] for name in ("twice", "Twice@Example.com") * 3]
    unknown = [(await tried(world, name, WRONG))[0] for name in ("nobody", "nobody@example.com") * 3]
    right = [await tried(world, name, PASSWORD) for name in ("TWICE", "twice@example.com", "user_1")]

    assert [401] * 5 + [429] == known
    assert [401] * 6 == unknown
    assert [429, 429, 401] == [code for code, _ in right]


class CountedLookUps(MemoryStore):
    """Counts how often each sign-in asks for a document."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()

    async def get_document(self, kind: str, id: str) -> Any:
        self.asked[kind] += 1
        return await super().get_document(kind, id)


@requirement("people.attack.enumeration")
async def test_a_known_and_an_unknown_name_cost_the_same_look_ups():
    """Also while they have to wait, when no password is hashed."""
    store = CountedLookUps()
    people = People(store)
    await people.add(Account(name="ada", email="ada@example.com", owner=""), PASSWORD)
    counts = []
    for name in ("ada", "bob", "ada@example.com", "bob@example.com"):
        for target in [target_of(name, found.id if (found := await people.accounts.find(name)) else None)] * 5:
            with suppress(TryLater):
                await people.throttle.take(target, "")
        store.asked.clear()
        with pytest.raises(TryLater):
            await people.check_password(name, WRONG, "")
        counts.append(dict(store.asked))

    assert counts == [counts[0]] * 4


@requirement("people.sign-ins-limited")
async def test_one_person_has_a_bounded_number_of_sign_ins():
    """A program that signs in for each request fills no store. The oldest sign-in ends, and those of others stay."""
    people, tokens = People(MemoryStore()), []
    ada, bob = [await people.add(Account(name=name, owner="")) for name in ("ada", "bob")]
    his = await people.begin(bob, idle=1e6, stay=False, address="", agent="")
    for _ in range(MOST_SIGN_INS + 2):
        tokens.append(await people.begin(ada, idle=1e6, stay=False, address="", agent=""))
    await people.callers.refresh()
    are_open = [await people.callers.find(token.encode()) is not None for token in tokens]

    assert [False] * 2 + [True] * MOST_SIGN_INS == are_open
    assert await people.callers.find(his.encode()) is not None


@requirement("people.attack.guessing")
async def test_guesses_at_once_get_no_more_tries_than_one_after_another(world: World):
    """The try is counted before the password is checked, which takes a tenth of a second."""
    answers = Counter(code for code, _ in await asyncio.gather(*(tried(world, "many", WRONG) for _ in range(40))))

    assert {401: 5, 429: 35} == answers


@requirement("people.attack.guessing")
async def test_an_address_that_guesses_many_names_has_to_wait_and_others_do_not(world: World):
    """A common password tried for each name of a list. Everyone else comes through the same proxy."""
    there, here = {"x-forwarded-for": "198.51.100.7, 203.0.113.9"}, {"x-forwarded-for": "203.0.113.10"}
    answers: Counter[int] = Counter()
    for start in range(0, 60, 20):
        tries = (tried(world, f"name-{number}", WRONG, **there) for number in range(start, start + 20))
        answers.update(code for code, _ in await asyncio.gather(*tries))

    assert {401: 50, 429: 10} == answers
    assert 429 == (await tried(world, "bob", PASSWORD, **there))[0]
    assert 429 == (await tried(world, "bob", PASSWORD, **{"x-forwarded-for": "192.0.2.1, 203.0.113.9"}))[0]
    assert 200 == (await tried(world, "bob", PASSWORD, **here))[0]
    assert 200 == (await tried(world, "bob", PASSWORD))[0]


@requirement("people.attack.guessing")
async def test_many_who_sign_in_from_one_address_are_not_held_up():
    """An office: right passwords are not counted, however many there are."""
    throttle = SignInThrottle(MemoryStore())
    for number in range(200):
        await throttle.take(f"person-{number}", "203.0.113.9")
        await throttle.succeeded(f"person-{number}", "203.0.113.9")
    for number in range(50):
        await throttle.take(f"guess-{number}", "203.0.113.9")
    with pytest.raises(TryLater):
        await throttle.take("one-more", "203.0.113.9")


@requirement("people.attack.guessing")
async def test_an_ipv6_network_counts_as_one_address():
    """One customer has 2^64 addresses."""
    throttle = SignInThrottle(MemoryStore())
    for number in range(50):
        await throttle.take(f"guess-{number}", f"2001:db8::{number:x}")
    with pytest.raises(TryLater):
        await throttle.take("one-more", "2001:db8::ffff")
    await throttle.take("one-more", "2001:db8:0:1::1")


@requirement("people.attack.guessing")
async def test_a_refused_name_is_not_counted_for_the_address():
    """Otherwise one wrong name in a program's settings would lock out everyone in the office."""
    throttle = SignInThrottle(MemoryStore())
    for _ in range(5):
        await throttle.take("ada", "203.0.113.9")
    for _ in range(100):
        with pytest.raises(TryLater):
            await throttle.take("ada", "203.0.113.9")
    await throttle.take("bob", "203.0.113.9")


@requirement("people.proxy.address")
@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("203.0.113.1", "198.51.100.1", "203.0.113.1"),
        ("10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "192.0.2.66, 198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "198.51.100.1, 10.0.0.2", "198.51.100.1"),
        ("::ffff:10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "198.51.100.1, junk", "10.0.0.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.3", "10.0.0.3"),
    ],
)
async def test_the_client_is_the_right_most_address_that_is_no_proxy(peer: str, forwarded: str, client: str):
    """What stands left of it was written by the client itself; from elsewhere the header counts for nothing."""
    proxies = TrustedProxies(["10.0.0.0/8"])

    assert client == proxies.client(peer, [(b"x-forwarded-for", forwarded.encode())])


# enumeration and timing


@requirement("people.attack.enumeration")
async def test_no_answer_tells_which_accounts_exist(world: World):
    """Status, text and headers of a wrong password, an unknown name, a disabled person, and one without a password."""
    await link_of(world, "no-password-yet")
    await add_person(world.server, world.ada, "gone")
    async with browser(world.server, world.ada) as admin:
        people = await (await admin.get("/api/admin/people?name=gone")).json()
        await admin.request("PATCH", f"/api/admin/people/{people['people'][0]['id']}", json={"disabled": True})
    answers = []
    for name, password in (("bob", WRONG), ("unknown", WRONG), ("gone", PASSWORD), ("no-password-yet", WRONG)):
        async with browser(world.server) as client:
            response = await client.post("/api/sign-in", {"name": name, "password": password})
            body = {**(await response.json())["error"], "request_id": ""}
            answers.append((response.status, body, {*response.headers.keys()} - {"x-request-id"}))
    async with browser(world.server) as client:
        first = await client.post("/api/first-admin", {"name": "bob", "password": PASSWORD, "code": "guess"})
        reset = await client.post("/api/reset-password", {"token": "guess", "password": PASSWORD})

    assert 401 == answers[0][0]
    assert answers[1:] == [answers[0]] * 3
    assert (409, 403) == (first.status, reset.status)


@requirement("people.attack.timing")
@pytest.mark.parametrize("name", ["known", "unknown", "disabled", "without-password"])
async def test_every_refusal_hashes_once(name: str, monkeypatch: pytest.MonkeyPatch):
    """The hash is all that takes time. Its calls are counted, as a clock would be wrong on a busy machine."""
    people = People(MemoryStore())
    await people.add(Account(name="known", owner=""), PASSWORD)
    await people.add(Account(name="disabled", owner="", is_disabled=True), PASSWORD)
    await people.add(Account(name="without-password", owner=""))
    calls: list[str] = []
    is_right = people.passwords.is_right

    async def counted(hashed: str, password: str, queue: PasswordQueue) -> bool:
        calls.append(password)
        return await is_right(hashed, password, queue)

    monkeypatch.setattr(people.passwords, "is_right", counted)
    with pytest.raises(WrongPassword):
        await people.check_password(name, WRONG, "")

    assert [WRONG] == calls


# names and passwords


@requirement("people.attack.names")
@pytest.mark.parametrize("name", ["BOB", "bоb", "ｂｏｂ", "ΒΟΒ", "Bob"])
async def test_no_one_gets_a_name_that_looks_like_anothers(world: World, name: str):
    """In another case, with Cyrillic or Greek letters, or in full width."""
    async with browser(world.server, world.ada) as client:
        response = await client.post("/api/admin/people", {"name": name, "password": PASSWORD})

    assert response.status in (400, 409)


@requirement("people.attack.names")
@pytest.mark.parametrize(
    "name", ["a\r\nset-cookie: x=1", "a b", "<script>", "a\x00b", "", "x" * 65, "../ada", "a\u202eb"]
)
async def test_a_name_that_could_be_taken_for_something_else_is_refused(world: World, name: str):
    """Line ends, spaces, markup, zero bytes, paths, and letters that turn the direction of writing."""
    async with browser(world.server, world.ada) as client:
        person = await client.post("/api/admin/people", {"name": name, "password": PASSWORD})
        email = await client.post("/api/admin/people", {"name": "mailed", "email": f"{name}@x", "password": PASSWORD})
    signed = await tried(world, name, PASSWORD)

    assert 400 == person.status
    assert 400 == email.status or name in ("../ada", "x" * 65)
    assert signed[0] in (400, 401)
    assert "set-cookie" not in person.headers


@requirement("people.attack.names")
async def test_a_very_long_password_is_refused_before_it_costs_anything(world: World):
    """A megabyte would be hashed for nothing; and a body beyond the limit is not read."""
    assert 400 == (await tried(world, "bob", "x" * 1_000_000))[0]
    assert 400 == (await tried(world, "b" * 1000, PASSWORD))[0]


@requirement("people.attack.names")
async def test_a_password_may_be_typed_on_any_keyboard(world: World):
    """The same letters in composed and decomposed form are one password."""
    await add_person(world.server, world.ada, "zoe")
    async with browser(world.server, await sign_in(world.server, "zoe")) as client:
        change = {"current": PASSWORD, "password": "schöne lange Wörter"}
        assert 204 == (await client.request("PUT", "/api/account/password", json=change)).status

    assert 200 == (await tried(world, "zoe", "scho\u0308ne lange Wo\u0308rter"))[0]


# floods, cookies, rights


@requirement("people.attack.flood")
async def test_a_flood_of_sign_ins_holds_up_no_other_request(world: World):
    """Two passwords are hashed at a time, in threads of their own."""
    flood = [asyncio.create_task(tried(world, f"flood-{number}", WRONG)) for number in range(20)]
    others = [await status(world, world.bob) for _ in range(10)]

    assert [200] * 10 == others
    assert [401] * 20 == [code for code, _ in await asyncio.gather(*flood)]


@requirement("people.cookie")
async def test_over_https_the_cookie_is_of_this_host_alone(tmp_path: Path):
    """`__Host-` and `Secure`: no neighbouring host and no plain HTTP page can set or read it."""
    async with Server(tmp_path, [], config='public_url = "https://chat.example.com"\n') as server:
        async with browser(server) as client:
            response = await client.post("/api/first-admin", {"name": "ada", "password": PASSWORD})
        given = str(response.headers["set-cookie"])
        token = cookie_of(response)
        plain = token.replace("__Host-holdfast", "holdfast")
        async with browser(server, token) as client:
            right = await client.get("/api/me")
        async with browser(server, plain) as client:
            planted = await client.get("/api/me")

    assert given.startswith("__Host-holdfast=")
    assert {"Secure", "HttpOnly", "SameSite=Strict", "Path=/"} <= {part.strip() for part in given.split(";")}
    assert "domain" not in given.lower()
    assert (200, 401) == (right.status, planted.status)


@requirement("people.rights-change")
async def test_another_role_counts_at_once_for_a_person_with_an_open_stream(world: World):
    """A member who becomes a guest reads on, and starts nothing more."""
    cookie = await add_person(world.server, world.ada, "demoted")
    async with browser(world.server, cookie) as client, browser(world.server, world.ada) as admin:
        session = await Native(client).new_session(title="Mine")
        feed = await client.get("/api/events")
        me = await (await client.get("/api/me")).json()
        await admin.request("PATCH", f"/api/admin/people/{me['account']}", json={"role": "guest"})
        refused = await client.post("/api/sessions", {"title": "x"})
        read = await client.get(f"/api/sessions/{session}")
        feed.leave()

    assert (403, 200) == (refused.status, read.status)


@requirement("people.rights-change")
async def test_a_change_on_one_node_counts_on_another_within_a_second():
    """Two nodes of one store: what one changes, the other takes in when it reads the log of changes."""
    store = MemoryStore()
    here, there = People(store), People(store)
    account = await here.add(Account(name="ada", owner=""), PASSWORD)
    token = await here.begin(account, idle=600.0, stay=False, address="", agent="")
    await there.callers.refresh()
    access = await there.callers.find(token.encode())
    assert access is not None
    woken = asyncio.Event()
    access.watch(woken.set)

    def guest(body: Account) -> Account:
        return Account(name=body.name, owner=body.owner, role="guest", password=body.password)

    await here.change(account.id, guest)
    await there.callers.refresh()
    assert ("guest", False) == (access.role, access.is_revoked)
    assert await here.sign_ins.end_all(account.id) == 1
    await there.callers.refresh()
    assert access.is_revoked
    assert woken.is_set()
    assert await there.callers.find(token.encode()) is None


@requirement("people.password")
async def test_a_person_without_a_password_cannot_set_one_alone(world: World):
    """Who signs in elsewhere has none: a stolen cookie would otherwise become a password that lasts."""
    people = People(MemoryStore())
    account = await people.add(Account(name="sso", owner="", subject="https://id.example 1"))

    with pytest.raises(HoldfastError):
        await people.change_password(account, WRONG, OTHER, address="", keep="")
