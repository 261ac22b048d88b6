"""The application: its services, its routes, its start and end."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from .. import __version__
from ..access import ANYONE, READ
from ..agents.published import CannotPublish, Published, published
from ..compare import api as comparisons
from ..compare import scores_api as scores
from ..compare.runs import Rounds
from ..compare.sources import PaneSources
from ..engine.core import Core
from ..errors import HoldfastError
from ..evals import api as batches
from ..events import Source
from ..peers import Peers
from ..runs.run import Limits, Run
from ..runs.shared import Clock
from ..store import RunRecord, Store
from ..store.opening import open_store
from . import openapi, web
from .accounts.api import keys as key_calls
from .accounts.api import oidc, own_account, sign_in
from .accounts.api import people as people_calls
from .accounts.auth import Gate, check_bind
from .accounts.client_addresses import TrustedProxies
from .accounts.data import api as data_calls
from .accounts.data.retention import delete_old
from .accounts.ended_keys import EndedKeys
from .accounts.factors import api as second_factor_api
from .accounts.factors import passkey_api
from .accounts.factors.passkeys import Passkeys
from .accounts.factors.second_factors import SecondFactors
from .accounts.keys import LOOK_EVERY, Keys
from .accounts.owners import Owners
from .accounts.people.people import People
from .api import feed, grants, health, models, nodes, queue, runs, session_runs, session_transfer, sessions
from .api import settings as settings_calls
from .audit import api as audit_calls
from .audit.refused_keys import GateRefusal
from .budgets import api as budget_calls
from .budgets.budgets import Budgets
from .budgets.spending import Spending
from .cluster import details_of, lease_of, peers_served
from .config.live_settings import Configured
from .config.provider_factory import NEAR
from .config.saved_settings import SavedFile
from .config.settings import AGENT, Settings, SettingsError, data_folder
from .config.shared_settings import SavedDocument
from .dialects import ag_ui, ai_sdk, llama_cpp, ollama, ollama_embeddings, pass_through
from .dialects import anthropic as messages
from .dialects import completions as text_completions
from .dialects import openai_chat as completions
from .dialects.responses import conversations_api
from .dialects.responses import openai_responses as responses
from .dialects.responses import websocket as responses_websocket
from .errors import Json
from .http.loopback import is_loopback
from .metrics import Metrics
from .metrics import port as metrics_calls
from .metrics.observers import Observers, observers_of
from .metrics.port import metrics_served
from .routing import Endpoint, Router
from .secrets.key_sources import SecretKeys
from .secrets.sealer import Sealer
from .services import Parts, costs_of, prices_of
from .sharing import api as sharing
from .sharing import links
from .sources.agent_factory import agent_users_of, agents_of
from .sources.agents import AgentSources
from .sources.chat import ChatSources
from .sources.models import AllowedModels
from .starting.rate_limit import StartRate
from .starting.room import Room
from .starting.starting import Starting

logger = logging.getLogger(__name__)

LOOK_AT_MODELS = 15.0
"""Seconds until a new model of a provider has its own label in the metrics."""
LOOK_AT_WAL = 10.0
"""Seconds between two readings of PostgreSQL's write-ahead log, for the metrics."""
CHORE = "chore"
"""The kind of holds for work that one node does for all. The node that holds a chore keeps it."""
OLD_REQUEST = 60.0
"""Seconds after which a request to another node is removed. Callers wait less."""

FLUSH_EVERY = 0.5
"""Seconds between two writes of the usage of unstored runs."""
OLD_CHARGE = 120.0
"""Seconds after which the charge of an ended run is added to the sum of its day."""

