"""Rounds: the panes of a comparison while they answer, and the one connection that they live by.

A round has one task of its own, which starts the runs, waits for them and writes down how each ended. Nothing cancels
it: who stops a round stops its runs, and the task sees them settled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from weakref import WeakValueDictionary

from msgspec.structs import replace
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..asgi import Client, as_many_as_fit, finish
from ..comparisons import (
    DOCUMENT,
    Answer,
    Comparison,
    ComparisonNotFound,
    Content,
    Pane,
    Price,
    answered,
    from_body,
    masked,
    settled,
    settlement_of,
    to_body,
)
from ..engine import Engine, Places
from ..errors import (
    HoldfastError,
    IdempotencyConflict,
    RunLimitReached,
    RunNotFound,
    ShuttingDown,
    StaleDocument,
    StoreUnavailable,
)
from ..events import StoppedBy
from ..history import Message, Session, branch
from ..ids import new_id
from ..run import Run
from ..store import HEAD, Document, Idempotency, RunRecord, Store
from ..wire import comparison as wire
from .errors import Json
from .panes import PaneSources, Report

logger = logging.getLogger("holdfast")

ROOM_PAUSE = 0.2  # seconds between two tries to start a pane while there is no room
STORE_PAUSE = 0.2  # seconds between two tries to write down an answer while the store is away

KEYS = "comparison_key"
COMPARISON = "comparison"  # where the record of a pane's run says which comparison it belongs to

Change = Callable[[Comparison], Comparison]


class Told(NamedTuple):
    """What a pane's run is told with: its model as far as that may be known, and what its answer cost."""

    model: str
    is_blind: bool = False
    """The run bears a blind name, so that its own usage is an estimate."""
    cost: float | None = None


