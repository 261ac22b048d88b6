"""`holdfast doctor`: check the installation and report problems."""

from __future__ import annotations

import asyncio
import importlib
import os
import sqlite3
import sys
from collections.abc import Iterator

import click
import msgspec
from rich.markup import escape

from ... import __version__
from ...errors import HoldfastError
from ...server.config.settings import Settings, data_folder
from ...server.config.settings_file import choose
from ...server.live.discovery import load_and_look
from ...server.live.saved_settings import saved_file
from ...store.opening import StoreNotInstalled
from .. import show
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
from .upstreams import checked_provider

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