ENDPOINTS: list[Endpoint] = [
    *completions.ENDPOINTS,
    *text_completions.ENDPOINTS,
    *pass_through.ENDPOINTS,
    *responses.ENDPOINTS,
    *responses_websocket.ENDPOINTS,
    *conversations_api.ENDPOINTS,
    *messages.ENDPOINTS,
    *ag_ui.ENDPOINTS,
    *runs.ENDPOINTS,
    *session_runs.ENDPOINTS,
    *sessions.ENDPOINTS,
    *session_transfer.ENDPOINTS,
    *queue.ENDPOINTS,
    *sharing.ENDPOINTS,
    *links.ENDPOINTS,
    *scores.ENDPOINTS,
    *comparisons.ENDPOINTS,
    *feed.ENDPOINTS,
    *ai_sdk.ENDPOINTS,
    *llama_cpp.ENDPOINTS,
    *ollama.ENDPOINTS,
    *ollama_embeddings.ENDPOINTS,
    *batches.ENDPOINTS,
    *models.ENDPOINTS,
    *grants.ENDPOINTS,
    *sign_in.ENDPOINTS,
    *oidc.ENDPOINTS,
    *own_account.ENDPOINTS,
    *second_factor_api.ENDPOINTS,
    *passkey_api.ENDPOINTS,
    *data_calls.ENDPOINTS,
    *key_calls.ENDPOINTS,
    *people_calls.ENDPOINTS,
    *budget_calls.ENDPOINTS,
    *audit_calls.ENDPOINTS,
    *settings_calls.ENDPOINTS,
    *nodes.ENDPOINTS,
    *health.ENDPOINTS,
    *metrics_calls.ENDPOINTS,
]


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
    parts = _parts(settings, store, configured, keys, environ, _published(agents or {}, settings), observers)
    parts.second_factors, parts.passkeys = SecondFactors(parts.people, sealer), Passkeys(parts.people, sealer)
    return _app(parts, _lifespan(parts))


def _parts(
    settings: Settings,
    store: Store,
    configured: Configured,
    keys: Keys,
    environ: Mapping[str, str],
    publish: Mapping[str, Published],
    observers: Observers,
) -> Parts:
    """Return the services of a server, each with those that it needs."""
    people = People(
        store,
        on_first=keys.need,
        proxies=TrustedProxies(settings.proxy.addresses),
        factor_for=settings.second_factor,
    )
    owners = Owners(keys, people.callers)
    providers, fallbacks = configured.providers, lambda: configured.fallbacks
    prices, clock = prices_of(settings), time.time
    spending = Spending(store, owners, settings.budget, prices, settings.currency, clock)
    require = spending.require_model
    chats = ChatSources(store, providers, settings.retry_patience, fallbacks, observers.traces, require)
    users = agent_users_of(settings, publish, owners.access)
    agents = AgentSources(agents_of(settings, environ), chats, store, providers, publish, users=users)
    engine = agents.engine = _engine(store, settings, chats, agents, spending, observers, clock)
    budgets = Budgets(store, engine, owners, spending)
    models = AllowedModels(configured, agents)
    room = Room(engine, StartRate(settings.starts_per_minute, engine, store), budgets)
    starting = Starting(
        store,
        engine,
        room,
        find_model=models.find,
        check_agent=agents.check,
        kind_of=agents.kind_of,
        payer_of=budgets.payer,
    )
    panes = PaneSources(chats, observers.enter, spending.metered_pane)
    rounds = Rounds(engine, store, panes, prices, starting.start)
    parts = Parts(
        settings, store, configured, engine, rounds, agents, keys, environ, observers, people, budgets, models, starting
    )
    keys.on_end = EndedKeys(engine, parts.batches, parts.tasks).stop
    return parts


def _engine(
    store: Store,
    settings: Settings,
    chats: ChatSources,
    agents: AgentSources,
    spending: Spending,
    observers: Observers,
    clock: Clock,
) -> Core:
    peers = Peers(settings.cluster_key) if settings.cluster_key else None
    engine = Core(
        store,
        sources=sources_of({AGENT: agents}, chats, observers.enter, spending.metered),
        again=observers.again(spending.metered_again(agents.again_or(chats.again))),
        elsewhere=chats.elsewhere,
        limits=limits_of(settings),
        lease=lease_of(settings),
        node=details_of(settings),
        serve=agents.serve,
        cost=costs_of(settings),
        observe=_observing(spending, observers),
        counts=observers.activity.counts,
        follow=None if peers is None else peers.follow,
        unstored=peers,
        clock=clock,
    )
    observers.watch(engine)
    return engine


def _opened(store: Store | str | None, folder: Path | None) -> Store:
    """Return the store. One that is named by a URL is opened, which blocks on the disk."""
    if store is None:
        store = "memory:" if folder is None else f"sqlite:{folder}"
    return open_store(store) if isinstance(store, str) else store


