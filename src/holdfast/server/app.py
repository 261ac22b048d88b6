"""The application: its features, its start and its end."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.types import ASGIApp

from ..compare.feature import CompareFeature
from ..concurrency.tasks import OwnedTasks
from ..evals.feature import EvalsFeature
from ..store import Store
from .config.settings import Settings
from .features.accounts.api.feature import AccountsFeature
from .features.accounts.keys import Keys
from .features.agents.feature import EquipmentFeature
from .features.audit.api import AuditFeature
from .features.budgets.api import BudgetsFeature
from .features.chat.feature import ChatFeature
from .features.context.feature import ContextFeature
from .features.data.feature import DataFeature
from .features.notifications.feature import NotificationsFeature
from .features.observe.feature import ObserveFeature
from .features.page.web import PageFeature, is_of_the_page
from .features.presets.feature import PresetsFeature
from .features.responses.feature import ResponsesFeature
from .features.schedules.feature import SchedulesFeature
from .features.sessions.feature import SessionsFeature
from .features.settings.settings import SettingsFeature
from .features.sharing.feature import SharingFeature
from .features.titles.feature import TitlesFeature
from .features.versions.feature import VersionsFeature
from .kit.calls import http_of
from .kit.feature import Feature, endpoints_of
from .kit.openapi import Description
from .kit.routing import CallChecks, Router
from .live.provider_factory import NEAR
from .opening import Opened, open_server, until_end


def create_app(
    settings: Settings | None = None,
    store: Store | str | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    keys: Keys | None = None,
    sources: Mapping[str, str] | None = None,
    look_every: float = NEAR,
    agents: Mapping[str, Any] | None = None,
) -> Starlette:
    """Return the server as an ASGI application. Its lifespan starts the engine, and closes the engine and the store.

    The app uses only its arguments: it reads no settings file, no environment variable and no data folder of the user,
    and does not search for model servers. `holdfast serve` does these things, and passes the results.

    - `settings`: providers, keys and limits. `Settings(data="folder")` names the data folder.
    - `store`: a store, or what `open_store` takes. Default: SQLite in the data folder; without one, memory.
    - `environ`: where `api_key_env` of the settings and `PATH` of tools are looked up. With it and without
      `settings.data`, the data folder is the user's.
    - `agents`: published as models `agent/<name>`: async generator functions, and what else `agents.kinds` takes.
    - `sources`: where the settings come from, as `load_with_sources` says. If they name no providers, the model servers
      of this machine are looked for every `look_every` seconds.
    """
    base = open_server(settings or Settings(), store, environ, keys, sources, look_every, agents)
    return application(HoldfastServer(base))


def application(server: HoldfastServer) -> Starlette:
    """Return a server with its features as an ASGI application."""
    app = Starlette(lifespan=lambda _: server.lifespan())
    app.middleware_stack = server.gate(app.router)
    app.state.server = server
    return app


class HoldfastServer:
    """A server: its features, which it starts and ends."""

    def __init__(self, base: Opened) -> None:
        self.current, _, self.configured, self.keys, self.people, _, self.observers, self.running = base
        self.engine, self.store, self.chores = self.running.engine, self.running.store, self.running.chores
        self.metrics_socket: socket.socket | None = None
        self.peers_socket: socket.socket | None = None
        """Listen on the ports for metrics and for other nodes, if they were opened before the start."""
        self.tasks = OwnedTasks("the server")
        """Work of requests that continues after their responses."""
        self.hears_signals = True
        """False if its ASGI server calls `end` itself, before it waits for open streams."""
        self.features = self._features(base)

    def _features(self, base: Opened) -> list[Feature]:
        """Build the features, each with the services that it needs."""
        current, environ, configured, keys, people, sealer, observers, running = base
        settings, tasks, store = current.now, self.tasks, running.store
        http = http_of(current, self.engine.streams)
        self.observe = ObserveFeature(running, keys, observers, current)
        self.auditing = AuditFeature(store, people, self.engine, settings.audit_days)
        self.compare, self.evals = CompareFeature(http, running, observers), EvalsFeature(http, running)
        audit, rounds, batches = self.auditing.audit, self.compare.rounds, self.evals.batches
        sharing = SharingFeature(http, running, people, settings)
        shares, reach = sharing.shares, sharing.reach
        presets = PresetsFeature(http, running, people)
        sessions = SessionsFeature(http, running, reach, shares, people, rounds.pane_run_info, presets.presets)
        schedules = SchedulesFeature(http, running, presets, sealer)
        chat = ChatFeature(http, running, reach, sessions.views, configured, settings.idle_limit)
        self.responses = ResponsesFeature(http, running, reach, configured, current, tasks)
        self.data = DataFeature(
            http.bodies, running, current, people, keys, shares, audit, sessions.sessions, rounds, batches, sealer
        )
        self.accounts = AccountsFeature(
            http.bodies,
            running,
            settings,
            environ,
            people,
            keys,
            shares,
            audit,
            self.data.erasing,
            sealer,
            stop_batches=batches.stop_of_keys,
            tasks=tasks,
        )
        self.settings = SettingsFeature(http.bodies, current, configured, running.models, running.breaks)
        budgets = BudgetsFeature(people, running.budgets, self.engine, store)
        agents = EquipmentFeature(http.bodies, running, configured, people.callers.is_fresh, sealer, settings, environ)
        started = [self.accounts, self.settings, agents]  # in this order
        versions = VersionsFeature(http, running, reach, sessions.views)
        context = ContextFeature(http, running, reach, sessions.views)
        chats = [chat, self.responses, sessions, versions, context, presets, schedules, sharing]
        chats.append(TitlesFeature(running, observers, configured))
        self.notifications = NotificationsFeature(http, running, reach, sealer, settings, environ)
        others = [*chats, self.notifications, self.compare, self.evals, self.data, budgets]
        features = [*started, *others, self.auditing, self.observe]
        return [*features, Description(features), PageFeature()]

    def gate(self, other: ASGIApp) -> ASGIApp:
        """Return the application behind its checks. `other` serves what is not HTTP."""
        endpoints = endpoints_of(self.features)
        self.observe.watch(self.configured.providers, self.engine.streams.lags)
        limits_bytes = self.current.now.budget.bytes_stored is not None
        require_room, is_fresh = self.running.budgets.require_room, self.people.callers.is_fresh
        checks = CallChecks(self.auditing.audit, is_fresh, require_room, limits_bytes)
        self.router = Router(self.observe.traced(endpoints), checks, other)
        on_refusal = self.observe.counting(self.auditing.refused_keys.count)
        return self.accounts.gate(self.observe.requests(self.router), endpoints, on_refusal, is_of_the_page)

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Start the features and the engine, and end them."""
        settings, features = self.current.now, [each for feature in self.features for each in feature.all()]
        for feature in features:
            await feature.start()
        async with self.running.served(self.peers_socket), self.observe.served(settings, self.metrics_socket):
            for feature in features:
                feature.begin(self.chores)
            async with until_end(lambda: self.end(self.current.now.drain), hears_signals=self.hears_signals):
                yield
            await self.chores.close()
        for feature in reversed(features):
            await feature.close()
        self.router.close()
        await self.store.close()
        if self.observers.traces is not None:
            await self.observers.traces.close()

    async def end(self, drain: float) -> None:
        """Shut down: refuse new runs, let the others drain or settle, and end the streams.

        Repeating it changes nothing. The timeouts are such that the process ends within ten seconds, even if the store
        is away.
        """
        await self.engine.close(drain=drain, within=3.0)
        await self.running.spending.close()
        await self.tasks.wait(timeout=1.0)
