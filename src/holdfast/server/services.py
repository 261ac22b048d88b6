"""The services that the endpoints of a server use."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ..asgi.event_stream import Closing
from ..compare.runs import Rounds
from ..concurrency.background import Background
from ..engine.engine import Engine
from ..evals.runner import BatchRunner
from ..store import Store
from .accounts.keys import Keys
from .config.default_model import DefaultModel
from .config.live_settings import Configured
from .config.settings import Settings
from .http.offload import Offload
from .rate_limit import StartRate
from .sources.agents import AgentSources
from .store_check import StoreCheck
from .webhooks import Webhooks


class Parts:
    """The services of a server."""

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
    ) -> None:
        self.settings = settings
        self.store = store
        self.configured = configured
        self.default_model = DefaultModel(configured)
        self.engine = engine
        self.rounds = rounds
        self.agents = agents
        self.keys = keys
        self.environ = environ
        self.background = Background()
        self.closing = Closing()
        self.store_check = StoreCheck(engine)
        self.offload = Offload()
        self.compression = Offload()
        """Separate threads for compression: a response waits for other compressed responses only."""
        self.large_bodies = asyncio.Lock()
        """Held while a large request body is checked and decoded."""
        models = {f"agent/{agent.name}": agent.model for agent in settings.agents} | settings.aliases
        self.prices = settings.prices | {
            name: settings.prices[model] for name, model in models.items() if model in settings.prices
        }
        """Prices by the model names of messages: an agent or an alias costs what its model does."""
        self.currency = settings.currency
        self.starts = StartRate(settings.starts_per_minute)
        self.webhooks = Webhooks(settings, environ, store, engine)
        self.batches = BatchRunner(store, engine, self.starts.take, settings.prices)
