"""What runs: the engine of a server, the sources of its runs, their budgets, and the door to them."""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager

from ...agents.published import Published
from ...attachments.reading import Reader
from ...engine.core import Core
from ...events import AnySettlement, Source
from ...peers import Peers
from ...pricing import Prices, cost
from ...runs.run import Cost, Limits, Run
from ...store import RunRecord, Store
from ..config.settings import Settings
from ..features.accounts.owners import Owners
from ..features.budgets.budgets import Budgets
from ..features.budgets.spending import Spending
from ..features.files.uploads import Uploads
from ..features.observe.metrics.observers import Observers
from ..kit.chores import Chores
from ..live.live_settings import Configured
from ..sources.agent_factory import agent_users_of
from ..sources.agent_users import models_of
from ..sources.agents import AgentSources
from ..sources.breaks.on_break import OnBreaks
from ..sources.chat import ChatSources
from ..sources.equipment import Equipment
from ..sources.model_files import ModelFiles
from ..sources.models import AllowedModels
from ..sources.patience import Patience
from ..starting.rate_limit import StartRate
from ..starting.room import Room
from ..starting.starting import Starting
from .cluster import details_of, lease_of, peers_served


class Running:
    """The services that runs need. What is given to a handler are single ones of them."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        configured: Configured,
        owners: Owners,
        observers: Observers,
        *,
        publish: Mapping[str, Published],
        environ: Mapping[str, str],
    ) -> None:
        self.store, self.owners, self._settings = store, owners, settings
        self.prices = prices_of(settings)
        self.spending = Spending(store, owners, settings.budget, self.prices, settings.currency, time.time)
        self.reader = Reader()
        self.breaks = OnBreaks(settings.on_break, lambda: configured.fallbacks)
        files = ModelFiles(configured.providers, self.reader)
        self.chats = ChatSources(
            store,
            configured.providers,
            settings.retry_patience,
            lambda: configured.fallbacks,
            observers.traces,
            self.spending.require_model,
            breaks=self.breaks,
            patience_with=Patience(settings.limits, settings.idle_limit or None),
            files=files,
        )
        users = agent_users_of(settings, publish, owners.access)
        self.agents = AgentSources({}, self.chats, store, configured.providers, publish, users=users)
        self.equipment = Equipment(configured, self.agents, self.prices, owners.access, environ)
        self.engine = self.agents.engine = self._engine(settings, observers)
        self.chores = Chores(self.engine.holds)
        self.budgets = Budgets(store, self.engine, owners, self.spending)
        self.models = AllowedModels(configured, self.agents)
        self.uploads = Uploads(store, self.engine.now)
        limits = [StartRate(settings.starts_per_minute, self.engine, store)]
        self.starting = Starting(
            store,
            self.engine,
            Room(self.engine, limits, self.budgets),
            find_model=self.models.find,
            check_agent=self.agents.check,
            kind_of=self.agents.kind_of,
            payer_of=self.budgets.payer,
            check_files=files.check,
            uploads=self.uploads,
        )

    @asynccontextmanager
    async def served(self, sock: socket.socket | None) -> AsyncGenerator[None]:
        """Run the engine within a block, and serve the other nodes."""
        async with self.engine, peers_served(self.engine, self._settings, sock):
            yield

    def _engine(self, settings: Settings, observers: Observers) -> Core:
        peers = Peers(settings.cluster_key) if settings.cluster_key else None
        chats, agents, spending = self.chats, self.agents, self.spending
        engine = Core(
            self.store,
            sources=sources_of(agents, chats, observers.enter, spending.metered),
            again=observers.again(spending.metered_again(agents.again_or(chats.again))),
            elsewhere=agents.elsewhere_or(chats.elsewhere),
            limits=limits_of(settings),
            lease=lease_of(settings),
            node=details_of(settings),
            serve=agents.serve,
            cost=costs_of(self.prices),
            observe=_observing(spending, observers),
            counts=observers.activity.counts,
            follow=None if peers is None else peers.follow,
            unstored=peers,
            clock=time.time,
        )
        observers.watch(engine)
        return engine


def prices_of(settings: Settings) -> Prices:
    """Return the prices of models and agents."""
    return Prices(settings.prices, models_of(settings))


def costs_of(prices: Prices) -> Cost:
    """Return the function for the cost of a run. A pane that hides its model has none, which would reveal it."""

    def cost_of_run(record: RunRecord, settlement: AnySettlement) -> float | None:
        if not settlement.legs:
            return cost(prices.of(settlement.answered_by or record.model), settlement.usage)
        costs = [cost(prices.of(leg.model), leg.usage) for leg in settlement.legs]
        return None if None in costs else sum(filter(None, costs))

    return cost_of_run


def _observing(spending: Spending, observers: Observers) -> Callable[[Run], None]:
    def settled(run: Run) -> None:
        spending.settled(run)
        observers.settled(run)

    return settled


def sources_of(
    agents: AgentSources,
    chats: ChatSources,
    enter: Callable[[RunRecord], None],
    metered: Callable[[Run, Source], Source],
) -> Callable[[Run], Source]:
    """Return the function that makes the source of a run of any kind."""

    def source(run: Run) -> Source:
        enter(run.record)
        return metered(run, agents(run) if agents.is_work(run.record) else chats(run))

    return source


def limits_of(settings: Settings) -> Limits:
    """Return the engine's limits."""
    return Limits(
        idle=settings.idle_limit or None,
        deadline=settings.deadline or None,
        grace=settings.grace,
        runs=settings.max_runs,
        runs_per_owner=settings.max_runs_per_owner,
        queue=settings.max_queue,
    )
