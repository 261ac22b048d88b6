"""All data of an owner, as one ZIP archive that is written while it is sent: one object at a time is in memory."""

from __future__ import annotations

import re
import time
import zipfile
from collections.abc import AsyncGenerator, Iterable, Iterator

import msgspec
from msgspec.structs import asdict

from ....attachments.kinds import ENDINGS
from ....compare.model import DOCUMENT
from ....json_pieces import in_pieces
from ....store import Document, Store
from ....store.documents import Stored
from ....store.files import referred_to
from ....store.people.audit import AuditFilter
from ....wires import native
from ..accounts.people.accounts import Account

FORMAT = "holdfast-person"
VERSION = 1
HEAD = "holdfast.json"
SESSIONS = "sessions/"
FILES = "files/"

_INTERNAL = frozenset(("node_id", "epoch", "owner"))
_LAST_DAY = 10**6
_MOST_USAGE = 100_000
_OPEN = frozenset((DOCUMENT, "preset", "prompt", "default_preset", "schedule", "trigger", "thumb"))
"""The kinds of documents that are no secret to a key: it reads them by other calls too."""
_SECRET = ("notified",)
"""Kinds of documents that are left out: who has a browser's address at a push service can send to it."""
_UNSAFE = re.compile(r"[^\w.-]")


class _Taken:
    """A buffer for the bytes that the archive has written and that were not sent yet. It is not seekable."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Do nothing: `take` takes everything."""

    def take(self) -> bytes:
        taken, self._pieces = b"".join(self._pieces), []
        return taken


