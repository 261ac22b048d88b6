"""Agents as models, and their work as the source of a run, new or after a restart."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any
from weakref import WeakSet

import msgspec

from ...access import Access
from ...agents.approvals import Desk, DeskReply, Place, Scope
from ...agents.files import Files
from ...agents.loop import Agent, AskModel, Messages, Work
from ...agents.mcp.pool import ToolServers
from ...agents.processes import ProcessTable
from ...agents.published import Published, publish
from ...agents.request import AgentRequest
from ...agents.tools import HasBeginnings, Tool
from ...asks import SessionAsk, beginning_of, chat_ask, model_ask
from ...concurrency.tasks import OwnedTasks
from ...engine.core import Core
from ...errors import (
    AccessEnded,
    BadRequest,
    CannotSteer,
    ModelNotFound,
    NotFound,
    ProviderRefused,
    RunSettled,
    StaleApproval,
)
from ...events import AnswerBegins, Notice, Outlet, Source, Usage
from ...fields import PASSED_ON, Table, harmless, passed_on, refusal, refused
from ...ids import ModelName
from ...log.log import Log
from ...log.settlement import usage_so_far
from ...log.steps import Steps
from ...nodes.handover import Elsewhere
from ...nodes.recovery import Again
from ...runs.run import Run
from ...store import RunRecord, Store
from ...store.documents import Documents
from ...upstreams import ChatRequest, Providers
from ...upstreams.allowed import AllowedProviders
from ...upstreams.facts import ModelFacts, facts_of
from ..config.settings import AGENT, SettingsError
from .agent_users import AgentUsers
from .chat import ChatSources, notice_of
from .compacting import is_compaction

logger = logging.getLogger(__name__)

DEFAULT = "default"
"""The name of the agent of a run of the kind `agent` whose model is not an agent."""
GRANT = "grant"
LAST_GRACE = 4.5
"""Seconds for the processes of a stopped agent to end, before its run settles without them."""
_OFFERED = harmless("An agent has its own tools, and cannot be forced to call one.")
_DEMANDED = refused("An agent calls only its own tools, not those of the client.", "auto", "none", {"type": "auto"})

PARAMS: Table = {
    "tools": _OFFERED,
    "functions": _OFFERED,
    "parallel_tool_calls": _OFFERED,
    "tool_choice": _DEMANDED,
    "function_call": _DEMANDED,
    "n": refused("An agent gives one answer to a request.", 1),
}
"""Rules for the parameters of a request to an agent. All others are passed on to its model."""


class AgentModels:
    """The agents as the models of a provider. Their runs have another source."""

    name = AGENT
    prefills = False
    think = False
    demo = False
    tools = False

    def __init__(self, names: Iterable[str], facts: Callable[[str], Awaitable[ModelFacts]]) -> None:
        self.models: tuple[str, ...] | None = tuple(names)
        self.facts = facts

    async def answer(self, request: ChatRequest, out: Outlet) -> None:
        """Refuse: an agent cannot be a fallback of a model."""
        words = f"{AGENT}/{request.model} is an agent, which cannot replace a model."
        raise ProviderRefused(words, code="unsupported", status=400)

    async def list_models(self) -> list[str]:
        """Return the agents' names."""
        return list(self.models or ())

    async def close(self) -> None:
        """Do nothing."""


def _params(record: RunRecord) -> dict[str, Any]:
    """Return the parameters for an agent's model, or refuse what an agent cannot do."""
    params = model_ask(record.ask).params
    if found := refusal(params, PARAMS, PASSED_ON):
        raise BadRequest(found.message, param=found.field, code=found.code)
    return passed_on(params, PARAMS, PASSED_ON)


def _has_default(record: RunRecord) -> bool:
    return isinstance(record.ask, SessionAsk) and record.ask.default_agent


class Grant(msgspec.Struct, frozen=True):
    """A tool of an agent that needs no approval: in one session, or always if there is none."""

    agent: str
    tool: str
    session_id: str | None
    beginning: str = ""
    """Only calls that begin so; empty for all."""


def grants_in(store: Store) -> Documents[Grant]:
    """Return the grants of all owners."""
    return Documents(store, GRANT, Grant)


