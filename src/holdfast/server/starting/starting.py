"""The only door to a run. Every start passes the same checks in the same order, and none can be left out.

1. A repeated idempotency key gets the run that it has started, whatever its caller may do or has left now.
2. The model exists, and the caller may use it.
3. The agent can do what is asked, and the files can be read.
4. There is room: a start of the minute, something left of the budget, a place.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec
from starlette.requests import Request

from ...access import ACCESS, Access
from ...asgi.client import HEADERS
from ...asks import Ask, ChatAsk, OnBreak, ResponseAsk
from ...concurrency.tasks import OwnedTasks
from ...engine.core import Core
from ...errors import BadRequest, HoldfastError
from ...history import Message, Session, plain
from ...ids import ModelName, new_id
from ...runs.run import Run
from ...store import Idempotency, Payer, RunRecord, Store
from ...upstreams import FoundModel
from ...wires.openai.response_items import messages_of
from .room import Room

ON_BREAK = "holdfast-on-break"
"""The header that says what is done if the answer breaks off."""


class CheckFiles(Protocol):
    """Refuses messages with a file that a model cannot read; without a model, one that none can."""

    async def __call__(self, messages: Sequence[dict[str, Any]], model: str | None = None) -> object:
        """Check the files of messages in OpenAI's shape."""
        ...


class Told(Protocol):
    """Tells of runs. What is to be told is stored before a run starts, so that a crash does not lose it."""

    async def expect(self, record: RunRecord) -> Sequence[Any]:
        """Store whom the run is to be told to."""
        ...

    def promise(self, run: Run, expected: Sequence[Any]) -> None:
        """Begin to tell of the run that was started."""
        ...

    def withdraw(self, expected: Sequence[Any]) -> None:
        """Drop what was expected, unless the run was started after all."""
        ...