class Round:
    """Some panes of a comparison that answer now."""

    def __init__(self, rounds: Rounds, comparison: Comparison, panes: Sequence[int], places: Places) -> None:
        self.comparison = comparison
        self.runs: dict[int, Run] = {}
        self.is_over = False
        self._rounds = rounds
        self._panes = panes
        self._places = places
        self._stopped: StoppedBy | None = None
        self._over = asyncio.Event()
        self._watchers: dict[Callable[[], None], None] = {}
        self.task = asyncio.create_task(self._play())

    # its clients

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever there is more to read, until the returned function is called."""
        self._watchers[wake] = None
        return lambda: self._watchers.pop(wake, None)

    def _wake(self) -> None:
        for wake in tuple(self._watchers):
            wake()

    async def over(self) -> None:
        """Wait until every pane has settled and that is written down."""
        await self._over.wait()

    async def left(self) -> None:
        """The client has gone by whose connection the panes live."""
        await self.stop(by="disconnect")

    async def stop(self, by: StoppedBy) -> None:
        """Stop every pane, those that have not begun too, and wait for the end."""
        self._stopped = self._stopped or by
        await asyncio.gather(*(run.stop(by) for run in tuple(self.runs.values())))
        await self.over()

    # its panes

    async def _play(self) -> None:
        try:
            with self._places:
                if self.comparison.order == "parallel":
                    await _all_of(map(self._play_pane, self._panes))
                else:
                    for pane in self._panes:
                        await self._play_pane(pane)
            now = self._rounds.engine.now()
            await self._note(lambda kept: settled(kept, now))
        finally:
            self._rounds.forget(self)
            self.is_over = True
            self._over.set()
            self._wake()

    async def _play_pane(self, number: int) -> None:
        """See one pane through, however it ends."""
        pane = self.comparison.panes[number]
        run_id = pane.latest.run_id
        assert run_id is not None, "a pane that is about to answer has its run's id"
        report = Report(pane.model, blind=not self.comparison.is_revealed)
        self._rounds.sources.expect(run_id, report)
        try:
            if (run := await self._start_as_soon_as_it_can(pane, run_id)) is None:
                answer = Answer(status="settled", outcome="stopped", by=self._stopped)
            else:
                settlement = await run.settled()
                answer = report.answer(run_id, settlement, self._rounds.prices.get(pane.model))
        except ShuttingDown:
            answer = Answer(status="settled", outcome="stopped", by="shutdown")
        except HoldfastError as error:
            answer = Answer(status="settled", outcome="failed", error=error.info())
        finally:
            self._rounds.sources.forget(run_id)
        await self._note(lambda kept: answered(kept, number, answer))

    async def _start_as_soon_as_it_can(self, pane: Pane, run_id: str) -> Run | None:
        """Start a pane. One whose turn comes later waits for room: that others are busy is no fault of its model."""
        while self._stopped is None:
            try:
                return await self._start(pane, run_id)
            except RunLimitReached:
                await asyncio.sleep(ROOM_PAUSE)
        return None

    async def _start(self, pane: Pane, run_id: str) -> Run:
        rounds, kept = self._rounds, self.comparison
        input, parent = await self._question(pane)
        record = RunRecord(
            id=run_id,
            owner=kept.owner,
            session_id=pane.session_id,
            message_id=new_id("msg"),
            model=pane.model if kept.is_revealed else masked(pane.pane),
            kind="pane",
            lifetime="attached",
            request={"params": kept.params, COMPARISON: kept.id},
        )
        self._places.give_back()  # which it takes itself, at once
        run = await rounds.engine.submit(record, input, parent=parent, deadline=kept.timeout)
        run.take_hold()  # its client is that of the round, whoever else reads it
        self.runs[pane.pane] = run
        running = Answer(run_id=run_id, status="running")
        self.comparison = answered(self.comparison, pane.pane, running)
        run.log.watch(self._wake)
        self._wake()
        if self._stopped is not None:
            await run.stop(self._stopped)
        return run

    async def _question(self, pane: Pane) -> tuple[list[Message], str | None]:
        """Return what a pane is asked, and after which message: prompts that it has not heard, or the last again."""
        rounds, kept = self._rounds, self.comparison
        now = rounds.engine.now()
        session = await rounds.store.create_session(
            Session(
                id=pane.session_id,
                owner=kept.owner,
                kind="pane",
                system=kept.system,
                params=kept.params,
                created_at=now,
                updated_at=now,
            )
        )
        path = branch(await rounds.store.messages(session.id), session.head_id)
        heard = [said for said in path if said.role == "user"]
        if len(heard) < kept.turns:
            return [_asked(prompt) for prompt in kept.prompts[len(heard) :]], HEAD
        return [], heard[-1].id

    async def _note(self, change: Change) -> None:
        """Write something down. It is true here at once, and in the store as soon as that is there."""
        self.comparison = change(self.comparison)
        while not self._rounds.closed:
            try:
                await self._rounds.change(self.comparison.id, self.comparison.owner, change)
                return
            except ComparisonNotFound:
                return  # it was deleted in the meantime
            except StoreUnavailable as error:
                logger.warning("an answer of a comparison cannot be written down yet: %s", error)
                await asyncio.sleep(STORE_PAUSE)


async def _all_of(work: Iterable[Awaitable[None]]) -> None:
    """Do all of it, also where some of it fails."""
    for error in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(error, BaseException):
            raise error


class Audience:
    """Who asks for a comparison again that was begun before: sees what goes on, to the end, and holds nothing."""

    def __init__(self, rounds: Rounds, comparison: Comparison) -> None:
        self._round = rounds.of(comparison.id)
        self._comparison = comparison

    @property
    def comparison(self) -> Comparison:
        """The comparison as it is now."""
        return self._comparison if self._round is None else self._round.comparison

    @property
    def runs(self) -> dict[int, Run]:
        """The runs that go on, by their panes."""
        return {} if self._round is None else self._round.runs

    @property
    def is_over(self) -> bool:
        """Whether nothing goes on any more."""
        return self._round is None or self._round.is_over

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever there is more to read, until the returned function is called."""
        return (lambda: None) if self._round is None else self._round.watch(wake)

    async def over(self) -> None:
        """Wait until nothing goes on any more."""
        if self._round is not None:
            await self._round.over()

    async def left(self) -> None:
        """Leave: the panes live by the connection that began them."""


def _asked(prompt: Content) -> Message:
    return Message(id=new_id("msg"), role="user", content=prompt)


