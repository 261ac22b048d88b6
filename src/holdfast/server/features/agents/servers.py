"""MCP servers that are set up in the page: their descriptions, kept sealed, and trying them out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from ....agents.mcp.described import ToolServerAway
from ....agents.mcp.pool import ToolServer
from ....agents.tools import Approval, ToolContext, ToolError, ToolOutput
from ....errors import BadRequest, Conflict, NotFound, TooManyKept
from ....ids import new_id
from ....upstreams.http.address import UpstreamAddress
from ....wires import native
from ...config.settings import McpSettings, SettingsError
from ...live.live_settings import Configured, SettingPinned, without_secrets
from ...live.saved_settings import Saved
from ...sources.agent_factory import MCP
from ...sources.equipment import Equipment
from .accounts import McpAccounts

MOST = 100
"""Maximum number of MCP servers, and of agents, that are set up in the page."""
LONGEST_TRIAL = 60.0
"""Seconds that a call may take that a person makes to try a tool."""

TextField = Annotated[str, msgspec.Meta(max_length=4096)]
Secrets = dict[Annotated[str, msgspec.Meta(min_length=1, max_length=256)], TextField | None]
"""Secret values by their names. None keeps the value that is stored under the name."""


class InUse(Conflict):
    """The name of an agent or MCP server is taken, or agents have the tools of a server that is to be removed."""

    code = "in_use"


class McpChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An MCP server as the page describes it: an address, or a command to start."""

    name: str
    url: TextField = ""
    headers: Secrets = {}
    command: TextField = ""
    args: Annotated[tuple[TextField, ...], msgspec.Meta(max_length=100)] = ()
    env: Secrets = {}
    folder: TextField = ""
    """The folder in which the command is started."""
    tools: Annotated[tuple[TextField, ...], msgspec.Meta(max_length=1000)] | None = None
    """The tools that agents may have, by the server's own names. None for all."""
    approval: Approval = "ask"
    timeout: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 60.0
    """Seconds that a call may take; 0 for no limit."""
    shared: bool = False
    """One connection for all owners."""
    auth: Literal["", "oauth"] = ""
    """`oauth`: people connect accounts of theirs."""
    oauth_client: TextField = ""
    """The id of Holdfast at the server that grants the tokens. Default: Holdfast registers itself there."""
    oauth_secret: TextField | None = ""
    """The secret of `oauth_client`, if it has one. None keeps the stored one."""
    scopes: Annotated[tuple[TextField, ...], msgspec.Meta(max_length=100)] = ()
    """What the tokens are to allow. Default: what the MCP server asks for."""


class OfferedTool(msgspec.Struct, frozen=True):
    """A tool as an MCP server describes it."""

    name: str
    description: str
    parameters: dict[str, Any]
    allowed: bool
    """Whether agents may have it."""


class FoundTools(msgspec.Struct, frozen=True):
    """What trying an MCP server has found."""

    ok: bool
    why: str | None
    """Why it cannot be used."""
    tools: tuple[OfferedTool, ...]


class Connected(NamedTuple):
    """The connection of an owner to an MCP server, on this node."""

    state: Literal["connected", "failed", "idle"]
    why: str | None


