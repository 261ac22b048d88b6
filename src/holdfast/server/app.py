"""The application: its features, its start and its end."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.types import ASGIApp

from ..access import ANYONE
from ..agents.published import CannotPublish, Published, published
from ..asgi.event_stream import Closing
from ..compare.feature import Compare
from ..concurrency.tasks import OwnedTasks
from ..evals.feature import Evals
from ..store import Store
from ..store.opening import open_store
from .config.current import CurrentSettings
from .config.settings import AGENT, Settings, SettingsError, data_folder
from .features.accounts.api.feature import Accounts
from .features.accounts.auth import Gate
from .features.accounts.ended_keys import EndedKeys
from .features.accounts.keys import Keys
from .features.accounts.owners import Owners
from .features.accounts.people.client_addresses import TrustedProxies
from .features.accounts.people.people import People
from .features.agents.grants import Agents
from .features.audit.api import Auditing
from .features.audit.refused_keys import GateRefusal
from .features.budgets.api import Usage
from .features.chat.feature import Chat
from .features.data.erasing import Erasing
from .features.data.feature import Data
from .features.observe.feature import Observe
from .features.observe.metrics.observers import Observers, observers_of
from .features.observe.metrics.port import metrics_served
from .features.page.web import WebPages, is_of_the_page
from .features.responses.feature import Responses
from .features.sessions.feature import Sessions
from .features.sessions.run_json import RunViews
from .features.settings.settings import LiveSettings
from .features.sharing.feature import Sharing
from .features.sharing.reach import Reach
from .features.sharing.shares import Shares
from .kit.chores import Chores
from .kit.feature import Feature
from .kit.openapi import Description
from .kit.request import Bodies
from .kit.routing import Checks, Router
from .kit.run_responses import Answers
from .kit.streams import Http, Streams
from .live.live_settings import Configured
from .live.provider_factory import NEAR
from .live.saved_settings import SavedFile
from .live.shared_settings import SavedDocument
from .running.cluster import peers_served
from .running.running import Running
from .secrets.key_sources import SecretKeys
from .secrets.sealer import Sealer


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
    settings = settings or Settings()
    folder = None if environ is None and not settings.data else data_folder(settings, environ or {})
    store = _opened(store, folder)
    environ = environ or {}
    if keys is None:
        keys = Keys(settings, environ, store)
    observers = observers_of(settings)
    store = observers.store(store)
    sealer = Sealer(SecretKeys(settings, folder, cluster_key=_lasting_cluster_key(settings, sources)))
    saved = SavedDocument(store, sealer) if settings.store else SavedFile(folder, sealer)
    configured = Configured(
        settings, sources or {}, environ, saved, look_every=look_every, has_keys=lambda: keys.is_needed
    )
    proxies = TrustedProxies(settings.proxy.addresses)
    people = People(store, on_first=keys.need, proxies=proxies, factor_for=settings.second_factor)
    owners, publish = Owners(keys, people.callers), _published(agents or {}, settings)
    running = Running(settings, store, configured, owners, observers, publish=publish, environ=environ)
    server = Server(settings, configured, running, people, keys, sealer, environ, observers)
    app = Starlette(lifespan=lambda _: server.lifespan())
    app.middleware_stack = server.gate(app.router)
    app.state.server = server
    return app


class Server:
    """A server: its features, which it starts and ends."""

    def __init__(
        self,
        settings: Settings,
        configured: Configured,
        running: Running,
        people: People,
        keys: Keys,
        sealer: Sealer,
        environ: Mapping[str, str],
        observers: Observers,
    ) -> None:
        self.current = CurrentSettings(settings)
        self.configured, self.running, self.people, self.keys = configured, running, people, keys
        self.engine, self.store, self.observers = running.engine, running.store, observers
        self.metrics_socket: socket.socket | None = None
        self.peers_socket: socket.socket | None = None
        """Listen on the ports for metrics and for other nodes, if they were opened before the start."""
        self.tasks = OwnedTasks("the server")
        """Work of requests that continues after their responses."""
        self.chores = Chores(self.engine.holds)
        self.closing = Closing()
        self._build(sealer, environ)

    def _build(self, sealer: Sealer, environ: Mapping[str, str]) -> None:
        """Build the features, each with the services that it needs."""
        settings, running, people, observers = self.current.now, self.running, self.people, self.observers
        http = Http(bodies := Bodies(self.current), Streams(self.current, self.closing))
        shares = Shares(self.store, people.callers.is_disabled)
        reach, answers = Reach(self.store, self.engine, shares), Answers(http.streams, settings.failed_status)
        self.compare, self.evals = Compare(http, running, observers), Evals(http, running)
        self.auditing = Auditing(self.store, people, self.engine, settings.audit_days)
        audit, rounds, batches = self.auditing.audit, self.compare.rounds, self.evals.batches
        erasing = Erasing(self.store, self.engine, people, self.keys, rounds, batches, audit, shares)
        views = RunViews(running.prices, rounds.pane_run_info)
        self.accounts = Accounts(bodies, running, settings, environ, people, self.keys, shares, audit, erasing, sealer)
        self.keys.on_end = EndedKeys(self.engine, batches.stop_of_keys, self.tasks).stop
        self.settings = LiveSettings(bodies, self.current, self.configured, running.models)
        self.responses = Responses(http, running, reach, answers, self.configured, self.current, environ, self.tasks)
        sessions = Sessions(http, running, reach, views, shares, people)
        signing_in = self.accounts.signing_in
        self.data = Data(bodies, running, self.current, people, signing_in, erasing, sessions.sessions, rounds, batches)
        self.features: list[Feature] = [
            self.accounts,
            self.settings,
            Agents(running.agents, self.store),
            Chat(http, running, reach, views, answers, self.configured, settings.idle_limit),
            self.responses,
            sessions,
            Sharing(http, running, reach, people, shares, settings),
            self.compare,
            self.evals,
            self.data,
            Usage(people, running.budgets, self.engine, self.store),
            self.auditing,
            Observe(running, self.keys, self.chores, observers),
        ]
        self.features += [Description(self.features), WebPages()]

    def gate(self, other: ASGIApp) -> ASGIApp:
        """Return the application behind its checks. `other` serves what is not HTTP."""
        settings, traces, metrics, people = self.current.now, self.observers.traces, self.observers.metrics, self.people
        endpoints = [each for feature in self.features for each in feature.endpoints()]
        open_paths = [each.path for each in endpoints if each.who is ANYONE]
        if traces is not None:  # calls that need a key create spans: probes and the page do not
            endpoints = [
                each if each.who is ANYONE else each.with_handler(traces.handler(each.method, each.path, each.handler))
                for each in endpoints
            ]
        if metrics is not None:  # before the start, which may settle runs of dead nodes
            metrics.watch(self.engine, self.configured.providers, self.closing.lags, self._failing)
        limits_bytes = settings.budget.bytes_stored is not None
        checks = Checks(self.auditing.audit, people.callers.is_fresh, self.running.budgets.require_room, limits_bytes)
        self.router = Router(endpoints, checks, other)
        inner = self.router if traces is None else traces.requests(self.router)
        return Gate(inner, settings, self.keys, open_paths, self._count_refusal, people, is_of_the_page)

    def _failing(self) -> int:
        """Return the number of background tasks that fail."""
        return len(self.chores.failing | self.engine.failing)

    def _count_refusal(self, refused: GateRefusal) -> None:
        """Count a request that the gate refuses: all of them in the metrics, those with a key for the audit log."""
        if self.observers.metrics is not None:
            self.observers.metrics.refused(refused)
        self.auditing.refused_keys.count(refused)

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Start the features and the engine, and end them."""
        settings = self.current.now
        for feature in self.features:
            await feature.start()
        measured = metrics_served(self.observers.metrics, settings, self.metrics_socket)
        async with self.engine, peers_served(self.engine, settings, self.peers_socket), measured:
            for feature in self.features:
                feature.begin(self.chores)
            yield
            await self.end(self.current.now.drain)
            await self.chores.close()
        for feature in reversed(self.features):
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
        self.closing.begin()


def _opened(store: Store | str | None, folder: Path | None) -> Store:
    """Return the store. One that is named by a URL is opened, which blocks on the disk."""
    if store is None:
        store = "memory:" if folder is None else f"sqlite:{folder}"
    return open_store(store) if isinstance(store, str) else store


def _lasting_cluster_key(settings: Settings, sources: Mapping[str, str] | None) -> str:
    """Return the cluster key if it may seal secrets. A key that was generated for this start does not last."""
    return settings.cluster_key if sources is None or "cluster_key" in sources else ""


def _published(agents: Mapping[str, Any], settings: Settings) -> dict[str, Published]:
    """Return the agents to publish. Raise an error if one is invalid."""
    if agents and any(provider.name == AGENT for provider in settings.providers):
        raise SettingsError(f"The provider name {AGENT!r} is reserved for agents.")
    for table, named in (("agent_users", settings.agent_users), ("agent_think", settings.agent_think)):
        if unknown := sorted(named.keys() - agents.keys()):
            raise SettingsError(
                f"{table} names {unknown[0]!r}, which is not a published agent. "
                "An agent of [[agents]] is described in its own table."
            )
    try:
        return published(agents, settings.agent_think)
    except CannotPublish as error:
        raise SettingsError(str(error)) from None
