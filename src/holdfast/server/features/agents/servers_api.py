"""`/api/mcp`: list, add, try, change and remove MCP servers."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import ADMIN
from ...config.settings import McpSettings
from ...kit.caller import owner_of
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json, NoContent
from ...kit.request import Bodies, decode
from ...live.live_settings import without_secrets
from ..audit.audit import note_of
from .programs import Programs
from .servers import McpChange, Servers, Trial

_BAD = {403: "not an admin, or it starts a program", 409: "the name is taken, or fixed"}
_NONE = {404: "no such MCP server"}
_SERVER = "/api/mcp/{server_name}"


class ServersApi(Feature):
    """The MCP servers, for admins."""

    def __init__(self, bodies: Bodies, servers: Servers, programs: Programs) -> None:
        self._bodies, self._servers, self._programs = bodies, servers, programs

    @Endpoint("GET", "/api/mcp", who=ADMIN)
    async def list_servers(self, request: Request) -> ASGIApp:
        """List the MCP servers, and the caller's connections to them. No value of a header or variable is shown."""
        return Json({"servers": [await self._shown(each, request) for each in self._servers.all()]})

    @Endpoint("POST", "/api/mcp", who=ADMIN, takes=McpChange, audit="mcp.add", answers={201: "it", **_BAD})
    async def add_server(self, request: Request) -> ASGIApp:
        """Add an MCP server. It is connected when a run needs it."""
        change = await self._read(request)
        made = await self._servers.add(change)
        return Json(await self._shown(made, request), status_code=201, headers={"location": f"/api/mcp/{made.name}"})

    @Endpoint("POST", "/api/mcp/test", who=ADMIN, takes=McpChange, audit="mcp.test", answers=_BAD)
    async def test_server(self, request: Request) -> ASGIApp:
        """Connect to an MCP server that is not saved, list its tools, and close it again."""
        return Json(await self._servers.test(await self._read(request), owner_of(request)))

    @Endpoint("PUT", _SERVER, who=ADMIN, takes=McpChange, audit="mcp.change", answers={**_BAD, **_NONE})
    async def replace_server(self, request: Request) -> ASGIApp:
        """Replace an MCP server. A run that goes on keeps the connection that it has."""
        change = await self._read(request)
        return Json(await self._shown(await self._servers.replace(server_name_of(request), change), request))

    @Endpoint("DELETE", _SERVER, who=ADMIN, audit="mcp.delete", answers={**_NONE, 409: "in use, or fixed"})
    async def delete_server(self, request: Request) -> ASGIApp:
        """Remove an MCP server that no agent has."""
        note_of(request).details = {"name": server_name_of(request)}
        await self._servers.remove(server_name_of(request))
        return NoContent()

    @Endpoint("POST", f"{_SERVER}/connect", who=ADMIN, audit="mcp.connect", answers=_NONE)
    async def connect_server(self, request: Request) -> ASGIApp:
        """Connect to an MCP server for the caller, and list its tools."""
        return Json(await self._servers.connect(server_name_of(request), owner_of(request)))

    @Endpoint(
        "POST",
        f"{_SERVER}/call",
        who=ADMIN,
        takes=Trial,
        audit="mcp.call",
        answers={404: "no such server or tool", 502: "not reached"},
    )
    async def call_tool(self, request: Request) -> ASGIApp:
        """Call one tool of an MCP server, to try it. It does what it does for an agent."""
        trial = decode(await self._bodies.read(request), Trial)
        note_of(request).details = {"name": server_name_of(request), "tool": trial.tool[:64]}
        output, seconds = await self._servers.call(server_name_of(request), trial, owner_of(request))
        shown = {"output": output.text, "is_error": output.is_error, "content": output.content}
        return Json({**shown, "seconds": round(seconds, 3)})

    async def _read(self, request: Request) -> McpChange:
        """Return the body. A command needs more than an admin's rights."""
        change = decode(await self._bodies.read(request), McpChange)
        note_of(request).details = {"name": change.name[:64], "url": without_secrets(change.url), "to": change.command}
        if change.command:
            await self._programs.require(request)
        return change

    async def _shown(self, described: McpSettings, request: Request) -> dict[str, Any]:
        state, why = self._servers.standing(described.name, owner_of(request))
        is_fixed = self._servers.is_fixed(described)
        return {
            "name": described.name,
            "url": without_secrets(described.url),
            "headers": sorted(described.headers),
            "command": described.command,
            "args": described.args if not is_fixed else (),
            "env": sorted(described.env),
            "folder": described.folder,
            "tools": described.tools,
            "approval": described.approval,
            "timeout": described.timeout,
            "shared": described.shared,
            "auth": described.auth,
            "oauth_client": described.oauth_client,
            "oauth_secret_set": bool(described.oauth_secret or described.oauth_secret_env),
            "scopes": described.scopes,
            "connected_at": await self._servers.connected_at(described, owner_of(request)),
            "source": "file" if is_fixed else "ui",
            "editable": not is_fixed,
            "state": state,
            "why": why,
            "agents": self._servers.users(described.name),
        }


def server_name_of(request: Request) -> str:
    """Return the MCP server that the path of a request names."""
    name: str = request.path_params["server_name"]
    return name
