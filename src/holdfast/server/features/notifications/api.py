"""`/api/notifications`: what the caller is told of, in which browsers, and by which webhooks."""

from __future__ import annotations

import importlib
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT, READ
from ....engine.core import Core
from ....errors import BadRequest
from ....store.people.readers import Wanted
from ....wires import native
from ...config.webhook_settings import RunEvent
from ...kit.caller import owner_of
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json, NoContent
from ...kit.request import Bodies, decode
from ...secrets.sealer import CannotUnseal, NoSecretKey
from .deliveries import Deliveries
from .people import Device, Notified, Persons, PersonsWebhook, device_id
from .posting import Posting
from .push import PushKeys

_NO_KEY = {503: "the server has no secret key"}
LONGEST_LINK = 1000
GivenUrl = Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]


class ChoiceChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the caller wants to be told of. What is left out stays as it is."""

    notify: Wanted | None = None
    """`all`: ends, failures and questions. `needs_you`: failures and questions. `none`: nothing."""
    shows_text: bool | None = None
    """Whether notifications show the title of the chat and the beginning of the answer."""


class DeviceKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of a browser's subscription."""

    p256dh: Annotated[str, msgspec.Meta(max_length=200)]
    auth: Annotated[str, msgspec.Meta(max_length=100)]


class NewDevice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A browser's subscription, as its `PushSubscription` says it."""

    endpoint: GivenUrl
    keys: DeviceKeys
    name: Annotated[str, msgspec.Meta(max_length=100)] = ""
    language: Literal["en", "de", "ar"] = "en"
    """The language of its notifications."""


class NewWebhook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An address that is told of the caller's runs."""

    url: GivenUrl
    events: Annotated[tuple[RunEvent, ...], msgspec.Meta(min_length=1, max_length=6)] = get_args(RunEvent)


class NotificationsApi(Feature):
    """What people are told of, and where."""

    def __init__(
        self, bodies: Bodies, persons: Persons, keys: PushKeys, posting: Posting, deliveries: Deliveries, engine: Core
    ) -> None:
        self._bodies, self._persons, self._keys, self._posting = bodies, persons, keys, posting
        self._deliveries, self._engine = deliveries, engine

    @Endpoint("GET", "/api/notifications", who=READ)
    async def get_notifications(self, request: Request) -> ASGIApp:
        """Return what the caller is told of, and where."""
        return Json(_shown(await self._persons.of(owner_of(request))))

    @Endpoint("PUT", "/api/notifications", who=CHAT, takes=ChoiceChanges, stores=False)
    async def put_notifications(self, request: Request) -> ASGIApp:
        """Choose what the caller is told of. A chat can differ: `notify` of `/api/sessions/{session_id}/seen`.

        `key` is what browsers subscribe with; null without one. It is made here, because a GET changes nothing.
        """
        changes = decode(await self._bodies.read(request), ChoiceChanges)
        given = {name: value for name, value in msgspec.structs.asdict(changes).items() if value is not None}
        chosen = await self._persons.change(owner_of(request), lambda chosen: replace(chosen, **given))
        try:
            key = await self._keys.shown()
        except (NoSecretKey, CannotUnseal):
            key = None
        return Json({**_shown(chosen), "key": key})

    @Endpoint(
        "POST",
        "/api/notifications/devices",
        who=CHAT,
        takes=NewDevice,
        stores=False,
        audit="notifications.device.add",
        answers={201: "the browser", **_NO_KEY},
    )
    async def add_device(self, request: Request) -> ASGIApp:
        """Tell a browser from now on, also of runs that go on already. Repeating it changes nothing."""
        asked, owner = decode(await self._bodies.read(request), NewDevice), owner_of(request)
        await self._posting.check(asked.endpoint, "endpoint")
        await self._keys.check(asked.keys.p256dh, asked.keys.auth)
        id, keys, now = device_id(asked.endpoint), asked.keys, self._engine.now()
        device = Device(id, asked.endpoint, keys.p256dh, keys.auth, asked.name, asked.language, now)
        await self._persons.add_device(owner, device)
        await self._deliveries.begin_push(owner)
        return Json(_device(device), status_code=201)

    @Endpoint(
        "DELETE",
        "/api/notifications/devices/{device_id}",
        who=CHAT,
        audit="notifications.device.remove",
        answers={404: "no such browser"},
    )
    async def remove_device(self, request: Request) -> ASGIApp:
        """Tell a browser nothing more."""
        await self._persons.remove_device(owner_of(request), request.path_params["device_id"])
        return NoContent()

    @Endpoint(
        "POST",
        "/api/notifications/webhooks",
        who=CHAT,
        takes=NewWebhook,
        audit="notifications.webhook.add",
        answers={201: "the webhook with its secret", **_NO_KEY},
    )
    async def add_webhook(self, request: Request) -> ASGIApp:
        """Call an address at each event of the caller's runs that start from now on. Its secret is shown now only."""
        asked = decode(await self._bodies.read(request), NewWebhook)
        await self._posting.check(asked.url, "url")
        webhook, secret = await self._persons.add_webhook(owner_of(request), asked.url, asked.events)
        return Json({**_webhook(webhook), "secret": secret}, status_code=201)

    @Endpoint("DELETE", "/api/notifications/webhooks/{webhook_id}", who=CHAT, audit="notifications.webhook.remove")
    async def remove_webhook(self, request: Request) -> ASGIApp:
        """Call an address no more."""
        await self._persons.remove_webhook(owner_of(request), request.path_params["webhook_id"])
        return NoContent()

    @Endpoint("GET", "/api/qr", who=READ, query={"text": "a link"}, answers={400: "no link"})
    async def draw_link(self, request: Request) -> ASGIApp:
        """Return the QR code of a link, a row for each line, 1 for a dark square. It opens what the link opens."""
        text = next(iter(request.query_params.getlist("text")), "")
        if not text.startswith(("http://", "https://")) or len(text) > LONGEST_LINK or not text.isprintable():
            raise BadRequest("`text` must be a link that begins with http:// or https://.", param="text")
        drawn = importlib.import_module("..accounts.factors.qr", __package__)  # segno is needed here only
        return Json({"rows": drawn.qr_rows(text)})


def _shown(chosen: Notified) -> dict[str, Any]:
    return {
        "notify": chosen.notify,
        "shows_text": chosen.shows_text,
        "devices": [_device(each) for each in chosen.devices],
        "webhooks": [_webhook(each) for each in chosen.webhooks],
    }


def _device(device: Device) -> dict[str, Any]:
    return {"id": device.id, "name": device.name, "added_at": native.moment(device.added)}


def _webhook(webhook: PersonsWebhook) -> dict[str, Any]:
    shown = {"id": webhook.id, "url": webhook.url, "events": webhook.events}
    return {**shown, "added_at": native.moment(webhook.added)}
