"""Signing in with an identity provider: a real one, and one that is wrong in every way that is an attack."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
import pytest_asyncio
from joserfc.jwk import ECKey, OctKey

from holdfast.server.config.sign_in_settings import OidcSettings
from holdfast.server.features.accounts.oidc.attempt import Attempt
from holdfast.server.features.accounts.oidc.provider import OidcProvider, ProviderUnavailable
from tests.requirements import requirement
from tests.support.http import Client, Response
from tests.support.oidc import CLIENT, SECRET, OidcLab
from tests.support.people import PASSWORD, browser, cookies_of, first_admin
from tests.support.ports import free_port
from tests.support.proxies import running
from tests.support.served import Served
from tests.support.server import Server, provider

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class World:
    """A server whose people sign in with `lab`."""

    server: Server
    lab: OidcLab
    ada: str


def config_of(issuer: str, port: int, extra: str = "") -> str:
    return f"""
        public_url = "http://127.0.0.1:{port}"

        [oidc]
        issuer = "{issuer}"
        client_id = "{CLIENT}"
        client_secret_env = "OIDC_SECRET"
        create = "member"
        {extra}
    """


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    lab, port = OidcLab(), free_port()
    async with Served(lab.app) as served:
        lab.url = served.url
        config = config_of(lab.url, port, 'roles = {ops = "admin", visitors = "guest"}\ngroups = {"team" = "writers"}')
        data, env = tmp_path_factory.mktemp("oidc"), {"OIDC_SECRET": SECRET}
        async with Server(data, [provider(lab.url)], config=config, env=env, port=port, nodes=1) as server:
            ada = await first_admin(server)
            async with browser(server, ada) as admin:
                assert 201 == (await admin.post("/api/admin/groups", {"name": "writers"})).status
            yield World(server, lab, ada)


@pytest.fixture(autouse=True)
def sound(world: World) -> None:
    """Each test begins with a sound provider."""
    world.lab.wrong = {}


async def begun(world: World, next: str = "/") -> tuple[str, dict[str, str]]:
    """Start to sign in: the cookie that the browser keeps, and what it was sent to the provider with."""
    async with world.server.client() as client:
        response = await client.get(f"/api/oidc/start?{urlencode({'next': next})}")
    assert 303 == response.status
    assert response.headers["location"].startswith(f"{world.lab.url}/authorize?tenant=1&")
    cookie = response.headers["set-cookie"]
    assert "HttpOnly; SameSite=Lax; Max-Age=600" in cookie
    return cookie.partition(";")[0], dict(parse_qsl(urlsplit(response.headers["location"]).query))


async def ended(world: World, cookie: str, **query: str) -> Response:
    """Come back from the provider, as a browser does: from another site."""
    headers = {"cookie": cookie} if cookie else {}
    async with world.server.client(**{"sec-fetch-site": "cross-site", **headers}) as client:
        return await client.get(f"/api/oidc/callback?{urlencode(query)}")


async def signed_in(world: World, sub: str, next: str = "/", **claims: Any) -> Response:
    cookie, asked = await begun(world, next)
    return await ended(world, cookie, code=world.lab.code_for(asked, sub, **claims), state=asked["state"])


async def me(world: World, response: Response) -> dict[str, Any]:
    async with browser(world.server, f"holdfast={cookies_of(response)['holdfast']}") as client:
        return dict(await (await client.get("/api/account")).json())


def failed(response: Response, code: str = "oidc_failed") -> bool:
    return (303, f"/?sign_in_error={code}", {}) == (response.status, response.headers["location"], cookies_of(response))


@requirement("people.oidc")
async def test_a_person_of_a_real_provider_signs_in(tmp_path: Path):
    """One on Authlib's server side, through its own form: discovery, code, PKCE, nonce, keys.

    It has a process of its own: Authlib sets Python's filter of warnings when it is imported.
    """
    port, its_port = free_port(), free_port()
    user = json.dumps({"sub": "u-1", "preferred_username": "grace", "groups": ["ops"]})
    command = [sys.executable, "-m", "oidc_provider_mock", "--port", str(its_port), "--user-claims", user]
    async with running(command, tmp_path, its_port) as issuer:
        config = config_of(issuer, port, 'roles = {ops = "admin"}')
        async with Server(tmp_path, [], config=config, env={"OIDC_SECRET": SECRET}, port=port, nodes=1) as server:
            async with server.client() as client:
                start = await client.get("/api/oidc/start?next=/settings")
            place = urlsplit(start.headers["location"])
            async with Client(issuer) as form:
                sent = await form.request(
                    "POST",
                    f"{place.path}?{place.query}",
                    body=b"sub=u-1",
                    headers={"content-type": "application/x-www-form-urlencoded"},
                )
            back = urlsplit(sent.headers["location"])
            async with server.client(cookie=start.headers["set-cookie"].partition(";")[0]) as client:
                response = await client.get(f"{back.path}?{back.query}")
            async with browser(server, f"holdfast={cookies_of(response)['holdfast']}") as client:
                account = await (await client.get("/api/account")).json()

    assert (303, "/settings") == (response.status, response.headers["location"])
    assert ("grace", "admin", f"{issuer} u-1") == (account["name"], account["role"], account["subject"])
    assert not account["has_password"]


@requirement("people.oidc")
async def test_the_same_person_has_the_same_account_and_the_roles_and_groups_of_today(world: World):
    """Linked by issuer and subject: another name or e-mail address changes nothing."""
    first = await me(world, await signed_in(world, "s-hal", preferred_username="hal", groups=["ops", "team"]))
    second = await me(world, await signed_in(world, "s-hal", preferred_username="other", groups=["visitors"]))

    assert ("hal", "admin", 1) == (first["name"], first["role"], len(first["groups"]))
    assert (first["id"], "hal", "guest", 0) == (second["id"], second["name"], second["role"], len(second["groups"]))


@requirement("people.oidc")
async def test_a_role_ends_with_the_group_that_gave_it(world: World):
    """Whoever is no longer an admin at the provider is none here, and leaving a group raises nobody."""
    roles = []
    for subject, groups in (("s-2", ["ops"]), ("s-2", []), ("s-3", ["visitors"]), ("s-3", [])):
        roles.append((await me(world, await signed_in(world, subject, groups=groups)))["role"])

    assert ["admin", "member", "guest", "guest"] == roles


@requirement("people.oidc")
async def test_no_claim_but_the_subject_leads_to_an_account(world: World):
    """Whoever calls themselves ada at the provider, or has her e-mail address there, does not become her."""
    claims = {"preferred_username": "ada", "email": "ada@example.com", "email_verified": True}
    account = await me(world, await signed_in(world, "not-ada", **claims))

    assert ("ada-2", "member", "") == (account["name"], account["role"], account["email"])


@requirement("people.oidc")
async def test_an_admin_links_an_account_to_an_identity(world: World):
    """Who has an account with a password signs in with the provider from then on."""
    async with browser(world.server, world.ada) as admin:
        made = await (await admin.post("/api/admin/people", {"name": "ida", "password": PASSWORD})).json()
        linked = {"subject": f"{world.lab.url} s-ida"}
        changed = await admin.request("PATCH", f"/api/admin/people/{made['id']}", json=linked)
    account = await me(world, await signed_in(world, "s-ida"))

    assert (200, made["id"]) == (changed.status, account["id"])


@requirement("people.oidc")
async def test_a_disabled_person_is_not_let_in(world: World):
    """The provider knows the person still."""
    account = await me(world, await signed_in(world, "s-gone"))
    async with browser(world.server, world.ada) as admin:
        await admin.request("PATCH", f"/api/admin/people/{account['id']}", json={"disabled": True})

    assert failed(await signed_in(world, "s-gone"), "no_account")


@requirement("people.oidc.attacks")
@pytest.mark.parametrize(
    "wrong",
    [
        {"iss": "https://evil.example"},
        {"iss": None},
        {"aud": "another client"},
        {"aud": [CLIENT, "another"]},
        {"azp": "another client"},
        {"nonce": "of another attempt"},
        {"nonce": None},
        {"exp": 1},
        {"exp": None},
        {"iat": 10**11},
        {"nbf": 10**11},
        {"nbf": "now"},
        {"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"},
        {"sub": ""},
        {"sub": 7},
    ],
    ids=str,
)
async def test_a_token_that_proves_nothing_is_refused(world: World, wrong: dict[str, Any]):
    """Of another issuer, for another client, of another attempt, of another time, or about no one."""
    world.lab.wrong = wrong

    assert failed(await signed_in(world, "s-1"))


@requirement("people.oidc.attacks")
async def test_a_token_that_anyone_could_have_signed_is_refused(world: World, monkeypatch: pytest.MonkeyPatch):
    """With the client's own secret, or with the public key as if it were a secret, or with a key that is not shown."""
    lab = world.lab
    stranger = ECKey.generate_key("P-256", {"kid": "one"})
    for key, algorithm in ((OctKey.import_key(SECRET, {"kid": "one"}), "HS256"), (stranger, "ES256")):
        with monkeypatch.context() as patch:
            patch.setattr(lab, "key", key)
            patch.setattr(lab, "algorithm", algorithm)
            assert failed(await signed_in(world, "s-1"))


