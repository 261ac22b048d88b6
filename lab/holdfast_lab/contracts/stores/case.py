"""The tools of each check: a store, and ids that no other check uses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from holdfast.events import (
    AnySettlement,
    Completed,
    Event,
)
from holdfast.history import Message, Session
from holdfast.ids import new_id
from holdfast.store import Append, Document, FeedEntry, Idempotency, KeyRecord, LogEnd, RunRecord, Store
from holdfast.store.records import NodeRecord

OpenStore = Callable[[], Awaitable[Store]]
"""Opens a store on one medium, used for nothing else. Called again after `close`, it opens the same medium."""

LONG = 3600.0
"""Seconds of a lease that does not end during a check."""


class Case:
    """A store for one check, with ids that no other check uses, so that checks can share a medium."""

    def __init__(self, open: OpenStore, store: Store) -> None:
        self.store = store
        self._open = open
        self._tag = new_id("case")
        self.owner = self.id("owner")

    async def reopen(self) -> None:
        """Close the store and open its medium again."""
        await self.store.close()
        self.store = await self._open()

    def id(self, name: str) -> str:
        """Return an id that no other check uses."""
        return f"{name}.{self._tag}"

    def is_own(self, id: str) -> bool:
        """Return whether an id is one of this check."""
        return id.endswith(self._tag)

    def user(self, name: str, text: str | list[Any] = "hello") -> Message:
        """Return a user's message."""
        return Message(id=self.id(name), role="user", content=text, created_at=5.0)

    def answer(self, run: RunRecord, text: str = "hi") -> Message:
        """Return the message that a run leaves."""
        return Message(id=run.message_id or "", role="assistant", content=text, run_id=run.id, outcome="completed")

    def record(self, name: str, session: str | None = "s", **fields: Any) -> RunRecord:
        """Return the record of a run that is not in the store yet."""
        return RunRecord(
            id=self.id(name),
            owner=self.owner,
            session_id=None if session is None else self.id(session),
            message_id=self.id(f"answer-{name}"),
            node_id=self.id("node_id"),
            **fields,
        )

    def key(self, name: str, digest: str = "d") -> Idempotency:
        """Return an idempotency key."""
        return Idempotency(self.owner, self.id(name), digest)

    def api_key(self, name: str, tag: str = "", **fields: Any) -> KeyRecord:
        """Return an API key of a new service that is not in the store yet; keys of one name differ by their tags."""
        id = self.id(f"key-{name}{tag}")
        made = {"id": id, "name": self.id(name), "owner": self.id(f"svc-{name}{tag}"), "created_at": 2.5}
        return KeyRecord(**{**made, "sha256": f"digest of {id}", **fields})

    async def person(self, name: str, owner: str = "") -> str:
        """Add an account, and return its id, which is its owner unless another is given."""
        id = self.id(name)
        await self.store.add_account(Document(kind="account", id=id, body={"name": name}), owner or id)
        return id

    async def api_keys(self) -> list[KeyRecord]:
        """Return the API keys of this check."""
        return [key for key in await self.store.list_keys() if key.id.endswith(self._tag)]

    async def session(self, name: str = "s", **fields: Any) -> Session:
        """Add a session."""
        return await self.store.create_session(Session(**{"id": self.id(name), "owner": self.owner} | fields))

    async def start(self, name: str, *input: Message, session: str | None = "s", **options: Any) -> RunRecord:
        """Start a run, or queue it. Its node is alive."""
        await self.alive("node_id")
        return await self.store.create_run(self.record(name, session), input, **options)

    async def alive(self, name: str, seconds: float = LONG) -> NodeRecord:
        """Renew the lease of a node that is not fenced."""
        node = await self.store.renew(self.id(name), seconds)
        assert node is not None
        return node

    async def claimed(self, name: str, unbroken: float = 0.0) -> dict[str, int]:
        """Let a node take over all runs that it may, and return the epochs of those that belong to this check."""
        owned: dict[str, int] = {}
        while len(owned) < len(owned := await self.store.claim(self.id(name), unbroken)):
            pass  # other checks on this medium may have left more runs than one claim takes
        return {id: epoch for id, epoch in owned.items() if id.endswith(self._tag)}

    async def append(self, run: RunRecord, first: int, *events: Event) -> bool:
        """Add events to the log of one run."""
        return isinstance(await self.end_after(run, first, *events), int)

    async def end_after(self, run: RunRecord, first: int, *events: Event) -> LogEnd:
        """Add events to the log of one run, and return its last seq, or why the append was refused."""
        (end,) = await self.store.append(run.node_id, [Append(run.id, run.epoch, first, events)])
        return end

    async def settle(
        self,
        run: RunRecord,
        settlement: AnySettlement | None = None,
        *,
        seq: int = 1,
        message: Message | None = None,
        now: float = 9.0,
    ) -> AnySettlement | None:
        """Settle a run."""
        ending = settlement or Completed(text="hi", finish_reason="stop")
        end = await self.store.settle(run.id, run.epoch, seq=seq, settlement=ending, message=message, now=now)
        return None if end is None else end.settlement

    async def head(self, session: str = "s") -> str | None:
        """Return the id of a session's head."""
        found = await self.store.get_session(self.id(session))
        assert found is not None
        return found.head_id

    async def transcript(self, session: str = "s") -> list[tuple[str, str | None]]:
        """Return each message's id and its parent's, in the order in which they were added."""
        return [(message.id, message.parent_id) for message in await self.store.messages(self.id(session))]

    async def feed(self, session: str = "s", after: int = 0) -> list[FeedEntry]:
        """Return the feed entries of a session."""
        return await self.store.read_feed(self.id(session), after)

    async def everything(self, session: str = "s") -> tuple[Any, ...]:
        """Return all data of a session, to compare it before and after a call."""
        session_id = self.id(session)
        runs = await self.store.list_runs(session_id=session_id)
        return (
            await self.store.get_session(session_id),
            await self.store.messages(session_id),
            await self.store.read_feed(session_id, 0),
            await self.store.queued(session_id),
            runs,
            [await self.store.read_log(run.id, run.oldest - 1) for run in runs],
        )


CaseCheck = Callable[[Case], Awaitable[None]]


class Checks(list[CaseCheck]):
    """The checks of one subject, in their order."""

    def add(self, check: CaseCheck) -> CaseCheck:
        """Add a check: a decorator."""
        self.append(check)
        return check


async def raised(error: type[BaseException], work: Awaitable[Any]) -> Any:
    """Return the error that `work` raises; fail if it does not raise it."""
    try:
        result = await work
    except error as raised:
        return raised
    raise AssertionError(f"{error.__name__} was not raised, but {result!r} returned")


def types(feed: Sequence[FeedEntry]) -> list[str]:
    return [entry.type for entry in feed]
