"""Every problem of the settings at once, for `holdfast config check`.

Each part that a server makes of an entry of its settings is made by itself, so that all problems are found. Then the
whole server is put together as a start does it, with a store in memory.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from ...agents.mcp.described import McpServer
from ...agents.mcp.pool import ToolServers
from ...agents.published import CannotPublish, load_agents
from ...errors import HoldfastError
from ...server.app import HoldfastServer, create_app
from ...server.config.settings import (
    DISCOVERED,
    PREFIX,
    Settings,
    complaints,
    gather,
    store_url,
    with_default_providers,
)
from ...server.config.settings_errors import explain
from ...server.features.accounts.keys import Keys
from ...server.features.accounts.oidc.opening import oidc_of
from ...server.features.notifications.listeners import listener_of
from ...server.features.notifications.posting import Posting
from ...server.kit.http.tls import tls_of
from ...server.live.discovery import PLACES
from ...server.live.live_settings import check_fallbacks, check_models_named
from ...server.live.provider_factory import make_provider
from ...server.secrets.key_sources import given_keys
from ...server.sources.agent_factory import make_agent, server_of
from ...store.memory import MemoryStore
from ...store.opening import check_installed
from ...upstreams.kinds import kind_names
from ..log_format import check_loggers

_UNKNOWN = re.compile(r"Object contains unknown field `(.+?)`")
_MISSING = re.compile(r"Object missing required field `(.+?)`")
_PATH = re.compile(r" - at `\$\.?(.*)`$")
_ENTRIES = re.compile(r"(\w+)\[\.\.\.\]")  # a table whose names are free: the decoder does not say which entry
_STEP = re.compile(r"\[(\d+|\.\.\.)\]|([^.\[\]]+)")
_STAND_INS = {"model": "provider/model", "issuer": "https://provider"}
"""What replaces a missing value where an empty text would be a second problem."""


def problems(
    flags: Mapping[str, Any], environ: Mapping[str, str], file: str | None, agents: Sequence[str], *, here: bool
) -> list[str]:
    """Return the problems of the settings, each once. No store is opened and no request is sent."""
    try:
        values, sources = gather(flags, environ, file, here=here)
    except HoldfastError as error:
        return [str(error)]
    settings, found, damaged = converted(values, sources)
    found += complaints(settings, sources, environ)
    settings, sources = with_default_providers(settings, sources, environ)
    found += _of_parts(settings, sources, environ, damaged)
    if not damaged:
        found += _failures([lambda: _put_together(settings, sources, environ, agents)])
    return [*dict.fromkeys(found)]


def converted(values: dict[str, Any], sources: Mapping[str, str]) -> tuple[Settings, list[str], set[str]]:
    """Return the settings without their invalid values, the problems of these, and their paths.

    The decoder stops at its first problem. So that value is removed, and all are decoded again. A required value that
    was removed is replaced by a stand-in, mostly an empty text: the other tables keep their numbers. An unknown name is
    no invalid value: without it, its table is whole.
    """
    found: list[str] = []
    removed: set[str] = set()
    while True:
        try:
            return msgspec.convert(values, Settings, strict=False), found, removed
        except msgspec.ValidationError as error:
            place = _PATH.search(str(error))
            path = place[1] if place else ""
            if entries := _ENTRIES.match(path):
                found += _remove_entries(values, entries[1], sources)
                removed.add(entries[1])
                continue
            missing, unknown = _MISSING.match(str(error)), _UNKNOWN.match(str(error))
            if missing is None or not removed & {path, f"{path}.{missing[1]}"}:
                found.append(explain(error, Settings, sources, PREFIX))
            if missing is not None:
                _table_at(values, path)[missing[1]] = _STAND_INS.get(missing[1], "")
                removed.add(f"{path}.{missing[1]}")
            elif unknown is not None:
                _remove(values, f"{path}.{unknown[1]}")
            else:
                removed.add(_remove(values, path))


def _remove_entries(values: dict[str, Any], table: str, sources: Mapping[str, str]) -> Iterator[str]:
    """Remove the invalid entries of a table whose names are free, such as `prices`, and yield their problems."""
    for name, value in [*values[table].items()]:
        try:
            msgspec.convert({table: {name: value}}, Settings, strict=False)
        except msgspec.ValidationError as error:
            del values[table][name]
            told = explain(error, Settings, sources, PREFIX).replace("Each value of ", f'"{name}" of ')
            yield told if f'"{name}"' in told else told.replace(f"[{table}]", f'[{table}."{name}"]', 1)


def _remove(values: dict[str, Any], path: str) -> str:
    """Remove a value, and return its path. A value of a table without a fixed name goes with its table."""
    path = path.partition("[...]")[0]
    *before, last = _STEP.findall(path)
    holder = _table_at(values, before)
    if last[0]:
        holder[int(last[0])] = {}
    else:
        del holder[last[1]]
    return path


def _table_at(values: Any, path: str | list[tuple[str, str]]) -> Any:
    """Return the table or list at a path."""
    for number, name in _STEP.findall(path) if isinstance(path, str) else path:
        values = values[int(number)] if number else values[name]
    return values


def _of_parts(settings: Settings, sources: Mapping[str, str], environ: Mapping[str, str], bad: set[str]) -> list[str]:
    """Return the problems that appear when the parts of a server are made, one by one. Damaged tables are left out."""
    posting = Posting(environ, time.time, is_private_allowed=settings.notify_private)
    servers = {each.name: ToolServers(McpServer(name=each.name)) for each in settings.mcp}
    looks = settings.discover is True or (settings.discover and sources.get("providers") == DISCOVERED)
    names = {each.name for each in settings.providers} | {place.name for place in PLACES if looks}

    def is_sound(place: str) -> bool:
        return not any(path.startswith(place) for path in bad)

    def each(table: str, check: Callable[[Any], Any]) -> list[Callable[[], Any]]:
        found = getattr(settings, table)
        entries = [{name: value} for name, value in found.items()] if isinstance(found, dict) else found
        return [partial(check, entry) for n, entry in enumerate(entries) if is_sound(f"{table}[{n}]")]

    return _failures(
        [
            *each("providers", lambda it: it.dialect in kind_names() and make_provider(it, settings, environ)),
            *each("webhooks", lambda it: listener_of(it, environ, posting)),
            *each("keys", lambda it: Keys(replace(settings, keys=(it,)), environ)),
            *each("mcp", lambda it: server_of(it, environ)),
            *each("agents", lambda it: make_agent(it, settings, environ, servers)),
            *each("fallbacks", lambda it: check_fallbacks(it, names)),
            *each("log_levels", lambda it: check_loggers(replace(settings, log_levels=it))),
            lambda: check_models_named(replace(settings, title_model=""), names),
            lambda: check_models_named(replace(settings, default_model=""), names),
            lambda: is_sound("oidc") and oidc_of(settings, environ),
            lambda: given_keys(settings),
            lambda: tls_of(settings),
            lambda: check_installed(store_url(settings, environ)),
        ]
    )


def _put_together(
    settings: Settings, sources: Mapping[str, str], environ: Mapping[str, str], agents: Sequence[str]
) -> None:
    """Make the server that a start would make. Its store is in memory, and nothing is begun."""
    app = create_app(settings, MemoryStore(), environ, sources=sources, agents=dict(load_agents(agents)))
    asyncio.run(_admitted(app.state.server))


async def _admitted(server: HoldfastServer) -> None:
    """Check the rules of access, as a start does, and end what was made."""
    try:
        await server.accounts.check_access(can_wait=True)
    finally:
        if server.observers.traces is not None:
            await server.observers.traces.close()


def _failures(checks: Iterable[Callable[[], Any]]) -> list[str]:
    """Return the errors of the checks that do not pass."""
    found = []
    for check in checks:
        try:
            check()
        except (HoldfastError, CannotPublish) as error:
            found.append(str(error))
    return found
