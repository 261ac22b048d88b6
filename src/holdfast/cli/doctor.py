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
from contextlib import closing
from typing import NamedTuple

import aiohttp
import click
import msgspec
from rich.markup import escape

from .. import __version__
from ..errors import HoldfastError
from ..server.configured import Saved, SavedFile
from ..server.discovery import load_and_look
from ..server.keys import KeyFile
from ..server.provided import make_provider
from ..server.settings import ProviderSettings, Settings, data_folder, processes_of
from . import show
from .client import is_there, local_url


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
    """Check settings, data folder, database, providers, models and port, and say what to do.

    Exit code: 0 where all is well, 1 where something is in the way.
    """
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
        settings = load_and_look({"data": data}, os.environ, config)
    except HoldfastError as error:
        yield Finding("bad", f"settings: {error}", "Mend the settings file or the variable that it names.")
        return
    yield from _workers(settings)
    folder = data_folder(settings).absolute()
    for look in (_folder, _database, _keys):
        yield from look(folder)
    try:
        saved = SavedFile(folder).read()
    except HoldfastError as error:
        yield Finding("bad", str(error))
        return
    yield from _saved(folder, saved)
    named = {described.name for described in settings.providers}
    added = tuple(described for described in saved.providers if described.name not in named)
    yield from asyncio.run(
        _port_and_providers(msgspec.structs.replace(settings, providers=(*settings.providers, *added)))
    )


def _workers(settings: Settings) -> Iterator[Finding]:
    """Look at how many processes share the work; one is nothing to speak of."""
    try:
        processes = processes_of(settings)
    except HoldfastError as error:
        yield Finding("bad", str(error))
        return
    if processes > 1:
        all_in_one = "starts_per_minute is set: only one of them can count, and it starts all runs."
        yield Finding(
            "note" if settings.starts_per_minute else "ok",
            f"{processes} processes share the work",
            all_in_one if settings.starts_per_minute else "",
        )


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
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
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


def _saved(folder: pathlib.Path, saved: Saved) -> Iterator[Finding]:
    """Look at what was set while the server ran."""
    path = SavedFile(folder).path
    if not path.exists():
        return
    if path.stat().st_mode & 0o077 and os.name == "posix":
        yield Finding("bad", f"others can read {path}, which holds keys", f"chmod 600 {path}, and change the keys.")
        return
    names = ", ".join(described.name for described in saved.providers)
    yield Finding("ok", f"set while the server ran: {names or 'no providers'} ({path})")


async def _port_and_providers(settings: Settings) -> list[Finding]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE)) as http:
        looks = [_provider(http, described, settings) for described in settings.providers]
        return await asyncio.gather(_port(http, settings), *looks)


PATIENCE = 5.0  # seconds for each provider, all at once


async def _port(http: aiohttp.ClientSession, settings: Settings) -> Finding:
    url = local_url(settings)
    if await is_there(http, url):
        return Finding("ok", f"Holdfast is running on {url}")
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            what = f"cannot listen on {settings.host}:{settings.port}: {error.strerror}"
            return Finding("bad", what, "Choose another with --port or HOLDFAST_PORT.")
    return Finding("ok", f"port {settings.port} is free")


async def _provider(http: aiohttp.ClientSession, described: ProviderSettings, settings: Settings) -> Finding:
    name = f"provider {described.name}"
    if described.key_env() and not described.key(os.environ):
        return Finding("bad", f"{name}: {described.key_env()} is not set", "Export the key.")
    try:
        provider = make_provider(described, settings, os.environ)
    except HoldfastError as error:
        return Finding("bad", f"{name}: {error}", "Mend its table in the settings file.")
    if trouble := await _trouble(http, described):
        await provider.close()
        return Finding("bad", f"{name}: {trouble}", "Is it running, and are base_url and key right?")
    try:
        models = await provider.list_models()
    finally:
        await provider.close()
    why_not: Callable[[], str | None] = getattr(provider, "why_not", lambda: None)
    if not models:
        return Finding("note", f"{name} lists no models", why_not() or "Name them in its table: models = [...]")
    return Finding("ok", f"{name}: {len(models)} models, such as {models[0]}")


async def _trouble(http: aiohttp.ClientSession, described: ProviderSettings) -> str | None:
    """Return why an upstream cannot be used. Any answer but a refusal will do: not all of them list their models."""
    if described.dialect != "openai":
        return None
    key, url = described.key(os.environ), described.behaviour().base_url
    headers = {**({"Authorization": f"Bearer {key}"} if key else {}), **described.headers}
    try:
        async with http.get(f"{url.rstrip('/')}/models", headers=headers) as response:
            return f"it refuses the key ({response.status})" if response.status in (401, 403) else None
    except (aiohttp.ClientError, TimeoutError) as error:
        return f"{url} cannot be reached: {str(error) or 'no answer'}"
