"""Tells others when a response in the background has ended, and does not forget it when the server does.

What is to be told is kept before the run starts and forgotten when it was heard, one document for each listener. So
neither a crash between the two, nor a listener that is away, loses it; one that hears it twice sees the same id.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ..engine import Engine
from ..errors import RunNotFound, StoreUnavailable
from ..ids import new_id
from ..providers.connections import Broken, Connections, NotThere, head_of
from ..run import Run
from ..store import Document, RunRecord, Store
from ..wire import webhooks
from .settings import Settings, SettingsError, WebhookSettings

logger = logging.getLogger("holdfast")
T = TypeVar("T")

KIND = "webhook"
PAGE = 200
TIMEOUT = 15.0
"""Seconds that a listener may take to answer."""
PAUSE, LONGEST_PAUSE = 0.5, 3600.0
"""Seconds between two tries: twice as many each time, up to an hour."""
GIVE_UP = 3 * 86400.0
"""Seconds after a run's end for which its listeners are tried."""
AT_ONCE = 16
"""Listeners that are told at the same time."""
LAST_WORDS = 1.0
"""Seconds that may be spent on telling when the server ends."""
GONE = 410
"""A listener's word for: never again."""


class Listener:
    """Who is told, and of what."""

    def __init__(self, described: WebhookSettings, environ: Mapping[str, str]) -> None:
        self.url = _checked(described.url)
        self.place = urlsplit(described.url).netloc
        """What is said of it: the rest of an address may hold a secret."""
        self.name = hashlib.sha256(described.url.encode()).hexdigest()[:16]
        self._events = frozenset(described.events)
        self._key = _key(described, environ)
        self._connections = Connections(described.url, keep=False)

    def wants(self, event: str) -> bool:
        """Tell whether it is to be told of such events."""
        return event in self._events

    async def tell(self, id: str, body: bytes, at: int) -> int:
        """Send an event, and return the status that came back. A redirect is an answer like any other: none."""
        sent = {**webhooks.headers(self._key, id, at, body), "User-Agent": "holdfast", "Connection": "close"}
        reply = await self._connections.send(head_of("POST", self.url, sent, len(body)), body)
        reply.close()
        return reply.status


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and url.isprintable()
        sound = sound and "@" not in parts.netloc and " " not in url
        head_of("POST", url, {})  # a name that cannot be written raises
    except ValueError:
        sound = False
    if not sound:
        raise SettingsError("In webhooks: a url is an http or https address without a user's name.")
    return url


def _key(described: WebhookSettings, environ: Mapping[str, str]) -> bytes:
    secret = environ.get(described.secret_env, "") if described.secret_env else ""
    if not secret:
        place, named = urlsplit(described.url).netloc, described.secret_env or "secret_env"
        raise SettingsError(f"The webhook at {place} has no secret: {named} is not set.")
    try:
        return webhooks.key_of(secret)
    except ValueError as error:
        raise SettingsError(f"The secret in {described.secret_env} makes no sense: {error}.") from None


class Webhooks:
    """Every listener of a server. Costs a task for each listener and each response that has yet to be told of."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], store: Store, engine: Engine) -> None:
        self._listeners = [Listener(described, environ) for described in settings.webhooks]
        self._store = store
        self._engine = engine
        self._room = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._here: set[str] = set()
        """The documents of this process, which has not to take them up."""

    # life

    def start(self) -> None:
        """Take up what the last process had still to tell."""
        self._spawn(self._take_up())

    async def _take_up(self) -> None:
        before: str | None = None
        while page := await self._insist(partial(self._store.list_documents, KIND, before=before, limit=PAGE)):
            before = page[-1].id
            for document in page:
                if document.id not in self._here:
                    self._spawn(self._see_to(document))

    async def close(self) -> None:
        """Leave what was not heard to the next process. The engine is closed before."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LAST_WORDS)
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a webhook failed", exc_info=error)

    # what is to be told

    async def expect(self, record: RunRecord) -> list[Document]:
        """Keep what is to be told of a run that is about to start."""
        return [await self._store.put_document(self._expected(record, listener)) for listener in self._listeners]

    def _expected(self, record: RunRecord, listener: Listener) -> Document:
        document = Document(
            kind=KIND,
            id=new_id("hook"),
            owner=record.owner,
            created_at=self._engine.now(),
            body={"run_id": record.id, "listener": listener.name},
        )
        self._here.add(document.id)
        return document

    def promise(self, run: Run, expected: list[Document]) -> None:
        """See to it that it is told. A repeated request has started nothing, and its run is seen to already."""
        for document in expected:
            new = document.body["run_id"] == run.id
            self._spawn(self._see_to(document) if new else self._forget(document))

    def withdraw(self, expected: list[Document]) -> None:
        """Forget what was to be told of a run that was not started."""
        for document in expected:
            self._spawn(self._forget(document))

    async def _see_to(self, document: Document) -> None:
        listener = next((each for each in self._listeners if each.name == document.body["listener"]), None)
        if listener is not None:
            await self._tell(listener, document.body["run_id"])
        await self._forget(document)

    async def _forget(self, document: Document) -> None:
        await self._insist(partial(self._store.delete_document, KIND, document.id))
        self._here.discard(document.id)

    async def _tell(self, listener: Listener, run_id: str) -> None:
        """Tell a listener how a run ended, until it has heard, or three days have passed."""
        try:
            run: Run = await self._insist(partial(self._engine.open, run_id))
        except RunNotFound:
            return  # it was never started, or it was deleted
        settled = await run.settled()
        if not listener.wants(webhooks.event_type(settled)):
            return
        at = run.record.settled_at or self._engine.now()
        body = webhooks.payload(run_id, settled, at)
        pause = PAUSE
        while not await self._is_heard(listener, webhooks.event_id(run_id), body):
            if self._engine.now() > at + GIVE_UP:
                logger.error("webhook %s was not told of %s: given up", listener.place, run_id)
                return
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _is_heard(self, listener: Listener, id: str, body: bytes) -> bool:
        try:
            async with self._room, asyncio.timeout(TIMEOUT):
                status = await listener.tell(id, body, int(self._engine.now()))
        except (Broken, NotThere, TimeoutError) as error:
            logger.warning("webhook %s cannot be told of %s yet: %r", listener.place, id, error.__cause__ or error)
            return False
        if status == GONE:
            logger.warning("webhook %s does not want to be told of %s", listener.place, id)
        elif not 200 <= status < 300:
            logger.warning("webhook %s answered %d to %s", listener.place, status, id)
        return 200 <= status < 300 or status == GONE

    async def _insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat until the store has answered."""
        while True:
            try:
                return await ask()
            except StoreUnavailable as error:
                logger.warning("webhooks wait for the store: %s", error)
                await asyncio.sleep(PAUSE)
