"""Accounts at MCP servers: connected by OAuth, used by the runs of their owner, refreshed, disconnected."""

import asyncio
import io
import json
import logging
import zipfile
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from holdfast.server.app import create_app
from holdfast.server.config.settings import AgentSettings, McpSettings, ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.http import Client
from tests.support.mcp_oauth import OauthLab
from tests.support.native import Native
from tests.support.people import add_person, browser, first_admin
from tests.support.served import NO_HOME, Served
from tests.support.upstream import Upstream, answer, calling
from tests.support.waiting import LONG

CALL = {"tool": "look", "arguments": {}}


class Site(Served):
    """A server for people: each client sends headers of its own."""

    def client(self, **headers: Any) -> Client:
        return Client(self.url, headers=headers)


@pytest.fixture
async def lab():
    lab = OauthLab()
    async with Served(lab) as served:
        lab.url = served.url
        yield lab


@pytest.fixture
async def up():
    async with Upstream() as up:
        yield up


@asynccontextmanager
async def serving(
    tmp_path, lab: OauthLab, up: Upstream | None = None, store: Any = None, environ: Any = NO_HOME, **fields: Any
):
    """A server whose settings file has the MCP server, and an agent with its tools that everybody may use."""
    base_url = "http://127.0.0.1:9/v1" if up is None else up.base_url
    described = Settings(
        data=str(tmp_path),
        providers=(ProviderSettings("up", base_url=base_url, models=("m",)),),
        mcp=(McpSettings("desk", **{"url": f"{lab.url}/mcp", "auth": "oauth", "approval": "allow", **fields}),),
        agents=(AgentSettings("helper", model="up/m", tools=("mcp:desk",), users=("*",)),),
    )
    app = await asyncio.to_thread(create_app, described, store or MemoryStore(), environ)
    async with Site(app) as served:
        yield served


def made(tmp_path) -> Any:
    other = tmp_path / "other"
    other.mkdir()
    return other


async def allowed(client: Client, lab: OauthLab, name: str = "desk") -> dict[str, str]:
    """Begin, and allow the access at the authorization server. What the browser brings back."""
    begun = await client.post(f"/api/mcp-accounts/{name}")
    assert 200 == begun.status, await begun.text()
    url = (await begun.json())["url"]
    assert url.startswith(f"{lab.url}/authorize?")
    async with Client(lab.url) as away:
        answered = await away.get(url.removeprefix(lab.url))
    back = urlsplit(answered.headers["location"])
    assert "/settings" == back.path
    return {name: values[0] for name, values in parse_qs(back.query).items()}


async def connect(client: Client, lab: OauthLab, name: str = "desk") -> Any:
    finished = await client.post("/api/mcp-accounts", await allowed(client, lab, name))
    assert 200 == finished.status, await finished.text()
    return await finished.json()


async def called(client: Client) -> dict[str, Any]:
    response = await client.post("/api/mcp/desk/call", CALL)
    found: dict[str, Any] = await response.json()
    return found


def unpacked(body: bytes) -> str:
    """The text of an answer, or of all files of an archive."""
    if not body.startswith(b"PK"):
        return body.decode()
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        return "".join(archive.read(name).decode() for name in archive.namelist())


async def code_of(response: Any) -> tuple[int, str]:
    return response.status, (await response.json())["error"]["code"]


@requirement("mcp.oauth")
async def test_a_run_uses_the_account_that_its_owner_has_connected(tmp_path, lab, up):
    """Before, it says what to connect. After disconnecting the tokens are worth nothing."""
    async with serving(tmp_path, lab, up) as served, served.client() as client:
        api = Native(client)
        refused = await api.settled(await api.start(await api.new_session(), "Go", "agent/helper"))
        before = await api.get("/api/mcp-accounts")
        connected = await connect(client, lab)
        up.enqueue(calling(("desk__look", {})), answer("I see a lamp."))
        done = await api.settled(await api.start(await api.new_session(), "Go", "agent/helper"))
        gone = await client.request("DELETE", "/api/mcp-accounts/desk")
        again = await client.request("DELETE", "/api/mcp-accounts/desk")
        after = await api.get("/api/mcp-accounts")
        failed = await called(client)

    assert ("failed", "tool_server_not_connected") == (refused["outcome"], refused["error"]["code"])
    assert [{"server": "desk", "shared": False, "connected_at": None}] == before["accounts"]
    assert connected["connected_at"] is not None
    assert "I see a lamp." == done["text"]
    assert "a lamp" in json.dumps(up.requests[-1].body)
    assert (204, 404) == (gone.status, again.status)
    assert before == after
    assert {each for each in lab.granted if not each.startswith("code")} == set(lab.revoked)
    assert "Connect" in failed["error"]["message"]


