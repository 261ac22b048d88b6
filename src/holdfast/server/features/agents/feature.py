"""Agents, their MCP servers, and what people have allowed them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from ....access import Access
from ...config.settings import Settings
from ...kit.feature import Feature
from ...kit.request import Bodies
from ...live.live_settings import Configured
from ...running.running import Running
from ...secrets.sealer import Sealer
from .accounts import McpAccounts
from .accounts_api import AccountsApi
from .agents import AgentList
from .agents_api import AgentsApi
from .grants import AgentsFeature
from .programs import Programs
from .servers import Servers
from .servers_api import ServersApi


class EquipmentFeature(Feature):
    """Agents and MCP servers, set up by admins, and the grants of each person."""

    def __init__(
        self,
        bodies: Bodies,
        running: Running,
        configured: Configured,
        is_fresh: Callable[[Access], Awaitable[bool]],
        sealer: Sealer,
        settings: Settings,
        environ: Mapping[str, str],
    ) -> None:
        programs, equipment = Programs(is_fresh), running.equipment
        accounts = McpAccounts(running.store, sealer, environ, running.engine.now)
        equipment.bearers = accounts.bearer
        servers = Servers(configured, equipment, accounts)
        self.inner = (
            AgentsFeature(running.agents, running.store),
            ServersApi(bodies, servers, programs),
            AccountsApi(bodies, servers, accounts, equipment, settings.public_url),
            AgentsApi(bodies, AgentList(configured, equipment), programs),
        )
