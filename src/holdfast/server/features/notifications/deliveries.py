"""Webhooks: report the end of responses in the background, at least once, even across restarts.

A delivery is stored before the run starts and deleted when the listener has accepted it, one document for each. So
neither a crash nor an unreachable listener loses it; a repeated delivery has the same id. Of several nodes on a store
one holds each delivery.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from functools import partial
from urllib.parse import urlsplit

import msgspec

from ....concurrency.retry import Backoff
from ....engine.core import Core
from ....errors import RunNotFound
from ....http_client.errors import Broken, NotThere
from ....http_client.pool import Connections
from ....http_client.request import head_of
from ....http_client.route import Route, route_to
from ....ids import new_id
from ....nodes.jobs import Jobs, JobWork
from ....runs.run import Run
from ....store import RunRecord, Store
from ....store.documents import Documents, Stored
from ....wires.openai import webhooks
from ...config.settings import Settings, SettingsError, WebhookSettings

logger = logging.getLogger(__name__)

KIND = "webhook"
TIMEOUT = 15.0
"""Timeout of one request to a listener, in seconds."""
PAUSE, LONGEST_PAUSE = 0.5, 3600.0
"""First and longest pause between two attempts, in seconds."""
GIVE_UP = 3 * 86400.0
"""Seconds after a run's end until a delivery is given up."""
AT_ONCE = 16
"""Maximum number of concurrent requests."""
GONE = 410
"""The status with which a listener refuses all further attempts."""


class Listener:
    """A listener: an address, a secret, and the types of its events."""

    def __init__(self, described: WebhookSettings, environ: Mapping[str, str]) -> None:
        self.url = _checked(described.url)
        self.place = urlsplit(described.url).netloc
        """Its name in logs: the rest of the URL may hold a secret."""
        self.name = hashlib.sha256(described.url.encode()).hexdigest()[:16]
        self._events = frozenset(described.events)
        self._key = _key(described, environ)
        self._connections = Connections(described.url, route=_route(described.url, environ), keep=0)

    def wants(self, event: str) -> bool:
        """Return whether it receives events of a type."""
        return event in self._events

    async def send(self, id: str, body: bytes, at: int) -> int:
        """Send an event, and return the status of the response. Redirects are not followed."""
        sent = {**webhooks.headers(self._key, id, at, body), "User-Agent": "holdfast", "Connection": "close"}
        reply = await self._connections.send(head_of("POST", self.url, sent, len(body)), body)
        reply.close()
        return reply.status


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and url.isprintable()
        sound = sound and "@" not in parts.netloc and " " not in url
        head_of("POST", url, {})  # raises for an invalid host name
    except ValueError:
        sound = False
    if not sound:
        raise SettingsError("In webhooks: a url must be an http or https address without a user name.")
    return url


def _route(url: str, environ: Mapping[str, str]) -> Route:
    try:
        return route_to(url, environ=environ)
    except ValueError as error:
        raise SettingsError(f"The webhook at {urlsplit(url).netloc}: {error}.") from None


def _key(described: WebhookSettings, environ: Mapping[str, str]) -> bytes:
    secret = environ.get(described.secret_env, "") if described.secret_env else ""
    if not secret:
        place, named = urlsplit(described.url).netloc, described.secret_env or "secret_env"
        raise SettingsError(f"The webhook at {place} has no secret: {named} is not set.")
    try:
        return webhooks.key_of(secret)
    except ValueError as error:
        raise SettingsError(f"The secret in {described.secret_env} is invalid: {error}.") from None


class Delivery(msgspec.Struct, frozen=True):
    """One delivery: how a run ended, to the listener of this name."""

    run_id: str
    listener: str


class DeliveryJob(JobWork):
    """The work on one delivery."""

    def __init__(self, webhooks: Webhooks, stored: Stored[Delivery]) -> None:
        super().__init__(stored.id)
        self._webhooks, self._delivery = webhooks, stored.body

    async def work(self) -> None:
        """Deliver, then forget the delivery."""
        await self._webhooks.deliver(self._delivery)
        await self._webhooks.forget(self.id)