@requirement("mcp.oauth")
async def test_each_person_has_an_account_and_a_shared_one_is_the_admins_to_connect(tmp_path, lab):
    """A token belongs to who connected it: nobody else's run gets it, unless the operator shares it."""
    async with serving(tmp_path, lab) as served:
        admin = await first_admin(served)
        member, guest = await add_person(served, admin, "bob"), await add_person(served, admin, "gus", role="guest")
        async with browser(served, member) as bob, browser(served, admin) as ada, browser(served, guest) as gus:
            await connect(bob, lab)
            of_ada = await (await ada.get("/api/mcp-accounts")).json()
            not_ada = await called(ada)
            of_guest = await gus.get("/api/mcp-accounts")
    async with serving(made(tmp_path), lab, shared=True) as served:
        admin = await first_admin(served)
        async with browser(served, await add_person(served, admin, "bob")) as bob, browser(served, admin) as ada:
            hidden = await (await bob.get("/api/mcp-accounts")).json()
            refused = await code_of(await bob.post("/api/mcp-accounts/desk"))
            await connect(ada, lab)
            shared = await called(ada)

    assert of_ada["accounts"][0]["connected_at"] is None
    assert "needs an account" in not_ada["error"]["message"]
    assert 403 == of_guest.status
    assert ([], (404, "not_found")) == (hidden["accounts"], refused)
    assert "a lamp" == shared["output"]


class Meanwhile(MemoryStore):
    """A store on which other requests go on: something may happen before it answers about an account."""

    then: Any = None

    async def get_document(self, kind: str, id: str) -> Any:
        if kind == "mcp_account" and self.then is not None:
            then, self.then = self.then, None
            await then()
        await asyncio.sleep(0)
        return await super().get_document(kind, id)


@requirement("mcp.oauth")
async def test_a_shared_account_is_connected_anew_by_another_admin(tmp_path, lab):
    """The first admin may have left: the account is the server's, whoever has connected it."""
    async with serving(tmp_path, lab, store=Meanwhile(), shared=True) as served:
        admin = await first_admin(served)
        other = await add_person(served, admin, "bob", role="admin")
        async with browser(served, admin) as ada, browser(served, other) as bob:
            await connect(ada, lab)
            lab.end_access()
            await connect(bob, lab)
            found = await called(ada)

    assert "a lamp" == found["output"]


@requirement("mcp.oauth")
async def test_an_account_at_a_server_that_is_removed_meanwhile_is_not_kept(tmp_path, lab):
    """Its tokens would be for nothing, and nobody could disconnect it."""
    store = Meanwhile()
    async with serving(tmp_path, lab, store=store) as served, served.client() as client:
        web = {"name": "web", "url": f"{lab.url}/mcp", "auth": "oauth"}
        assert 201 == (await client.post("/api/mcp", web)).status
        brought = await allowed(client, lab, "web")
        store.then = lambda: client.request("DELETE", "/api/mcp/web")
        finished = await code_of(await client.post("/api/mcp-accounts", brought))
        kept = await store.list_documents("mcp_account")

    assert (404, "not_found") == finished
    assert [] == kept
    assert {each for each in lab.granted if not each.startswith("code")} == set(lab.revoked)


@requirement("mcp.oauth", "mcp.managed")
async def test_servers_are_listed_and_disconnected_while_others_are_removed(tmp_path, lab):
    """What is gone by then is no error of the server."""
    store = Meanwhile()
    async with serving(tmp_path, lab, store=store) as served, served.client() as client:
        for name in ("one", "two"):
            web = {"name": name, "url": f"{lab.url}/mcp", "auth": "oauth"}
            assert 201 == (await client.post("/api/mcp", web)).status
        await connect(client, lab, "one")
        store.then = lambda: client.request("DELETE", "/api/mcp/two")
        listed = await client.get("/api/mcp")
        left = await client.get("/api/mcp")
        store.then = lambda: client.request("DELETE", "/api/mcp/one")
        gone = await client.request("DELETE", "/api/mcp-accounts/one")

    assert (200, 200) == (listed.status, left.status)
    assert ["desk", "one"] == [each["name"] for each in (await left.json())["servers"]]
    assert 404 == gone.status


