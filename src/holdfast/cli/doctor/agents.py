"""Checks of the agents: their tools load, their models exist, their MCP servers start."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence

from ...agents.loop import Agent
from ...agents.mcp.described import ToolServerAway, ToolServerNotConnected
from ...agents.mcp.pool import ToolServers
from ...errors import HoldfastError, ModelNotFound
from ...server.config.settings import Settings
from ...server.sources.agent_factory import agents_of
from ...upstreams import Provider, Providers
from ..show import plural
from .check import Check

PATIENCE = 20.0
"""Timeout in seconds for an MCP server to start and list its tools. All are started at once."""
OWNER = "doctor"


async def check_agents(settings: Settings, providers: Sequence[Provider]) -> list[Check]:
    """Load every agent, look up its model, and start its MCP servers to list their tools."""
    try:
        agents = await asyncio.to_thread(agents_of, settings, os.environ)
    except HoldfastError as error:
        return [Check("bad", f"agents: {error}", "Fix the settings file: `holdfast serve` does not start with it.")]
    models = Providers(providers)
    checks = [await _agent(agent, models) for agent in agents.values()]
    return checks + await asyncio.gather(*map(_server, _servers(agents.values()))) + _unused(settings, agents)


async def _agent(agent: Agent, models: Providers) -> Check:
    name = f"agent {agent.name}"
    try:
        provider, model, _ = await models.find(agent.model)
    except ModelNotFound as error:
        return Check("bad", f"{name}: {error}", "Set its model to one that `holdfast models` lists.")
    if (agent.tools or agent.servers) and not getattr(provider, "tools", True):
        return Check("bad", f"{name}: {provider.name}/{model} cannot call tools", "Give it another model.")
    listed = await provider.list_models()
    if listed and not provider.demo and model not in listed:
        return Check("note", f"{name}: {provider.name} does not list the model {model}", "Check the spelling.")
    return Check("ok", f"{name}: {provider.name}/{model}, {plural(len(agent.tools), 'tool')}")


def _servers(agents: Iterable[Agent]) -> list[ToolServers]:
    return list({server.described.name: server for agent in agents for server in agent.servers}.values())


async def _server(servers: ToolServers) -> Check:
    name = f"MCP server {servers.described.name}"
    try:
        async with asyncio.timeout(PATIENCE):
            tools = await servers.of(OWNER).tools()
    except ToolServerNotConnected:
        return Check("ok", f"{name}: each person connects an account in the page")
    except ToolServerAway as error:
        return Check("bad", str(error), "Run its command by hand to see what is wrong.")
    except TimeoutError:
        return Check("bad", f"{name} did not answer within {PATIENCE:g} s")
    finally:
        await servers.close()
    return Check("ok", f"{name}: {plural(len(tools), 'tool')}")


def _unused(settings: Settings, agents: dict[str, Agent]) -> list[Check]:
    used = {server.described.name for server in _servers(agents.values())}
    return [
        Check("note", f"MCP server {described.name} is used by no agent", f'Add "mcp:{described.name}" to its tools.')
        for described in settings.mcp
        if described.name not in used
    ]
