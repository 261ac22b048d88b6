"""What each person has chosen to be told of, and where: browsers and webhooks, in one document."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from ....errors import BadRequest, NotFound
from ....ids import new_id
from ....store import Store
from ....store.documents import Documents
from ....store.people.readers import Wanted
from ....wires.openai import webhooks
from ...config.webhook_settings import RunEvent
from ...secrets.sealer import Sealer

MOST_DEVICES, MOST_WEBHOOKS = 20, 10
"""Maximum numbers for each person. The oldest browser gives way to a new one."""
PUSH = "push"
"""The name under which all browsers of a person are told."""


class Device(msgspec.Struct, frozen=True):
    """A browser that takes push messages."""

    id: str
    endpoint: str
    """The address of its push service, which is a secret: whoever has it can try to send."""
    p256dh: str
    auth: str
    name: str
    language: str
    added: float


class PersonsWebhook(msgspec.Struct, frozen=True):
    """A webhook of a person."""

    id: str
    url: str
    events: tuple[RunEvent, ...]
    sealed: str
    added: float


class Notified(msgspec.Struct, frozen=True):
    """What a person has chosen."""

    notify: Wanted = "all"
    shows_text: bool = False
    """Whether notifications show the title of the chat and the beginning of the answer."""
    devices: tuple[Device, ...] = ()
    webhooks: tuple[PersonsWebhook, ...] = ()

    @property
    def targets(self) -> list[str]:
        """The names of those that are told of the person's runs."""
        return [PUSH] * bool(self.devices) + [each.id for each in self.webhooks]


T = TypeVar("T")


class Persons:
    """What people have chosen. Costs one read of a document for each start of a run."""

    def __init__(self, store: Store, sealer: Sealer, now: Callable[[], float]) -> None:
        self._all = Documents(store, "notified", Notified, now=now)
        self._sealer, self._now = sealer, now

    async def of(self, owner: str) -> Notified:
        """Return what a person has chosen."""
        stored = await self._all.get(_id_of(owner))
        return Notified() if stored is None else stored.body

    async def change(self, owner: str, change: Callable[[Notified], Notified]) -> Notified:
        """Change what a person has chosen."""
        change(await self.of(owner))  # what it refuses leaves nothing behind
        await self._all.get_or_create(_id_of(owner), Notified(), owner=owner)
        stored = await self._all.change(_id_of(owner), change)
        return Notified() if stored is None else stored.body

    async def add_device(self, owner: str, device: Device) -> None:
        """Add a browser, or replace what is known of it."""

        def added(chosen: Notified) -> Notified:
            others = [each for each in chosen.devices if each.id != device.id]
            return replace(chosen, devices=(*others[-MOST_DEVICES + 1 :], device))

        await self.change(owner, added)

    async def remove_device(self, owner: str, id: str) -> None:
        """Remove a browser. `NotFound` if the person has none with this id."""

        def removed(chosen: Notified) -> Notified:
            kept = tuple(each for each in chosen.devices if each.id != id)
            if len(kept) == len(chosen.devices):
                raise NotFound("There is no such browser.")
            return replace(chosen, devices=kept)

        await self.change(owner, removed)

    async def add_webhook(self, owner: str, url: str, events: tuple[RunEvent, ...]) -> tuple[PersonsWebhook, str]:
        """Add a webhook, and return it with its secret, which nobody is shown again."""
        id, secret = new_id("whk"), webhooks.new_secret()
        sealed = await self._sealer.seal_text(sealed_webhook(id), secret.encode())
        webhook = PersonsWebhook(id, url, events, sealed, self._now())

        def added(chosen: Notified) -> Notified:
            if len(chosen.webhooks) >= MOST_WEBHOOKS:
                raise BadRequest(f"You have {MOST_WEBHOOKS} webhooks, which is the limit. Delete one first.")
            return replace(chosen, webhooks=(*chosen.webhooks, webhook))

        await self.change(owner, added)
        return webhook, secret

    async def remove_webhook(self, owner: str, id: str) -> None:
        """Remove a webhook. `NotFound` if the person has none with this id."""

        def removed(chosen: Notified) -> Notified:
            kept = tuple(each for each in chosen.webhooks if each.id != id)
            if len(kept) == len(chosen.webhooks):
                raise NotFound("There is no such webhook.")
            return replace(chosen, webhooks=kept)

        await self.change(owner, removed)

    async def key_of(self, webhook: PersonsWebhook) -> bytes:
        """Return the key of a webhook."""
        return webhooks.key_of((await self._sealer.open_text(sealed_webhook(webhook.id), webhook.sealed)).decode())


def device_id(endpoint: str) -> str:
    """Return the id of the browser with this address."""
    return "dev_" + hashlib.sha256(endpoint.encode()).hexdigest()[:32]


def _id_of(owner: str) -> str:
    return hashlib.sha256(owner.encode()).hexdigest()[:32]


def sealed_webhook(id: str) -> str:
    """Return the name under which the secret of a webhook is sealed."""
    return f"the secret of webhook {id}"
