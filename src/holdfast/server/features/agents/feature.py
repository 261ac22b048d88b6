"""Agents, their MCP servers, and what people have allowed them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT, READ, Access
from ....errors import NotFound
from ....store import Store
from ....store.documents import Stored
from ....wires import native
from ...config.settings import Settings
from ...kit.caller import owner_of
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json, NoContent
from ...kit.request import Bodies
from ...live.live_settings import Configured
from ...running.running import Running
from ...secrets.sealer import Sealer
from ...sources.agents import AgentSources, Grant, grants_in
from .accounts import McpAccounts
from .accounts_api import AccountsApi
from .agents import AgentList
from .agents_api import AgentsApi
from .programs import Programs
from .servers import Servers
from .servers_api import ServersApi
from .workspaces import Workspaces


class AgentsFeature(Feature):
    """Agents: the approvals that they have for longer than one call, their files, and what their tools have opened."""

    def __init__(self, agents: AgentSources, store: Store) -> None:
        self._agents, self._store = agents, store
        self.inner = (Workspaces(agents),)

    async def start(self) -> None:
        """Remove what the tools of a node that is gone have left."""
        await self._agents.clear_up()

    async def close(self) -> None:
        """Close what tools have opened."""
        await self._agents.close()

    @Endpoint("GET", "/api/grants", who=READ)
    async def list_grants(self, request: Request) -> ASGIApp:
        """List grants, the newest first."""
        grants = grants_in(self._store).all(owner=owner_of(request))
        return Json({"grants": [_shown(grant) async for grant in grants]})

    @Endpoint("DELETE", "/api/grants/{grant_id}", who=CHAT, audit="grant.delete")
    async def delete_grant(self, request: Request) -> ASGIApp:
        """Revoke a grant: the tool needs an approval again."""
        grants, grant_id = grants_in(self._store), request.path_params["grant_id"]
        if await grants.get(grant_id, owner=owner_of(request)) is None:
            raise NotFound(f"There is no grant {grant_id!r}.")
        await grants.delete(grant_id)
        return NoContent()


def _shown(grant: Stored[Grant]) -> dict[str, Any]:
    return {"id": grant.id, **msgspec.structs.asdict(grant.body), "created_at": native.moment(grant.created_at)}


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