@requirement("people.oidc.attacks")
async def test_an_answer_counts_for_the_browser_and_the_attempt_that_it_is_for(world: World):
    """No cookie, the cookie of another attempt, another state, a used code, a code of another attempt."""
    cookie, asked = await begun(world)
    other, other_asked = await begun(world)
    code = world.lab.code_for(asked, "s-1")

    assert failed(await ended(world, "", code=code, state=asked["state"]))
    assert failed(await ended(world, other, code=code, state=asked["state"]))
    assert failed(await ended(world, cookie, code=code, state=""))
    assert failed(await ended(world, cookie, code=code))
    assert failed(await ended(world, cookie, state=asked["state"], error="access_denied"))
    swapped = await ended(world, other, code=code, state=other_asked["state"])
    assert failed(swapped, "oidc_unavailable")  # the provider refuses the verifier of another attempt
    assert failed(await ended(world, cookie, code=code, state=asked["state"]), "oidc_unavailable")


@requirement("people.oidc.attacks")
async def test_a_nonce_counts_once(world: World):
    """Also with another code: of two answers to one attempt at the same time, one signs in."""
    cookie, asked = await begun(world)
    codes = [world.lab.code_for(asked, "s-1") for _ in range(4)]
    answers = await asyncio.gather(*(ended(world, cookie, code=code, state=asked["state"]) for code in codes))

    assert 1 == sum("holdfast" in cookies_of(response) for response in answers)
    assert 3 == sum(failed(response, "link_not_valid") for response in answers)


