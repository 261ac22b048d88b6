"""Kinds of providers: what `dialect` names in the settings. Ours are listed here; a package can add more.

A kind is an entry point of the group `holdfast.upstreams`: its name is the word for `dialect`, and its object a
`ProviderKind`. docs/providers-writing.md shows how to write one, and `holdfast.testing.check_provider` checks it.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

import msgspec

from ..http_client.route import DIRECT, Route
from . import Provider
from .profiles import UNKNOWN, Profile

__all__ = ["GROUP", "KindError", "ProviderKind", "ProviderSetup", "kind_names", "kind_of"]

GROUP = "holdfast.upstreams"

_OURS = {
    name: f"holdfast.upstreams.{module}:KIND"
    for name, module in {
        "openai": "openai.provider",
        "openai-responses": "responses.provider",
        "anthropic": "anthropic.provider",
        "gemini": "gemini.provider",
        "ollama": "ollama.provider",
        "bedrock": "bedrock.provider",
        "local": "local.provider",
        "scripted": "scripted",
    }.items()
}
"""Our own kinds, in the form of entry points. They are listed here so that a start need not search the metadata."""


class KindError(ValueError):
    """A kind of provider is not installed, cannot be loaded, or does not take its options."""


class ProviderSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider is made from: its table of the settings, resolved."""

    name: str
    base_url: str = ""
    """The address of the table, of its profile, or of its kind."""
    api_key: str | None = None
    key_header: str | None = None
    """The header that holds the key, if it is not the dialect's own."""
    models: tuple[str, ...] | None = None
    headers: Mapping[str, str] = {}
    query: Mapping[str, str] = {}
    options: Any = None
    """An instance of the kind's `options`."""
    route: Route = DIRECT
    """The proxy and the certificates on the way to the upstream."""
    profile: Profile = UNKNOWN
    """For upstreams of OpenAI's dialect: how they differ."""
    prefills: bool | None = None
    think: bool | None = None
    attaches: bool | None = None
    tools: bool | None = None
    max_runs: int = 0
    environ: Mapping[str, str] = {}
    """The variables of the process."""
    data: pathlib.Path | None = None
    """The folder in which a provider may keep what must outlive the process, in a folder of its own name."""
    connect_timeout: float = 10.0
    linger: float = 2.0
    """Seconds to wait for the rest when the main thing has arrived: usage after the finish reason, an error's body."""
    models_timeout: float = 2.0
    models_fresh: float = 60.0


class ProviderKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of provider, as an entry point names it."""

    make: Callable[[ProviderSetup], Provider]
    """Makes a provider. A `ValueError` says what is wrong with the settings: its words follow "Provider 'name': "."""
    options: type[msgspec.Struct] | None = None
    """What `options` of a table may hold. None if there are none."""
    base_url: str = ""
    """Where the upstream is if the table does not say."""
    key_env: str = ""
    """The variable in which the upstream's own tools look for the key. It is used for `base_url` only."""
    url_env: str = ""
    """The variable that names another address for the key of `key_env`."""
    by_http: bool = True
    """The upstream is reached by HTTP: proxies and certificates of the settings count."""
    limits_itself: bool = False
    """The provider sees to `max_runs` by itself."""

    def options_from(self, given: Mapping[str, Any]) -> Any:
        """Return the options of a table. Raises `KindError` if one of them is unknown or has a wrong type."""
        shape = self.options
        known = [field.encode_name for field in msgspec.structs.fields(shape)] if shape is not None else []
        for name in given:
            if name not in known:
                raise KindError(f"there is no option {name!r}; {_listed(known)}")
        try:
            return None if shape is None else msgspec.convert(dict(given), shape)
        except msgspec.ValidationError as error:
            raise KindError(f"in options: {error}") from None


@cache
def kind_of(dialect: str) -> ProviderKind:
    """Return the kind that `dialect` names. Raises `KindError` if there is none, or its package cannot be loaded.

    The first time this waits for the disk.
    """
    place = _OURS.get(dialect) or _installed().get(dialect)
    if place is None:
        raise KindError(
            f"there is no dialect {dialect!r}; {_listed(kind_names())}. "
            f"A package adds one by an entry point of the group {GROUP}"
        )
    try:
        module, _, name = place.partition(":")
        kind = getattr(import_module(module), name)
    except Exception as error:  # somebody else's package: whatever it raises, the error names it
        raise KindError(f"the dialect {dialect!r} ({place}) cannot be loaded: {error!r}") from error
    if not isinstance(kind, ProviderKind):
        raise KindError(f"the dialect {dialect!r} ({place}) is no ProviderKind")
    return kind


def kind_names() -> list[str]:
    """Return what `dialect` may be, ours first. This waits for the disk."""
    return [*_OURS, *sorted(_installed().keys() - _OURS.keys())]


def _installed() -> dict[str, str]:
    """Return what packages add, by name. `importlib.metadata` is loaded here, since it takes long and few need it."""
    found = import_module("importlib.metadata").entry_points(group=GROUP)
    return {entry.name: entry.value for entry in found}


def _listed(names: list[str]) -> str:
    return f"there are {', '.join(names)}" if names else "it has none"
