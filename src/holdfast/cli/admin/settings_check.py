"""Every problem of the settings at once, for `holdfast config check`.

Each part that a server makes of its settings is made by itself, so that all problems are found. If there is none, the
whole server is put together as a start does it, with a store in memory.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ...agents.published import CannotPublish, load_agents
from ...errors import HoldfastError
from ...server.app import HoldfastServer, create_app
from ...server.config.settings import (
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
from ...server.live.provider_factory import make_provider
from ...server.sources.agent_factory import agents_of
from ...store.memory import MemoryStore
from ...store.opening import check_installed
from ..log_format import check_loggers

_UNKNOWN = re.compile(r"Object contains unknown field `(.+?)`")
_MISSING = re.compile(r"Object missing required field `(.+?)`")
_PATH = re.compile(r" - at `\$\.?(.*)`$")
_STEP = re.compile(r"\[(\d+|\.\.\.)\]|([^.\[\]]+)")
_STAND_INS = {"model": "provider/model"}
"""What replaces a missing value where an empty text would be a second problem."""


def problems(
    flags: Mapping[str, Any], environ: Mapping[str, str], file: str | None, agents: Sequence[str], *, here: bool
) -> list[str]:
    """Return the problems of the settings, each once. No store is opened and no request is sent."""
    try:
        values, sources = gather(flags, environ, file, here=here)
    except HoldfastError as error:
        return [str(error)]
    settings, found, is_whole = converted(values, sources)
    found += complaints(settings, sources, environ)
    if is_whole:
        settings, sources = with_default_providers(settings, sources, environ)
        found += _of_parts(settings, environ)
    return found or [*filter(None, [_failure(lambda: _put_together(settings, sources, environ, agents))])]


def converted(values: dict[str, Any], sources: Mapping[str, str]) -> tuple[Settings, list[str], bool]:
    """Return the settings without their invalid values, the problems of these, and whether only unknown names are gone.

    The decoder stops at its first problem. So that value is removed, and all are decoded again. A required value that
    was removed is replaced by a stand-in, mostly an empty text: the other tables keep their numbers.
    """
    found: list[str] = []
    removed: set[str] = set()
    is_whole = True
    while True:
        try:
            return msgspec.convert(values, Settings, strict=False), found, is_whole
        except msgspec.ValidationError as error:
            place = _PATH.search(str(error))
            path = place[1] if place else ""
            missing = _MISSING.match(str(error))
            if missing is None or not removed & {path, f"{path}.{missing[1]}"}:
                found.append(explain(error, Settings, sources, PREFIX))
            unknown = _UNKNOWN.match(str(error))
            is_whole = is_whole and unknown is not None
            if missing is not None:
                _table_at(values, path)[missing[1]] = _STAND_INS.get(missing[1], "")
            else:
                removed.add(_remove(values, f"{path}.{unknown[1]}" if unknown else path))


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


def _of_parts(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """Return the problems that appear when the parts of a server are made, one by one."""
    posting = Posting(environ, time.time, is_private_allowed=settings.notify_private)
    checks: list[Callable[[], Any]] = [
        *(lambda each=each: make_provider(each, settings, environ) for each in settings.providers),
        *(lambda each=each: listener_of(each, environ, posting) for each in settings.webhooks),
        lambda: Keys(settings, environ),
        lambda: agents_of(settings, environ),
        lambda: oidc_of(settings, environ),
        lambda: check_loggers(settings),
        lambda: tls_of(settings),
        lambda: check_installed(store_url(settings, environ)),
    ]
    return [*filter(None, map(_failure, checks))]


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


def _failure(check: Callable[[], Any]) -> str:
    """Return the error of a check; empty if it passes."""
    try:
        check()
    except (HoldfastError, CannotPublish) as error:
        return str(error)
    return ""