class Archive:
    """The archive of one owner, in pieces of bytes. That of a person has their account and all documents too."""

    def __init__(self, store: Store, owner: str, account: Stored[Account] | None = None) -> None:
        self._store = store
        self._owner = owner
        self._account = account
        self._taken = _Taken()
        self._zip = zipfile.ZipFile(self._taken, "w", zipfile.ZIP_DEFLATED)  # type: ignore[call-overload]
        self._files: set[str] = set()

    async def pieces(self) -> AsyncGenerator[bytes]:
        """Yield the archive. Without its last piece it is invalid, so that a broken download is noticed."""
        things = [self._head(), self._sessions(), self._runs(), self._documents(), self._seen(), self._used()]
        if self._account is not None:
            things += [self._keys(self._account), self._audit(self._account)]
        for parts in things:
            async for piece in parts:
                yield piece
        self._zip.close()
        yield self._taken.take()

    async def _head(self) -> AsyncGenerator[bytes]:
        head = {"format": FORMAT, "version": VERSION, "made_at": native.moment(time.time())}
        if self._account is not None:
            body = asdict(self._account.body)
            head["account"] = {name: body[name] for name in ("name", "email", "role", "groups", "signed_in_at")}
        for piece in self._entry(HEAD, in_pieces(head)):
            yield piece

    async def _sessions(self) -> AsyncGenerator[bytes]:
        after = ""
        while ids := await self._store.sessions_of(self._owner, after=after):
            for id in ids:
                async for piece in self._session(id):
                    yield piece
            after = ids[-1]

    async def _session(self, id: str) -> AsyncGenerator[bytes]:
        if (found := await self._store.conversation(id)) is None:
            return  # deleted meanwhile
        session, messages = found
        for sha256 in referred_to(messages):
            async for piece in self._file(id, sha256):
                yield piece
        listed = [native.message(message) for message in messages]
        exported = {**native.session(session), "kind": session.kind, "messages": listed}
        for piece in self._entry(f"{SESSIONS}{safe_name(id)}.json", in_pieces(exported)):
            yield piece

    async def _file(self, session_id: str, sha256: str) -> AsyncGenerator[bytes]:
        if sha256 in self._files:
            return
        self._files.add(sha256)
        file = (await self._store.read_files(session_id, [sha256])).get(sha256)
        if file is not None:
            name = f"{FILES}{sha256}{ENDINGS.get(file.type, '')}"
            for piece in self._entry(name, [file.data], zipfile.ZIP_STORED):
                yield piece

    async def _runs(self) -> AsyncGenerator[bytes]:
        before: str | None = None
        while page := await self._store.list_runs(owner=self._owner, before=before):
            for record in page:
                exported = {k: v for k, v in msgspec.to_builtins(record).items() if k not in _INTERNAL}
                for piece in self._entry(f"runs/{safe_name(record.id)}.json", in_pieces(exported)):
                    yield piece
            before = page[-1].id

    async def _documents(self) -> AsyncGenerator[bytes]:
        """Yield the documents of all features: comparisons, batches with prompts, grants, conversations, and others."""
        after = ("", "")
        while page := await self._store.documents_of(self._owner, after=after):
            for document in page:
                if document.kind in _SECRET or (self._account is None and document.kind not in _OPEN):
                    continue
                for piece in self._document(document):
                    yield piece
            after = page[-1].kind, page[-1].id

    def _document(self, document: Document) -> Iterator[bytes]:
        exported = {
            "kind": document.kind,
            "id": document.id,
            "created_at": native.moment(document.created_at),
            "updated_at": native.moment(document.updated_at),
            "body": document.body,
        }
        name = f"documents/{safe_name(document.kind)}/{safe_name(document.id)}.json"
        return self._entry(name, in_pieces(exported))

    async def _seen(self) -> AsyncGenerator[bytes]:
        """Yield what the person has seen of sessions, those of others included."""
        exported, after = dict[str, object](), ""
        while page := await self._store.read_by(self._owner, after=after):
            exported |= {id: {"seen": known.seen, "notify": known.wanted} for id, known in page.items()}
            after = max(page)
        for piece in self._entry("seen.json", in_pieces(exported)):
            yield piece

    async def _used(self) -> AsyncGenerator[bytes]:
        """Yield the usage of the person, by day (days since 1970), key and model."""
        rows = await self._store.usage(0, _LAST_DAY, owner=self._owner, limit=_MOST_USAGE)
        exported = [{name: value for name, value in asdict(row).items() if name != "owner"} for row in rows]
        for piece in self._entry("usage.json", in_pieces(exported)):
            yield piece

    async def _keys(self, account: Stored[Account]) -> AsyncGenerator[bytes]:
        own = [key for key in await self._store.list_keys() if key.account == account.id]
        exported = [
            {
                "name": key.name,
                "created_at": native.moment(key.created_at),
                "revoked_at": native.moment(key.revoked_at),
                "last_used_at": native.moment(key.last_used_at),
            }
            for key in own
        ]
        for piece in self._entry("keys.json", in_pieces(exported)):
            yield piece

    async def _audit(self, account: Stored[Account]) -> AsyncGenerator[bytes]:
        """Yield the entries of the audit log about the person: as the actor, and about the account."""
        after, filter = 0, AuditFilter(person=account.id)
        info = zipfile.ZipInfo("audit.jsonl", time.gmtime()[:6])
        info.compress_type = zipfile.ZIP_DEFLATED
        with self._zip.open(info, "w", force_zip64=True) as entry:
            while page := await self._store.read_audit(filter, after=after):
                entry.write(b"".join(msgspec.json.encode(each) + b"\n" for each in page))
                yield self._taken.take()
                after = page[-1].n
        yield self._taken.take()

    def _entry(self, name: str, pieces: Iterable[bytes], how: int = zipfile.ZIP_DEFLATED) -> Iterator[bytes]:
        info = zipfile.ZipInfo(name, time.gmtime()[:6])
        info.compress_type = how
        with self._zip.open(info, "w", force_zip64=True) as entry:
            for piece in pieces:
                entry.write(piece)
                if taken := self._taken.take():
                    yield taken
        yield self._taken.take()


def safe_name(name: str) -> str:
    """Return an id in a form that is safe in a file name: ids of clients may contain any character."""
    return _UNSAFE.sub("_", name)[:150]