def _lasting_cluster_key(settings: Settings, sources: Mapping[str, str] | None) -> str:
    """Return the cluster key if it may seal secrets. A key that was generated for this start does not last."""
    return settings.cluster_key if sources is None or "cluster_key" in sources else ""


async def check_access(parts: Parts, *, can_wait: bool = False) -> None:
    """Read the keys, and refuse to start without keys or accounts on a public address.

    With `can_wait` the server starts all the same, closed to everyone, and waits for its first admin, who has the
    code in `parts.first_admin`.
    """
    await parts.keys.refresh()
    await parts.people.callers.refresh()
    if can_wait and not is_loopback(parts.settings.host) and not parts.keys.is_needed:
        parts.first_admin = await parts.people.secrets.make("first_admin")
        parts.keys.need()
    check_bind(parts.settings, parts.keys, parts.environ)


def _app(parts: Parts, lifespan: Any) -> Starlette:
    app = Starlette(lifespan=lifespan)
    router = Router(parts, _endpoints(parts), other=app.router)
    open_paths = (endpoint.path for endpoint in router.endpoints if endpoint.who is ANYONE)
    if parts.metrics is not None:
        _watch(parts, parts.metrics)
    on_refusal = partial(_count_refusal, parts)
    inner = router if parts.traces is None else parts.traces.requests(router)
    app.middleware_stack = Gate(inner, parts.settings, parts.keys, open_paths, on_refusal, parts.people)
    app.state.router = router
    app.state.parts = parts
    return app


def _count_refusal(parts: Parts, refused: GateRefusal) -> None:
    """Count a request that the gate refuses: all of them in the metrics, those with a key for the audit log."""
    if parts.metrics is not None:
        parts.metrics.refused(refused)
    parts.refused_keys.count(refused)


def _endpoints(parts: Parts) -> list[Endpoint]:
    """Return every endpoint. With traces on, those that need a key create spans: probes and the page do not."""
    endpoints, traces = [*ENDPOINTS, _description(), *web.ENDPOINTS], parts.traces
    if traces is None:
        return endpoints
    return [
        each if each.who is ANYONE else each.with_handler(traces.handler(each.method, each.path, each.handler))
        for each in endpoints
    ]


def _watch(parts: Parts, metrics: Metrics) -> None:
    """Connect the metrics with the parts of the server: before the start, which may settle runs of dead nodes."""

    def failing() -> int:
        return len(parts.background.failing | parts.engine.failing)

    metrics.watch(parts.engine, parts.configured.providers, parts.closing.lags, failing)


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


def _observing(spending: Spending, observers: Observers) -> Callable[[Run], None]:
    def settled(run: Run) -> None:
        spending.settled(run)
        observers.settled(run)

    return settled


def sources_of(
    kinds: Mapping[str, Callable[[Run], Source]],
    chats: ChatSources,
    enter: Callable[[RunRecord], None],
    metered: Callable[[Run, Source], Source],
) -> Callable[[Run], Source]:
    """Return the function that makes the source of a run of any kind."""

    def source(run: Run) -> Source:
        enter(run.record)
        return metered(run, kinds.get(run.record.kind, chats)(run))

    return source


def _lifespan(parts: Parts):  # type: ignore[no-untyped-def]
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        await check_access(parts)
        await parts.configured.seal()
        await parts.configured.catch_up()
        await parts.configured.look()  # before the engine starts, which may resume runs of discovered providers
        await parts.agents.clear_up()
        measured = metrics_served(parts.metrics, parts.settings, parts.metrics_socket)
        async with parts.engine, peers_served(parts.engine, parts.settings, parts.peers_socket), measured:
            _begin_background(parts)
            async with parts.ended():
                yield
            await parts.background.close()
            await parts.batches.close()
        with suppress(HoldfastError):
            await parts.refused_keys.write()
        with suppress(HoldfastError):
            await parts.budgets.spending.flush()
        parts.offload.close()
        parts.compression.close()
        await parts.agents.close()
        await parts.configured.providers.close()
        await parts.store.close()
        if parts.traces is not None:
            await parts.traces.close()

    return lifespan