class Rounds:
    """The comparisons that are kept, and the rounds of them that go on here."""

    def __init__(self, engine: Engine, store: Store, sources: PaneSources, prices: Mapping[str, Price]) -> None:
        self.engine = engine
        self.store = store
        self.sources = sources
        self.prices = prices
        self.closed = False
        """The server is ending: what could not be written down by now is found by the next one."""
        self._going_on: dict[str, Round] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    # what is kept

    async def add(self, comparison: Comparison) -> None:
        """Keep a new comparison."""
        await self.store.put_document(_document(comparison))

    async def made_with(self, key: Idempotency, key_id: str) -> Comparison | None:
        """Return the comparison that a key has made; `IdempotencyConflict` where it was for another request."""
        kept = await self.store.get_document(KEYS, key_id)
        if kept is None:
            return None
        if kept.body["digest"] != key.digest:
            raise IdempotencyConflict
        try:
            return await self.read(str(kept.body["comparison"]), key.owner)
        except ComparisonNotFound:
            await self.store.delete_document(KEYS, key_id)  # it was never made: what it was kept for failed
            return None

    async def keep_key(self, key: Idempotency, comparison: Comparison) -> None:
        """Keep what a key stands for, before the comparison is made."""
        assert comparison.key is not None
        body = {"digest": key.digest, "comparison": comparison.id}
        await self.store.put_document(Document(kind=KEYS, id=comparison.key, owner=key.owner, body=body))

    async def told_of(self, record: RunRecord) -> Told:
        """Return what may be told of a pane's run by now that its record does not say."""
        id = record.request.get(COMPARISON)
        document = await self.store.get_document(DOCUMENT, id) if record.kind == "pane" and id else None
        kept = from_body(document.body) if document is not None and document.owner == record.owner else None
        if kept is None or not kept.is_revealed or record.id not in kept.blind_runs:
            return Told(record.model, is_blind=kept is not None and record.id in kept.blind_runs)
        answers = [each for pane in kept.panes for each in (pane, pane.later) if each and each.run_id == record.id]
        return Told(kept.blind_runs[record.id], is_blind=True, cost=answers[0].cost if answers else None)

    async def read(self, comparison_id: str, owner: str) -> Comparison:
        """Return a comparison as it is now. Another owner's is not there."""
        return await self.as_it_is((await self._document(comparison_id, owner)).body)

    async def change(self, comparison_id: str, owner: str, change: Change) -> Comparison:
        """Change a comparison that may be changed by others at the same moment."""
        while True:
            document = await self._document(comparison_id, owner)
            before = from_body(document.body)
            if comparison_id not in self._going_on:
                before = await self._caught_up(before)
            after = change(before)
            changed = replace(document, updated_at=self.engine.now(), body=to_body(after))
            try:
                await self.store.put_document(changed, document.version)
                return after
            except StaleDocument:
                continue

    async def _document(self, comparison_id: str, owner: str) -> Document:
        document = await self.store.get_document(DOCUMENT, comparison_id)
        if document is None or document.owner != owner:
            raise ComparisonNotFound(comparison_id)
        return document

    async def as_it_is(self, body: Mapping[str, object]) -> Comparison:
        """Return a comparison with what has happened since its document was written."""
        kept = from_body(body)
        going_on = self._going_on.get(kept.id)
        return going_on.comparison if going_on is not None else await self._caught_up(kept)

    async def _caught_up(self, kept: Comparison) -> Comparison:
        """Return a comparison with the ends that nobody wrote down, because the server was killed."""
        if kept.status == "settled":
            return kept
        for pane in kept.panes:
            if pane.latest.status != "settled":
                kept = answered(kept, pane.pane, await self._found(pane))
        is_running = any(pane.latest.status == "running" for pane in kept.panes)
        return kept if is_running else settled(kept, self.engine.now())

    async def _found(self, pane: Pane) -> Answer:
        """Return what became of a pane whose round is gone."""
        run_id = pane.latest.run_id
        try:
            run = await self.engine.open(run_id or "")
        except RunNotFound:
            return Answer(status="settled", outcome="interrupted")
        if run.settlement is None:
            return Answer(run_id=run_id, status="running")
        return Report(pane.model, blind=False).answer(run.id, run.settlement, self.prices.get(pane.model))

    async def catch_up(self) -> None:
        """Write down the ends that a killed server left unwritten: nobody counts a pane that goes on for ever."""
        last: str | None = None
        while page := await self.store.list_documents(DOCUMENT, before=last, limit=200):
            for document in page:
                if document.body["status"] == "running" and document.id not in self._going_on:
                    await self._settle_left_behind(document)
            last = page[-1].id

    async def _settle_left_behind(self, document: Document) -> None:
        for pane in from_body(document.body).panes:
            if pane.latest.status != "settled":
                try:
                    await (await self.engine.open(pane.latest.run_id or "")).settled()
                except RunNotFound:
                    continue
        async with self.lock(document.id):
            try:
                await self.change(document.id, document.owner, lambda kept: kept)
            except ComparisonNotFound:
                return

    # what goes on

    def lock(self, comparison_id: str) -> asyncio.Lock:
        """Return the lock under which it is decided what happens next in a comparison."""
        return self._locks.setdefault(comparison_id, asyncio.Lock())

    def begin(self, comparison: Comparison, panes: Sequence[int], places: Places) -> Round:
        """Let panes answer. The comparison says already that they do."""
        going_on = self._going_on[comparison.id] = Round(self, comparison, panes, places)
        return going_on

    def of(self, comparison_id: str) -> Round | None:
        """Return the round that goes on in a comparison."""
        return self._going_on.get(comparison_id)

    def forget(self, over: Round) -> None:
        """Take note that a round is over."""
        if self._going_on.get(over.comparison.id) is over:
            del self._going_on[over.comparison.id]

    async def delete(self, comparison: Comparison) -> None:
        """Stop a comparison's panes and delete it with their sessions, the document last: so it can be repeated."""
        if (going_on := self.of(comparison.id)) is not None:
            await going_on.stop(by="user")
        comparison = await self.read(comparison.id, comparison.owner)  # a pane may have another session by now
        for session_id in (each for pane in comparison.panes for each in (*pane.left, pane.session_id)):
            await self.engine.delete_session(session_id)
        if comparison.key is not None:
            await self.store.delete_document(KEYS, comparison.key)
        await self.store.delete_document(DOCUMENT, comparison.id)

    async def all_over(self, within: float) -> None:
        """Wait for what goes on to be written down; after that time the server ends all the same."""
        tasks = {going_on.task for going_on in self._going_on.values()}
        if tasks:
            await asyncio.wait(tasks, timeout=within)
        self.closed = True

    # what is shown

    async def shown(self, comparison: Comparison) -> dict[str, object]:
        """Return a comparison as JSON, with what its panes have said."""
        said = await asyncio.gather(*map(self._said, comparison.panes))
        if comparison.turns > 1:
            earlier = await asyncio.gather(*(self._earlier(pane, comparison.turns - 1) for pane in comparison.panes))
            said = [replace(now, earlier=before) for now, before in zip(said, earlier, strict=True)]
        return wire.comparison(comparison, dict(enumerate(said)))

    async def _earlier(self, pane: Pane, turns: int) -> tuple[wire.Earlier | None, ...]:
        """Return what a pane answered to each of its first prompts."""
        session = await self.store.get_session(pane.session_id)
        if session is None:
            return (None,) * turns
        path = branch(await self.store.messages(session.id), session.head_id)
        answers: list[wire.Earlier | None] = []
        for said in path:
            if said.role == "user":
                answers.append(None)
            elif said.role == "assistant" and answers:
                answers[-1] = wire.Earlier(said.content if isinstance(said.content, str) else "", said.outcome)
        return tuple((answers + [None] * turns)[:turns])

    async def _said(self, pane: Pane) -> wire.Said:
        answer = pane.latest
        if answer.status == "waiting":
            return wire.Said()
        try:
            run = await self.engine.open(answer.run_id or "")
        except RunNotFound:
            return wire.Said(settlement=settlement_of(answer))
        if run.settlement is None:
            _, snapshot = run.log.snapshot()
            return wire.Said(snapshot.text, snapshot.reasoning)
        messages = await self.store.messages(pane.session_id)
        reasoning = next((said.reasoning for said in messages if said.run_id == run.id), None)
        return wire.Said(run.settlement.text, reasoning or "", run.settlement)


