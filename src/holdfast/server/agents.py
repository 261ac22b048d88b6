"""Agents of the settings as models, and their work as the source of a run, now or after a restart."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import logging
import os
import pathlib
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from ..agent.desk import Desk, Scope
from ..agent.files import Files
from ..agent.loop import Agent, AgentLimits, Ask, Messages, Work
from ..agent.mcp import ToolServer
from ..agent.mcp_described import McpServer
from ..agent.processes import ProcessTable
from ..agent.published import Published, publishing
from ..agent.request import AgentRequest
from ..agent.shell import Shell
from ..agent.tools import Tool
from ..comparisons import Price
from ..engine import Engine
from ..errors import BadRequest, CannotSteer, ModelNotFound, ProviderRefused
from ..events import Notice, Source, Usage, Yielded
from ..judgement import usage_so_far
from ..log import Log
from ..providers import ChatRequest, Providers
from ..run import Run
from ..steps import Steps
from ..store import Document, RunRecord, Store
from .settings import AgentSettings, McpSettings, Settings, SettingsError, data_folder
from .sources import ChatSources

logger = logging.getLogger("holdfast")

AGENT = "agent"
"""The name before the slash of an agent's model."""
DEFAULT = "default"
"""The agent of a run of the kind `agent` whose model is no agent."""
GRANT = "grant"
LAST_GRACE = 4.5
"""Seconds in which a stopped agent's processes have to be gone, before its run settles without them."""
MCP = "mcp:"
"""Before the name of an MCP server, among an agent's tools."""
_SERVER_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9-]{0,23}")
OURS = frozenset({"tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "n"})
"""Parameters of a request that are the agent's own business."""


Again = Callable[[RunRecord, Log], Awaitable[Source | None]]


class AgentModels:
    """The agents, as a provider lists its models. Their runs have a source of their own."""

    name = AGENT
    prefills = False
    tools = False

    def __init__(self, names: Iterable[str]) -> None:
        self.models: tuple[str, ...] | None = tuple(names)

    def stream(self, request: ChatRequest) -> Source:
        """Refuse: an agent cannot stand in for a model."""
        words = f"{AGENT}/{request.model} is an agent, which answers only runs of its own, not in place of a model."
        raise ProviderRefused(words, code="unsupported", status=400)

    async def list_models(self) -> list[str]:
        """Return the agents' names."""
        return list(self.models or ())

    async def close(self) -> None:
        """There is nothing to let go of."""


class StoredGrants:
    """What an owner has allowed for a session, or always, kept in the store."""

    def __init__(self, store: Store, record: RunRecord, agent: str) -> None:
        self._store = store
        self._owner = record.owner
        self._session_id = record.session_id
        self._agent = agent

    async def allows(self, tool: str) -> bool:
        """Tell whether a tool need not be asked for."""
        for id in self._ids(tool):
            if await self._store.get_document(GRANT, id) is not None:
                return True
        return False

    async def grant(self, tool: str, scope: Scope) -> None:
        """Keep that a tool is allowed. Without a session there is nothing that a grant for one could outlive."""
        session, always = self._ids(tool)
        id = always if scope == "always" else session
        if scope == "session" and self._session_id is None:
            return
        body = {"agent": self._agent, "tool": tool, "session_id": self._session_id if scope == "session" else None}
        if await self._store.get_document(GRANT, id) is None:
            now = time.time()
            kept = Document(kind=GRANT, id=id, owner=self._owner, body=body, created_at=now, updated_at=now)
            await self._store.put_document(kept)

    def _ids(self, tool: str) -> tuple[str, str]:
        """Return under which id a grant stands for the session, and always."""
        places = (f"session {self._session_id}", "always")
        named = ("\n".join((self._owner, place, self._agent, tool)) for place in places)
        session, always = (f"grt_{hashlib.sha256(name.encode()).hexdigest()[:40]}" for name in named)
        return session, always


async def grants_of(store: Store, owner: str) -> list[Document]:
    """Return all that an owner has allowed for longer than once."""
    found: list[Document] = []
    while page := await store.list_documents(GRANT, owner, before=found[-1].id if found else None, limit=200):
        found += page
    return found


async def forget_grants(store: Store, owner: str, session_id: str) -> None:
    """Forget what was allowed for a session that is gone."""
    for grant in await grants_of(store, owner):
        if grant.body["session_id"] == session_id:
            await store.delete_document(GRANT, grant.id)


class AgentSources:
    """Makes the sources of agents' runs, and knows the desks of those that are at work here."""

    def __init__(
        self,
        agents: Mapping[str, Agent],
        chat: ChatSources,
        store: Store,
        providers: Providers,
        published: Mapping[str, Published] | None = None,
    ) -> None:
        self.agents = dict(agents)
        self.published = dict(published or {})
        if both := sorted(self.agents.keys() & self.published.keys()):
            raise SettingsError(f"Two agents are called {both[0]!r}.")
        names = [*self.agents, *self.published]
        self._chat = chat
        self._store = store
        self._providers = providers
        if names:
            providers.add(AgentModels(names))
        self._desks: dict[str, Desk] = {}
        self._table = ProcessTable()
        self.engine: Engine | None = None

    async def clear_up(self) -> None:
        """End what the tools of a server that was killed have left running."""
        if self.agents and (left := await self._table.end_left_behind()):
            logger.warning("processes that a dead server's tools had left were killed: %s", left)

    # which agent

    def kind_of(self, model: str, wanted: str = "chat") -> str:
        """Return the kind of a run: an agent's model makes it an agent's, whatever was asked for."""
        prefix, _, name = model.partition("/")
        return AGENT if prefix == AGENT and (name in self.agents or name in self.published) else wanted

    def require_model(self, model: str, place: str) -> None:
        """Refuse an agent where only models answer: it has steps, tools and approvals that have no place there."""
        if self.kind_of(model) == AGENT:
            raise BadRequest(
                f"{model} is an agent, which cannot answer in {place}. Name the model that it asks, or run the agent.",
                param="models",
                code="unsupported",
            )

    def _published(self, record: RunRecord) -> Published | None:
        """Return the agent of a run where somebody else wrote it."""
        prefix, _, name = record.model.partition("/")
        return self.published.get(name) if prefix == AGENT else None

    def find(self, record: RunRecord) -> Agent:
        """Return the agent of a run: the one that its model names, or the default one with that model."""
        prefix, _, name = record.model.partition("/")
        if prefix == AGENT:
            if name not in self.agents:
                raise ModelNotFound(f"There is no agent {name!r} any more.")
            return self.agents[name]
        return msgspec.structs.replace(self.agents.get(DEFAULT) or Agent(name=DEFAULT), model=record.model)

    async def check(self, record: RunRecord) -> None:
        """Refuse a run whose model cannot do what its agent needs."""
        if record.kind == AGENT and self._published(record) is None:
            await self._check(self.find(record))

    async def _check(self, agent: Agent) -> None:
        provider, model = await self._providers.find(agent.model)
        if (agent.tools or agent.servers) and not getattr(provider, "tools", True):
            raise BadRequest(
                f"{provider.name}/{model} cannot call tools, which agent {agent.name} needs. Give it another model.",
                param="model",
                code="tools_unsupported",
            )

    # sources

    def __call__(self, run: Run) -> Source:
        """Return the source of an agent's run."""
        agent = self._published(run.record)
        return self._work(run, None) if agent is None else self._publish(run, agent)

    async def again(self, record: RunRecord, log: Log) -> Source | None:
        """Return what goes on with a run whose server ended, where a person is waited for or the settings say so."""
        assert self.engine is not None
        done = log.steps
        if self._published(record) is not None:
            return None  # only who wrote it could say how it goes on
        try:
            agent = self.find(record)
        except ModelNotFound:
            return None  # it was taken out of the settings
        is_waiting = done is not None and done.is_open and bool(done.undecided)
        if record.lifetime != "detached" or not (is_waiting or agent.on_restart == "continue"):
            return None
        return self._work(await self.engine.open(record.id), done, usage_so_far(log))

    def again_or(self, other: Again) -> Again:
        """Return what goes on with runs of any kind: agents' here, all others' there."""

        async def again(record: RunRecord, log: Log) -> Source | None:
            return await (self.again if record.kind == AGENT else other)(record, log)

        return again

    async def _work(
        self, run: Run, done: Steps | None, used: Usage | None = None
    ) -> AsyncGenerator[Yielded | Sequence[Yielded]]:
        record = run.record
        agent = self.find(record)
        await self._check(agent)
        agent = await _with_servers(agent)
        run.deadline = None  # the agent's own limit stands still while a person is waited for
        run.grace = max(run.grace, LAST_GRACE)
        work = Work(
            agent,
            await self._messages(record, agent),
            self._asking(record, agent),
            place=run,
            grants=StoredGrants(self._store, record, agent.name),
            run_id=run.id,
            session_id=record.session_id,
            done=done,
            used=used,
            table=self._table,
            beat=_beat(run),
        )
        if done is None and (told := record.request.get("notice")):
            yield Notice("new_turn", told)
        self._desks[run.id] = work.desk
        try:
            async with aclosing(work.events()) as events:
                async for said in events:
                    yield said
        finally:
            del self._desks[run.id]

    async def _publish(self, run: Run, agent: Published) -> AsyncGenerator[Yielded | Sequence[Yielded]]:
        """Let an agent answer that somebody else wrote."""
        record = run.record
        run.grace = max(run.grace, LAST_GRACE)  # it may have processes and connections to close
        request = AgentRequest(
            messages=await self._chat.messages(record),
            params={name: value for name, value in record.request.get("params", {}).items() if name not in OURS},
            run_id=run.id,
            session_id=record.session_id,
            owner=record.owner,
        )
        if told := record.request.get("notice"):
            yield Notice("new_turn", told)
        async with aclosing(publishing(agent, request, beat=_beat(run))) as events:
            async for said in events:
                yield said

    def _asking(self, record: RunRecord, agent: Agent) -> Ask:
        params = {name: value for name, value in record.request.get("params", {}).items() if name not in OURS}

        def ask(messages: Messages, own: dict[str, Any]) -> Source:
            return self._chat.ask(record, agent.model, messages, {**own, **params})

        return ask

    async def _messages(self, record: RunRecord, agent: Agent) -> Messages:
        """Return what the model is shown first. The agent's own system prompt is for sessions that have none."""
        messages = await self._chat.messages(record)
        has_system = bool(messages) and messages[0].get("role") in ("system", "developer")
        if agent.system and not has_system:
            return [{"role": "system", "content": agent.system}, *messages]
        return messages

    async def close(self) -> None:
        """End what the agents share: the MCP servers."""
        servers = {id(server): server for agent in self.agents.values() for server in agent.servers}
        await asyncio.gather(*(server.close() for server in servers.values()))

    # people

    def desk(self, run: Run) -> Desk:
        """Return where a run's agent can be reached, or say why it cannot."""
        desk = self._desks.get(run.id)
        if desk is not None:
            return desk
        if run.settlement is not None:
            raise CannotSteer(f"Run {run.id} has ended. Send it as a new message.")
        if self._published(run.record) is not None:
            raise CannotSteer(f"{run.record.model} takes no messages while it runs. Queue it or interrupt instead.")
        if run.record.kind != AGENT:
            raise CannotSteer(
                f"Run {run.id} is a chat run, which takes no messages while it runs. Queue it or interrupt instead."
            )
        raise CannotSteer(f"Run {run.id} is not at work here yet, or no more. Try again in a moment.")


async def _with_servers(agent: Agent) -> Agent:
    """Return an agent with the tools of its MCP servers, which are connected now if they are not yet."""
    if not agent.servers:
        return agent
    listed = await asyncio.gather(*(server.tools() for server in agent.servers))
    remote: list[Tool] = [tool for tools in listed for tool in tools]
    return msgspec.structs.replace(agent, tools=(*agent.tools, *remote))


def _beat(run: Run) -> float:
    """Return after how many seconds quiet work says that it goes on: well before the idle limit."""
    return min(5.0, run.idle / 3) if run.idle else 5.0


# Agents of the settings.


def agents_of(settings: Settings, environ: Mapping[str, str] = os.environ) -> dict[str, Agent]:
    """Return the agents that the settings describe, or say what is wrong with one."""
    servers = servers_of(settings, environ)
    names = [described.name for described in settings.agents]
    if len(set(names)) < len(names):
        raise SettingsError("Two agents have the same name.")
    if names and any(provider.name == AGENT for provider in settings.providers):
        raise SettingsError(f"No provider can be called {AGENT!r} where there are agents: agents are called that.")
    return {described.name: make_agent(described, settings, environ, servers) for described in settings.agents}


def servers_of(settings: Settings, environ: Mapping[str, str]) -> dict[str, ToolServer]:
    """Return the MCP servers that the settings describe, none of them connected yet."""
    found: dict[str, ToolServer] = {}
    for described in settings.mcp:
        if not _SERVER_NAME.fullmatch(described.name) or described.name in found:
            raise SettingsError(
                f"{described.name!r} is no name for an MCP server, or two have it: letters, digits and -, at most 24."
            )
        if bool(described.command) == bool(described.url):
            raise SettingsError(f"The MCP server {described.name!r} needs either a command or a url.")
        found[described.name] = ToolServer(_server_of(described, environ))
    return found


def _server_of(described: McpSettings, environ: Mapping[str, str]) -> McpServer:
    needed = [*described.env_from, *([described.api_key_env] if described.api_key_env else [])]
    if missing := [name for name in needed if name not in environ]:
        raise SettingsError(f"The MCP server {described.name!r} needs the variable {missing[0]}, which is not set.")
    key = {"Authorization": f"Bearer {environ[described.api_key_env]}"} if described.api_key_env else {}
    return McpServer(
        name=described.name,
        command=described.command,
        args=described.args,
        env={**{name: environ[name] for name in described.env_from}, **described.env},
        cwd=str(pathlib.Path(described.folder).expanduser()) if described.folder else "",
        url=described.url,
        headers={**described.headers, **key},
        tools=described.tools,
        approval=described.approval,
        timeout=described.timeout or None,
    )


def make_agent(
    described: AgentSettings, settings: Settings, environ: Mapping[str, str], servers: Mapping[str, ToolServer]
) -> Agent:
    """Return the agent that a table of the settings describes."""
    if not described.name or "/" in described.name:
        raise SettingsError(f"{described.name!r} is no name for an agent: it must be there, and without a slash.")
    folder = _folder(described, settings, environ)
    remote = [name.removeprefix(MCP) for name in described.tools if name.startswith(MCP)]
    if missing := [name for name in remote if name not in servers]:
        raise SettingsError(f"Agent {described.name!r}: there is no [[mcp]] server {missing[0]!r}.")
    local = [name for name in described.tools if not name.startswith(MCP)]
    tools = [tool for name in local for tool in _tools(name, folder, described.name)]
    known = {tool.name for tool in tools}
    if len(known) < len(tools):
        raise SettingsError(f"Agent {described.name!r}: two of its tools have the same name.")
    is_remote = tuple(f"{name}__" for name in remote)
    named = {name for name in described.approvals if not name.startswith(is_remote)}
    if unknown := sorted(named - known):
        raise SettingsError(f"Agent {described.name!r}: approvals names {unknown[0]!r}, which is none of its tools.")
    return Agent(
        name=described.name,
        model=described.model,
        system=described.system,
        tools=tuple(tools),
        servers=tuple(servers[name] for name in dict.fromkeys(remote)),
        approvals=described.approvals,
        limits=AgentLimits(
            steps=described.max_steps,
            seconds=described.max_seconds or None,
            tokens=described.max_tokens or None,
            cost=described.max_cost or None,
            approval=described.approval_timeout or None,
        ),
        price=settings.prices.get(described.model, Price()),
        params=described.params,
        on_restart=described.on_restart,
    )


def _folder(described: AgentSettings, settings: Settings, environ: Mapping[str, str]) -> pathlib.Path:
    if described.folder:
        return pathlib.Path(described.folder).expanduser()
    return data_folder(settings, environ) / "agents" / described.name


def _tools(name: str, folder: pathlib.Path, agent: str) -> list[Tool]:
    """Return the tools that a name in the settings stands for."""
    if name == "files":
        return Files(folder).tools()
    if name == "shell":
        return [Shell(folder)]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise SettingsError(
            f"Agent {agent!r}: there is no tool {name!r}. Name files, shell, mcp:server or module:name."
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise SettingsError(f"Agent {agent!r}: the tool {name!r} cannot be loaded: {error}") from error
    tools = list(found) if isinstance(found, (list, tuple)) else [found]
    if not tools or not all(isinstance(tool, Tool) for tool in tools):
        raise SettingsError(f"Agent {agent!r}: {name!r} is no tool. Put @tool before the function.")
    return tools
