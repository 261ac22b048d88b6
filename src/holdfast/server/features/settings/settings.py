"""`/api/settings`: read and change the settings of the UI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import UNSET
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import ADMIN, READ
from ...config.current import CurrentSettings
from ...kit.caller import access_of, is_admin
from ...kit.chores import Chores
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json
from ...kit.request import Bodies, decode
from ...live.live_settings import Change, Configured, ProviderChange
from ...sources.breaks.on_break import OnBreaks
from ...sources.models import AllowedModels
from ..accounts.keys import LOOK_EVERY
from ..audit.audit import note_of
from .models import ModelsApi
from .reload import CannotReload, Reloaded, Reloading


class SettingsFeature(Feature):
    """The settings of the running server, and the models that follow from them."""

    def __init__(
        self,
        bodies: Bodies,
        current: CurrentSettings,
        configured: Configured,
        models: AllowedModels,
        breaks: OnBreaks,
    ) -> None:
        self._bodies, self._current, self._configured, self._models = bodies, current, configured, models
        self.reloading: Reloading | None = None
        """Reloads the settings file; None in a program that embeds the server."""
        self.on_reload: Callable[[], object] = lambda: None
        """Called after a reload that was requested here. It lets the other nodes of `serve --nodes` reload too."""
        self.inner = (ModelsApi(models, breaks, current.now.currency),)

    async def start(self) -> None:
        """Read the settings of the UI, and look for model servers: the engine may resume runs of found providers."""
        await self._configured.seal()
        await self._configured.catch_up()
        await self._configured.look()

    def begin(self, chores: Chores) -> None:
        """Apply what other nodes change, and look for model servers."""
        configured = self._configured
        if self._current.now.store:
            chores.every("settings", LOOK_EVERY, configured.catch_up, longest_pause=1.0)
        chores.every("discovery", configured.look_every, configured.look, first=configured.look_every)

    async def close(self) -> None:
        """Close the connections to providers."""
        await self._configured.providers.close()

    async def reload(self) -> Reloaded:
        """Reload the changed settings file, here and on the nodes that were started with this one."""
        result = await self.reload_here()
        self.on_reload()
        return result

    async def reload_here(self) -> Reloaded:
        """Reload the changed settings file, without closing a connection."""
        if self.reloading is None:
            raise CannotReload
        return await self.reloading(self._current.now)

    @Endpoint("GET", "/api/settings", who=READ)
    async def get_settings(self, request: Request) -> ASGIApp:
        """Return the default model, the providers and the fallbacks, with their sources."""
        return Json(await self._shown(request))

    @Endpoint(
        "PUT",
        "/api/settings",
        who=ADMIN,
        audit="settings.change",
        takes=Change,
        answers={
            403: "not an admin's key",
            404: "no such model",
            409: "a value is set in another place",
            503: "the settings could not be saved",
        },
    )
    async def put_settings(self, request: Request) -> ASGIApp:
        """Change the settings of the UI. They apply to every run that starts from then on."""
        change = decode(await self._bodies.read(request), Change)
        note_of(request).details = {"changed": " ".join(_changed(change))}
        await self._configured.change(change)
        return Json(await self._shown(request))

    @Endpoint(
        "POST",
        "/api/settings/test",
        who=ADMIN,
        audit="settings.test",
        takes=ProviderChange,
        answers={403: "not an admin's key", 409: "a value is set in another place"},
    )
    async def test_provider(self, request: Request) -> ASGIApp:
        """Request the models of a provider, and save nothing."""
        return Json(await self._configured.test(decode(await self._bodies.read(request), ProviderChange)))

    @Endpoint(
        "POST",
        "/api/settings/reload",
        who=ADMIN,
        audit="settings.reload",
        answers={403: "not an admin's key", 409: "the settings are invalid, or not from a file"},
    )
    async def reload_settings(self, request: Request) -> ASGIApp:
        """Reload the settings file, all of it or nothing."""
        return Json(await self.reload())

    async def _shown(self, request: Request) -> dict[str, Any]:
        """Return the settings as JSON, without a default model that this caller may not use."""
        shown = self._configured.shown(to_admin=is_admin(request))
        return {**shown, "default_model": await self._models.set_default(access_of(request)) or None}


def _changed(change: Change) -> list[str]:
    """Return the names of the changed settings."""
    return [name for name in change.__struct_fields__ if getattr(change, name) is not UNSET]