def _begin_background(parts: Parts) -> None:
    """Start the background tasks."""
    configured, background = parts.configured, parts.background
    background.every("keys", LOOK_EVERY, parts.keys.refresh, longest_pause=1.0)
    background.every("people", LOOK_EVERY, lambda: _refresh_people(parts), longest_pause=1.0)
    background.every("old links", 3600.0, lambda: _as_one_node(parts, "old links", _forget_links))
    background.every("old sign-ins", 3600.0, lambda: _as_one_node(parts, "old sign-ins", _forget_sign_ins))
    if parts.settings.store:
        background.every("settings", LOOK_EVERY, configured.catch_up, longest_pause=1.0)
    background.once("batches", parts.batches.jobs.take_up_all)
    background.once("webhooks", parts.webhooks.jobs.take_up_all)
    background.once("comparisons", parts.rounds.jobs.take_up_all)
    background.every("usage", FLUSH_EVERY, parts.budgets.spending.flush, longest_pause=1.0)
    background.every("sums of usage", 60.0, lambda: _as_one_node(parts, "sums of usage", _fold_charges))
    background.every("log trimming", 3600.0, lambda: _as_one_node(parts, "log trimming", delete_old))
    background.every("old audit entries", 3600.0, lambda: _as_one_node(parts, "old audit entries", _trim_audit))
    background.every("head of the audit log", 3600.0, lambda: _as_one_node(parts, "audit head", _log_audit_head))
    background.every("refused keys", 60.0, parts.refused_keys.write, first=60.0)
    background.every("erasures", 60.0, parts.erasing.look)
    background.every("old requests", 60.0, lambda: _as_one_node(parts, "old requests", _forget_requests), first=60.0)
    background.every("discovery", configured.look_every, configured.look, first=configured.look_every)
    if parts.metrics is not None:
        background.every("model names", LOOK_AT_MODELS, parts.metrics.look)
        background.every("write-ahead log", LOOK_AT_WAL, parts.metrics.look_at_store)
        background.once("measuring", parts.metrics.measure_process)


async def _as_one_node(parts: Parts, name: str, chore: Callable[[Parts], Awaitable[None]]) -> None:
    """Do a chore, unless another node of the store does it."""
    if await parts.engine.holds.take(CHORE, name):
        await chore(parts)


async def _forget_requests(parts: Parts) -> None:
    """Delete requests between nodes whose callers no longer wait."""
    await parts.store.forget_intents(OLD_REQUEST)


async def _fold_charges(parts: Parts) -> None:
    """Add the usage of ended runs to the sums of their days."""
    now = parts.engine.now()
    await parts.store.fold_charges(now - OLD_CHARGE, now)


async def _forget_sign_ins(parts: Parts) -> None:
    """Delete ended sign-ins, and old changes of rights, links and counts of wrong passwords."""
    people = parts.people
    await people.callers.changes.forget()
    await people.sign_ins.forget_ended()
    await people.secrets.forget_old()
    await people.throttle.forget_old()
    await people.browsers.forget_old()


async def _refresh_people(parts: Parts) -> None:
    """Apply changed rights, and then end the responses that depended on them."""
    await parts.people.callers.refresh()
    await parts.shares.refresh()


async def _forget_links(parts: Parts) -> None:
    """Delete links that have expired."""
    await parts.shares.forget_expired()


async def _trim_audit(parts: Parts) -> None:
    """Delete entries of the audit log that are older than `audit_days`."""
    await parts.audit.trim(parts.store, parts.engine.now() - parts.settings.audit_days * 86400)


async def _log_audit_head(parts: Parts) -> None:
    """Log the newest entry's number and digest: logs are kept elsewhere, and `audit verify --head` takes it."""
    n, digest = await parts.store.audit_end()
    if n:
        logger.info("the head of the audit log is %d:%s", n, digest)


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


def _description() -> Endpoint:
    async def openapi_json(parts: Parts, request: Request) -> Response:
        """Return the OpenAPI description."""
        return Json(description)

    endpoint = Endpoint("GET", "/openapi.json", openapi_json, who=READ, answers={200: "this description"})
    description = openapi.describe([*ENDPOINTS, endpoint], __version__)
    return endpoint