class StoredGrants:
    """The stored grants of an owner."""

    def __init__(self, store: Store, record: RunRecord, agent: str) -> None:
        self._grants = grants_in(store)
        self._owner = record.owner
        self._session_id = record.session_id
        self._agent = agent

    async def allows(self, tool: Tool, arguments: dict[str, Any]) -> bool:
        """Return whether a call needs no approval."""
        for id in self._ids(tool.name):
            if await self._grants.get(id) is not None:
                return True
        if not isinstance(tool, HasBeginnings):
            return False
        return any(
            [
                tool.begins(arguments, grant.beginning)
                async for grant in (each.body async for each in self._grants.all(owner=self._owner))
                if grant.beginning and (grant.agent, grant.tool) == (self._agent, tool.name)
                if grant.session_id in (None, self._session_id)
            ]
        )

    async def grant(self, tool: str, scope: Scope, beginning: str = "") -> None:
        """Store a grant. Without a session, a grant for the session is not stored."""
        session, always = self._ids(tool, beginning)
        id = always if scope == "always" else session
        if scope == "session" and self._session_id is None:
            return
        grant = Grant(self._agent, tool, self._session_id if scope == "session" else None, beginning)
        await self._grants.get_or_create(id, grant, owner=self._owner)

    def _ids(self, tool: str, beginning: str = "") -> tuple[str, str]:
        """Return the ids of the grants for the session, and always."""
        places = (f"session {self._session_id}", "always")
        rest = (self._agent, tool, beginning) if beginning else (self._agent, tool)
        named = ("\n".join((self._owner, place, *rest)) for place in places)
        session, always = (f"grt_{hashlib.sha256(name.encode()).hexdigest()[:40]}" for name in named)
        return session, always


async def forget_grants(store: Store, owner: str, session_id: str) -> None:
    """Delete the grants of a deleted session."""
    grants = grants_in(store)
    for grant in [each async for each in grants.all(owner=owner)]:
        if grant.body.session_id == session_id:
            await grants.delete(grant.id)


