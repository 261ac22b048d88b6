"""Checks of the settings file, the data folder, the database, the keys and the port."""

from __future__ import annotations

import os
import pathlib
import shutil
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing

from ...errors import HoldfastError
from ...server.config.settings import Settings, data_folder
from ...server.config.settings_file import Choice
from ...server.live.saved_settings import Saved, SavedFile
from ...server.secrets.key_sources import SecretKeyFile
from ...store.folder import check_file, check_folder, user_name
from ...store.sqlite.beside import SqliteBeside
from ..client import answers_at, local_url, url_on
from ..show import plural
from .check import Check


def check_platform(platform: str) -> Iterator[Check]:
    """Report features that need Linux, on another system. `platform` is `sys.platform`."""
    if platform == "win32":
        yield Check("bad", "Windows is not supported", "Run Holdfast in WSL or in a container.")
    elif platform != "linux":
        yield Check(
            "note",
            f"{platform}: a stop ends the process groups of a tool, not a process that has left its group; other "
            "processes of this user can read the server's environment; who listens on a discovered port is not checked",
            "Linux has no such limits. See docs/releases.md.",
        )


def check_settings_file(choice: Choice) -> Iterator[Check]:
    """Report the settings file in use, and any that is ignored."""
    if choice.path is not None:
        yield Check("note" if choice.warning else "ok", f"settings file {choice.path.absolute()}", choice.warning)
    if choice.unused:
        yield Check("note", choice.unused.removeprefix("Note: "))


def check_data_folder(folder: pathlib.Path) -> Iterator[Check]:
    """Check that the data folder is writable, belongs to the right user, and has free space."""
    place = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(place, os.W_OK):
        yield Check("bad", f"data folder {folder} is not writable", "Choose another with --data or HOLDFAST_DATA.")
        return
    yield from _rights(folder)
    free = shutil.disk_usage(place).free / 1e9
    state = "ok" if free > 1 else "note"
    advice = "" if free > 1 else "Less than 1 GB is free. Free some space: new messages cannot be saved on a full disk."
    yield Check(state, f"data folder {folder}, {free:.0f} GB free", advice)


def _rights(folder: pathlib.Path) -> Iterator[Check]:
    """Check the owner and the permissions of the folder and its files."""
    if not folder.exists() or os.name != "posix":
        return
    try:
        check_folder(folder, guest=True)
        if (folder / "holdfast.db").exists():
            check_file(folder / "holdfast.db")
    except HoldfastError as error:
        yield Check("bad", str(error))
        return
    owner = folder.stat().st_uid
    others = sorted(file.name for file in folder.glob("holdfast.db*") if file.stat().st_uid != owner)
    if others:
        advice = f"Run chown {user_name(owner)} on them: the server may not be able to read them."
        yield Check(
            "bad", f"not owned by {user_name(owner)}, the owner of the data folder: {', '.join(others)}", advice
        )
    elif owner != os.geteuid():
        yield Check(
            "note", f"data folder {folder} belongs to {user_name(owner)}", "Only a server of that user can use it."
        )


def check_database(folder: pathlib.Path) -> Iterator[Check]:
    """Check the database file."""
    path = folder / "holdfast.db"
    if not path.exists():
        yield Check("ok", "no database yet: `holdfast serve` creates it")
        return
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            found = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        found = str(error)
    if found == "ok":
        yield Check("ok", f"database {path}, {path.stat().st_size / 1e6:.1f} MB")
    else:
        yield Check(
            "bad",
            f"database {path}: {found}",
            "Restore a backup, or move the file away to start with an empty database.",
        )


def check_keys(folder: pathlib.Path) -> Iterator[Check]:
    """Check that the keys can be read, and count them."""
    try:
        count = sum(key.revoked_at is None for key in SqliteBeside(folder).list())
    except HoldfastError as error:
        yield Check("bad", f"keys: {error}", "Until they can be read, the server accepts none of them.")
        return
    yield Check("ok", plural(count, "key") if count else "no keys: only this machine can use the server")


def check_saved(folder: pathlib.Path, saved: Saved) -> Iterator[Check]:
    """Check the file of settings from the browser."""
    path = SavedFile(folder).path
    if path is None or not path.exists():
        return
    if path.stat().st_mode & 0o077 and os.name == "posix":
        yield Check(
            "bad", f"other users can read {path}, which holds API keys", f"Run chmod 600 {path}, and replace the keys."
        )
        return
    names = ", ".join(described.name for described in saved.providers)
    yield Check("ok", f"set in the browser: {names or 'no providers'} ({path})")
    secret = SecretKeyFile(folder).path
    if secret.exists():
        yield Check("ok", f"secret key {secret}", "Keep a copy elsewhere: a backup does not have it.")


def check_proxy(settings: Settings) -> Iterator[Check]:
    """Report a reverse proxy that is not trusted: wrong passwords are then not counted for each of its clients."""
    is_behind_one = (settings.allowed_hosts or settings.public_url) and not settings.tls_cert
    if is_behind_one and not settings.proxy.addresses:
        yield Check(
            "note",
            "a reverse proxy seems to stand before the server, and `proxy.addresses` is empty",
            "Set it to the proxy's address, so that wrong passwords count for each client. See docs/reverse-proxy.md.",
        )


async def check_port(settings: Settings) -> Check:
    """Check that the port is free, or that our own server runs, perhaps on the port of a flag."""
    url = local_url(settings)
    if (own := await url_on(data_folder(settings))) is not None:
        return Check("ok", f"Holdfast is running on {own or url}")
    if await answers_at(url):
        return Check("note", f"the server on {url} uses another data folder", f"Use it with --url {url}.")
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            what = f"cannot listen on {settings.host}:{settings.port}: {error.strerror}"
            return Check("bad", what, "Choose another port with --port or HOLDFAST_PORT.")
    return Check("ok", f"port {settings.port} is free")
