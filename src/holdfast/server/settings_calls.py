"""What is set, for a UI that shows it and changes it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ..errors import HoldfastError
from .configured import Change
from .context import Endpoint, Parts, decode, is_admin, read_body
from .errors import Json


class AdminOnly(HoldfastError):
    """Somebody without admin rights wants to change what is everybody's."""

    code = "admin_only"
    status = 403
    type = "permission_error"

    def __init__(self) -> None:
        super().__init__(
            "Only a key with admin rights may change the settings. `holdfast key new NAME --admin` makes one."
        )


async def get_settings(parts: Parts, request: Request) -> Response:
    """Return the default model, the providers and the fallbacks, and where each is set."""
    return Json(parts.configured.shown(to_admin=is_admin(request)))


async def put_settings(parts: Parts, request: Request) -> Response:
    """Change what the UI may set. It counts at once, for every run that starts from then on."""
    body = await read_body(parts, request)
    if not is_admin(request):
        raise AdminOnly
    await parts.configured.change(decode(body, Change))
    return Json(parts.configured.shown(to_admin=True))


ENDPOINTS = [
    Endpoint("GET", "/api/settings", get_settings, answers={200: "the settings"}),
    Endpoint(
        "PUT",
        "/api/settings",
        put_settings,
        takes=Change,
        answers={
            200: "the settings as they are now",
            400: "a value makes no sense",
            403: "not an admin's key",
            404: "no such model",
            409: "a value is set elsewhere",
            413: "too large",
            503: "the settings could not be saved",
        },
    ),
]
