"""`/api/agents`: list, add, try, change and remove agents."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import ADMIN
from ...config.settings import AgentSettings
from ...kit.caller import owner_of
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json, NoContent
from ...kit.request import Bodies, decode
from ..audit.audit import note_of
from .agents import STARTS_PROGRAMS, AgentChange, AgentList
from .programs import Programs

_BAD = {403: "not an admin, or it starts programs", 409: "the name is taken, or fixed"}
_NONE = {404: "no such agent or model"}
_AGENT = "/api/agents/{agent_name}"
_ELSEWHERE = ("folder", "modules", "env_from")
"""What only the settings file can say: it reaches into the machine of the server."""


class AgentsApi(Feature):
    """The agents, for admins."""

    def __init__(self, bodies: Bodies, agents: AgentList, programs: Programs) -> None:
        self._bodies, self._agents, self._programs = bodies, agents, programs

    @Endpoint("GET", "/api/agents", who=ADMIN)
    async def list_agents(self, request: Request) -> ASGIApp:
        """List the agents of the settings file, and those that were set up here."""
        listed = [self._shown(each) for each in self._agents.all()]
        return Json({"agents": listed, "tools": self._agents.tools()})

    @Endpoint(
        "POST", "/api/agents", who=ADMIN, takes=AgentChange, audit="agent.add", answers={201: "it", **_BAD, **_NONE}
    )
    async def add_agent(self, request: Request) -> ASGIApp:
        """Add an agent. It is the model `agent/<name>` of those who may use it."""
        made = await self._agents.add(await self._read(request))
        return Json(self._shown(made), status_code=201, headers={"location": f"/api/agents/{made.name}"})

    @Endpoint("POST", "/api/agents/test", who=ADMIN, takes=AgentChange, audit="agent.test", answers={**_BAD, **_NONE})
    async def test_agent(self, request: Request) -> ASGIApp:
        """Connect to the MCP servers of an agent that is not saved, and list its tools."""
        return Json(await self._agents.test(await self._read(request), owner_of(request)))

    @Endpoint("PUT", _AGENT, who=ADMIN, takes=AgentChange, audit="agent.change", answers={**_BAD, **_NONE})
    async def replace_agent(self, request: Request) -> ASGIApp:
        """Replace an agent. A run that goes on keeps the agent that it began with."""
        change = await self._read(request)
        return Json(self._shown(await self._agents.replace(request.path_params["agent_name"], change)))

    @Endpoint("DELETE", _AGENT, who=ADMIN, audit="agent.delete", answers={**_NONE, 409: "fixed"})
    async def delete_agent(self, request: Request) -> ASGIApp:
        """Remove an agent. Its runs that go on come to their end; nothing new starts with it."""
        name = request.path_params["agent_name"]
        note_of(request).details = {"name": name[:64]}
        await self._agents.remove(name)
        return NoContent()

    async def _read(self, request: Request) -> AgentChange:
        """Return the body. A shell needs more than an admin's rights."""
        change = decode(await self._bodies.read(request), AgentChange)
        note_of(request).details = {"name": change.name[:64], "tools": " ".join(change.tools)[:200]}
        if STARTS_PROGRAMS in change.tools:
            await self._programs.require(request)
        return change

    def _shown(self, described: AgentSettings) -> dict[str, Any]:
        is_fixed = self._agents.is_fixed(described)
        fields = {name: value for name, value in msgspec.structs.asdict(described).items() if name not in _ELSEWHERE}
        return {
            **fields,
            "source": "file" if is_fixed else "ui",
            "editable": not is_fixed,
            "problem": self._agents.problem(described.name),
        }
