"""Second factors: set up, asked for, used once, lost, required."""

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast.server.config.settings import Settings
from holdfast.server.features.accounts.factors.second_factors import SecondFactors, WrongCode
from holdfast.server.features.accounts.factors.totp import STEP, totp_code
from holdfast.server.features.accounts.people.accounts import Account
from holdfast.server.features.accounts.people.people import People
from holdfast.server.secrets.key_sources import SecretKeys
from holdfast.server.secrets.sealer import Sealer
from holdfast.store.memory import MemoryStore
from tests.e2e.test_cli import Shell
from tests.requirements import requirement
from tests.support.http import Client, Response
from tests.support.people import PASSWORD, add_person, browser, cookie_of, first_admin
from tests.support.server import Server

FACTOR = "/api/account/second-factor"
OTHER = "another long secret"


class App:
    """An authenticator app. Each of its codes is for the step after the last one, so that none is used twice."""

    def __init__(self, secret: str) -> None:
        self.secret = secret
        self._step = int(time.time() // STEP) - 1

    def code(self) -> str:
        self._step += 1
        return totp_code(self.secret, self._step)


async def set_up(server: Server, cookie: str, password: str = PASSWORD) -> tuple[App, list[str]]:
    """Set up the second factor of a person: the app, and the recovery codes."""
    async with browser(server, cookie) as client:
        proposed = await (await client.post(FACTOR, {"password": password})).json()
        app = App(proposed["secret"])
        added = await client.request("PUT", FACTOR, json={"sealed": proposed["sealed"], "code": app.code()})
        assert 201 == added.status, await added.text()
        return app, (await added.json())["recovery_codes"]


async def tried(client: Client, name: str, code: str | None = None, password: str = PASSWORD) -> Response:
    body = {"name": name, "password": password} | ({} if code is None else {"code": code})
    return await client.post("/api/sign-in", body)


async def error_of(response: Response) -> tuple[int, str]:
    return response.status, (await response.json())["error"]["code"]


@requirement("people.second-factor")
async def test_a_password_alone_does_not_sign_in_with_a_second_factor(tmp_path: Path):
    """Nobody comes in without a code, or with one that was used; the secret is nowhere in clear."""
    async with Server(tmp_path) as server:
        ada = await first_admin(server)
        app, _ = await set_up(server, ada)
        code = app.code()
        async with browser(server) as client:
            without = await tried(client, "ada")
            wrong = await tried(client, "ada", "000000")
            guessed = await tried(client, "ada", code, "not the password")
            right = await tried(client, "ada", code)
            again = await tried(client, "ada", code)
        async with browser(server, cookie_of(right)) as client:
            account = await (await client.get("/api/account")).json()
        log = server.log_text()
    files = b"".join(file.read_bytes() for file in tmp_path.rglob("holdfast.db*"))

    assert (401, "second_factor_needed") == await error_of(without)
    assert "set-cookie" not in without.headers
    assert (401, "wrong_code") == await error_of(wrong)
    assert (401, "wrong_password") == await error_of(guessed)
    assert 200 == right.status
    assert (401, "wrong_code") == await error_of(again)
    assert account["second_factor"] is True
    assert app.secret.encode() not in files
    assert app.secret not in log


@requirement("people.second-factor")
async def test_a_recovery_code_counts_once_and_can_be_renewed(tmp_path: Path):
    """For a lost app. The codes are shown once, and stored as digests."""
    async with Server(tmp_path) as server:
        app, codes = await set_up(server, await first_admin(server))
        async with browser(server) as client:
            typed = codes[0].upper().replace("-", " ")
            first, again = [await tried(client, "ada", typed) for _ in range(2)]
        async with browser(server, cookie_of(first)) as client:
            left = await (await client.get(FACTOR)).json()
            refused = await client.post(f"{FACTOR}/recovery-codes", {"code": codes[0]})
            renewed = await (await client.post(f"{FACTOR}/recovery-codes", {"code": app.code()})).json()
            old = await tried(client, "ada", codes[1])
            new = await tried(client, "ada", renewed["recovery_codes"][0])
    files = b"".join(file.read_bytes() for file in tmp_path.rglob("holdfast.db*"))

    assert 10 == len(set(codes))
    assert (200, 401) == (first.status, again.status)
    assert {"app": True, "recovery_codes": 9} == left
    assert (401, 401, 200) == (refused.status, old.status, new.status)
    assert not any(code.encode() in files or code.replace("-", "").encode() in files for code in codes)


@requirement("people.second-factor")
async def test_wrong_codes_wait_like_wrong_passwords(tmp_path: Path):
    """Whoever knows the password has five guesses of a million, then a few each hour; at once no more than in turn."""
    async with Server(tmp_path) as server:
        app, _ = await set_up(server, await first_admin(server))
        async with browser(server) as client:
            guesses = await asyncio.gather(*(tried(client, "ada", f"{number:06}") for number in range(12)))
            right = await tried(client, "ada", app.code())

    assert {401: 5, 429: 7} == Counter(each.status for each in guesses)
    assert 429 == right.status


@requirement("people.second-factor")
async def test_a_second_factor_needs_the_password_to_be_set_up_and_a_code_to_be_removed(tmp_path: Path):
    """A stolen cookie neither locks the person out nor opens the account."""
    async with Server(tmp_path) as server:
        ada = await first_admin(server)
        async with browser(server, ada) as client:
            stolen = await client.post(FACTOR, {"password": "not the password"})
            proposed = await (await client.post(FACTOR, {"password": PASSWORD})).json()
            wrong = await client.request("PUT", FACTOR, json={"sealed": proposed["sealed"], "code": "000000"})
            forged = await client.request("PUT", FACTOR, json={"sealed": "AAAA", "code": "000000"})
            before = await (await client.get(FACTOR)).json()
            app, _ = await set_up(server, ada)
            twice = await client.post(FACTOR, {"password": PASSWORD})
            kept = await client.request("DELETE", FACTOR, json={"code": "000000"})
            removed = await client.request("DELETE", FACTOR, json={"code": app.code()})
        async with browser(server) as client:
            plain = await tried(client, "ada")

    assert (401, "wrong_password") == await error_of(stolen)
    assert [(401, "wrong_code")] * 2 == [await error_of(each) for each in (wrong, forged)]
    assert {"app": False, "recovery_codes": 0} == before
    assert (409, "second_factor_exists") == await error_of(twice)
    assert (401, 204, 200) == (kept.status, removed.status, plain.status)


@requirement("people.second-factor")
async def test_a_link_that_sets_a_password_asks_for_the_code_too(tmp_path: Path):
    """Whoever reads the link on its way has one factor, not two. Without a code it is not used up."""
    async with Server(tmp_path) as server:
        ada = await first_admin(server)
        app, _ = await set_up(server, await add_person(server, ada, "bob"))
        async with browser(server, ada) as admin, browser(server) as client:
            bob = (await (await admin.get("/api/admin/people?name=bob")).json())["people"][0]
            made = await (await admin.post(f"/api/admin/people/{bob['id']}/reset-link")).json()
            body = {"token": made["reset"]["token"], "password": OTHER}
            without = await client.post("/api/reset-password", body)
            right = await client.post("/api/reset-password", body | {"code": app.code()})

    assert (401, "second_factor_needed") == await error_of(without)
    assert 200 == right.status


@requirement("people.second-factor-reset")
async def test_an_admin_resets_a_lost_factor_and_cannot_read_it(tmp_path: Path):
    """It is in the audit log; no answer to an admin has the secret, sealed or not. A command does the same."""
    async with Server(tmp_path) as server:
        ada = await first_admin(server)
        bob_cookie = await add_person(server, ada, "bob")
        app, _ = await set_up(server, bob_cookie)
        async with browser(server, ada) as admin, browser(server, bob_cookie) as own, browser(server) as client:
            listed = await (await admin.get("/api/admin/people?name=bob")).text()
            bob = (await (await admin.get("/api/admin/people?name=bob")).json())["people"][0]
            path = f"/api/admin/people/{bob['id']}/second-factor"
            refused = (await own.request("DELETE", path)).status
            reset = (await admin.request("DELETE", path)).status
            signed = (await tried(client, "bob")).status
            await set_up(server, bob_cookie)
            told = await Shell(tmp_path, {})("user", "reset-factor", "bob", "--data", str(tmp_path))
            by_command = (await tried(client, "bob")).status
            entries = (await (await admin.get("/api/admin/audit?action=second_factor.reset")).json())["entries"]

    assert bob["second_factor"] is True
    assert app.secret not in listed
    assert "sealed" not in listed
    assert (403, 200, 200, 200) == (refused, reset, signed, by_command)
    assert 0 == told.code, told.err
    assert [bob["id"]] * 2 == [entry["target"] for entry in entries if entry["result"] == "done"]


@requirement("people.second-factor-required")
@pytest.mark.parametrize(("who", "statuses"), [("admins", (403, 200)), ("all", (403, 403)), ("nobody", (200, 200))])
async def test_who_must_have_a_second_factor_can_do_nothing_before(tmp_path: Path, who: str, statuses: Any):
    """Except to set it up and to sign out. Afterwards the same sign-in has its rights."""
    async with Server(tmp_path, config=f'second_factor = "{who}"\n') as server:
        ada = await first_admin(server)
        async with browser(server, ada) as client:
            first = await client.get("/api/sessions")
            me = await (await client.get("/api/me")).json()
            if who != "nobody":
                assert (403, "second_factor_required") == await error_of(first)
            assert me["lacks_second_factor"] is (who != "nobody")
            await set_up(server, ada)
            assert 200 == (await client.get("/api/sessions")).status
        bob = await add_person(server, ada, "bob")
        async with browser(server, bob) as client:
            second = await client.get("/api/sessions")

    assert statuses == (first.status, second.status)


@requirement("people.second-factor-required")
async def test_a_sign_in_with_a_provider_needs_no_second_factor_of_ours():
    """The provider decides how people prove who they are."""
    people = People(MemoryStore(), factor_for="all")
    account = await people.add(Account(name="sso", owner="", subject="https://id.example 1"))
    accesses = []
    for by in ("provider", "passkey", "password"):
        token = await people.begin(account, idle=600.0, stay=False, address="", agent="", by=by)  # type: ignore[arg-type]
        accesses.append(await people.callers.find(token.encode()))

    assert [False, False, True] == [access.lacks_factor for access in accesses if access is not None]


@requirement("people.second-factor")
async def test_of_two_who_use_a_code_at_once_one_does(tmp_path: Path):
    """Whoever looks over a shoulder and is as fast as the person comes in only instead of the person, who sees it."""
    people = People(MemoryStore())
    factors = SecondFactors(people, Sealer(SecretKeys(Settings(secret_key="k" * 40), None)))
    ada = await people.add(Account(name="ada", owner=""), PASSWORD)
    proposed = await factors.propose(ada)
    app = App(proposed.secret)
    await factors.add(ada, proposed.sealed, app.code(), address="", browser=None)
    stored = await people.accounts.get(ada.id)
    assert stored is not None
    code = app.code()
    done = await asyncio.gather(
        *(factors.check(stored, code, address="", browser=None) for _ in range(4)), return_exceptions=True
    )

    assert [None] == [each for each in done if not isinstance(each, WrongCode)]


@requirement("safe.sealed")
async def test_a_new_sealing_key_keeps_second_factors(tmp_path: Path):
    """`holdfast secrets rotate` seals them with the new key; the old one opens nothing any more."""
    async with Server(tmp_path) as server:
        app, _ = await set_up(server, await first_admin(server))
        old = (tmp_path / "secret.key").read_text()
        rotated = await Shell(tmp_path, {})("secrets", "rotate", "--data", str(tmp_path))
        async with browser(server) as client:
            signed = await tried(client, "ada", app.code())

    assert 0 == rotated.code, rotated.err
    assert old != (tmp_path / "secret.key").read_text()
    assert 200 == signed.status
