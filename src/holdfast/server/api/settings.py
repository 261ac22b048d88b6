"""`/api/settings`: read and change the settings of the UI."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET
from starlette.requests import Request
from starlette.types import ASGIApp

from ...access import ADMIN, READ
from ..audit.audit import note_of
from ..caller import access_of, is_admin
from ..config.live_settings import Change, ProviderChange
from ..errors import Json
from ..request import decode, read_body
from ..routing import Endpoint
from ..services import Parts


async def get_settings(parts: Parts, request: Request) -> ASGIApp:
    """Return the default model, the providers and the fallbacks, with their sources."""
    return Json(await _shown(parts, request))


async def put_settings(parts: Parts, request: Request) -> ASGIApp:
    """Change the settings of the UI. They apply to every run that starts from then on."""
    change = decode(await read_body(parts, request), Change)
    note_of(request).details = {"changed": " ".join(_changed(change))}
    await parts.configured.change(change)
    return Json(await _shown(parts, request))


async def test_provider(parts: Parts, request: Request) -> ASGIApp:
    """Request the models of a provider, and save nothing."""
    return Json(await parts.configured.test(decode(await read_body(parts, request), ProviderChange)))


async def reload_settings(parts: Parts, request: Request) -> ASGIApp:
    """Reload the settings file, all of it or nothing."""
    return Json(await parts.reload())


def _changed(change: Change) -> list[str]:
    """Return the names of the changed settings."""
    return [name for name in change.__struct_fields__ if getattr(change, name) is not UNSET]


async def _shown(parts: Parts, request: Request) -> dict[str, Any]:
    """Return the settings as JSON, without a default model that this caller may not use."""
    shown = parts.configured.shown(to_admin=is_admin(request))
    return {**shown, "default_model": await parts.models.set_default(access_of(request)) or None}


ENDPOINTS = [
    Endpoint("GET", "/api/settings", get_settings, who=READ, answers={200: "the settings"}),
    Endpoint(
        "PUT",
        "/api/settings",
        put_settings,
        who=ADMIN,
        audit="settings.change",
        takes=Change,
        answers={
            200: "the current settings",
            400: "a value is invalid",
            403: "not an admin's key",
            404: "no such model",
            409: "a value is set in another place",
            413: "too large",
            503: "the settings could not be saved",
        },
    ),
    Endpoint(
        "POST",
        "/api/settings/test",
        test_provider,
        who=ADMIN,
        audit="settings.test",
        takes=ProviderChange,
        answers={
            200: "whether it answers, and its models",
            400: "a value is invalid",
            403: "not an admin's key",
            409: "a value is set in another place",
            413: "too large",
        },
    ),
    Endpoint(
        "POST",
        "/api/settings/reload",
        reload_settings,
        who=ADMIN,
        audit="settings.reload",
        answers={
            200: "what has changed, and what needs a restart",
            403: "not an admin's key",
            409: "the settings are invalid, or not from a file",
        },
    ),
]
