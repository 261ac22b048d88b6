"""`/api/mcp-accounts`: people connect their accounts at MCP servers, and disconnect them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT, Access
from ....errors import NotFound
from ...config.settings import McpSettings
from ...kit.caller import access_of
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json, NoContent
from ...kit.request import Bodies, decode
from ...sources.equipment import Equipment
from ..audit.audit import note_of
from .accounts import McpAccounts
from .oauth import AccountNotConnected
from .servers import Servers
from .servers_api import server_name_of

RETURN = "/settings"
"""The page that an authorization server sends people back to. It finishes the attempt."""
_ACCOUNT = "/api/mcp-accounts/{server_name}"
_NONE = {404: "no such MCP server, or no agent of the caller has it"}
BroughtText = Annotated[str, msgspec.Meta(max_length=4096)]


class Brought(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the authorization server has given the browser for this page."""

    state: BroughtText
    code: BroughtText = ""
    iss: BroughtText | None = None
    error: BroughtText = ""


class AccountsApi(Feature):
    """The caller's accounts at MCP servers. No token is ever shown."""

    def __init__(
        self, bodies: Bodies, servers: Servers, accounts: McpAccounts, equipment: Equipment, public_url: str
    ) -> None:
        self._bodies, self._servers, self._accounts, self._equipment = bodies, servers, accounts, equipment
        self._public_url = public_url

    @Endpoint("GET", "/api/mcp-accounts", who=CHAT)
    async def list_mcp_accounts(self, request: Request) -> ASGIApp:
        """List the MCP servers at which the caller can connect an account."""
        caller = access_of(request)
        there = [each for each in self._servers.all() if self._may_connect(caller, each)]
        return Json({"accounts": [await self._shown(each, caller) for each in there]})

    @Endpoint(
        "POST",
        _ACCOUNT,
        who=CHAT,
        audit="mcp_account.begin",
        answers={502: "the server for it cannot be used", **_NONE},
    )
    async def begin_mcp_account(self, request: Request) -> ASGIApp:
        """Begin to connect an account. The browser goes to the `url` of the answer."""
        server = self._server(request)
        origin = self._public_url or str(request.base_url)
        redirect = f"{origin.rstrip('/')}{RETURN}"
        return Json({"url": await self._accounts.begin(server, access_of(request), redirect)})

    @Endpoint(
        "POST",
        "/api/mcp-accounts",
        who=CHAT,
        takes=Brought,
        audit="mcp_account.connect",
        answers={403: "no attempt of the caller", 502: "refused", **_NONE},
    )
    async def finish_mcp_account(self, request: Request) -> ASGIApp:
        """Connect an account with what the browser has brought back. Each `state` counts once, within ten minutes."""
        answer, caller = decode(await self._bodies.read(request), Brought), access_of(request)
        name, begun = await self._accounts.take(caller, answer.state)
        note_of(request).details = {"name": name}
        if not answer.code or answer.error:
            raise AccountNotConnected(f"The access to {name} was not granted.")
        server, connection = self._reachable(caller, name), self._equipment.servers[name].of(caller.owner)
        await self._accounts.finish(server, caller.owner, begun, answer.code, answer.iss)
        connection.rest(0.0)
        try:
            server = self._reachable(caller, name)
        except NotFound:  # it was removed meanwhile, with the accounts that it had
            await self._accounts.disconnect(server, caller.owner)
            raise
        return Json(await self._shown(server, caller))

    @Endpoint("DELETE", _ACCOUNT, who=CHAT, audit="mcp_account.disconnect", answers={404: "not connected"})
    async def disconnect_mcp_account(self, request: Request) -> ASGIApp:
        """Disconnect an account: its tokens are revoked, if the server for it offers that, and forgotten."""
        server, owner = self._server(request), access_of(request).owner
        connection = self._equipment.servers[server.name].of(owner)
        if not await self._accounts.disconnect(server, owner):
            raise NotFound(f"No account is connected at the MCP server {server.name!r}.")
        connection.rest(0.0)
        return NoContent()

    def _server(self, request: Request) -> McpSettings:
        name = server_name_of(request)
        note_of(request).details = {"name": name[:64]}
        return self._reachable(access_of(request), name)

    def _reachable(self, caller: Access, name: str) -> McpSettings:
        found = next((each for each in self._servers.all() if each.name == name), None)
        if found is None or not self._may_connect(caller, found):
            raise NotFound(f"There is no MCP server {name[:64]!r} at which you can connect an account.")
        return found

    def _may_connect(self, caller: Access, server: McpSettings) -> bool:
        is_theirs = caller.admin if server.shared else self._equipment.may_reach(caller, server.name)
        return server.auth == "oauth" and is_theirs

    async def _shown(self, server: McpSettings, caller: Access) -> dict[str, Any]:
        connected_at = await self._servers.connected_at(server, caller.owner)
        return {"server": server.name, "shared": server.shared, "connected_at": connected_at}