@requirement("mcp.oauth-attempt")
async def test_only_who_has_begun_finishes_and_only_once(tmp_path, lab):
    """A link with somebody else's code must not connect their account to mine, nor mine to theirs."""
    async with serving(tmp_path, lab) as served:
        admin = await first_admin(served)
        member = await add_person(served, admin, "bob")
        async with browser(served, admin) as ada, browser(served, member) as bob:
            back = await allowed(ada, lab)
            strange = await code_of(await bob.post("/api/mcp-accounts", back))
            wrong = await code_of(await ada.post("/api/mcp-accounts", {**back, "state": "guessed"}))
            first = await ada.post("/api/mcp-accounts", back)
            second = await code_of(await ada.post("/api/mcp-accounts", back))
            other = {**await allowed(bob, lab), "iss": "https://other.example.com"}
            mixed = await code_of(await bob.post("/api/mcp-accounts", other))
            declined = {**await allowed(bob, lab), "error": "access_denied"}
            denied = await code_of(await bob.post("/api/mcp-accounts", declined))
            odd = await bob.post("/api/mcp-accounts", {"state": ["x"]})
            of_bob = await (await bob.get("/api/mcp-accounts")).json()

    assert [(403, "mcp_attempt_refused")] * 3 == [strange, wrong, second]
    assert 200 == first.status
    assert [(502, "mcp_not_connected")] * 2 == [mixed, denied]
    assert 400 == odd.status
    assert of_bob["accounts"][0]["connected_at"] is None


@requirement("mcp.oauth-refresh")
async def test_a_token_that_has_ended_is_refreshed_once_by_all_servers_together(tmp_path, lab):
    """A refresh token counts once: the second use of one is taken for a theft, and ends the access."""
    store = MemoryStore()
    async with serving(tmp_path, lab, store=store) as one, serving(tmp_path, lab, store=store) as two:
        async with one.client() as first, two.client() as second:
            lab.lasts = 1
            await connect(first, lab)
            lab.lasts = 3600
            found = await asyncio.gather(*(called(each) for each in (first, second, first, second)))
            ended = list(lab.refreshes)
            lab.end_tokens()
            after = await asyncio.gather(called(first), called(second))
            refused = list(lab.refreshes)
            lab.end_access()
            lost = await called(first)
            of_second = await (await second.get("/api/mcp-accounts")).json()

    assert ["a lamp"] * 4 == [each["output"] for each in found]
    assert 1 == len(ended)
    assert ["a lamp"] * 2 == [each["output"] for each in after]
    assert 2 == len(refused) == len(set(refused))
    assert "Connect" in json.dumps(lost)
    assert of_second["accounts"][0]["connected_at"] is None


@requirement("mcp.oauth-addresses")
@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"token_endpoint": "ftp://127.0.0.1/token"}, "https://"),
        ({"issuer": "https://other.example.com"}, "of another server"),
        ({"code_challenge_methods_supported": ["plain"]}, "PKCE"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "https://"),
        ({"registration_endpoint": None}, "oauth_client"),
    ],
)
async def test_a_description_that_is_not_sound_is_refused(tmp_path, lab, said, why):
    """The description comes from a server of others: it must not choose what is asked, or opened in the browser."""
    lab.described = said
    async with serving(tmp_path, lab) as served, served.client() as client:
        refused = await client.post("/api/mcp-accounts/desk")
        found = await refused.json()

    assert (502, "mcp_not_connected") == (refused.status, found["error"]["code"])
    assert why in found["error"]["message"]
    assert "/token" not in lab.asked


@requirement("mcp.oauth-addresses")
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_server_elsewhere_cannot_lead_holdfast_into_its_own_network(tmp_path, lab, scheme):
    """Its answer names an address on this machine. The lab is its own proxy, so that a name leads to it."""
    lab.metadata = f"{scheme}://{urlsplit(lab.url).netloc}/.well-known/oauth-protected-resource/mcp"
    environ = {**NO_HOME, "http_proxy": lab.url, "no_proxy": "127.0.0.1"}
    async with serving(tmp_path, lab, environ=environ, url="http://desk.invalid/mcp") as served:
        async with served.client() as client:
            refused = await client.post("/api/mcp-accounts/desk")
            found = await refused.json()

    assert (502, "mcp_not_connected") == (refused.status, found["error"]["code"])
    assert {"http": "https://", "https": "no public address"}[scheme] in found["error"]["message"]
    assert ["/mcp"] == lab.asked


