"""Makes providers from the settings, and keeps those whose settings have not changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ...http_client.proxy import choose_proxy
from ...http_client.route import DIRECT, Route, route_to
from ...upstreams import Provider
from ...upstreams.kinds import Notes, ProviderKind, ProviderSetup
from ...upstreams.limit import LimitedProvider
from ..config.loopback import is_loopback
from ..config.settings import ProviderSettings, Settings, SettingsError, data_folder

LINGER = 30.0
"""Seconds for which the process of the built-in model outlives a killed server: the next one resumes its answers."""

NEAR, FAR = 5.0, 60.0
"""Seconds for which a list of models is valid: of an upstream on this machine, and of another."""


class Provided:
    """The providers in use, each with the settings that it was made from."""

    def __init__(
        self, settings: Settings, environ: Mapping[str, str], near: float = NEAR, notes: Notes | None = None
    ) -> None:
        self._near, self._notes = near, notes
        self._settings = settings
        self._environ = environ
        self._made: list[tuple[ProviderSettings, Provider]] = []

    def made(self, described: Sequence[ProviderSettings]) -> list[tuple[ProviderSettings, Provider]]:
        """Return a provider for each table: the existing one if the table has not changed, or a new one."""
        return [(each, self._known(each) or self.anew(each)) for each in described]

    def anew(self, described: ProviderSettings) -> Provider:
        """Return a new provider for a table, which knows nothing of its upstream yet."""
        return make_provider(described, self._settings, self._environ, near=self._near, notes=self._notes)

    def keep(self, made: list[tuple[ProviderSettings, Provider]]) -> list[Provider]:
        """Set the providers that are in use from now on."""
        self._made = made
        return [provider for _, provider in made]

    def _known(self, described: ProviderSettings) -> Provider | None:
        return next((provider for known, provider in self._made if known == described), None)


def make_provider(
    described: ProviderSettings,
    settings: Settings,
    environ: Mapping[str, str],
    *,
    near: float = NEAR,
    notes: Notes | None = None,
) -> Provider:
    """Return the provider that a table of the settings describes. Raises `SettingsError` if it describes none."""
    kind = described.kind()
    try:
        provider = kind.make(_setup(described, kind, settings, environ, near, notes))
    except ValueError as error:
        raise SettingsError(f"Provider {described.name!r}: {error}.") from None
    return LimitedProvider(provider, described.max_runs) if described.max_runs and not kind.limits_itself else provider


def _setup(
    described: ProviderSettings,
    kind: ProviderKind,
    settings: Settings,
    environ: Mapping[str, str],
    near: float,
    notes: Notes | None,
) -> ProviderSetup:
    """Return the arguments for making a provider. Server settings that concern its kind are among its options."""
    known = described.behaviour()
    address = described.address()
    options = _of_embedded(described, settings) if described.dialect == "local" else described.options
    return ProviderSetup(
        name=described.name,
        base_url=address,
        api_key=described.key(environ),
        key_header=described.key_header or known.key_header or None,
        models=described.models,
        headers=described.headers,
        query=known.query | described.query,
        options=kind.options_from(options),
        route=route_of(described, environ),
        profile=known,
        prefills=described.prefills,
        think=described.think,
        attaches=described.attaches,
        tools=described.tools,
        unlisted=known.unlisted,
        max_runs=described.max_runs,
        environ=environ,
        data=data_folder(settings, environ),
        notes=notes,
        models_fresh=near if _is_near(address) else FAR,
    )


def _of_embedded(described: ProviderSettings, settings: Settings) -> dict[str, Any]:
    """Return the options of the built-in model. Raises `SettingsError` if its file does not exist."""
    ours: dict[str, Any] = {"model": settings.local_model, "offline": settings.offline, "linger": LINGER}
    given = ours | described.options
    if (file := given["model"]) and not Path(str(file)).expanduser().is_file():
        raise SettingsError(f"`local_model` must be a GGUF file, and there is no file {file}.")
    return given


def route_of(described: ProviderSettings, environ: Mapping[str, str]) -> Route:
    """Return the route to a provider's upstream. Raises `SettingsError` if a proxy or a file cannot be used."""
    if not described.kind().by_http:
        return DIRECT
    try:
        return route_to(
            described.address(),
            proxy=described.proxy,
            ca_file=described.ca_file,
            cert=described.cert,
            cert_key=described.cert_key,
            environ=environ,
        )
    except ValueError as error:
        raise SettingsError(f"Provider {described.name!r}: {error}.") from None


def proxy_name(described: ProviderSettings, environ: Mapping[str, str]) -> str | None:
    """Return the host and port of the proxy to a provider's upstream; None if there is none."""
    is_by_http = described.kind().by_http
    proxy = choose_proxy(described.address(), described.proxy, environ) if is_by_http else None
    return None if proxy is None else proxy.name


def _is_near(base_url: str) -> bool:
    """Return whether an upstream is on this machine."""
    return is_loopback(urlsplit(base_url).hostname or "")
