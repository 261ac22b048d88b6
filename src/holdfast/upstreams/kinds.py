"""Kinds of providers: the values of `dialect` in the settings. Ours are listed here; a package can add more.

A kind is an entry point of the group `holdfast.upstreams`: its name is the value of `dialect`, and its object a
`ProviderKind`. docs/extending/upstream.md shows how to write one, and
`check_provider` of `holdfast_lab.contracts` checks it.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Protocol

import msgspec

from ..http_client.route import DIRECT, Route
from . import Provider
from .profiles import UNKNOWN, Profile, Unlisted

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


class Notes(Protocol):
    """Keeps short texts for providers, so that every process of a server finds them, after a crash too."""

    async def keep(self, name: str, text: str) -> None:
        """Keep a text under a name. One that is there already stays."""
        ...

    async def find(self, name: str) -> str | None:
        """Return the text of a name; None if there is none."""
        ...

    async def drop(self, name: str) -> None:
        """Delete a text."""
        ...


class ProviderSetup(msgspec.Struct, frozen=True, kw_only=True):
    """The resolved settings of one provider, from which it is made."""

    name: str
    base_url: str = ""
    """The address in the settings, or the default of the profile or the kind."""
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
    """The differences of an upstream of OpenAI's dialect."""
    prefills: bool | None = None
    think: bool | None = None
    attaches: bool | None = None
    tools: bool | None = None
    unlisted: Unlisted = "refuse"
    """Whether a model that its list lacks is refused or passed on to it."""
    max_runs: int = 0
    environ: Mapping[str, str] = {}
    """The environment variables of the process."""
    data: pathlib.Path | None = None
    """The folder for data that must outlive the process. A provider uses a folder of its own name in it."""
    notes: Notes | None = None
    """What keeps the ids of answers at the upstream; None outside of a server."""
    connect_timeout: float = 10.0
    linger: float = 2.0
    """Seconds to wait for the rest of a response: usage after the finish reason, the body of an error."""
    models_timeout: float = 15.0
    models_fresh: float = 60.0


class ProviderKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of provider, as an entry point names it."""

    make: Callable[[ProviderSetup], Provider]
    """Makes a provider. Raises `ValueError` for wrong settings; its message is shown after "Provider 'name': "."""
    options: type[msgspec.Struct] | None = None
    """The type of `options` in the settings. None if there are no options."""
    base_url: str = ""
    """The default address of the upstream."""
    key_env: str = ""
    """The environment variable of the upstream's own tools for the key. It is used for `base_url` only."""
    url_env: str = ""
    """The environment variable with another address for the key of `key_env`."""
    by_http: bool = True
    """True if the upstream is reached by HTTP: then the proxy and certificate settings apply."""
    limits_itself: bool = False
    """True if the provider enforces `max_runs` itself."""

    def options_from(self, values: Mapping[str, Any]) -> Any:
        """Return the decoded options. Raises `KindError` if one of them is unknown or has a wrong type."""
        shape = self.options
        known = [field.encode_name for field in msgspec.structs.fields(shape)] if shape is not None else []
        for name in values:
            if name not in known:
                raise KindError(f"there is no option {name!r}; {_listed(known)}")
        try:
            return None if shape is None else msgspec.convert(dict(values), shape)
        except msgspec.ValidationError as error:
            raise KindError(f"in options: {error}") from None


@cache
def kind_of(dialect: str) -> ProviderKind:
    """Return the kind that `dialect` names. Raises `KindError` if there is none, or its package cannot be loaded.

    The first call for a dialect blocks on the disk.
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
    except Exception as error:  # a third-party package may raise anything
        raise KindError(f"the dialect {dialect!r} ({place}) cannot be loaded: {error!r}") from error
    if not isinstance(kind, ProviderKind):
        raise KindError(f"the dialect {dialect!r} ({place}) is no ProviderKind")
    return kind


def kind_names() -> list[str]:
    """Return the possible values of `dialect`, ours first. Blocks on the disk."""
    return [*_OURS, *sorted(_installed().keys() - _OURS.keys())]


def _installed() -> dict[str, str]:
    """Return the entry points of installed packages. `importlib.metadata` is slow to load, so it is imported here."""
    entries = import_module("importlib.metadata").entry_points(group=GROUP)
    return {entry.name: entry.value for entry in entries}


def _listed(names: list[str]) -> str:
    return f"there are {', '.join(names)}" if names else "it has none"