@requirement("mcp.oauth-addresses")
@pytest.mark.parametrize("resource", ["https://bank.example.com/mcp", "http:", ""])
async def test_a_server_asks_for_no_access_to_another(tmp_path, lab, resource):
    """Else a hostile server would have people allow the access to a good one, and get the token for it."""
    lab.protected = {"resource": resource}
    async with serving(tmp_path, lab) as served, served.client() as client:
        refused = await code_of(await client.post("/api/mcp-accounts/desk"))

    assert (502, "mcp_not_connected") == refused
    assert "/register" not in lab.asked


WAYS = [
    (None, "client_secret_basic"),
    (["client_secret_post", "client_secret_basic"], "client_secret_basic"),
    (["none", "client_secret_post"], "client_secret_post"),
]


@requirement("mcp.oauth-client")
@pytest.mark.parametrize(("takes", "way"), WAYS)
async def test_a_client_with_a_secret_proves_itself_as_the_server_takes_it(tmp_path, lab, takes, way):
    """For the code, for each refresh, and to revoke. The way is the one that the server describes."""
    lab.described, lab.lasts = {"token_endpoint_auth_methods_supported": takes}, 1
    lab.client = f"{way} holdfast:of+ours" if way == "client_secret_basic" else f"{way} holdfast:of ours"
    environ = {**NO_HOME, "DESK": "of ours"}
    fields = {"oauth_client": "holdfast", "oauth_secret_env": "DESK"}
    async with serving(tmp_path, lab, environ=environ, **fields) as served, served.client() as client:
        await connect(client, lab)
        lab.lasts = 3600
        found = await called(client)
        gone = await client.request("DELETE", "/api/mcp-accounts/desk")

    assert ("a lamp", 204) == (found["output"], gone.status)
    assert (1, 2) == (len(lab.refreshes), len(lab.revoked))
    assert "/register" not in lab.asked


@requirement("mcp.oauth-client")
async def test_a_server_that_takes_no_such_secret_is_said_before_anybody_is_sent_there(tmp_path, lab):
    """Else a person would allow an access that can never be used."""
    lab.described = {"token_endpoint_auth_methods_supported": ["private_key_jwt"]}
    fields = {"oauth_client": "holdfast", "oauth_secret": "ours"}
    async with serving(tmp_path, lab, **fields) as served, served.client() as client:
        refused = await client.post("/api/mcp-accounts/desk")

    assert 502 == refused.status
    assert "does not take a client secret" in await refused.text()


@requirement("mcp.oauth-client", "mcp.sealed")
async def test_the_secret_of_a_client_is_kept_changed_and_never_shown(tmp_path, lab, caplog):
    """It stays with null, for the same client at the same address only. Who was connected before uses the new one."""
    caplog.set_level(logging.DEBUG, logger="holdfast")
    lab.client, store = "client_secret_basic holdfast:first-secret", MemoryStore()
    change = {"name": "own", "url": f"{lab.url}/mcp", "auth": "oauth", "oauth_client": "holdfast"}
    async with serving(tmp_path, lab, store=store) as served, served.client() as client:

        async def put(**more: Any) -> Any:
            return await client.request("PUT", "/api/mcp/own", json={**change, **more})

        alone = await client.post("/api/mcp", {**change, "oauth_client": "", "oauth_secret": "first-secret"})
        added = await (await client.post("/api/mcp", {**change, "oauth_secret": "first-secret"})).json()
        kept = await (await put(oauth_secret=None, timeout=9)).json()
        moved = [await put(**each, oauth_secret=None) for each in ({"url": "https://x.test"}, {"oauth_client": "y"})]
        await connect(client, lab, "own")
        lab.client = "client_secret_basic holdfast:second-secret"
        await put(oauth_secret="second-secret")
        lab.end_tokens()
        found = await (await client.post("/api/mcp/own/call", CALL)).json()
        paths = ("/api/mcp", "/api/audit", "/api/account/export")
        shown = [unpacked(await (await client.get(path)).body()) for path in paths]
        stored = [each.body for kind in ("settings", "mcp_account") for each in await store.list_documents(kind)]

    assert 400 == alone.status
    assert (True, True) == (added["oauth_secret_set"], kept["oauth_secret_set"])
    assert [400, 400] == [response.status for response in moved]
    assert "a lamp" == found["output"]
    everything = json.dumps([added, kept, shown, str(stored), caplog.text])
    assert not [each for each in ("first-secret", "second-secret") if each in everything]