@requirement("people.oidc.attacks")
async def test_the_answer_of_another_provider_is_refused(world: World):
    """Mix-up: a browser that was sent to one provider comes back from another, which has the code then."""
    cookie, asked = await begun(world)
    code = world.lab.code_for(asked, "s-1")

    mixed = await ended(world, cookie, code=code, state=asked["state"], iss="https://evil.example")
    right = await ended(world, cookie, code=code, state=asked["state"], iss=world.lab.url)
    assert failed(mixed)
    assert "holdfast" in cookies_of(right)


@requirement("people.oidc.attacks")
@pytest.mark.parametrize(
    "described",
    [{"issuer": "https://evil.example"}, {"token_endpoint": "ftp://evil.example"}, {"jwks_uri": None}],
    ids=["issuer", "scheme", "missing"],
)
async def test_the_description_of_another_issuer_is_refused(described: dict[str, Any]):
    """A provider cannot pass itself off as another one, nor lead us to another protocol."""
    lab = OidcLab()
    lab.described = described
    async with Served(lab.app) as served:
        lab.url = served.url
        settings = OidcSettings(issuer=lab.url, client_id=CLIENT)
        with pytest.raises(ProviderUnavailable):
            await OidcProvider(settings, {}).start_url(Attempt.new("/"), "http://127.0.0.1/api/oidc/callback")


@requirement("people.oidc.attacks")
@pytest.mark.parametrize(
    "next",
    [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "/%0d%0aset-cookie: x=1\r\nset-cookie: y=1",
        "javascript:alert(1)",
        "\\\\evil.example",
        " /x",
        "/\tevil",
        "x",
        "/" + "x" * 3000,
    ],
)
async def test_no_link_leads_to_another_site(world: World, next: str):
    """An open redirect would make a link to this server lead to a copy of its sign-in page."""
    assert "/" == (await signed_in(world, "s-1", next)).headers["location"]


@requirement("people.oidc")
async def test_a_link_leads_to_the_page_that_was_wanted(world: World):
    """A path of this server, with its query."""
    assert "/chat/1?x=2#y" == (await signed_in(world, "s-1", "/chat/1?x=2#y")).headers["location"]


@requirement("people.oidc")
async def test_new_keys_of_the_provider_are_read_once_a_minute_at_most(world: World):
    """A rotation needs no restart; and tokens with made-up keys do not make us call the provider each time."""
    lab, before = world.lab, world.lab.reads_of_keys
    old, made_up = lab.key, ECKey.generate_key("P-256", {"kid": "made up"})
    lab.key = made_up
    for _ in range(5):
        assert failed(await signed_in(world, "s-1"))
    lab.key = old

    assert lab.reads_of_keys <= before + 1
    assert "holdfast" in cookies_of(await signed_in(world, "s-1"))


@requirement("people.oidc")
async def test_with_a_provider_alone_no_password_is_accepted(tmp_path: Path):
    """And the sign-in page is told so; an unknown person gets no account unless the settings say so."""
    lab, port = OidcLab(), free_port()
    async with Served(lab.app) as served:
        lab.url = served.url
        config = config_of(lab.url, port, "only = true").replace('create = "member"', "")
        async with Server(tmp_path, [], config=config, env={"OIDC_SECRET": SECRET}, port=port, nodes=1) as server:
            world = World(server, lab, await first_admin(server))
            async with browser(server) as client:
                ways = await (await client.get("/api/sign-in")).json()
                refused = await client.post("/api/sign-in", {"name": "ada", "password": PASSWORD})
            unknown = await signed_in(world, "s-1")

    assert (False, "/api/oidc/start") == (ways["password"], ways["oidc"]["start"])
    assert (403, "passwords_off") == (refused.status, (await refused.json())["error"]["code"])
    assert failed(unknown, "no_account")
