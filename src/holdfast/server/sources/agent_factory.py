"""Makes agents and MCP servers from the settings."""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from ...agents.ask_user import AskUser
from ...agents.files import WRITE as FILES_WRITE
from ...agents.files import Files
from ...agents.loop import Agent, AgentLimits
from ...agents.mcp.described import Bearers, McpServer
from ...agents.mcp.pool import ToolServers
from ...agents.modules import CannotImport, import_named
from ...agents.shell import Shell
from ...agents.tools import Tool
from ...ids import ModelName
from ...pricing import Price, Prices
from ..config.settings import AGENT, AgentSettings, McpSettings, Settings, SettingsError, data_folder
from .agent_users import EVERYONE, AgentUsers, Rights, Users, models_of, published_users

MCP = "mcp:"
"""The prefix of an MCP server's name among an agent's tools."""
OWN_PYTHON = ("python", "python3")
"""Commands that stand for the interpreter of this process, which has the MCP SDK."""
_PLAIN_OWNER = re.compile(r"[a-z0-9_@-][a-z0-9._@-]{0,63}")
_SERVER_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9-]{0,23}")


def agents_of(settings: Settings, environ: Mapping[str, str] = os.environ) -> dict[str, Agent]:
    """Return the agents of the settings, or raise what is wrong with one."""
    return fixed_agents(settings, environ, servers_of(settings, environ))


def fixed_agents(
    settings: Settings, environ: Mapping[str, str], servers: Mapping[str, ToolServers]
) -> dict[str, Agent]:
    """Return the agents of the settings, with these MCP servers, or raise what is wrong with one."""
    names = [described.name for described in settings.agents]
    if len(set(names)) < len(names):
        raise SettingsError("Two agents have the same name.")
    if names and any(provider.name == AGENT for provider in settings.providers):
        raise SettingsError(f"The provider name {AGENT!r} is reserved for agents.")
    return {described.name: make_agent(described, settings, environ, servers) for described in settings.agents}


def agent_users_of(settings: Settings, published: Iterable[str], rights: Rights) -> AgentUsers:
    """Return who may use which agent, of the settings and of a program."""
    users = {**users_of(settings), **published_users(settings, published)}
    return AgentUsers(users, rights, models_of(settings))


def users_of(settings: Settings) -> dict[str, Users]:
    """Return the users of each agent of the settings. By default only admins may use one that could write or run
    something.
    """
    return {described.name: _users(described) for described in settings.agents}


def _users(described: AgentSettings) -> Users:
    if described.users is not None:
        return described.users
    return (EVERYONE,) if all(_only_reads(tool, described) for tool in described.tools) else ()


def _only_reads(tool: str, described: AgentSettings) -> bool:
    """Return whether a tool certainly changes nothing. Claims of a tool or an MCP server do not count."""
    denied = {name for name, approval in described.approvals.items() if approval == "deny"}
    if tool == AskUser.name:
        return True
    return (tool == "files" and FILES_WRITE in denied) or (tool == "shell" and Shell.name in denied)


def servers_of(
    settings: Settings, environ: Mapping[str, str], bearers: Bearers | None = None
) -> dict[str, ToolServers]:
    """Return the MCP servers of the settings, not connected yet."""
    found: dict[str, ToolServers] = {}
    for described in settings.mcp:
        if described.name in found:
            raise SettingsError(f"The name {described.name!r} of an MCP server is used twice.")
        found[described.name] = ToolServers(server_of(described, environ), bearers=bearers)
    return found


def server_of(described: McpSettings, environ: Mapping[str, str]) -> McpServer:
    """Return the MCP server of a table of the settings, or raise what is wrong with it."""
    if not _SERVER_NAME.fullmatch(described.name):
        raise SettingsError(
            f"{described.name!r} is not a valid name for an MCP server. Use at most 24 letters, digits and -."
        )
    if bool(described.command) == bool(described.url):
        raise SettingsError(f"MCP server {described.name!r} needs either a command or a url.")
    who = f"The MCP server {described.name!r}"
    if described.auth and (not described.url or described.api_key_env):
        raise SettingsError(f"{who} has auth, which needs a url and no api_key_env.")
    if described.client_secret(environ) and not described.oauth_client:
        raise SettingsError(f"{who} has the secret of an oauth_client, and no oauth_client.")
    named = _variables(described.env_from, environ, who)
    key = _variables(list(filter(None, [described.api_key_env, described.oauth_secret_env])), environ, who)
    header = {"Authorization": f"Bearer {key[described.api_key_env]}"} if described.api_key_env else {}
    return McpServer(
        name=described.name,
        command=sys.executable if described.command in OWN_PYTHON else described.command,
        args=described.args,
        env={**named, **described.env},
        cwd=str(pathlib.Path(described.folder).expanduser()) if described.folder else "",
        url=described.url,
        headers={**described.headers, **header},
        tools=described.tools,
        approval=described.approval,
        timeout=described.timeout or None,
        shared=described.shared,
        oauth=described.auth == "oauth",
        oauth_client=described.oauth_client,
        oauth_secret=described.client_secret(environ),
    )