def _document(comparison: Comparison) -> Document:
    return Document(
        kind=DOCUMENT,
        id=comparison.id,
        owner=comparison.owner,
        created_at=comparison.created_at,
        updated_at=comparison.created_at,
        body=to_body(comparison),
    )


class RoundFrames:
    """All panes of a round on one connection: the events of each in their order, as they come."""

    def __init__(self, going_on: Round | Audience, show: Callable[[Comparison], Awaitable[dict[str, object]]]) -> None:
        self.is_over = False
        self.watch = going_on.watch
        self._round = going_on
        self._show = show
        self._n = 0
        self._seen: dict[int, int] = {}

    async def next(self) -> bytes:
        """Return what the panes have said since."""
        if not self._n:
            return await self._whole("comparison.started")
        was_over = self._round.is_over
        frames = [frame for pane, run in tuple(self._round.runs.items()) for frame in await self._pane(pane, run)]
        if frames or not was_over or self.is_over:
            return b"".join(frames)
        self.is_over = True
        return await self._whole("comparison.settled")

    async def _pane(self, pane: int, run: Run) -> list[bytes]:
        frames: list[bytes] = []
        for event in as_many_as_fit(await run.log.batch(self._seen.get(pane, 0))):
            self._seen[pane] = seq = self._seen.get(pane, 0) + 1
            self._n += 1
            frames.append(wire.pane_frame(self._n, pane, run.id, seq, event))
        return frames

    async def _whole(self, kind: str) -> bytes:
        self._n += 1
        return wire.whole_frame(self._n, kind, await self._show(self._round.comparison))


class RoundAnswer(Response):
    """Waits for a round and answers with the whole comparison; the client's leaving stops every pane."""

    def __init__(
        self,
        going_on: Round | Audience,
        show: Callable[[Comparison], Awaitable[dict[str, object]]],
        *,
        status: int = 200,
    ) -> None:
        self.background = None
        self._round = going_on
        self._show = show
        self._status = status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        with Client(scope, receive) as client:
            stayed = False
            try:
                stayed = await client.wait_for(self._round.over())
            finally:
                if not stayed:
                    await finish(self._round.left())
            if stayed:
                response = Json(await self._show(self._round.comparison), status_code=self._status)
                await response(scope, receive, send)
