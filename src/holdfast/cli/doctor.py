"""`holdfast doctor`: check the set-up, and say what to do."""

from __future__ import annotations

import asyncio
import os
import pathlib
import platform
import shutil
import socket
import sqlite3
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import click
from rich.markup import escape

from .. import __version__
from ..errors import HoldfastError
from ..server.app import make_provider
from ..server.keys import KeyFile
from ..server.settings import Settings, data_folder, load
from . import show


class Finding(NamedTuple):
    """One thing that was looked at: fine, worth knowing, or in the way."""

    state: str
    what: str
    advice: str = ""


MARKS = {"ok": "[green]ok[/]  ", "note": "[yellow]note[/]", "bad": "[red]bad[/] "}


@click.command()
@click.option("--config", type=click.Path(), help="Settings file (holdfast.toml).")
@click.option("--data", type=click.Path(), help="Folder for everything that is kept.")
def doctor(config: str | None, data: str | None) -> None:
    """Check Python, settings, data folder, database, providers, models and port, and say what to do."""
    bad = False
    for finding in _examine(config, data):
        show.out.print(f"{MARKS[finding.state]}  {escape(finding.what)}")
        if finding.advice:
            show.out.print(f"      [dim]{escape(finding.advice)}[/]")
        bad = bad or finding.state == "bad"
    sys.exit(1 if bad else 0)


def _examine(config: str | None, data: str | None) -> Iterator[Finding]:
    yield Finding("ok", f"Holdfast {__version__}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}")
    try:
        settings = load({"data": data}, os.environ, config)
    except HoldfastError as error:
        yield Finding("bad", f"settings: {error}", "Mend the settings file or the variable that it names.")
        return
    folder = data_folder(settings)
    for look in (_folder, _database, _keys):
        yield from look(folder)
    yield from _port(settings)
    yield from asyncio.run(_providers(settings))


def _folder(folder: pathlib.Path) -> Iterator[Finding]:
    place = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(place, os.W_OK):
        yield Finding("bad", f"data folder {folder} cannot be written", "Choose another with --data or HOLDFAST_DATA.")
        return
    free = shutil.disk_usage(place).free / 1e9
    state = "ok" if free > 1 else "note"
    advice = "" if free > 1 else "Less than 1 GB is free: what is said can only be kept while there is room."
    yield Finding(state, f"data folder {folder}, {free:.0f} GB free", advice)


def _database(folder: pathlib.Path) -> Iterator[Finding]:
    path = folder / "holdfast.db"
    if not path.exists():
        yield Finding("ok", "no database yet: the first start makes one")
        return
    try:
        with sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True) as database:
            found = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        found = str(error)
    if found == "ok":
        yield Finding("ok", f"database {path} is sound ({path.stat().st_size / 1e6:.1f} MB)")
    else:
        yield Finding("bad", f"database {path}: {found}", "Restore a backup, or move the file away to begin anew.")


def _keys(folder: pathlib.Path) -> Iterator[Finding]:
    try:
        count = len(KeyFile(folder).made)
    except HoldfastError as error:
        yield Finding("bad", str(error))
        return
    yield Finding(
        "ok", f"{count} keys made here" if count else "no keys made here: only this machine can use the server"
    )


def _port(settings: Settings) -> Iterator[Finding]:
    with socket.socket() as probe:
        probe.settimeout(1)
        taken = probe.connect_ex((settings.host, settings.port)) == 0
    if taken:
        yield Finding("note", f"port {settings.port} is in use", "By Holdfast, if it is running; else use --port.")
    else:
        yield Finding("ok", f"port {settings.port} is free")


async def _providers(settings: Settings) -> list[Finding]:
    return [await _provider(settings, number) for number in range(len(settings.providers))]


async def _provider(settings: Settings, number: int) -> Finding:
    described = settings.providers[number]
    if described.api_key_env and not os.environ.get(described.api_key_env):
        return Finding("bad", f"provider {described.name}: {described.api_key_env} is not set", "Export the key.")
    provider = make_provider(described, settings, os.environ)
    try:
        models = await provider.list_models()
    finally:
        await provider.close()
    why_not: Callable[[], str | None] = getattr(provider, "why_not", lambda: None)
    if not models:
        advice = why_not() or f"Is it running, and is base_url right? ({described.base_url})"
        return Finding("note", f"provider {described.name} lists no models", advice)
    return Finding("ok", f"provider {described.name}: {len(models)} models, such as {models[0]}")
