"""Passkeys: what they prove, and what is refused. Tests in a browser use those of a real one."""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.server.config.settings import Settings
from holdfast.server.features.accounts.factors.passkeys import CHALLENGE_LASTS, PasskeyRefused, Passkeys
from holdfast.server.features.accounts.people.accounts import Account
from holdfast.server.features.accounts.people.people import People
from holdfast.server.secrets.key_sources import SecretKeys
from holdfast.server.secrets.sealer import Sealer
from holdfast.store.memory import MemoryStore
from tests.e2e.test_cli import Shell
from tests.requirements import requirement
from tests.support.http import Client, Response
from tests.support.passkeys import Device, in_base64
from tests.support.people import PASSWORD, add_person, browser, first_admin
from tests.support.server import Server

REFUSED = (401, "passkey_refused", "This passkey was not accepted. Try again, or sign in another way.")


def answer(challenge: str, account: str) -> dict[str, Any]:
    """An answer that is signed by nobody."""
    said = {"type": "webauthn.get", "challenge": challenge, "origin": "http://localhost"}
    id = in_base64(os.urandom(16))
    return {
        "id": id,
        "rawId": id,
        "type": "public-key",
        "response": {
            "clientDataJSON": in_base64(json.dumps(said).encode()),
            "authenticatorData": in_base64(bytes(37)),
            "signature": in_base64(os.urandom(64)),
            "userHandle": in_base64(account.encode()),
        },
    }


@requirement("people.passkeys")
async def test_an_answer_that_proves_nothing_signs_nobody_in(tmp_path: Path):
    """Not for a person who exists, with a challenge of ours, of another purpose, or of nobody; nor in odd shapes."""
    async with Server(tmp_path) as server:
        ada = await first_admin(server)
        async with browser(server, ada) as client:
            account = (await (await client.get("/api/account")).json())["id"]
            to_add = await (await client.post("/api/account/passkeys/options", {"password": PASSWORD})).json()
            unproven = await client.post("/api/account/passkeys/options", {"password": "not the password"})
        async with browser(server) as stranger:
            options = await (await stranger.post("/api/sign-in/passkey/options")).json()
            tries = [
                answer(options["challenge"], account),
                answer(options["challenge"], "user_unknown"),
                answer(to_add["challenge"], account),
                answer(in_base64(os.urandom(45)), account),
                {},
                {"response": {"clientDataJSON": 7}},
                {"response": {"clientDataJSON": "&&&"}},
            ]
            answers = [await stranger.post("/api/sign-in/passkey", {"answer": each}) for each in tries]
            codes = {(each.status, (await each.json())["error"]["code"]) for each in answers}

    assert {(401, "passkey_refused")} == codes
    assert 401 == unproven.status


@requirement("people.passkeys", "people.oidc")
@pytest.mark.parametrize("path", ["/api/sign-in/passkey/options", "/api/sign-in/passkey"])
async def test_only_the_identity_provider_means_no_passkeys(tmp_path: Path, path: str):
    """Otherwise who was put out there would still come in here."""
    config = 'public_url = "http://localhost:1"\n[oidc]\nissuer = "http://127.0.0.1:1"\nclient_id = "x"\nonly = true\n'
    async with Server(tmp_path, config=config) as server, browser(server) as client:
        refused = await client.post(path, {"answer": {}} if path.endswith("passkey") else None)

    assert (403, "passwords_off") == (refused.status, (await refused.json())["error"]["code"])


async def added(client: Client, origin: str) -> Device:
    """A device with a new passkey of the person who is signed in."""
    device = Device(origin)
    options = await (await client.post("/api/account/passkeys/options", {"password": PASSWORD})).json()
    response = await client.post("/api/account/passkeys", {"name": "laptop", "answer": device.added(options)})
    assert 204 == response.status, await response.text()
    return device


async def options_of(client: Client) -> dict[str, Any]:
    options: dict[str, Any] = await (await client.post("/api/sign-in/passkey/options")).json()
    return options


async def signed_in(client: Client, answer: dict[str, Any]) -> Response:
    return await client.post("/api/sign-in/passkey", {"answer": answer})


async def refusal(response: Response) -> tuple[int, str, str]:
    error = (await response.json())["error"]
    return response.status, error["code"], error["message"]


@requirement("people.passkeys")
async def test_a_passkey_whose_count_does_not_grow_is_refused(tmp_path: Path):
    """Two devices have the key: one is a copy. The one that counts on goes on."""
    async with Server(tmp_path) as server:
        async with browser(server, await first_admin(server)) as client:
            device = await added(client, server.url)
        async with browser(server) as client:
            device.count = 6
            right = await signed_in(client, device.used(await options_of(client)))
            copies = []
            for count in (6, 3, -1):
                device.count = count
                copies.append(await refusal(await signed_in(client, device.used(await options_of(client)))))
            device.count = 7
            again = await signed_in(client, device.used(await options_of(client)))

    assert [200, 200] == [right.status, again.status]
    assert [REFUSED] * 3 == copies


