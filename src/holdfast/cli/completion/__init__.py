"""Shell completion of models, agents, runs and sessions.

It asks the running server. Without one, the models come from the settings. On any error there is no completion and no
message, since the shell is in the middle of a line.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from ...server.live.discovery import load_and_look
from ...server.live.provider_factory import make_provider
from ...upstreams import Providers
from .. import show
from ..client import Api, NoServer, Object, connect
from ..tables import short_ids
from .prefixes import RUN, SESSION, Kind, begin_with

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
PATIENCE = 2.0
"""Timeout in seconds. After it the shell gets no completions."""
MOST = 30


def complete_models(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the models with this prefix."""
    return _finished(_models(ctx, incomplete))


def complete_agents(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the agents with this prefix."""
    found = _finished(_models(ctx, f"agent/{incomplete}"))
    return [CompletionItem(item.value.removeprefix("agent/")) for item in found]


def complete_presets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the presets with this prefix."""
    return _finished(_named(ctx, incomplete, ("presets",)))


def complete_named(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the presets with this prefix, and the prompts by `/name`."""
    return _finished(_named(ctx, incomplete, ("presets", "prompts")))


def complete_started(kind: str) -> Complete:
    """Return what completes the names of schedules, or of triggers."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _finished(_named(ctx, incomplete, (kind,)))

    return complete


def complete_runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the latest runs with this id prefix."""
    return _finished(_things(ctx, RUN, incomplete))


def complete_sessions(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the latest sessions with this id prefix."""
    return _finished(_things(ctx, SESSION, incomplete))


def _finished(work: Coroutine[Any, Any, list[CompletionItem]]) -> list[CompletionItem]:
    async def within() -> list[CompletionItem]:
        async with asyncio.timeout(PATIENCE):
            return await work

    with contextlib.suppress(Exception), contextlib.redirect_stderr(io.StringIO()):
        return asyncio.run(within())
    return []


def _server(ctx: click.Context) -> contextlib.AbstractAsyncContextManager[Api]:
    named = [ctx.params.get(name) for name in ("url", "data", "config")]
    return connect(named[0] or os.environ.get("HOLDFAST_URL"), *named[1:], own=False)


async def _models(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    try:
        async with _server(ctx) as api:
            listed = [model["id"] for model in (await api.call("GET", "/api/models", query={"all": "true"}))["models"]]
    except NoServer:
        listed = await _models_of_settings(ctx.params.get("config"))
    return [CompletionItem(model) for model in listed if model.startswith(incomplete)]


async def _models_of_settings(config: str | None) -> list[str]:
    settings = await asyncio.to_thread(load_and_look, None, os.environ, config)
    providers = Providers([make_provider(described, settings, os.environ) for described in settings.providers])
    try:
        agents = [f"agent/{agent.name}" for agent in settings.agents]
        return [*await providers.names(), *agents]
    finally:
        await providers.close()


async def _named(ctx: click.Context, incomplete: str, kinds: Sequence[str]) -> list[CompletionItem]:
    async with _server(ctx) as api:
        listed = {kind: (await api.call("GET", f"/api/{kind}"))[kind] for kind in kinds}
    names = [("/" if kind == "prompts" else "") + each["name"] for kind in kinds for each in listed[kind]]
    return [CompletionItem(name) for name in names if name.casefold().startswith(incomplete.casefold())]


async def _things(ctx: click.Context, kind: Kind, incomplete: str) -> list[CompletionItem]:
    prefix = kind.type if kind.type.startswith(incomplete) else incomplete
    async with _server(ctx) as api:
        found = await begin_with(api, kind, prefix, MOST)
    return [
        CompletionItem(cell.text if len(cell.text) >= len(prefix) else each["id"], help=_described(each))
        for cell, each in zip(short_ids([each["id"] for each in found]), found, strict=True)
    ]


def _described(each: Object) -> str:
    return show.line(f"{show.ago(each['created_at'])}  {each.get('title') or each.get('model') or ''}", 60)
