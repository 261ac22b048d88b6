"""The map of the server: its parts, its routes, its life."""

from __future__ import annotations

import asyncio
import logging
import os
import pathlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from .. import __version__
from ..engine import Engine
from ..errors import HoldfastError, StoreUnavailable
from ..providers import Provider, Providers
from ..providers.anthropic import BASE_URL, Anthropic
from ..providers.local import Local
from ..providers.openai_compatible import OpenAICompatible
from ..providers.scripted import Scripted
from ..providers.turns import InTurns
from ..run import Limits
from ..store import Store
from . import batches, completions, feed, health, llama_cpp, messages, models, openapi, runs, sessions
from .auth import Gate, check_bind
from .context import Endpoint, Parts
from .errors import Json, on_any_error, on_holdfast_error, on_http_error
from .keys import KeyFile, Keys
from .settings import ProviderSettings, Settings, SettingsError, data_folder
from .sources import ChatSources

logger = logging.getLogger("holdfast")

LINGER = 30.0
"""Seconds for which the embedded model goes on when the server was killed: the next one takes its answers up."""

LOCAL_RUNS = 2
"""Answers that the embedded model works on at once where the settings do not say."""

# The most used first: routes are tried in order.
ENDPOINTS: list[Endpoint] = [
    *completions.ENDPOINTS,
    *messages.ENDPOINTS,
    *runs.ENDPOINTS,
    *sessions.ENDPOINTS,
    *feed.ENDPOINTS,
    *llama_cpp.ENDPOINTS,
    *batches.ENDPOINTS,
    *models.ENDPOINTS,
    *health.ENDPOINTS,
]


def create_app(
    settings: Settings, store: Store, environ: Mapping[str, str] = os.environ, *, keys: Keys | None = None
) -> Starlette:
    """Return the server as an ASGI application. Its lifespan starts and ends the engine."""
    keys = keys if keys is not None else Keys(settings, environ, KeyFile(data_folder(settings, environ)))
    check_bind(settings, keys)
    providers = Providers([make_provider(described, settings, environ) for described in settings.providers])
    sources = ChatSources(store, providers, settings.retry_patience, checked_fallbacks(settings))
    engine = Engine(store, sources=sources, again=sources.again, limits=limits_of(settings))
    parts = Parts(settings, store, providers, engine)
    app = Starlette(
        routes=[*(endpoint.route(parts) for endpoint in ENDPOINTS), _description().route(parts)],
        middleware=[Middleware(Gate, settings=settings, keys=keys)],
        exception_handlers={
            HoldfastError: on_holdfast_error,
            HTTPException: on_http_error,
            Exception: on_any_error,
        },
        lifespan=_lifespan(parts, keys),
    )
    app.router.redirect_slashes = False  # a path that is not there is a 404 in our own shape
    app.state.parts = parts
    return app


def _lifespan(parts: Parts, keys: Keys):  # type: ignore[no-untyped-def]
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with parts.engine:
            parts.batches.start()
            chores = [asyncio.create_task(_trim_logs(parts)), asyncio.create_task(_read_keys(keys))]
            yield
            for chore in chores:
                chore.cancel()
            await end(parts, parts.settings.drain)
        await parts.providers.close()
        await parts.store.close()

    return lifespan


async def _trim_logs(parts: Parts) -> None:
    """Forget the events of runs that ended long ago, now and every hour."""
    while parts.settings.log_days:
        try:
            await parts.store.trim_logs(parts.engine.now() - parts.settings.log_days * 86400)
        except StoreUnavailable as error:
            logger.warning("old logs could not be trimmed: %s", error)
        await asyncio.sleep(3600)


async def _read_keys(keys: Keys) -> None:
    """Take in the keys that were made or revoked in the meantime, every second."""
    while keys.file is not None:
        await asyncio.sleep(1)
        try:
            await asyncio.to_thread(keys.file.read)
        except SettingsError as error:
            logger.error("the keys stay as they were: %s", error)


async def end(parts: Parts, drain: float) -> None:
    """End well: refuse new runs, let the others drain or settle, and send the readers off. Twice is harmless.

    The times are such that the process has ended within ten seconds, also where the store is away.
    """
    await parts.engine.close(drain=drain, within=3.0)
    await parts.batches.close()
    parts.closing.begin()


def make_provider(described: ProviderSettings, settings: Settings, environ: Mapping[str, str]) -> Provider:
    """Return the provider that a table of the settings describes."""
    if described.dialect == "local":
        model = pathlib.Path(settings.model).expanduser() if settings.model else None
        return Local(
            described.name,
            data=data_folder(settings, environ),
            model_path=model,
            offline=settings.offline,
            linger=LINGER,
            slots=described.max_runs or LOCAL_RUNS,
        )
    provider = _upstream(described, environ)
    return InTurns(provider, described.max_runs) if described.max_runs else provider


def _upstream(described: ProviderSettings, environ: Mapping[str, str]) -> Provider:
    match described.dialect:
        case "scripted":
            return Scripted(described.name)
        case "anthropic":
            return _anthropic(described, environ)
        case _:
            return _openai_compatible(described, environ)


def _openai_compatible(described: ProviderSettings, environ: Mapping[str, str]) -> Provider:
    known = described.behaviour()
    try:
        return OpenAICompatible(
            described.name,
            known.base_url,
            api_key=described.key(environ),
            models=described.models,
            headers=described.headers,
            alternate=known.alternate,
            prefills=known.prefills,
            prefill_params=known.prefill_params,
            prefill_mark=known.prefill_mark,
            think=known.think,
            usage=known.usage,
            attaches=known.attaches,
        )
    except ValueError as error:
        raise SettingsError(f"Provider {described.name!r}: {error}.") from None


def _anthropic(described: ProviderSettings, environ: Mapping[str, str]) -> Provider:
    try:
        return Anthropic(
            described.name,
            described.base_url or BASE_URL,
            api_key=described.key(environ),
            models=described.models,
            headers=described.headers,
            prefills=bool(described.prefills),
        )
    except ValueError as error:
        raise SettingsError(f"Provider {described.name!r}: {error}.") from None


def checked_fallbacks(settings: Settings) -> Mapping[str, str]:
    """Return who answers for whom, or refuse a name that could never answer."""
    names = {provider.name for provider in settings.providers}
    for pair in settings.fallbacks.items():
        for model in pair:
            provider, slash, rest = model.partition("/")
            if not slash or not rest or provider not in names:
                raise SettingsError(f"In fallbacks: {model!r} is not the name of a provider, a slash and a model.")
    return settings.fallbacks


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
