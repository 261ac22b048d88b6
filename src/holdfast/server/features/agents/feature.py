"""Agents, their MCP servers, and what people have allowed them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ....access import Access
from ...kit.feature import Feature
from ...kit.request import Bodies
from ...live.live_settings import Configured
from ...running.running import Running
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
    ) -> None:
        programs, equipment = Programs(is_fresh), running.equipment
        self.inner = (
            AgentsFeature(running.agents, running.store),
            ServersApi(bodies, Servers(configured, equipment), programs),
            AgentsApi(bodies, AgentList(configured, equipment), programs),
        )