@requirement("mcp.oauth-client")
@pytest.mark.parametrize(("client", "secret", "then"), [("other", "others", "ours"), ("holdfast", "new", "new")])
async def test_an_account_keeps_its_client_and_takes_the_new_secret_of_it(tmp_path, lab, client, secret, then):
    """To refresh and to revoke. With the secret of another client the account would end, and its tokens would not."""
    before, after = ("holdfast", "ours"), (client, secret)
    change = {"name": "own", "url": f"{lab.url}/mcp", "auth": "oauth"}
    async with serving(tmp_path, lab) as served, served.client() as caller:

        async def put(pair: tuple[str, str]) -> Any:
            body = {**change, "oauth_client": pair[0], "oauth_secret": pair[1]}
            return await caller.request("PUT", "/api/mcp/own", json=body)

        await caller.post("/api/mcp", {**change, "oauth_client": "holdfast"})
        for use in ("refresh", "revoke"):
            await put(before)
            lab.client = "client_secret_basic holdfast:ours"
            await connect(caller, lab, "own")
            await put(after)
            lab.client = f"client_secret_basic holdfast:{then}"
            if use == "refresh":
                lab.end_tokens()
                found = await (await caller.post("/api/mcp/own/call", CALL)).json()
            else:
                await caller.request("DELETE", "/api/mcp-accounts/own")

    assert ("a lamp", 1, 2) == (found.get("output"), len(lab.refreshes), len(lab.revoked))


@requirement("mcp.oauth-secret")
async def test_a_token_is_not_sent_to_another_address(tmp_path, lab, up):
    """Who may change the address of a server must not get everybody's tokens by that."""
    store, change = MemoryStore(), {"name": "moving", "url": f"{lab.url}/mcp", "auth": "oauth"}
    async with serving(tmp_path, lab, store=store) as served, served.client() as client:
        assert 201 == (await client.post("/api/mcp", change)).status
        begun = await (await client.post("/api/mcp-accounts/moving")).json()
        async with Client(lab.url) as away:
            answered = await away.get(begun["url"].removeprefix(lab.url))
        back = {name: values[0] for name, values in parse_qs(urlsplit(answered.headers["location"]).query).items()}
        assert 200 == (await client.post("/api/mcp-accounts", back)).status
        moved = await client.request("PUT", "/api/mcp/moving", json={**change, "url": f"{lab.url}/mcp?other=1"})
        found = await (await client.post("/api/mcp/moving/connect")).json()
        left = await store.list_documents("mcp_account")

    assert 200 == moved.status
    assert (False, 0) == (found["ok"], len(left))
    assert "needs an account" in found["why"]


@requirement("mcp.oauth-secret")
async def test_erasing_a_person_erases_their_accounts(tmp_path, lab):
    """A token that is left behind would still open what was theirs."""
    store = MemoryStore()
    async with serving(tmp_path, lab, store=store) as served:
        admin = await first_admin(served)
        member = await add_person(served, admin, "bob")
        async with browser(served, admin) as ada, browser(served, member) as bob:
            await connect(bob, lab)
            before = await store.list_documents("mcp_account")
            people = (await (await ada.get("/api/admin/people")).json())["people"]
            id = next(each["id"] for each in people if each["name"] == "bob")
            begun = await (await ada.request("DELETE", f"/api/admin/people/{id}?data=delete")).json()
            async with asyncio.timeout(LONG):
                while (await Native(ada).get(f"/api/admin/erasures/{begun['id']}"))["state"] != "done":  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            after = await store.list_documents("mcp_account")

    assert (1, 0) == (len(before), len(after))


@requirement("mcp.oauth-secret")
async def test_tokens_and_codes_are_in_no_answer_log_or_export(tmp_path, lab, caplog):
    """Whoever has a token is the person at that server."""
    caplog.set_level(logging.DEBUG, logger="holdfast")
    store = MemoryStore()
    async with serving(tmp_path, lab, store=store) as served:
        admin = await first_admin(served)
        async with browser(served, admin) as ada:
            told = [await connect(ada, lab), await called(ada)]
            paths = ("/api/mcp-accounts", "/api/mcp", "/api/audit", "/api/account/export")
            shown = [unpacked(await (await ada.get(path)).body()) for path in paths]
            kept = [each.body for each in await store.list_documents("mcp_account")]

    everything = json.dumps([told, shown, kept, caplog.text])
    assert "a lamp" in everything
    assert 1 == len(kept)
    assert 3 == len(lab.granted)
    assert not [each for each in lab.granted if each in everything]