class Trial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call to try a tool."""

    tool: str
    arguments: dict[str, Any] = {}


class Servers:
    """The MCP servers. Those of the settings file can be tried, and not changed."""

    def __init__(self, configured: Configured, equipment: Equipment, accounts: McpAccounts) -> None:
        self._configured, self._equipment, self._accounts = configured, equipment, accounts

    # reading

    def all(self) -> Sequence[McpSettings]:
        """Return all descriptions; those of the settings file come first."""
        return self._configured.with_equipment.mcp

    def described(self, name: str) -> McpSettings:
        """Return one description."""
        found = next((each for each in self.all() if each.name == name), None)
        if found is None:
            raise NotFound(f"There is no MCP server {name[:64]!r}.")
        return found

    def is_fixed(self, described: McpSettings) -> bool:
        """Return whether it is of the settings file."""
        return self._configured.source_of(described) != "ui"

    def users(self, name: str) -> list[str]:
        """Return the names of the agents that have its tools."""
        return [each.name for each in self._configured.with_equipment.agents if f"{MCP}{name}" in each.tools]

    def standing(self, name: str, owner: str) -> Connected:
        """Return the state of an owner's connection."""
        if (servers := self._equipment.servers.get(name)) is None:
            return Connected("idle", None)  # it was removed a moment ago
        server = servers.of(owner)
        if server.is_connected:
            return Connected("connected", None)
        return Connected("failed", server.failure) if server.failure else Connected("idle", None)

    async def connected_at(self, described: McpSettings, owner: str) -> str | None:
        """Return when the account of an owner was connected; None if none is, or none is needed."""
        since = await self._accounts.since(described, owner) if described.auth else None
        return None if since is None else native.moment(since)

    # changing

    async def add(self, change: McpChange) -> McpSettings:
        """Add one."""
        made = self._made(change, None)

        def added(saved: Saved) -> Saved:
            if any(each.name == change.name for each in self.all()):
                raise InUse(f"There is an MCP server {change.name!r} already. Choose another name.")
            if len(saved.mcp) >= MOST:
                raise TooManyKept("MCP server", MOST)
            return replace(saved, mcp=(*saved.mcp, made))

        await self._configured.change_saved(added)
        return made

    async def replace(self, name: str, change: McpChange) -> McpSettings:
        """Replace one. Runs that go on keep their connection."""
        before = made = self.own(name)
        if change.name != name:
            raise BadRequest("The name of an MCP server cannot be changed: agents have its tools by it.", param="name")

        def replaced(saved: Saved) -> Saved:
            nonlocal before, made
            before = self.own(name)
            made = self._made(change, before)
            return replace(saved, mcp=tuple(made if each.name == name else each for each in saved.mcp))

        await self._configured.change_saved(replaced)
        if made.url != before.url:
            await self._accounts.forget_server(name)
        return made

    async def remove(self, name: str) -> None:
        """Remove one that no agent has."""

        def removed(saved: Saved) -> Saved:
            self.own(name)
            if users := self.users(name):
                raise InUse(f"The agent {users[0]!r} has the tools of {name!r}. Take them from it first.")
            return replace(saved, mcp=tuple(each for each in saved.mcp if each.name != name))

        await self._configured.change_saved(removed)
        await self._accounts.forget_server(name)

    def own(self, name: str) -> McpSettings:
        """Return one that can be changed here."""
        described = self.described(name)
        if self.is_fixed(described):
            raise SettingPinned(f"The MCP server {name!r}", "the settings file", "name")
        return described

    def _made(self, change: McpChange, before: McpSettings | None) -> McpSettings:
        """Return the description, with the secrets that stay, or refuse it."""
        url = change.url.strip()
        if before is not None and url == without_secrets(before.url):
            url = before.url
        _check_url(url)
        is_same = before is not None and (url, change.command) == (before.url, before.command)
        made = McpSettings(
            change.name,
            command=change.command.strip(),
            args=change.args,
            env=_kept(change.env, before.env if before is not None and is_same else {}, "env"),
            folder=change.folder.strip(),
            url=url,
            headers=_kept(change.headers, before.headers if before is not None and is_same else {}, "headers"),
            tools=change.tools,
            approval=change.approval,
            timeout=change.timeout,
            shared=change.shared,
            auth=change.auth,
            oauth_client=change.oauth_client.strip(),
            oauth_secret=_secret_of(change, before if is_same else None),
            scopes=change.scopes,
        )
        try:
            self._equipment.made_server(made)
        except SettingsError as error:
            raise BadRequest(str(error), param="name") from None
        return made

    # trying

    async def test(self, change: McpChange, owner: str) -> FoundTools:
        """Connect to a server that is not saved, list its tools, and close it again."""
        before = None
        with suppress(NotFound, SettingPinned):
            before = self.own(change.name)
        servers = self._equipment.tool_servers(self._equipment.made_server(self._made(change, before)))
        try:
            return await self._found(servers.of(owner))
        finally:
            await servers.close()

    async def connect(self, name: str, owner: str) -> FoundTools:
        """Connect to a server, and list its tools."""
        return await self._found(self._server(name, owner))

    def _server(self, name: str, owner: str) -> ToolServer:
        self.described(name)
        return self._equipment.servers[name].of(owner)

    async def _found(self, server: ToolServer) -> FoundTools:
        allowed = server.described.tools
        try:
            offered = await server.offered()
        except ToolServerAway as error:
            return FoundTools(False, str(error), ())
        tools = [
            OfferedTool(
                tool.name,
                tool.description or tool.title or "",
                tool.input_schema,
                allowed is None or tool.name in allowed,
            )
            for tool in offered
        ]
        return FoundTools(True, None, tuple(tools))

    async def call(self, name: str, trial: Trial, owner: str) -> tuple[ToolOutput, float]:
        """Call a tool of a server as a person asks for it. Return its output, and how many seconds it took."""
        server = self._server(name, owner)
        found = await self._found(server)
        if not found.ok:
            raise ToolServerAway(found.why or "")
        if not any(tool.name == trial.tool for tool in found.tools):
            raise NotFound(f"The MCP server {name!r} has no tool {trial.tool[:64]!r}.")
        context, began = ToolContext(call_id=new_id("call")), time.monotonic()
        try:
            async with asyncio.timeout(server.described.timeout or LONGEST_TRIAL):
                output = await server.call(trial.tool, trial.arguments, context)
        except ToolError as error:
            output = ToolOutput(str(error), is_error=True)
        except TimeoutError:
            waited = server.described.timeout or LONGEST_TRIAL
            output = ToolOutput(f"The tool did not answer within {waited:g} s. It may have run.", is_error=True)
        finally:
            context.end()
        return output, time.monotonic() - began


def _secret_of(change: McpChange, before: McpSettings | None) -> str:
    """Return the secret of the client: the given one, and for None the stored one."""
    given, client = {"oauth_secret": change.oauth_secret}, change.oauth_client.strip()
    is_same = before is not None and before.oauth_client == client and before.oauth_secret
    stored = {"oauth_secret": before.oauth_secret} if before is not None and is_same else {}
    return _kept(given, stored, "oauth_secret")["oauth_secret"]


def _kept(given: Secrets, before: dict[str, str], param: str) -> dict[str, str]:
    """Return the values: the given ones, and for None the stored ones."""
    values = {name: before.get(name, "") if value is None else value for name, value in given.items()}
    if missing := sorted(name for name, value in given.items() if value is None and name not in before):
        raise BadRequest(
            f"Give the value of {missing[0]!r} again: none is stored for this address or command.", param=param
        )
    if wrong := sorted(name for name, value in values.items() if not f"{name}{value}".isprintable()):
        raise BadRequest(f"{wrong[0][:64]!r} has characters that no header and no variable can have.", param=param)
    return values


def _check_url(url: str) -> None:
    """Refuse what is no address of an upstream: the same rules as for providers."""
    if not url:
        return
    try:
        UpstreamAddress(url)
    except ValueError as error:
        raise BadRequest(f"{error}.".replace("base_url", "The url"), param="url") from None
