"""Documents with bodies of one type: read, changed by compare-and-set, listed. Also the idempotency keys of features.

A feature with records of its own (comparisons, batches, grants, webhooks) stores them with `Documents`, which has the
loop around `StaleDocument`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

import msgspec

from ..concurrency.retry import Retry
from ..errors import StaleDocument, TooManyKept
from ..ids import new_id
from . import Document, Idempotency, Store

T = TypeVar("T")

PAGE = 200
"""Number of documents in one read when all of a kind are read."""


class Stored(msgspec.Struct, Generic[T], frozen=True):
    """A document as it is in the store. `version` counts its changes from 1; times are seconds since the epoch."""

    id: str
    owner: str
    version: int
    created_at: float
    updated_at: float
    body: T


class Documents(Generic[T]):
    """The documents of one kind. Their bodies are of one type. Costs nothing while it is not used."""

    def __init__(self, store: Store, kind: str, body: type[T], *, now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._kind = kind
        self._body = body
        self._now = now

    async def get(self, id: str, *, owner: str | None = None) -> Stored[T] | None:
        """Return a document; None if it does not exist, or does not belong to `owner`."""
        document = await self._store.get_document(self._kind, id)
        if document is None or owner not in (None, document.owner):
            return None
        return self._stored(document)

    async def put(
        self, id: str, body: T, *, owner: str = "", version: int | None = None, at: float | None = None
    ) -> Stored[T]:
        """Create a document, or replace the version that the caller has read. `StaleDocument` if another is stored.

        `at` is the time of the change. A repeated call is recognised only if it has the same time.
        """
        changed = self._document(id, body, owner, self._now() if at is None else at)
        return self._stored(await self._store.put_document(changed, version))

    async def add(self, id: str, body: T, put: Callable[[Document], Awaitable[Document]]) -> Stored[T]:
        """Create a document with a method of the store that changes more than the document."""
        return self._stored(await put(self._document(id, body, "", self._now())))

    def _document(self, id: str, body: T, owner: str, now: float) -> Document:
        return Document(
            kind=self._kind,
            id=id,
            owner=owner,
            created_at=now,  # the store keeps the time of the first version
            updated_at=now,
            body=msgspec.to_builtins(body),
        )

    async def get_or_create(self, id: str, body: T, *, owner: str = "") -> Stored[T]:
        """Return the document with this id; create it if there is none. Of two concurrent calls, one creates it."""
        while (found := await self.get(id)) is None:
            with suppress(StaleDocument):
                return await self.put(id, body, owner=owner)
        return found

    async def change_or_delete(self, id: str, change: Callable[[T], T | None]) -> None:
        """Replace a document's body by the result of `change`; delete the document if that is None."""
        while (known := await self.get(id)) is not None:
            if (after := change(known.body)) is None:
                if await self.delete(id, version=known.version):
                    return
                continue
            with suppress(StaleDocument):
                await self.put(id, after, owner=known.owner, version=known.version)
                return

    async def change(self, id: str, change: Callable[[T], T], *, owner: str | None = None) -> Stored[T] | None:
        """Replace a document's body by the result of `change`; None if there is no such document.

        If the document was changed meanwhile, `change` is called again with the new body. If it returns the same body
        object, nothing is written.
        """

        async def changed(body: T) -> T:
            return change(body)

        return await self.change_awaiting(id, changed, owner=owner)

    async def change_awaiting(
        self, id: str, change: Callable[[T], Awaitable[T]], *, owner: str | None = None
    ) -> Stored[T] | None:
        """Do what `change` does with a change that waits for something."""
        while (known := await self.get(id, owner=owner)) is not None:
            after = await change(known.body)
            if after is known.body:
                return known
            with suppress(StaleDocument):
                return await self.put(id, after, owner=known.owner, version=known.version)
        return None

    async def change_alone(
        self, id: str, change: Callable[[T], Awaitable[T]], *, among: DocumentGuard
    ) -> Stored[T] | None:
        """Change a document, and retry if another one was changed with the same guard meanwhile.

        So what `change` has read of the other documents still holds when its result is stored.
        """
        while True:
            seen = await among.version()
            if (known := await self.get(id)) is None:
                return None
            after = await change(known.body)
            if after is known.body:
                return known
            put = self._document(id, after, known.owner, self._now()), known.version
            with suppress(StaleDocument):
                return self._stored((await self._store.put_documents([put, among.next(seen)]))[0])

    async def add_alone(
        self, id: str, body: T, check: Callable[[], Awaitable[object]], *, among: DocumentGuard, owner: str = ""
    ) -> Stored[T]:
        """Create a document if `check` raises nothing. `StaleDocument` if there is one with that id.

        It is retried if another was added with the same guard meanwhile, so what `check` has counted still holds.
        """
        while True:
            seen = await among.version()
            await check()
            put = self._document(id, body, owner, self._now()), None
            try:
                return self._stored((await self._store.put_documents([put, among.next(seen)]))[0])
            except StaleDocument:
                if await self.get(id) is not None:
                    raise

    async def require_room(self, owner: str, most: int, noun: str) -> None:
        """Refuse one more document of an owner who has so many."""
        if len(await self.page(owner=owner, limit=most)) >= most:
            raise TooManyKept(noun, most)

    async def exchange(self, id: str, body: T, *, owner: str = "") -> Stored[T] | None:
        """Store a body unconditionally, and return the document that it replaces."""
        while True:
            known = await self.get(id)
            version = None if known is None else known.version
            if known is not None and known.owner != owner and await self.delete(id, version=version):
                version = None  # no put changes an owner
            with suppress(StaleDocument):
                await self.put(id, body, owner=owner, version=version)
                return known

    async def page(self, *, owner: str | None = None, before: str | None = None, limit: int = PAGE) -> list[Stored[T]]:
        """Return documents, the newest first; `before` is the last id of the page before. Only an empty page ends."""
        page = await self._store.list_documents(self._kind, owner, before=before, limit=limit)
        return [self._stored(document) for document in page]

    async def all(
        self, *, owner: str | None = None, before: str | None = None, retry: Retry | None = None
    ) -> AsyncGenerator[Stored[T]]:
        """Yield every document, or those `before` one, the newest first. With `retry`, wait for an absent store."""
        while page := await _call(partial(self.page, owner=owner, before=before), retry):
            for stored in page:
                yield stored
            before = page[-1].id

    async def delete(self, id: str, *, version: int | None = None) -> bool:
        """Delete a document, of this version if one is given; False if it did not exist."""
        return await self._store.delete_document(self._kind, id, version)

    def _stored(self, document: Document) -> Stored[T]:
        body = msgspec.convert(document.body, self._body)
        return Stored(document.id, document.owner, document.version, document.created_at, document.updated_at, body)


