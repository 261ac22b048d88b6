"""Checks of the providers: each answers, accepts the key, and lists models."""

from __future__ import annotations

import os
from typing import NamedTuple

from ...errors import HoldfastError
from ...http_client.route import Route
from ...server.config.settings import ProviderSettings, Settings
from ...server.live.live_settings import without_secrets
from ...server.live.provider_factory import make_provider, route_of
from ...upstreams import Provider, judged_state
from ..show import plural
from .check import Check


class Checked(NamedTuple):
    """A provider of the settings: the result of its check, and the provider itself if it could be made."""

    check: Check
    provider: Provider | None = None


async def checked_provider(described: ProviderSettings, settings: Settings, *, set_in_page: bool) -> Checked:
    """Make a provider and ask it for its models. The caller closes it."""
    fix = "fix it in the page, under Settings, Providers." if set_in_page else "fix its table in the settings file."
    name = f"provider {described.name}"
    if described.key_env() and not described.key(os.environ):
        return Checked(Check("bad", f"{name}: {described.key_env()} is not set", "Export the key."))
    try:
        route = route_of(described, os.environ)
        provider = make_provider(described, settings, os.environ)
    except HoldfastError as error:
        return Checked(Check("bad", f"{name}: {error}", fix.capitalize()))
    return Checked(await _asked(described, provider, route, fix), provider)


async def _asked(described: ProviderSettings, provider: Provider, route: Route, fix: str) -> Check:
    """Request the list of models. Not every upstream has one: any response but a refusal is fine."""
    name = f"provider {described.name}"
    state = await judged_state(provider)
    models, why = state.models, state.why
    if why and described.kind().by_http:
        how = why.removeprefix(f"{described.name} ").rstrip(".")
        what = f"{name}: {without_secrets(described.address())} {how}"
        return Check("bad", what, f"Start it, or {fix}")
    if not models:
        return Check("note", f"{name} lists no models", why or "Name them in its table: models = [...]")
    way = f", through the proxy {route.proxy.name}" if route.proxy else ""
    example = f" ({models[0]})" if len(models) == 1 else f", for example {models[0]}"
    return Check("ok", f"{name}: {plural(len(models), 'model')}{example}{way}")