class Webhooks:
    """The webhooks of a server. Costs a task for each open delivery."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], store: Store, engine: Core) -> None:
        self._listeners = [Listener(described, environ) for described in settings.webhooks]
        self._deliveries = Documents(store, KIND, Delivery, now=engine.now)
        self._engine = engine
        self._room = asyncio.Semaphore(AT_ONCE)
        self.jobs: Jobs[Delivery, DeliveryJob] = Jobs(
            KIND, self._deliveries, engine.holds, is_open=lambda _: True, resume=self._resume
        )

    async def expect(self, record: RunRecord) -> list[Stored[Delivery]]:
        """Store the deliveries of a run that is about to start."""
        return [await self._expected(record, listener) for listener in self._listeners]

    async def _expected(self, record: RunRecord, listener: Listener) -> Stored[Delivery]:
        id = new_id("hook")
        await self.jobs.reserve(id)
        return await self._deliveries.put(id, Delivery(record.id, listener.name), owner=record.owner)

    def promise(self, run: Run, expected: list[Stored[Delivery]]) -> None:
        """Begin the deliveries. Those of a repeated request, which started no run, are dropped."""
        for stored in expected:
            if stored.body.run_id == run.id:
                self.jobs.begin(DeliveryJob(self, stored))
            else:
                self.jobs.tasks.start(self.forget(stored.id))

    def withdraw(self, expected: list[Stored[Delivery]]) -> None:
        """Drop the deliveries of a run that was not started."""
        for stored in expected:
            self.jobs.tasks.start(self.forget(stored.id))

    async def _resume(self, stored: Stored[Delivery]) -> None:
        self.jobs.begin(DeliveryJob(self, stored))

    async def forget(self, id: str) -> None:
        """Delete a delivery."""
        await self.jobs.retry(partial(self._deliveries.delete, id))
        await self.jobs.let_go(id)

    async def deliver(self, delivery: Delivery) -> None:
        """Deliver the end of a run, unless its listener is no longer in the settings."""
        listener = next((each for each in self._listeners if each.name == delivery.listener), None)
        if listener is not None:
            await self._deliver(listener, delivery.run_id)

    async def _deliver(self, listener: Listener, run_id: str) -> None:
        """Deliver the end of a run to a listener, until it has accepted it, or three days have passed."""
        try:
            run: Run = await self.jobs.retry(partial(self._engine.open, run_id))
        except RunNotFound:
            return  # the run was never started, or was deleted
        settled = await run.settled()
        if not listener.wants(webhooks.event_type(settled)):
            return
        at = run.record.settled_at or self._engine.now()
        body = webhooks.payload(run_id, settled, at)
        backoff = Backoff(PAUSE, LONGEST_PAUSE, spread=(0.8, 1.2))
        while not await self._is_accepted(listener, webhooks.event_id(run_id), body):
            if self._engine.now() > at + GIVE_UP:
                logger.error("webhook %s: giving up on %s", listener.place, run_id)
                return
            await asyncio.sleep(backoff.next())

    async def _is_accepted(self, listener: Listener, id: str, body: bytes) -> bool:
        try:
            async with self._room, asyncio.timeout(TIMEOUT):
                status = await listener.send(id, body, int(self._engine.now()))
        except (Broken, NotThere, TimeoutError) as error:
            logger.warning(
                "webhook %s: could not deliver %s, retrying: %r", listener.place, id, error.__cause__ or error
            )
            return False
        if status == GONE:
            logger.warning("webhook %s: rejected %s", listener.place, id)
        elif not 200 <= status < 300:
            logger.warning("webhook %s: status %d for %s", listener.place, status, id)
        return 200 <= status < 300 or status == GONE
