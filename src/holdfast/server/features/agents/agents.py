"""Agents that are set up in the page: their descriptions, and trying them out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace

from ....agents.loop import Agent
from ....agents.mcp.described import ToolServerAway
from ....agents.tools import Approval
from ....errors import BadRequest, ModelNotFound, NotFound, TooManyKept
from ....events import Replay
from ....ids import full_name
from ...config.settings import AGENT, AgentSettings, SettingsError
from ...kit.request import System, check_params
from ...live.live_settings import Configured, SettingPinned
from ...live.saved_settings import Saved
from ...sources.agent_factory import MCP
from ...sources.equipment import Equipment
from .servers import MOST, InUse, TextField

OF_ITS_OWN = ("files", "ask_user", "shell")
"""The tools that Holdfast has itself."""
STARTS_PROGRAMS = "shell"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

AgentNames = Annotated[
    tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=256)], ...], msgspec.Meta(max_length=500)
]


class AgentChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An agent as the page describes it. The fields mean what they mean in the settings file."""

    name: str
    model: TextField
    system: System = ""
    tools: AgentNames = ()
    users: AgentNames | None = None
    """Who may use it, besides admins: ids of owners and of groups, names of keys of the settings file; `*` for all."""
    approvals: dict[str, Approval] = {}
    replay: dict[str, Replay] = {}
    max_steps: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 25
    max_seconds: Annotated[float, msgspec.Meta(ge=0, le=10**9)] = 3600.0
    max_tokens: Annotated[int, msgspec.Meta(ge=0, le=10**12)] = 0
    max_cost: Annotated[float, msgspec.Meta(ge=0, le=10**12)] = 0.0
    approval_timeout: Annotated[float, msgspec.Meta(ge=0, le=10**9)] = 86_400.0
    params: dict[str, Any] = {}
    on_restart: Literal["settle", "continue"] = "settle"


class AgentTool(msgspec.Struct, frozen=True):
    """A tool as an agent has it."""

    name: str
    description: str
    approval: Approval


class Tried(msgspec.Struct, frozen=True):
    """What trying an agent has found."""

    ok: bool
    why: str | None
    """Why it cannot be used."""
    tools: tuple[AgentTool, ...]


class AgentList:
    """The agents. Those of the settings file are shown, and not changed."""

    def __init__(self, configured: Configured, equipment: Equipment) -> None:
        self._configured, self._equipment = configured, equipment

    # reading

    def all(self) -> Sequence[AgentSettings]:
        """Return all descriptions; those of the settings file come first."""
        return self._configured.with_equipment.agents

    def is_fixed(self, described: AgentSettings) -> bool:
        """Return whether it is of the settings file."""
        return self._configured.source_of(described) != "ui"

    def problem(self, name: str) -> str | None:
        """Return why an agent cannot be used; None if it can."""
        return self._equipment.problems.get(name)

    def tools(self) -> list[str]:
        """Return the tools that an agent can be given here."""
        servers = [f"{MCP}{server.name}" for server in self._configured.with_equipment.mcp]
        return [*OF_ITS_OWN, *sorted(self._functions()), *servers]

    def _functions(self) -> dict[str, str]:
        """Return the Python tools that the settings file names, with their folders: no others are loaded."""
        given = self._configured.given.agents
        return {tool: each.modules for each in given for tool in each.tools if ":" in tool and not tool.startswith(MCP)}

    def own(self, name: str) -> AgentSettings:
        """Return one that can be changed here."""
        found = next((each for each in self.all() if each.name == name), None)
        if found is None:
            raise NotFound(f"There is no agent {name[:64]!r}.")
        if self.is_fixed(found):
            raise SettingPinned(f"The agent {name!r}", "the settings file", "name")
        return found

    # changing

    async def add(self, change: AgentChange) -> AgentSettings:
        """Add one. Everyone whom it names can use it at once."""
        made, _ = await self._made(change)

        def added(saved: Saved) -> Saved:
            if any(each.name == made.name for each in self.all()):
                raise InUse(f"There is an agent {made.name!r} already. Choose another name.")
            if len(saved.agents) >= MOST:
                raise TooManyKept("agent", MOST)
            return replace(saved, agents=(*saved.agents, made))

        await self._configured.change_saved(added)
        return made

    async def replace(self, name: str, change: AgentChange) -> AgentSettings:
        """Replace one. Runs that go on keep the agent that they began with."""
        self.own(name)
        if change.name != name:
            raise BadRequest("The name of an agent cannot be changed: chats and keys name it.", param="name")
        made, _ = await self._made(change)

        def replaced(saved: Saved) -> Saved:
            self.own(name)  # or it was removed meanwhile
            return replace(saved, agents=tuple(made if each.name == name else each for each in saved.agents))

        await self._configured.change_saved(replaced)
        return made

    async def remove(self, name: str) -> None:
        """Remove one. Runs that go on come to their end."""

        def removed(saved: Saved) -> Saved:
            self.own(name)
            return replace(saved, agents=tuple(each for each in saved.agents if each.name != name))

        await self._configured.change_saved(removed)

    async def test(self, change: AgentChange, owner: str) -> Tried:
        """Connect what an agent needs, and return the tools that it would have for an owner. Nothing is saved."""
        _, agent = await self._made(change)
        try:
            tools = (await agent.for_owner(owner)).tools
        except ToolServerAway as error:
            return Tried(False, str(error), ())
        return Tried(True, None, tuple(_shown(tools, change)))

    async def _made(self, change: AgentChange) -> tuple[AgentSettings, Agent]:
        """Return the description and the agent, or refuse it."""
        if not _NAME.fullmatch(change.name):
            raise BadRequest(
                "An agent's name must have 1 to 64 letters, digits, dots, dashes and underscores.", param="name"
            )
        if unknown := [tool for tool in change.tools if tool not in self.tools()]:
            raise BadRequest(f"There is no tool {unknown[0][:64]!r} here.", param="tools")
        check_params(change.params)
        functions = self._functions()
        modules = next((functions[tool] for tool in change.tools if tool in functions), "")
        fields = msgspec.structs.asdict(change) | {"model": await self._model(change), "modules": modules}
        described = AgentSettings(**fields)
        try:
            return described, self._equipment.made_agent(described)
        except SettingsError as error:
            raise BadRequest(str(error), param="tools") from None

    async def _model(self, change: AgentChange) -> str:
        """Return the full name of the model, which must be able to call tools if the agent has any."""
        provider, model, _ = await self._configured.providers.find(change.model)
        if provider.name == AGENT:
            raise ModelNotFound(f"{change.model!r} is an agent. Name the model that this agent asks.")
        if change.tools and not getattr(provider, "tools", True):
            raise BadRequest(f"{provider.name}/{model} cannot call tools. Choose another model.", param="model")
        return full_name(provider.name, model)


def _shown(tools: Iterable[Any], change: AgentChange) -> Iterable[AgentTool]:
    for tool in tools:
        yield AgentTool(tool.name, tool.description, change.approvals.get(tool.name, tool.approval))
