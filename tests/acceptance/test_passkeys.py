"""Passkeys: what is refused without a browser. Tests in a browser add and use them."""

import json
import os
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest

from tests.requirements import requirement
from tests.support.people import PASSWORD, browser, first_admin
from tests.support.server import Server


def in_base64(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


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
