"""Webhooks: addresses that get a signed request, as Standard Webhooks says."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from ....asks import ResponseAsk
from ....store import RunRecord
from ....wires.openai import webhooks
from ...config.settings import SettingsError
from ...config.webhook_settings import WebhookSettings
from .news import News
from .posting import Posting, is_sound

logger = logging.getLogger(__name__)

GIVE_UP = 3 * 86400.0
"""Seconds after a run's end until a delivery is given up."""
GONE = 410
"""The status with which a listener refuses all further attempts."""


class Listener:
    """A listener: an address, a key, and the types of its events."""

    pause = 0.0
    gives_up = GIVE_UP

    def __init__(
        self,
        url: str,
        key: bytes,
        events: Collection[str],
        posting: Posting,
        *,
        name: str = "",
        is_persons: bool = True,
    ) -> None:
        self.name = name or hashlib.sha256(url.encode()).hexdigest()[:16]
        self.place = f"webhook {urlsplit(url).netloc}"
        """Its name in logs: the rest of the URL may hold a secret."""
        self._url, self._key, self._events, self._posting = url, key, frozenset(events), posting
        self._connections = posting.to_persons(url) if is_persons else posting.to_operators(url)
        self.hears_waits = "run.waiting" in self._events

    def expects(self, record: RunRecord) -> bool:
        """Return whether it may have to be told of a run."""
        return any(event.startswith("run.") for event in self._events) or _is_in_background(record)

    async def tell(self, news: News) -> bool:
        """Send what the listener wants to hear of it."""
        settled, now = news.settled, int(news.at)
        body = None
        if settled is not None and _is_in_background(news.run.record):
            body = webhooks.payload(news.run.id, settled, now) if webhooks.event_type(settled) in self._events else None
        if body is None:
            if news.type not in self._events:
                return True
            body = news.payload()
        headers = webhooks.headers(self._key, news.id, int(self._posting.now()), body)
        status = await self._posting.post(self._connections, self._url, headers, body)
        if status == GONE:
            logger.warning("%s: rejected %s", self.place, news.id)
        elif status is not None and not 200 <= status < 300:
            logger.warning("%s: status %d for %s", self.place, status, news.id)
        return status is not None and (200 <= status < 300 or status == GONE)


def listener_of(described: WebhookSettings, environ: Mapping[str, str], posting: Posting) -> Listener:
    """Return the listener of a table of the settings."""
    if not is_sound(described.url):
        raise SettingsError("In webhooks: a url must be an http or https address without a user name.")
    place = urlsplit(described.url).netloc
    key = _key(described, environ)
    try:
        return Listener(described.url, key, described.events, posting, is_persons=False)
    except ValueError as error:
        raise SettingsError(f"The webhook at {place}: {error}.") from None


def _key(described: WebhookSettings, environ: Mapping[str, str]) -> bytes:
    secret = environ.get(described.secret_env, "") if described.secret_env else ""
    if not secret:
        place, named = urlsplit(described.url).netloc, described.secret_env or "secret_env"
        raise SettingsError(f"The webhook at {place} has no secret: {named} is not set.")
    try:
        return webhooks.key_of(secret)
    except ValueError as error:
        raise SettingsError(f"The secret in {described.secret_env} is invalid: {error}.") from None


def _is_in_background(record: RunRecord) -> bool:
    return isinstance(record.ask, ResponseAsk) and record.ask.background
