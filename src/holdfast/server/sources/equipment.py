"""The agents and MCP servers of a running server: of its settings file, and those that are set up in the page."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ...access import Access
from ...agents.loop import Agent
from ...agents.mcp.described import Bearers, McpServer, ToolServerNotConnected
from ...agents.mcp.pool import ToolServers
from ...pricing import Prices
from ..config.settings import AgentSettings, McpSettings, SettingsError
from ..live.live_settings import Configured
from .agent_factory import MCP, agent_users_of, fixed_agents, make_agent, server_of, servers_of
from .agent_users import Rights, models_of
from .agents import AgentSources

logger = logging.getLogger(__name__)


class Equipment:
    """Makes agents and MCP servers, and makes them again when their descriptions change.

    What the settings file describes is made once, and stops the start if it is wrong. What was set up in the page and
    cannot be made any more, as it needs something that has gone, is left out, with the reason.
    """

    def __init__(
        self, configured: Configured, sources: AgentSources, prices: Prices, rights: Rights, environ: Mapping[str, str]
    ) -> None:
        self._configured, self._sources, self._prices = configured, sources, prices
        self._rights, self._environ = rights, environ
        given = configured.given
        self.bearers: Bearers | None = None
        """Returns the tokens of people for MCP servers that need them."""
        self._fixed_servers = servers_of(given, environ, self._bearer)
        self._fixed = fixed_agents(given, environ, self._fixed_servers)
        self.servers: dict[str, ToolServers] = dict(self._fixed_servers)
        """All MCP servers, by their names. None is connected before it is needed."""
        self.problems: dict[str, str] = {}
        """Why an agent of the page cannot be used, by its name."""
        self._use()
        configured.on_change = self._use

    def _use(self) -> None:
        """Use what is described now."""
        settings = self._configured.with_equipment
        self.servers = {each.name: self._server(each) for each in settings.mcp}
        self.problems = {}
        agents = dict(self._fixed)
        for described in settings.agents:
            if described.name not in agents and (agent := self._agent(described)) is not None:
                agents[described.name] = agent
        self._prices.know(models_of(settings))
        users = agent_users_of(settings, self._sources.published, self._rights)
        self._users = users
        self._sources.use(agents, users, self.servers.values())

    def may_reach(self, caller: Access, server: str) -> bool:
        """Return whether a caller may use an MCP server: an agent of theirs has its tools, or they are an admin."""
        agents = self._configured.with_equipment.agents
        return caller.admin or any(
            f"{MCP}{server}" in each.tools and self._users.may_use(caller, each.name) for each in agents
        )

    def tool_servers(self, made: McpServer) -> ToolServers:
        """Return the connections to an MCP server. None is made yet."""
        return ToolServers(made, bearers=self._bearer)

    async def _bearer(self, server: McpServer, owner: str, refused: str) -> str:
        if self.bearers is None:
            raise ToolServerNotConnected(server.name)
        return await self.bearers(server, owner, refused)

    def _server(self, described: McpSettings) -> ToolServers:
        """Return the MCP server of a description: the present one, unless it has changed."""
        if (fixed := self._fixed_servers.get(described.name)) is not None:
            return fixed
        made, present = self.made_server(described), self.servers.get(described.name)
        return present if present is not None and present.described == made else self.tool_servers(made)

    def _agent(self, described: AgentSettings) -> Agent | None:
        try:
            return self.made_agent(described)
        except SettingsError as error:
            self.problems[described.name] = str(error)
            logger.warning("an agent that was set up in the page cannot be used: %s", error)
            return None

    def made_server(self, described: McpSettings) -> McpServer:
        """Return the MCP server of a description, or raise `SettingsError`."""
        return server_of(described, self._environ)

    def made_agent(self, described: AgentSettings) -> Agent:
        """Return the agent of a description, or raise `SettingsError`."""
        if described.name in self._sources.published:
            raise SettingsError(f"Agent {described.name!r}: a published agent has this name.")
        settings = self._configured.with_equipment
        return make_agent(described, settings, self._environ, self.servers)
