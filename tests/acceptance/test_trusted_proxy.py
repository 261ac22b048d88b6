"""People whom a trusted proxy names in a header, and everyone else who sends that header."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.requirements import requirement
from tests.support.native import Native
from tests.support.server import Server, StartFailed

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONFIG = """
[proxy]
addresses = ["127.0.0.1"]
user_header = "X-Remote-User"
groups_header = "X-Remote-Groups"
create = "member"
roles = {ops = "admin", visitors = "guest"}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    async with Server(tmp_path_factory.mktemp("proxy"), [], config=CONFIG) as server:
        yield server


async def asked(server: Server, method: str = "GET", path: str = "/api/me", json: Any = None, **headers: str) -> Any:
    """Send a request as the proxy passes it on. `user` and `groups` are its headers."""
    names = {"user": "x-remote-user", "groups": "x-remote-groups"}
    given = {names.get(name, name): value for name, value in headers.items()}
    async with server.client(**{"origin": server.url, **given}) as client:
        response = await client.request(method, path, json=json)
        return response.status, await response.json()


@requirement("people.proxy.user")
async def test_a_person_whom_the_proxy_names_has_an_account_of_their_own(server: Server):
    """Made at first sight, the same for each request, with the role of the groups of today."""
    await asked(server, user="root", groups="ops")  # there has to be another admin
    _, first = await asked(server, user="fay")
    _, again = await asked(server, user="fay", groups="x, ops")
    _, guest = await asked(server, user="fay", groups="visitors")
    _, other = await asked(server, user="gus")

    assert first["account"] == again["account"] == guest["account"] != other["account"]
    assert ["member", "admin", "guest"] == [it["role"] for it in (first, again, guest)]


@requirement("people.proxy.user")
async def test_without_the_header_nobody_is_let_in(server: Server):
    """Also on loopback, where without accounts everyone is the only user of the machine."""
    assert 401 == (await asked(server))[0]


@requirement("people.proxy.user")
@pytest.mark.parametrize(
    "user", ["", "   ", "\u00a0".encode().decode("latin-1")], ids=["empty", "blank", "no-break space"]
)
async def test_a_header_that_names_nobody_is_nobody(server: Server, user: str):
    """A proxy may send it for those whom it did not recognise. All of them would be one person."""
    await asked(server, user="root", groups="ops")
    status, told = await asked(server, user=user)
    people = (await asked(server, path="/api/admin/people", user="root", groups="ops"))[1]["people"]

    assert (401, "unauthorized") == (status, told["error"]["code"])
    assert "person" not in {person["name"] for person in people}


@requirement("people.proxy.user")
async def test_a_person_sees_what_is_theirs(server: Server):
    """Sessions belong to the account."""
    async with server.client(origin=server.url, **{"x-remote-user": "hans"}) as client:
        session = await Native(client).new_session(title="Mine")

    assert 200 == (await asked(server, path=f"/api/sessions/{session}", user="hans"))[0]
    assert 404 == (await asked(server, path=f"/api/sessions/{session}", user="ivo"))[0]


@requirement("people.proxy.user")
async def test_another_sites_page_changes_nothing_through_the_proxy(server: Server):
    """The proxy names the person for any request of the browser, also for one of another site."""
    new = {"title": "forged"}
    for origin in ("https://evil.example", "null"):
        assert 403 == (await asked(server, "POST", "/api/sessions", new, user="fay", origin=origin))[0]
    site = {"sec-fetch-site": "same-site"}
    assert 403 == (await asked(server, "POST", "/api/sessions", new, user="fay", **site))[0]


@requirement("people.proxy.user")
@pytest.mark.parametrize(
    "headers",
    [
        {"x-remote-user": "fay\r\nx-remote-user: root"},
        {"x-remote-user": "fay", "x-remote-groups": "ops\r\nx-remote-groups: staff"},
    ],
)
async def test_two_headers_are_refused(server: Server, headers: dict[str, str]):
    """One is the client's own, and which of them the proxy has written is not known."""
    async with server.client(origin=server.url) as client:
        response = await client.request("GET", "/api/me", headers=headers)

    assert (403, "proxy_not_trusted") == (response.status, (await response.json())["error"]["code"])


@requirement("people.proxy.user")
async def test_a_name_leads_to_no_account_that_the_proxy_did_not_make(server: Server):
    """A person could choose the name of another who has not been here yet."""
    _, ida = await asked(server, user="ida")
    renamed = await asked(server, "PATCH", "/api/account", {"name": "jan"}, user="ida")
    _, jan = await asked(server, user="jan")

    assert 200 == renamed[0]
    assert jan["account"] != ida["account"]


@requirement("people.proxy.user")
async def test_the_header_is_refused_from_elsewhere_and_logged(tmp_path: Path):
    """Anyone could send it: the refusal tells the operator that someone tries."""
    config = CONFIG.replace("127.0.0.1", "192.0.2.0/24")
    async with Server(tmp_path, [], config=config) as server:
        refused, open_path = [await asked(server, path=path, user="ada") for path in ("/api/me", "/api/sign-in")]
        log = server.log_text()

    assert (403, "proxy_not_trusted") == (refused[0], refused[1]["error"]["code"])
    assert 403 == open_path[0]
    assert "refused x-remote-user from 127.0.0.1" in log


@requirement("people.proxy.user")
async def test_without_leave_to_make_accounts_a_stranger_is_refused(tmp_path: Path):
    """The proxy knows more people than are to use this server."""
    async with Server(tmp_path, [], config=CONFIG.replace('create = "member"\n', "")) as server:
        code, answer = await asked(server, user="kim")

    assert (403, "no_account") == (code, answer["error"]["code"])


@requirement("people.proxy.user")
@pytest.mark.parametrize(
    "config",
    ['[proxy]\nuser_header = "X-User"\n', '[proxy]\naddresses = ["somewhere"]\n'],
    ids=["anyone", "no-network"],
)
async def test_settings_that_would_let_anyone_in_are_refused_at_the_start(tmp_path: Path, config: str):
    """A header without addresses could be sent by anyone."""
    with pytest.raises(StartFailed, match=r"proxy\.(user_header|addresses)"):
        async with Server(tmp_path, [], config=config):
            pass