@requirement("people.passkeys")
@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:1", "http://localhost", ""])
async def test_an_answer_of_a_page_at_another_origin_is_refused(tmp_path: Path, origin: str):
    """Such a page passes on the challenge of this server, and the answer of a person who trusts it."""
    async with Server(tmp_path) as server:
        async with browser(server, await first_admin(server)) as client:
            device = await added(client, server.url)
            options = await (await client.post("/api/account/passkeys/options", {"password": PASSWORD})).json()
            planted = {"name": "planted", "answer": Device(origin).added(options)}
            not_added = await client.post("/api/account/passkeys", planted)
        device.origin = origin
        async with browser(server) as client:
            elsewhere = await signed_in(client, device.used(await options_of(client)))
            device.origin = server.url
            here = await signed_in(client, device.used(await options_of(client)))

            assert [REFUSED] * 2 == [await refusal(each) for each in (elsewhere, not_added)]
            assert 200 == here.status


@requirement("people.passkeys")
async def test_a_challenge_counts_once(tmp_path: Path):
    """Neither its answer nor another answer to it signs in again, and of several at once one does."""
    async with Server(tmp_path) as server:
        async with browser(server, await first_admin(server)) as client:
            device = await added(client, server.url)
        async with browser(server) as client:
            options = await options_of(client)
            first = device.used(options)
            answers = [await signed_in(client, each) for each in (first, first, device.used(options))]
            options = await options_of(client)
            at_once = await asyncio.gather(*(signed_in(client, device.used(options)) for _ in range(4)))

            assert 200 == answers[0].status
            assert [REFUSED] * 2 == [await refusal(each) for each in answers[1:]]
            assert [200, 401, 401, 401] == sorted(each.status for each in at_once)


@requirement("people.passkeys")
async def test_an_expired_challenge_is_refused():
    """After five minutes, to sign in and to add; one from the future is of a clock that nobody trusts."""
    site, clock = ("localhost", "https://localhost"), [time.time()]
    people = People(MemoryStore())
    passkeys = Passkeys(people, Sealer(SecretKeys(Settings(secret_key="k" * 40), None)), now=lambda: clock[0])
    ada, device = await people.add(Account(name="ada", owner=""), PASSWORD), Device(site[1])
    await passkeys.add(site, ada, "laptop", device.added(await passkeys.options_to_add(site, ada)))

    for late in (CHALLENGE_LASTS + 1.0, -1.0):
        to_add, to_sign_in = await passkeys.options_to_add(site, ada), await passkeys.options_to_sign_in(site)
        clock[0] += late
        with pytest.raises(PasskeyRefused):
            await passkeys.add(site, ada, "late", Device(site[1]).added(to_add))
        with pytest.raises(PasskeyRefused):
            await passkeys.signed_in(site, device.used(to_sign_in))
    options = await passkeys.options_to_sign_in(site)
    clock[0] += CHALLENGE_LASTS - 1.0
    assert ada.id == (await passkeys.signed_in(site, device.used(options))).id


class Meanwhile(MemoryStore):
    """A store on which something may happen before it stores that a challenge was used."""

    then: Any = None

    async def put_document(self, document: Any, expected_version: int | None = None) -> Any:
        if self.then is not None and document.kind == "one_time_secret":
            then, self.then = self.then, None
            await then()
        return await super().put_document(document, expected_version)


@requirement("people.passkeys")
async def test_a_passkey_that_is_removed_while_it_is_checked_signs_nobody_in():
    """Whoever removes it from a lost device is sure that it opens nothing any more."""
    site = ("localhost", "https://localhost")
    people = People(store := Meanwhile())
    passkeys = Passkeys(people, Sealer(SecretKeys(Settings(secret_key="k" * 40), None)))
    ada, device = await people.add(Account(name="ada", owner=""), PASSWORD), Device(site[1])
    await passkeys.add(site, ada, "laptop", made := device.added(await passkeys.options_to_add(site, ada)))
    store.then = lambda: passkeys.remove(ada.id, made["id"])

    with pytest.raises(PasskeyRefused):
        await passkeys.signed_in(site, device.used(await passkeys.options_to_sign_in(site)))


@requirement("people.passkeys", "people.second-factor-reset")
@pytest.mark.parametrize("how", ["factor", "command", "link"])
async def test_a_reset_by_an_admin_removes_the_passkeys(tmp_path: Path, how: str):
    """Whoever has the lost device, or had the account, has none of them any more."""
    async with Server(tmp_path) as server:
        ada = await first_admin(server)
        async with browser(server, await add_person(server, ada, "bob")) as client:
            device = await added(client, server.url)
            bob = (await (await client.get("/api/account")).json())["id"]
        async with browser(server, ada) as admin, browser(server) as client:
            before = await signed_in(client, device.used(await options_of(client)))
            if how == "factor":
                await admin.request("DELETE", f"/api/admin/people/{bob}/second-factor")
            elif how == "command":
                await Shell(tmp_path, {})("user", "reset-factor", "bob", "--data", str(tmp_path))
            else:
                link = await (await admin.post(f"/api/admin/people/{bob}/reset-link")).json()
                given = {"token": link["reset"]["token"], "password": "another horse battery"}
                await client.post("/api/reset-password", given)
            after = await signed_in(client, device.used(await options_of(client)))

    assert (200, 401) == (before.status, after.status)