class BringsFiles(Protocol):
    """Has the files that were sent ahead of their messages."""

    async def brought(self, owner: str, messages: Sequence[Message]) -> list[Message]:
        """Return messages with an owner's own files in place of references to them."""
        ...

    async def brought_in(self, owner: str, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Do the same with messages in OpenAI's shape."""
        ...


class AskedModel(NamedTuple):
    """The model of a request."""

    found: FoundModel
    asked: str
    """What the answer repeats: the client's own word for it. Empty for the default, and for an agent."""

    @property
    def name(self) -> ModelName:
        """The full name."""
        return self.found.name


class AllowedStart(NamedTuple):
    """A start that has no run yet, with a model that the caller may use. Only the door makes one."""

    starting: Starting
    caller: Access
    model: AskedModel
    payer: Payer
    key: Idempotency | None
    on_break: OnBreak | None = None

    def record(self, ask: Ask, *, kind: str = "chat", **fields: Any) -> RunRecord:
        """Return the record of the run: the caller's, unless the fields name another owner."""
        name = self.model.found.name
        return RunRecord(
            **{"id": new_id("run"), "owner": self.caller.owner, "message_id": new_id("msg"), **fields},
            model=name,
            asked=self.model.asked,
            kind=self.starting.kind_of(name, kind),
            payer=self.payer,
            ask=ask if self.on_break is None else msgspec.structs.replace(ask, on_break=self.on_break),
        )

    def start(self, record: RunRecord, input: Sequence[Message] = (), **how: Any) -> Awaitable[Run]:
        """Start the run, as `Starting.start` does."""
        return self.starting.start(record, input, idempotency=self.key, **how)

    async def brought(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages with the files that the caller has sent before, in place of references to them."""
        return await self.starting.uploads.brought(self.caller.owner, messages)

    def brought_in(self, messages: Sequence[dict[str, Any]]) -> Awaitable[list[dict[str, Any]]]:
        """Do the same with messages in OpenAI's shape."""
        return self.starting.uploads.brought_in(self.caller.owner, messages)


class Starting:
    """Starts runs: the only caller of `Core.submit` in the server."""

    def __init__(
        self,
        store: Store,
        engine: Core,
        room: Room,
        *,
        find_model: Callable[[Access, str | None], Awaitable[AskedModel]],
        check_agent: Callable[[RunRecord], Awaitable[None]],
        kind_of: Callable[[ModelName, str], str],
        payer_of: Callable[[Request], Payer],
        check_files: CheckFiles,
        uploads: BringsFiles,
    ) -> None:
        """`find_model` returns a model that the caller may use; `check_agent` refuses what an agent cannot do.

        `check_files` refuses messages with files that no model can be given. `uploads` has those that were sent before.
        """
        self.room, self.kind_of = room, kind_of
        self._store, self._engine = store, engine
        self._find_model, self._check_agent, self._payer_of = find_model, check_agent, payer_of
        self.check_files, self.uploads = check_files, uploads
        self.told: Told | None = None
        self._tasks = OwnedTasks("the start of runs")

    async def allow(self, request: Request, model: str | None, key: Idempotency | None = None) -> Run | AllowedStart:
        """Return the run that a repeated key has started, or the start of a new one if the caller may use the model."""
        if key is not None and (known := await self._engine.repeated(key)) is not None:
            return known
        return await self.allow_new(request, model, key)

    def allow_new(self, request: Request, model: str | None, key: Idempotency | None = None) -> Awaitable[AllowedStart]:
        """Return the start of a new run if the caller may use the model."""
        caller: Access = request.scope[ACCESS]
        payer, on_break = self._payer_of(request), _on_break(request)
        return self.allow_for(caller, payer, model, key, on_break=on_break)

    async def allow_for(
        self,
        caller: Access,
        payer: Payer,
        model: str | None,
        key: Idempotency | None = None,
        *,
        on_break: OnBreak | None = None,
    ) -> AllowedStart:
        """Return the start of a new run for someone who makes no request now: a schedule is due."""
        found = await self._find_model(caller, model)
        return AllowedStart(self, caller, found, payer, key, on_break)

    async def start(
        self,
        record: RunRecord,
        input: Sequence[Message] = (),
        *,
        session: Session | None = None,
        is_counted: bool = False,
        keep: bool = True,
        **how: Any,
    ) -> Run:
        """Start a run as the engine does, if its agent can do what is asked and there is room for it.

        `session` is created first, if it is new: a refused start leaves none behind. `is_counted`: its start of the
        minute was taken before, with `Room.reserve_all`. A start with limits runs in a task of its own: what it has
        reserved is used or given back, even if the caller leaves in between.
        """
        await self._check_agent(record)
        await self.check_files(_sent(record, input), record.model)
        submit = partial(self._engine.submit, record, input, keep=keep, **how)
        if session is not None:
            submit = partial(self._in_new_session, session, submit)
        if keep and self.told is not None:
            submit = partial(self._told, self.told, record, submit)
        if self.room.is_free(record.payer):
            return await submit()
        started: list[Run] = []

        async def start() -> Run:
            async with await self.room.reserve(record, is_counted=is_counted) as reserved:
                started.append(run := await submit())
                if run.id == record.id:  # another request with the same key may have been faster
                    reserved.pop_all()
            return run

        return await self._tasks.run(start(), if_left=lambda: self._leave(started))

    async def _in_new_session(self, session: Session, submit: Callable[[], Awaitable[Run]]) -> Run:
        await self._store.create_session(session)
        return await submit()

    async def _told(self, told: Told, record: RunRecord, submit: Callable[[], Awaitable[Run]]) -> Run:
        """Start a run that others are told of: also of one whose caller leaves before it has heard of it."""
        expected = await told.expect(record)
        if not expected:
            return await submit()
        started: list[Run] = []

        async def start() -> Run:
            try:
                started.append(run := await submit())
            except HoldfastError:
                told.withdraw(expected)
                raise
            told.promise(run, expected)
            return run

        return await self._tasks.run(start(), if_left=lambda: self._leave(started))

    def _leave(self, started: Sequence[Run]) -> None:
        """Stop a run that was started for a caller who has left, unless it outlives its caller."""
        for run in started:
            self._engine.stop_unheld(run)


def _sent(record: RunRecord, input: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the messages of a request: what is new in a session, or all of them."""
    match record.ask:
        case ChatAsk(messages=asked):
            return [*asked, *map(plain, input)]
        case ResponseAsk(input=items):
            return [*map(plain, messages_of(items))]
    return [*map(plain, input)]


def _on_break(request: Request) -> OnBreak | None:
    """Return what the request says is done if the answer breaks off."""
    chosen = request.scope[HEADERS].get(ON_BREAK.encode())
    if chosen is None or chosen in (b"settle", b"continue"):
        return chosen and chosen.decode()  # type: ignore[no-any-return]
    said = chosen[:40].decode("latin-1")
    raise BadRequest(f"`{ON_BREAK}` is `settle` or `continue`, not {said!r}.", param=ON_BREAK)
