"""Every problem of the settings at once, for `holdfast config check`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from ...errors import HoldfastError
from ...server.config.settings import (
    PREFIX,
    Settings,
    SettingsError,
    complaints,
    gather,
    with_default_providers,
)
from ...server.config.settings_errors import explain
from ...server.features.accounts.keys import Keys
from ...server.kit.http.tls import tls_of
from ...server.live.live_settings import Configured
from ...server.live.provider_factory import make_provider
from ...server.live.saved_settings import saved_file
from ...server.sources.agent_factory import agents_of
from ..log_format import check_loggers

_UNKNOWN = re.compile(r"Object contains unknown field `(.+?)`")
_MISSING = re.compile(r"Object missing required field `(.+?)`")
_PATH = re.compile(r" - at `\$\.?(.*)`$")
_STEP = re.compile(r"\[(\d+|\.\.\.)\]|([^.\[\]]+)")
_STAND_INS = {"model": "provider/model"}
"""What replaces a missing value where an empty text would be a second problem."""


def problems(flags: Mapping[str, Any], environ: Mapping[str, str], file: str | None, *, here: bool) -> list[str]:
    """Return the problems of the settings, each once. No store is opened and no request is sent."""
    try:
        values, sources = gather(flags, environ, file, here=here)
    except HoldfastError as error:
        return [str(error)]
    settings, found = converted(values, sources)
    found += complaints(settings, sources, environ)
    return found or [*_deeper(*with_default_providers(settings, sources, environ), environ)]


def converted(values: dict[str, Any], sources: Mapping[str, str]) -> tuple[Settings, list[str]]:
    """Return the settings without their invalid values, and the problems of these.

    The decoder stops at its first problem. So that value is removed, and all are decoded again. A required value that
    was removed is replaced by a stand-in, mostly an empty text: the other tables keep their numbers.
    """
    found: list[str] = []
    removed: set[str] = set()
    while True:
        try:
            return msgspec.convert(values, Settings, strict=False), found
        except msgspec.ValidationError as error:
            place = _PATH.search(str(error))
            path = place[1] if place else ""
            missing = _MISSING.match(str(error))
            if missing is None or not removed & {path, f"{path}.{missing[1]}"}:
                found.append(explain(error, Settings, sources, PREFIX))
            if missing is not None:
                _table_at(values, path)[missing[1]] = _STAND_INS.get(missing[1], "")
            else:
                unknown = _UNKNOWN.match(str(error))
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


def _deeper(settings: Settings, sources: Mapping[str, str], environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the problems that appear when the parts of a server are made: providers, keys, agents, log levels."""
    saved = saved_file(settings, environ)
    checks: list[Callable[[], Any]] = [
        *(lambda each=each: make_provider(each, settings, environ) for each in settings.providers),
        lambda: Keys(settings, environ),
        lambda: agents_of(settings, environ),
        lambda: check_loggers(settings),
        lambda: tls_of(settings),
    ]
    found = [*filter(None, map(_failure, checks))]
    yield from found or filter(None, [_failure(lambda: Configured(settings, sources, environ, saved))])


def _failure(check: Callable[[], Any]) -> str:
    """Return the error of a check; empty if it passes."""
    try:
        check()
    except SettingsError as error:
        return str(error)
    return ""
