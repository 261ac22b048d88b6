"""The map of the server: its parts, its routes, its life."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from .. import __version__
from ..agent.published import CannotPublish, Published, published
from ..engine import Engine
from ..errors import HoldfastError, StoreUnavailable
from ..events import Source
from ..run import Limits, Run
from ..store import Store
from ..store.memory import MemoryStore
from . import (
    ag_ui,
    ai_sdk,
    batches,
    comparisons,
    completions,
    feed,
    grants,
    health,
    llama_cpp,
    messages,
    models,
    openapi,
    responses,
    runs,
    scores,
    sessions,
    settings_calls,
    web,
)
from .agents import AGENT, AgentSources, agents_of
from .auth import Gate, check_bind
from .board import Board
from .configured import Configured, SavedFile
from .context import Endpoint, Parts, Shortcut
from .errors import Json, on_any_error, on_holdfast_error, on_http_error
from .keys import KeyFile, Keys
from .panes import PaneSources
from .provided import NEAR
from .rounds import Rounds
from .settings import Settings, SettingsError, data_folder
from .sources import ChatSources

logger = logging.getLogger("holdfast")

# The most used first: routes are tried in order.
ENDPOINTS: list[Endpoint] = [
    *completions.ENDPOINTS,
    *responses.ENDPOINTS,
    *messages.ENDPOINTS,
    *ag_ui.ENDPOINTS,
    *runs.ENDPOINTS,
    *sessions.ENDPOINTS,
    *scores.ENDPOINTS,
    *comparisons.ENDPOINTS,
    *feed.ENDPOINTS,
    *ai_sdk.ENDPOINTS,
    *llama_cpp.ENDPOINTS,
    *batches.ENDPOINTS,
    *models.ENDPOINTS,
    *grants.ENDPOINTS,
    *settings_calls.ENDPOINTS,
    *health.ENDPOINTS,
]


def create_app(
    settings: Settings,
    store: Store,
    environ: Mapping[str, str] = os.environ,
    *,
    keys: Keys | None = None,
    sources: Mapping[str, str] | None = None,
    look_every: float = NEAR,
    agents: Mapping[str, Any] | None = None,
) -> Starlette:
    """Return the server as an ASGI application. Its lifespan starts and ends the engine.

    `sources` says where the settings come from, as `load_with_sources` does. Where they name no providers, what listens
    on this machine is looked for, every `look_every` seconds. `agents` are published as models `agent/<name>`: async
    generator functions.
    """
    keys = keys if keys is not None else Keys(settings, environ, KeyFile(data_folder(settings, environ)))
    check_bind(settings, keys)
    saved = SavedFile(data_folder(settings, environ))
    configured = Configured(settings, sources or {}, environ, saved, look_every=look_every)
    chats = ChatSources(store, configured.providers, settings.retry_patience, lambda: configured.fallbacks)
    panes = PaneSources(chats)
    agent_sources = AgentSources(
        agents_of(settings, environ), chats, store, configured.providers, _published(agents or {}, settings)
    )
    engine = Engine(
        store,
        sources=sources_of({"pane": panes, AGENT: agent_sources}, chats),
        again=agent_sources.again_or(chats.again),
        limits=limits_of(settings),
    )
    agent_sources.engine = engine
    rounds = Rounds(engine, store, panes, settings.prices)
    parts = Parts(settings, store, configured, engine, rounds, agent_sources, environ)
    return _app(parts, keys, _lifespan(parts, keys))


def create_worker_app(
    settings: Settings,
    board: Board,
    environ: Mapping[str, str] = os.environ,
    *,
    sources: Mapping[str, str] | None = None,
) -> Starlette:
    """Return what a further process of a server answers by itself: runs that nobody keeps.

    It has the same calls, so that they say the same of its runs. But its store is empty and its engine has none: what
    has to be kept cannot be started here, be it by mistake.
    """
    store = MemoryStore()
    keys = Keys(settings, environ, KeyFile(data_folder(settings, environ)))
    configured = Configured(settings, sources or {}, environ, SavedFile(data_folder(settings, environ)))
    chats = ChatSources(store, configured.providers, settings.retry_patience)
    engine = Engine(sources=chats, limits=limits_of(settings))
    rounds = Rounds(engine, store, PaneSources(chats), settings.prices)
    agents = AgentSources({}, chats, store, configured.providers)
    parts = Parts(settings, store, configured, engine, rounds, agents, environ)
    share(parts, board)
    return _app(parts, keys, _worker_lifespan(parts, keys))


def share(parts: Parts, board: Board) -> None:
    """Make a server one of several processes that have the same limits and settings."""
    parts.process, parts.board, parts.engine.tally = board.me, board, board
    parts.configured.on_change = board.turn_page


def _app(parts: Parts, keys: Keys, lifespan: Any) -> Starlette:
    app = Starlette(
        routes=[*(endpoint.route(parts) for endpoint in ENDPOINTS), _description().route(parts), *web.routes()],
        exception_handlers={
            HoldfastError: on_holdfast_error,
            HTTPException: on_http_error,
            Exception: on_any_error,
        },
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # a path that is not there is a 404 in our own shape
    app.middleware_stack = Gate(Shortcut(app.build_middleware_stack(), parts, ENDPOINTS), parts.settings, keys)
    app.state.parts = parts
    return app


def _published(agents: Mapping[str, Any], settings: Settings) -> dict[str, Published]:
    """Return the agents to publish, or say what is wrong with one."""
    if agents and any(provider.name == AGENT for provider in settings.providers):
        raise SettingsError(f"No provider can be called {AGENT!r} where there are agents: agents are called that.")
    try:
        return published(agents)
    except CannotPublish as error:
        raise SettingsError(str(error)) from None


def sources_of(kinds: Mapping[str, Callable[[Run], Source]], chats: ChatSources) -> Callable[[Run], Source]:
    """Return what makes the source of a run of any kind."""

    def source(run: Run) -> Source:
        return kinds.get(run.record.kind, chats)(run)

    return source


def _lifespan(parts: Parts, keys: Keys):  # type: ignore[no-untyped-def]
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        await parts.configured.look()  # before the engine starts: it may go on with a run of what is found
        await parts.agents.clear_up()
        async with parts.engine:
            parts.batches.start()
            parts.webhooks.start()
            work = (_trim_logs(parts), _read_keys(keys), _look_around(parts), _catch_up(parts))
            chores = [asyncio.create_task(chore) for chore in work]
            yield
            for chore in chores:
                chore.cancel()
            await end(parts, parts.settings.drain)
        await parts.agents.close()
        await parts.providers.close()
        await parts.store.close()

    return lifespan


def _worker_lifespan(parts: Parts, keys: Keys):  # type: ignore[no-untyped-def]
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        await parts.configured.look()
        async with parts.engine:
            chores = [asyncio.create_task(chore) for chore in (_read_keys(keys), _look_around(parts))]
            yield
            for chore in chores:
                chore.cancel()
            await end(parts, parts.settings.drain)
        await parts.providers.close()

    return lifespan


async def _trim_logs(parts: Parts) -> None:
    """Forget the events of runs that ended long ago, now and every hour."""
    while parts.settings.log_days:
        try:
            await parts.store.trim_logs(parts.engine.now() - parts.settings.log_days * 86400)
        except StoreUnavailable as error:
            logger.warning("old logs could not be trimmed: %s", error)
        await asyncio.sleep(3600)


async def _catch_up(parts: Parts) -> None:
    """Write down how the panes ended whose server was killed."""
    try:
        await parts.rounds.catch_up()
    except StoreUnavailable as error:
        logger.warning("comparisons that a killed server left are not looked after: %s", error)


async def _read_keys(keys: Keys) -> None:
    """Take in the keys that were made or revoked in the meantime, every second."""
    while keys.file is not None:
        await asyncio.sleep(1)
        try:
            await asyncio.to_thread(keys.file.read)
        except SettingsError as error:
            logger.error("the keys stay as they were: %s", error)


async def _look_around(parts: Parts) -> None:
    """Find the servers that were started on this machine in the meantime."""
    while parts.configured.looks:
        await asyncio.sleep(parts.configured.look_every)
        await parts.configured.look()


async def end(parts: Parts, drain: float) -> None:
    """End well: refuse new runs, let the others drain or settle, and send the readers off. Twice is harmless.

    The times are such that the process has ended within ten seconds, also where the store is away.
    """
    await parts.engine.close(drain=drain, within=3.0)
    await parts.batches.close()
    await parts.webhooks.close()
    await parts.rounds.all_over(within=1.0)
    parts.closing.begin()


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
        """Return this description."""
        return Json(description)

    endpoint = Endpoint("GET", "/openapi.json", openapi_json, answers={200: "this description"})
    description = openapi.describe([*ENDPOINTS, endpoint], __version__)
    return endpoint