class AgentSources:
    """Makes the sources of agents' runs, and has the desks of the running ones."""

    def __init__(
        self,
        agents: Mapping[str, Agent],
        chat: ChatSources,
        store: Store,
        providers: Providers,
        published: Mapping[str, Published] | None = None,
        *,
        users: AgentUsers,
    ) -> None:
        self.published = dict(published or {})
        self._chat = chat
        self._store = store
        self._providers = providers
        self._desks: dict[str, Desk] = {}
        self._read: WeakSet[Run] = WeakSet()
        """The runs whose events somebody has read who can be asked."""
        self._at_work: dict[str, Agent] = {}
        self._servers: tuple[ToolServers, ...] = ()
        self._retired: list[ToolServers] = []
        self._closing = OwnedTasks("the MCP servers")
        self._table = ProcessTable()
        self.engine: Core | None = None
        self.use(agents, users)

    def use(self, agents: Mapping[str, Agent], users: AgentUsers, servers: Iterable[ToolServers] = ()) -> None:
        """Set the agents, their users and the MCP servers. A run that goes on keeps those that it began with."""
        if both := sorted(agents.keys() & self.published.keys()):
            raise SettingsError(f"Two agents are called {both[0]!r}.")
        self.agents, self._users = dict(agents), users
        names = [*agents, *self.published]
        self._providers.set_added([AgentModels(names, self._facts)] if names else [])
        before, self._servers = self._servers, tuple(servers)
        kept = {id(server) for server in self._servers}
        self._retired += [server for server in before if id(server) not in kept]
        self._close_retired()

    def _close_retired(self) -> None:
        """Close the MCP servers that were removed or changed, and that no run has left."""
        in_use = {id(server) for agent in self._at_work.values() for server in agent.servers}
        for server in [each for each in self._retired if id(each) not in in_use]:
            self._retired.remove(server)
            self._closing.start(server.close())

    async def clear_up(self) -> None:
        """End the processes that tools of a killed server have left running."""
        if self.agents and (left := await self._table.end_left_behind()):
            logger.warning("killed processes left behind by tools of an earlier server: %s", left)

    # agents and their users

    def providers_for(self, caller: Access) -> Providers:
        """Return the providers without the models and agents that the caller may not use."""
        providers = self._with_agents_of(caller) if self.agents or self.published else self._providers
        return AllowedProviders(providers, caller.may_ask, caller.models) if caller.models else providers

    def _with_agents_of(self, caller: Access) -> Providers:
        names = [*self.agents, *self.published]
        there = [name for name in names if self._users.may_use(caller, name)]
        if len(there) == len(names):
            return self._providers
        return self._providers.with_added([AgentModels(there, self._facts)] if there else [])

    def _require_user(self, caller: Access, record: RunRecord) -> None:
        """Refuse a caller that may not use the agent of a run, even if it has started the run."""
        prefix, _, name = record.model.partition("/")
        agent = name if prefix == AGENT else DEFAULT if _has_default(record) else None
        if not self.is_work(record) or agent is None or self._is_removed(record):
            return
        if not self._users.may_use(caller, agent):
            raise _not_there(record)

    def _is_removed(self, record: RunRecord) -> bool:
        """Return whether the agent that a run names was removed: its runs go on to their end."""
        prefix, _, name = record.model.partition("/")
        return prefix == AGENT and name not in self.agents and name not in self.published

    async def may_default(self, model: str, caller: Access) -> bool:
        """Return whether the default model of the settings is one that the caller may use."""
        if not caller.models and not self.agents and not self.published:
            return True
        try:
            await self.providers_for(caller).find(model)
        except ModelNotFound:
            return False
        return True

    def has_default(self, caller: Access, kind: str, model: ModelName) -> bool:
        """Return whether a run gets the tools of the agent `default`."""
        is_default = kind == AGENT and model.partition("/")[0] != AGENT and DEFAULT in self.agents
        return is_default and self._users.may_use(caller, DEFAULT)

    def kind_of(self, model: ModelName, wanted: str = "chat") -> str:
        """Return the kind of a run: `agent` if its model is an agent, else the requested one."""
        prefix, _, name = model.partition("/")
        return AGENT if prefix == AGENT and (name in self.agents or name in self.published) else wanted

    def is_work(self, record: RunRecord) -> bool:
        """Return whether an agent works on a run, also in a pane or a batch. A pane that hides its model is none."""
        if record.kind == AGENT:
            return True
        return record.kind in ("pane", "batch") and self.kind_of(record.model) == AGENT

    async def _published(self, record: RunRecord) -> Published:
        """Return the published agent of a run. Its owner may have lost the right to use it."""
        name = record.model.partition("/")[2]
        if not await self._users.owner_may_use(record, name):
            raise _not_there(record)
        return self.published[name]

    def is_published(self, model: ModelName) -> bool:
        """Return whether a model is an agent of another framework."""
        prefix, _, name = model.partition("/")
        return prefix == AGENT and name in self.published

    def _is_published(self, record: RunRecord) -> bool:
        return self.is_published(record.model)

    async def find(self, record: RunRecord) -> Agent:
        """Return the agent of a run: the one that its model names, or the default one with that model.

        For an owner that may not use it, it does not exist: the default agent then has no tools.
        """
        prefix, _, name = record.model.partition("/")
        if prefix == AGENT:
            may_use = await self._users.owner_may_use(record, name)
            if not may_use or name not in self.agents:
                raise _not_there(record)
            return self.agents[name]
        may_use = _has_default(record) and await self._users.owner_may_use(record, DEFAULT)
        default = self.agents.get(DEFAULT) if may_use else None
        return msgspec.structs.replace(default or Agent(name=DEFAULT), model=record.model)

    async def check(self, record: RunRecord) -> None:
        """Refuse a run whose model lacks what its agent needs, or whose agent cannot do what is asked."""
        if not self.is_work(record):
            return
        _params(record)
        if not self._is_published(record):
            await self._check(await self.find(record))

    async def _check(self, agent: Agent) -> None:
        provider, model, _ = await self._providers.find(agent.model)
        if (agent.tools or agent.servers) and not getattr(provider, "tools", True):
            raise BadRequest(
                f"{provider.name}/{model} cannot call tools, which agent {agent.name} needs. Give it another model.",
                param="model",
                code="tools_unsupported",
            )

    def files(self, caller: Access, name: str) -> Files:
        """Return the folder of a caller's agent. It does not exist for a caller who may not use the agent."""
        agent = self.agents.get(name) if self._users.may_use(caller, name) else None
        if agent is None or agent.files is None:
            raise NotFound(f"There are no files of an agent {name!r}.")
        return agent.files(caller.owner)

    # sources

    def __call__(self, run: Run) -> Source:
        """Return the source of an agent's run."""
        if self._is_published(run.record):
            return partial(self._publish, run, run.record)
        if is_compaction(run.record):
            return partial(self._summarise, run.record)
        return partial(self._work_anew, run)

    async def in_pane(self, record: RunRecord, model: ModelName, out: Outlet) -> None:
        """Let an agent answer in a pane, whose record may hide it."""
        assert self.engine is not None
        run = await self.engine.open(record.id)
        named = msgspec.structs.replace(record, model=model)
        if self.is_published(model):
            await self._publish(run, named, out)
        else:
            await self._work(run, named, None, None, out)

    async def again(self, record: RunRecord, log: Log) -> Source | None:
        """Return the source that resumes a run after a restart, if it waits for a person or the settings say so."""
        assert self.engine is not None
        done = log.steps
        if self._is_published(record):
            return None  # a published agent cannot be resumed
        try:
            agent = await self.find(record)
        except (ModelNotFound, AccessEnded):
            return None  # removed from the settings, or no longer allowed
        is_waiting = done is not None and done.is_open and bool(done.undecided)
        if record.lifetime != "detached" or not (is_waiting or agent.on_restart == "continue"):
            return None
        run = await self.engine.open(record.id)
        if done is None and beginning_of(record.ask) is not None:
            return partial(self._work_anew, run)
        return partial(self._work, run, record, done, usage_so_far(log))

    def again_or(self, other: Again) -> Again:
        """Return the function that resumes runs of every kind."""

        async def again(record: RunRecord, log: Log) -> Source | None:
            return await (self.again if self.is_work(record) else other)(record, log)

        return again

    def elsewhere_or(self, other: Elsewhere) -> Elsewhere:
        """Return the function that says of runs of every kind whether another process can continue them."""

        async def elsewhere(record: RunRecord, log: Log) -> bool:
            return await self.again(record, log) is not None if record.kind == AGENT else await other(record, log)

        return elsewhere

    async def _facts(self, name: str) -> ModelFacts:
        """Return what is known of an agent's model: how much it holds, and what it takes."""
        agent = self.agents.get(name)
        try:
            found = None if agent is None else await self._providers.find(agent.model)
        except ModelNotFound:
            found = None
        known = ModelFacts() if found is None else await facts_of(found.provider, found.model)
        has_files = agent is not None and agent.files is not None
        return msgspec.structs.replace(known, efforts=(), files=has_files)

    async def _summarise(self, record: RunRecord, out: Outlet) -> None:
        """Let an agent's model sum up: that needs no tools, and what is too long is sent in less and less."""
        agent = await self.find(record)
        await self._chat.summarise(record, agent.model, out, by_grant=record.model.partition("/")[0] == AGENT)

    async def _work_anew(self, run: Run, out: Outlet) -> None:
        beginning = beginning_of(run.record.ask)
        if beginning is None:
            return await self._work(run, run.record, None, None, out)
        out.emit([AnswerBegins(think=False), *beginning.events])
        done = Steps()
        for event in beginning.events:
            done.take_in(event)
        await self._work(run, run.record, done, None, out)

    async def _work(self, run: Run, record: RunRecord, done: Steps | None, used: Usage | None, out: Outlet) -> None:
        agent = self._at_work[run.id] = await self.find(record)
        try:
            await self._check(agent)
            await self._work_with(agent, run, record, done, used, out)
        finally:
            del self._at_work[run.id]
            self._close_retired()

    async def _work_with(
        self, agent: Agent, run: Run, record: RunRecord, done: Steps | None, used: Usage | None, out: Outlet
    ) -> None:
        if names := agent.servers_to_start(record.owner):
            out.emit([Notice("starting_tools", f"Starting the tools of {', '.join(names)}.")])
        agent = await agent.for_owner(record.owner)
        if record.kind == AGENT:
            run.deadline = None  # the agent's own limit is suspended while it waits for a person
        run.grace = max(run.grace, LAST_GRACE)
        work = Work(
            agent,
            await self._messages(record, agent),
            self._asking(record, agent),
            out=out,
            place=_place(run, record),
            grants=StoredGrants(self._store, record, agent.name),
            run_id=run.id,
            session_id=record.session_id,
            done=done,
            used=used,
            table=self._table,
            unattended=_unattended(run, record),
        )
        if record.session_id is not None or run in self._read:
            work.desk.attend()
        if done is None and (told := notice_of(record)):
            out.emit([Notice("new_turn", told)])
        self._desks[run.id] = work.desk
        try:
            await work.do()
        finally:
            del self._desks[run.id]

    async def _publish(self, run: Run, record: RunRecord, out: Outlet) -> None:
        """Run a published agent."""
        agent = await self._published(record)
        run.grace = max(run.grace, LAST_GRACE)  # it may have processes and connections to close
        request = AgentRequest(
            messages=await self._chat.messages(record),
            params=_params(record),
            run_id=run.id,
            session_id=record.session_id,
            session_name=chat_ask(record.ask).session_name or record.session_id,
            stream=model_ask(record.ask).stream,
            owner=record.owner,
        )
        run.on_stop(request.stop.call)
        if told := notice_of(record):
            out.emit([Notice("new_turn", told)])
        await publish(agent, request, out, place=_place(run, record))

    def _asking(self, record: RunRecord, agent: Agent) -> AskModel:
        params = _params(record)
        is_named = record.model.partition("/")[0] == AGENT

        async def ask(messages: Messages, own: dict[str, Any], out: Outlet) -> None:
            if is_named and self._is_removed(record):
                await self._users.require_access(record)
            elif is_named:
                await self.find(record)  # its owner may have lost it since the last step
            await self._chat.ask(record, agent.model, messages, {**own, **params}, out, by_grant=is_named)

        return ask

    async def _messages(self, record: RunRecord, agent: Agent) -> Messages:
        """Return the first messages for the model. The agent's system prompt is for sessions that have none."""
        messages = await self._chat.messages(record)
        has_system = bool(messages) and messages[0].get("role") in ("system", "developer")
        if agent.system and not has_system:
            return [{"role": "system", "content": agent.system}, *messages]
        return messages

    async def close(self) -> None:
        """Close the MCP servers."""
        await asyncio.gather(*(server.close() for server in (*self._servers, *self._retired)))
        await self._closing.wait()

    # steering and questions

    def attend(self, run: Run) -> None:
        """Note that somebody reads the events of a run, and sees what it asks."""
        self._read.add(run)
        if (desk := self._desks.get(run.id)) is not None:
            desk.attend()

    async def steer(self, run: Run, caller: Access, text: str) -> None:
        """Send a message to a running agent, on whichever node it is at work."""
        self._require_user(caller, run.record)
        try:
            await self._ask(run, "steer", {"text": text})
        except RunSettled:
            raise CannotSteer(f"Run {run.id} has ended. Send it as a new message.") from None

    async def decide(self, run: Run, caller: Access, request_id: str, reply: DeskReply) -> None:
        """Answer what a running agent has asked a person, on whichever node it is at work."""
        self._require_user(caller, run.record)
        try:
            await self._ask(run, "decide", {"request_id": request_id, "reply": msgspec.to_builtins(reply)})
        except RunSettled:
            raise StaleApproval(request_id) from None

    async def _ask(self, run: Run, kind: str, body: dict[str, Any]) -> None:
        assert self.engine is not None
        is_agent = self.is_work(run.record) and not self._is_published(run.record)
        if is_agent and run.status == "running" and self.engine.is_elsewhere(run):
            await self.engine.ask_owner(run, kind, body)
        else:
            await self.serve(run, kind, body)

    async def serve(self, run: Run, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked of a run of this node: a request of another node, or of one of our own callers."""
        if kind == "steer":
            await self._desk(run).steer(body["text"])
            return {}
        try:
            desk = self._desk(run)
        except CannotSteer:
            raise StaleApproval(body["request_id"]) from None
        await desk.decide(body["request_id"], msgspec.convert(body["reply"], DeskReply))
        return {}

    def _desk(self, run: Run) -> Desk:
        """Return the desk of a run's agent, or raise the reason why there is none."""
        desk = self._desks.get(run.id)
        if desk is not None and self.is_work(run.record):
            return desk
        if run.settlement is not None:
            raise CannotSteer(f"Run {run.id} has ended. Send it as a new message.")
        if self._is_published(run.record):
            raise CannotSteer(f"{run.record.model} takes no messages while it runs. Queue it or interrupt instead.")
        if not self.is_work(run.record):
            raise CannotSteer(
                f"Run {run.id} is a chat run, which takes no messages while it runs. Queue it or interrupt instead."
            )
        raise CannotSteer(f"Run {run.id} is not running in this process now. Try again in a moment.")


class _Hidden:
    """The place of an agent in a pane that hides its model: what it leaves behind would name its tools."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.waits = False
        self.survivors: list[str] = []

    @property
    def quiet(self) -> Callable[[], bool] | None:
        return self._run.quiet

    @quiet.setter
    def quiet(self, is_quiet: Callable[[], bool] | None) -> None:
        self._run.quiet = is_quiet

    async def saved(self) -> None:
        await self._run.saved()


def _place(run: Run, record: RunRecord) -> Place:
    return _Hidden(run) if run.record.model != record.model else run


def _unattended(run: Run, record: RunRecord) -> str:
    """Return where an agent is at work, if nobody can be asked there."""
    if record.kind == "batch":
        return "a batch"
    return "a blind comparison" if run.record.model != record.model else ""


def _not_there(record: RunRecord) -> ModelNotFound:
    return ModelNotFound(f"Unknown model {record.model!r}.")