class DocumentGuard:
    """A document that is replaced together with each of several others. So of two concurrent changes one is retried."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name

    async def version(self) -> int:
        """Return its version: how often it was replaced."""
        found = await self._store.get_document(_GUARD, self._name)
        return 0 if found is None else found.version

    def next(self, seen: int) -> tuple[Document, int]:
        """Return its replacement, and the version that it must have. The body is unique: a put is no repetition."""
        return Document(kind=_GUARD, id=self._name, body={"change": new_id("chg")}), seen


_GUARD = "guard"


async def _call(ask: Callable[[], Awaitable[T]], retry: Retry | None) -> T:
    return await (ask() if retry is None else retry(ask))


class KeyUse(msgspec.Struct, frozen=True):
    """The use of an idempotency key: the digest of its request, and the id of the object that the request made."""

    digest: str | None
    made: str


class IdempotencyKeys:
    """The idempotency keys of one kind of objects that are stored as documents.

    A key is stored before its object. If the server ends between the two, a repeated request finds the id.
    """

    def __init__(self, store: Store, kind: str, *, now: Callable[[], float] = time.time) -> None:
        self._uses = Documents(store, kind, KeyUse, now=now)

    @staticmethod
    def id_of(key: Idempotency) -> str:
        """Return the id of a key's document. The object refers to it, so that both can be deleted."""
        return hashlib.sha256(f"{key.owner}\n{key.key}".encode()).hexdigest()

    async def find(self, key: Idempotency) -> str | None:
        """Return the id of the object that a key has made. `IdempotencyConflict` if it was for another request."""
        stored = await self._uses.get(self.id_of(key))
        return None if stored is None else _made_for(key, stored.body)

    async def claim(self, key: Idempotency, id: str) -> str:
        """Return the id of a key's object: the given one, unless the key was used before."""
        stored = await self._uses.get_or_create(self.id_of(key), KeyUse(key.digest, id), owner=key.owner)
        return _made_for(key, stored.body)

    async def forget_old(self, before: float) -> None:
        """Delete the keys that were used before a time."""
        for id in [stored.id async for stored in self._uses.all() if stored.created_at < before]:
            await self._uses.delete(id)

    async def forget(self, key_id: str, made: str) -> None:
        """Delete a key if its object has this id."""
        stored = await self._uses.get(key_id)
        if stored is not None and stored.body.made == made:
            await self._uses.delete(key_id)


def _made_for(key: Idempotency, use: KeyUse) -> str:
    key.check(use.digest)
    return use.made