def _variables(names: Sequence[str], environ: Mapping[str, str], who: str) -> dict[str, str]:
    """Return the variables that a table of the settings names, or raise which one is not set."""
    if missing := [name for name in names if name not in environ]:
        raise SettingsError(f"{who} needs the variable {missing[0]}, which is not set.")
    return {name: environ[name] for name in names}


def make_agent(
    described: AgentSettings, settings: Settings, environ: Mapping[str, str], servers: Mapping[str, ToolServers]
) -> Agent:
    """Return the agent of a table of the settings."""
    if described.name in ("", ".", "..") or "/" in described.name:
        raise SettingsError(f"{described.name!r} is not a valid agent name. It must not be empty or have a slash.")
    remote = [name.removeprefix(MCP) for name in described.tools if name.startswith(MCP)]
    if missing := [name for name in remote if name not in servers]:
        raise SettingsError(f"Agent {described.name!r}: no [[mcp]] server named {missing[0]!r}.")
    local = [name for name in described.tools if not name.startswith(MCP)]
    folder_of = _folder_of(described, data_folder(settings, environ))
    tools_of = _tools_of(described, local, folder_of)
    tools = tools_of("")
    known = {tool.name for tool in tools}
    if len(known) < len(tools):
        raise SettingsError(f"Agent {described.name!r}: two of its tools have the same name.")
    is_remote = tuple(f"{name}__" for name in remote)
    for field, table in (("approvals", described.approvals), ("replay", described.replay)):
        named = {name for name in table if not name.startswith(is_remote)}
        if unknown := sorted(named - known):
            raise SettingsError(
                f"Agent {described.name!r}: {field} names {unknown[0]!r}, which is not one of its tools."
            )
    return Agent(
        name=described.name,
        model=described.model,
        system=described.system,
        tools=tools,
        owned=None if described.folder else tools_of,
        files=(lambda owner: Files(folder_of(owner))) if {"files", Shell.name} & {*local} else None,
        servers=tuple(servers[name] for name in dict.fromkeys(remote)),
        env=_variables(described.env_from, environ, f"Agent {described.name!r}"),
        approvals=described.approvals,
        replay=dict(described.replay),
        limits=AgentLimits(
            steps=described.max_steps,
            seconds=described.max_seconds or None,
            tokens=described.max_tokens or None,
            cost=described.max_cost or None,
            approval=described.approval_timeout or None,
        ),
        price=Prices(settings.prices).of(ModelName(settings.aliases.get(described.model, described.model))) or Price(),
        params=described.params,
        on_restart=described.on_restart,
    )


def _folder_of(described: AgentSettings, data: pathlib.Path) -> Callable[[str], pathlib.Path]:
    """Return the function that names the folder of an owner. All have the same one if the settings name one."""
    shared = pathlib.Path(described.folder).expanduser() if described.folder else None
    return lambda owner: shared or data / "agents" / described.name / folder_name(owner)


def _tools_of(
    described: AgentSettings, names: Sequence[str], folder_of: Callable[[str], pathlib.Path]
) -> Callable[[str], tuple[Tool, ...]]:
    """Return the factory of an agent's tools for each owner."""
    makers = [_maker(name, described) for name in names]

    @lru_cache(256)
    def tools_of(owner: str) -> tuple[Tool, ...]:
        folder = folder_of(owner)
        return tuple(tool for make in makers for tool in make(folder))

    return tools_of


def folder_name(owner: str) -> str:
    """Return the name of an owner's folder: unique, and without path separators.

    A digest keeps `Ada` and `ada` apart on file systems without case.
    """
    if _PLAIN_OWNER.fullmatch(owner):
        return owner
    plain = re.sub(r"[^a-z0-9_@-]", "_", owner.lower())[:40]
    return f"{plain}~{hashlib.sha256(owner.encode(errors='surrogatepass')).hexdigest()[:24]}"


def _maker(name: str, described: AgentSettings) -> Callable[[pathlib.Path], Sequence[Tool]]:
    """Return the factory of the tools of a name in the settings."""
    if name == "files":
        return lambda folder: Files(folder).tools()
    if name == "shell":
        return lambda folder: [Shell(folder)]
    if name == AskUser.name:
        return lambda folder: [AskUser()]
    loaded = _loaded(name, described)
    return lambda folder: loaded


def _loaded(name: str, described: AgentSettings) -> list[Tool]:
    """Return the tools of a Python module that the settings name."""
    agent = described.name
    module, colon, attribute = name.partition(":")
    if not colon:
        raise SettingsError(
            f"Agent {agent!r}: unknown tool {name!r}. Use files, shell, ask_user, mcp:SERVER or MODULE:NAME."
        )
    try:
        found = import_named(module, attribute, described.modules)
    except CannotImport as error:
        raise SettingsError(f"Agent {agent!r}: the tool {error}") from error
    tools = list(found) if isinstance(found, (list, tuple)) else [found]
    if not tools or not all(isinstance(tool, Tool) for tool in tools):
        raise SettingsError(f"Agent {agent!r}: {name!r} is not a tool. Put @tool before the function.")
    return tools
