"""The services that the endpoints of a server use."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping

from ..asgi.event_stream import Closing
from ..compare.runs import Rounds
from ..concurrency.background import Background
from ..concurrency.tasks import OwnedTasks
from ..engine.engine import Engine
from ..evals.runner import BatchRunner
from ..events import AnySettlement
from ..pricing import Prices, cost
from ..runs.run import Cost
from ..store import RunRecord, Store
from .accounts.agent_users import models_of
from .accounts.data.erasing import Erasing
from .accounts.factors.passkeys import Passkeys
from .accounts.factors.second_factors import SecondFactors
from .accounts.keys import Keys
from .accounts.oidc.opening import oidc_of
from .accounts.people.people import People
from .audit.audit import Audit
from .audit.refused_keys import RefusedKeys
from .budgets.budgets import Budgets
from .config.live_settings import Configured
from .config.reload import CannotReload, Reloaded, Reloading
from .config.settings import Settings
from .http.offload import Offload
from .metrics.observers import Observers
from .sharing.shares import Shares
from .sources.agents import AgentSources
from .sources.models import AllowedModels
from .starting.starting import Starting
from .store_check import StoreCheck
from .webhooks import Webhooks


class Parts:
    """The services of a server."""

    second_factors: SecondFactors
    passkeys: Passkeys

    def __init__(
        self,
        settings: Settings,
        store: Store,
        configured: Configured,
        engine: Engine,
        rounds: Rounds,
        agents: AgentSources,
        keys: Keys,
        environ: Mapping[str, str],
        observers: Observers,
        people: People,
        budgets: Budgets,
        models: AllowedModels,
        starting: Starting,
    ) -> None:
        self.settings, self.store, self.configured = settings, store, configured
        self.engine, self.rounds, self.agents = engine, rounds, agents
        self.keys, self.people, self.budgets = keys, people, budgets
        self.models, self.starting = models, starting
        self.shares, self.oidc = Shares(store, people.callers.is_disabled), oidc_of(settings, environ)
        self.first_admin = ""
        """The code for the first admin, while the server waits for one and refuses all other requests."""
        self.environ = environ
        self.activity, self.metrics, self.traces = observers.activity, observers.metrics, observers.traces
        self.metrics_socket: socket.socket | None = None
        self.peers_socket: socket.socket | None = None
        """Listen on the ports for metrics and for other nodes, if they were opened before the start."""
        self.reloading: Reloading | None = None
        """Reloads the settings file; None in a program that embeds the server."""
        self.on_reload: Callable[[], object] = lambda: None
        """Called after a reload that was requested here. It lets the other nodes of `serve --nodes` reload too."""
        self.background = Background()
        self.tasks = OwnedTasks("the server")
        """Work of requests that continues after their responses."""
        self.closing = Closing()
        self.store_check = StoreCheck(engine)
        self.offload = Offload()
        self.compression = Offload()
        """Separate threads for compression: a response waits for other compressed responses only."""
        self.large_bodies = asyncio.Lock()
        """Held while a large request body is checked and decoded."""
        self.prices = prices_of(settings)
        self.currency = settings.currency
        self.webhooks = Webhooks(settings, environ, store, engine)
        self.batches = BatchRunner(store, engine, starting.start, budgets.payer_now, self.prices)
        self.audit = Audit(store)
        self.refused_keys = RefusedKeys(self.audit)
        self.erasing = Erasing(store, engine, people, keys, rounds, self.batches, self.audit, self.shares)

    async def reload(self) -> Reloaded:
        """Reload the changed settings file, here and on the nodes that were started with this one."""
        result = await self.reload_here()
        self.on_reload()
        return result

    async def reload_here(self) -> Reloaded:
        """Reload the changed settings file, without closing a connection."""
        if self.reloading is None:
            raise CannotReload
        return await self.reloading(self.settings)

    async def end(self, drain: float) -> None:
        """Shut down: refuse new runs, let the others drain or settle, and end the streams.

        Repeating it changes nothing. The timeouts are such that the process ends within ten seconds, even if the store
        is away.
        """
        await self.engine.close(drain=drain, within=3.0)
        await self.budgets.spending.close()
        await self.tasks.wait(timeout=1.0)
        self.closing.begin()


def prices_of(settings: Settings) -> Prices:
    """Return the prices of models and agents."""
    return Prices(settings.prices, models_of(settings))


def costs_of(settings: Settings) -> Cost:
    """Return the function for the cost of a run. A pane that hides its model has none, which would reveal it."""
    prices = prices_of(settings)

    def cost_of_run(record: RunRecord, settlement: AnySettlement) -> float | None:
        return cost(prices.of(settlement.answered_by or record.model), settlement.usage)

    return cost_of_run
