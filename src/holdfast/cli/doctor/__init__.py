"""`holdfast doctor`: check the installation and report problems."""

from __future__ import annotations

import asyncio
import importlib
import os
import sqlite3
import sys
from collections.abc import Iterator
from typing import NamedTuple

import click
import msgspec
from rich.markup import escape

from ... import __version__
from ...errors import HoldfastError
from ...http_client.route import Route
from ...server.config.settings import ProviderSettings, Settings, data_folder
from ...server.config.settings_file import choose
from ...server.live.discovery import load_and_look
from ...server.live.live_settings import without_secrets
from ...server.live.provider_factory import make_provider, route_of
from ...server.live.saved_settings import saved_file
from ...store.opening import StoreNotInstalled
from ...upstreams import Provider, judged_state
from .. import show
from ..show import plural
from .agents import check_agents
from .check import Check
from .interpreter import check_interpreter, this_build
from .machine import (
    check_data_folder,
    check_database,
    check_keys,
    check_platform,
    check_port,
    check_proxy,
    check_saved,
    check_settings_file,
)


class Checked(NamedTuple):
    """A provider of the settings: the result of its check, and the provider itself if it could be made."""

    check: Check
    provider: Provider | None = None


async def checked_provider(described: ProviderSettings, settings: Settings, *, set_in_page: bool) -> Checked:
    """Make a provider and ask it for its models. The caller closes it."""
    fix = "fix it in the page, under Settings, Providers." if set_in_page else "fix its table in the settings file."
    name = f"provider {described.name}"
    if described.key_env() and not described.key(os.environ):
        return Checked(Check("bad", f"{name}: {described.key_env()} is not set", "Export the key."))
    try:
        route = route_of(described, os.environ)
        provider = make_provider(described, settings, os.environ)
    except HoldfastError as error:
        return Checked(Check("bad", f"{name}: {error}", fix.capitalize()))
    return Checked(await _asked(described, provider, route, fix), provider)


async def _asked(described: ProviderSettings, provider: Provider, route: Route, fix: str) -> Check:
    """Request the list of models. Not every upstream has one: any response but a refusal is fine."""
    name = f"provider {described.name}"
    state = await judged_state(provider)
    models, why = state.models, state.why
    if why and described.kind().by_http:
        how = why.removeprefix(f"{described.name} ").rstrip(".")
        what = f"{name}: {without_secrets(described.address())} {how}"
        return Check("bad", what, f"Start it, or {fix}")
    if not models:
        return Check("note", f"{name} lists no models", why or "Name them in its table: models = [...]")
    way = f", through the proxy {route.proxy.name}" if route.proxy else ""
    example = f" ({models[0]})" if len(models) == 1 else f", for example {models[0]}"
    return Check("ok", f"{name}: {plural(len(models), 'model')}{example}{way}")


MARKS = {"ok": "[green]ok[/]  ", "note": "[yellow]note[/]", "bad": "[red]bad[/] "}


@click.command()
@click.option("--config", type=click.Path(), help="Settings file (~/.config/holdfast/holdfast.toml).")
@click.option("--data", type=click.Path(), help="Data folder.")
def doctor(config: str | None, data: str | None) -> None:
    """Check settings, data folder, database, keys, port, providers, agents and MCP servers.

    Exit code: 0 = OK, 1 = problems found.
    """
    bad = False
    for check in _examine(config, data):
        show.out.print(f"{MARKS[check.state]}  {escape(check.what)}")
        if check.advice:
            show.out.print(f"      [dim]{escape(check.advice)}[/]")
        bad = bad or check.state == "bad"
    sys.exit(1 if bad else 0)


def _examine(config: str | None, data: str | None) -> Iterator[Check]:
    yield Check("ok", f"Holdfast {__version__}, SQLite {sqlite3.sqlite_version}")
    yield from check_interpreter(this_build())
    yield from check_platform(sys.platform)
    try:
        yield from check_settings_file(choose(os.environ, config))
        settings = load_and_look({"data": data}, os.environ, config)
    except HoldfastError as error:
        yield Check("bad", f"settings: {error}", "Fix the settings file or the variable.")
        return
    folder = data_folder(settings).absolute()
    checks = (check_data_folder,) if settings.store else (check_data_folder, check_database, check_keys)
    for check in checks:
        yield from check(folder)
    yield from check_proxy(settings)
    if settings.tls_cert:
        yield from importlib.import_module(".certificate", __package__).check_certificate(settings)
    if settings.store:
        yield from _check_shared_store(settings)
    try:
        saved = saved_file(settings, os.environ).read()
    except HoldfastError as error:
        yield Check("bad", str(error))
        return
    yield from check_saved(folder, saved)
    named = {described.name for described in settings.providers}
    added = tuple(described for described in saved.providers if described.name not in named)
    every = msgspec.structs.replace(settings, providers=(*settings.providers, *added))
    yield from asyncio.run(_check_what_runs(every, {described.name for described in added}))


def _check_shared_store(settings: Settings) -> list[Check]:
    try:
        cluster = importlib.import_module(".cluster", __package__)  # only now: asyncpg comes with an extra
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        return [Check("bad", str(StoreNotInstalled()))]
    checks: list[Check] = asyncio.run(cluster.check_cluster(settings))
    return checks


async def _check_what_runs(settings: Settings, set_in_page: set[str]) -> list[Check]:
    """Check the port, the providers and the agents. These checks open connections and start processes."""
    checking = asyncio.gather(
        *(checked_provider(each, settings, set_in_page=each.name in set_in_page) for each in settings.providers)
    )
    port, checked = await asyncio.gather(check_port(settings), checking)
    providers = [each.provider for each in checked if each.provider is not None]
    try:
        agents = await check_agents(settings, providers)
    finally:
        for provider in providers:
            await provider.close()
    real = any(not provider.demo for provider in providers)
    advice = "Set OPENAI_API_KEY or another key, or start Ollama: see docs/providers.md."
    lacks = [] if real else [Check("note", "no real model, only demo models", advice)]
    return [port, *(each.check for each in checked), *lacks, *agents]
