"""Notifications by push services: to every browser of a person, unless the person has seen it by then."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import logging
import types
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from ....errors import BadRequest, NotFound
from ....events import AnySettlement, Failed, Interrupted, Stopped
from ....http_client.pool import Connections
from ....store import Store
from ....store.documents import Documents
from ....store.people.readers import Standing, Wanted
from ...secrets.sealer import Sealer
from .news import News
from .people import Device, Notified, Persons
from .posting import Posting

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

logger = logging.getLogger(__name__)

SHOWN = 200
"""Characters of an answer in a notification, if the person wants them there."""
LASTS = 86400
"""Seconds for which a push service keeps a message for a browser that is not there."""
GIVE_UP = 3600.0
PAUSE = 2.0
_GONE = (404, 410)
_AGAIN = (408, 425, 429)
_KEY = "the key for push messages"


class PushKey(msgspec.Struct, frozen=True):
    """This server's key for push services, sealed. All nodes have the same one, and browsers know it."""

    sealed: str


class PushKeys:
    """The key with which push messages are signed. It is made when a browser first asks for it."""

    def __init__(self, store: Store, sealer: Sealer) -> None:
        self._all, self._sealer = Documents(store, "push_key", PushKey), sealer
        self._key: EllipticCurvePrivateKey | None = None

    async def get(self) -> EllipticCurvePrivateKey:
        """Return the key. `NoSecretKey` or `CannotUnseal` if it cannot be kept, or opened."""
        if self._key is None:
            stored = await self._all.get(_KEY)
            if stored is None:
                made = await self._sealer.seal_text(_KEY, _ways().stored_key(_ways().new_signing_key()))
                stored = await self._all.get_or_create(_KEY, PushKey(made))
            self._key = _ways().key_from(await self._sealer.open_text(_KEY, stored.body.sealed))
        return self._key

    async def shown(self) -> str:
        """Return the public key as browsers take it."""
        shown: str = _ways().shown_public_key(await self.get())
        return shown

    async def check(self, p256dh: str, auth: str) -> None:
        """Refuse keys of a browser that are none. `NoSecretKey` without a key for messages to it."""
        await self.get()
        try:
            _ways().browser_keys(p256dh, auth)
        except ValueError as error:
            raise BadRequest(f"`keys` are not those of a subscription: {error}.", param="keys") from None


class Pushes:
    """Sends push messages."""

    def __init__(self, store: Store, persons: Persons, posting: Posting, sealer: Sealer, contact: str) -> None:
        self.store, self.persons, self.keys = store, persons, PushKeys(store, sealer)
        self._posting, self._contact = posting, contact

    async def send(self, device: Device, message: bytes, topic: str) -> int | None:
        """Send a message to a browser. A later one of the same topic takes the place of one that has not arrived."""
        ways, key = _ways(), await self.keys.get()
        body = ways.encrypted(message, ways.browser_keys(device.p256dh, device.auth))
        headers = {
            "Authorization": ways.signed(device.endpoint, key, self._contact, self._posting.now()),
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(LASTS),
            "Topic": topic,
            "Urgency": "high",
        }
        to: Connections = self._posting.to_persons(device.endpoint)
        return await self._posting.post(to, device.endpoint, headers, body)


class PersonsBrowsers:
    """All browsers of a person, as they are told of one run."""

    place = "push"
    hears_waits = True
    pause = PAUSE
    gives_up = GIVE_UP

    def __init__(self, owner: str, pushes: Pushes) -> None:
        self._owner, self._pushes = owner, pushes
        self.told: set[tuple[str, str]] = set()
        """The browsers, and the ids of what they were told."""

    async def tell(self, news: News) -> bool:
        """Send to each browser that was not told yet, unless the person has seen it or does not want to hear it."""
        store, owner, session_id = self._pushes.store, self._owner, news.run.record.session_id
        chosen = await self._pushes.persons.of(owner)
        standing = (await store.standings(owner, [session_id])).get(session_id) if session_id else None
        if session_id is None or standing is None or not _is_wanted(news, standing, chosen.notify):
            return True
        session = await store.get_session(session_id)
        title = "" if session is None else session.title
        told = await asyncio.gather(*(self._send(each, news, chosen, title) for each in chosen.devices))
        if news.settled is not None and all(told):
            await store.note_reader(session_id, owner, told=standing.ended)
        return all(told)

    async def _send(self, device: Device, news: News, chosen: Notified, title: str) -> bool:
        if (device.id, news.id) in self.told:
            return True
        session = news.run.record.session_id or ""
        shown = {"title": title, "text": _text_of(news.settled)} if chosen.shows_text else {}
        message = {"id": news.id, "type": news.type, "session": session, "language": device.language, **shown}
        topic = hashlib.sha256(session.encode()).hexdigest()[:32]  # at most 32 characters
        status = await self._pushes.send(device, msgspec.json.encode(message), topic)
        if status in _GONE:
            with suppress(NotFound):
                await self._pushes.persons.remove_device(self._owner, device.id)
        elif status is None or status >= 500 or status in _AGAIN:
            return False
        elif status >= 300:
            logger.warning("push: status %d of the service of %s", status, device.id)
        self.told.add((device.id, news.id))
        return True


def _is_wanted(news: News, standing: Standing, in_general: Wanted) -> bool:
    wanted, settled = standing.wanted or in_general, news.settled
    if wanted == "none" or (isinstance(settled, Stopped) and settled.by == "user"):
        return False
    if settled is None:
        return True
    is_news = standing.ended > max(standing.seen, standing.told)
    return is_news and (wanted == "all" or isinstance(settled, (Failed, Interrupted)))


def _text_of(settled: AnySettlement | None) -> str:
    return "" if settled is None else settled.text[:SHOWN]


def _ways() -> types.ModuleType:
    """Return the module that needs cryptography: 8 MB, and most servers send no push messages."""
    return importlib.import_module(".web_push", __package__)
