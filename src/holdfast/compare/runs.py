"""Rounds: the panes of a comparison while they answer, attached to one connection.

A round has one task, which starts the runs, waits for them and stores how each ended. Nothing cancels it: to stop a
round is to stop its runs, and the task sees them settle.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple
from weakref import WeakValueDictionary

from msgspec.structs import replace
from starlette.types import ASGIApp

from ..asgi.client import RequestClient
from ..asgi.cursor import as_many_as_fit
from ..asgi.delayed_response import DelayedResponse
from ..concurrency.retry import Retry
from ..concurrency.watchers import Wake, Watchers
from ..engine.admission import Places
from ..engine.engine import Engine
from ..engine.run import Run
from ..errors import (
    HoldfastError,
    RunLimitReached,
    RunNotFound,
    ShuttingDown,
    StaleDocument,
    StoreUnavailable,
)
from ..events import StoppedBy
from ..history import Message, Session, branch, text_of
from ..ids import new_id
from ..server.errors import json_of
from ..store import HEAD, Idempotency, RunRecord, Store
from ..store.documents import Documents, IdempotencyKeys
from ..wires.shapes import ComparisonJson
from . import wire as wire
from .model import (
    DOCUMENT,
    Comparison,
    ComparisonNotFound,
    Content,
    Pane,
    PaneAnswer,
    Price,
    answered,
    masked,
    settled,
    settlement_of,
)
from .sources import PaneReport, PaneSources

logger = logging.getLogger(__name__)

ROOM_PAUSE = 0.2  # seconds between two tries to start a pane while there is no room

KEYS = "comparison_key"
COMPARISON = "comparison"  # the key of the comparison's id in the request of a pane's run

Change = Callable[[Comparison], Comparison]


class Told(NamedTuple):
    """The public data of a pane's run: its model, masked while blind, and its cost."""

    model: str
    is_blind: bool = False
    """Whether the run has a blind name: then its own usage is an estimate."""
    cost: float | None = None


class Round:
    """The panes of a comparison that answer now."""

    def __init__(self, rounds: Rounds, comparison: Comparison, panes: Sequence[int], places: Places) -> None:
        self.comparison = comparison
        self.runs: dict[int, Run] = {}
        self.is_over = False
        self._rounds = rounds
        self._panes = panes
        self._places = places
        self._stopped: StoppedBy | None = None
        self._over = asyncio.Event()
        self._watchers = Watchers()
        self.task = asyncio.create_task(self._play())

    # for clients

    def watch(self, wake: Wake) -> Wake:
        """Call `wake` whenever there is more to read, until the returned function is called."""
        return self._watchers.watch(wake)

    async def over(self) -> None:
        """Wait until every pane has settled and that is stored."""
        await self._over.wait()

    async def left(self, by: StoppedBy) -> None:
        """The client that started the panes has disconnected. Detached panes continue."""
        if self.comparison.lifetime == "attached":
            await self.stop(by)

    async def stop(self, by: StoppedBy) -> None:
        """Stop every pane, including those that have not begun, and wait for the end."""
        self._stopped = self._stopped or by
        await asyncio.gather(*(run.stop(by) for run in tuple(self.runs.values())))
        await self.over()

    # panes

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
            self._watchers.notify()

    async def _play_pane(self, number: int) -> None:
        """Run one pane to its end."""
        pane = self.comparison.panes[number]
        run_id = pane.latest.run_id
        assert run_id is not None, "a pane that is about to answer has its run's id"
        report = PaneReport(pane.model, blind=not self.comparison.is_revealed)
        try:
            if (run := await self._start_as_soon_as_it_can(pane, run_id, report)) is None:
                answer = PaneAnswer(status="settled", outcome="stopped", by=self._stopped)
            else:
                settlement = await run.settled()
                answer = report.answer(run, settlement, self._rounds.prices.get(pane.model))
        except ShuttingDown:
            answer = PaneAnswer(status="settled", outcome="stopped", by="shutdown")
        except HoldfastError as error:
            answer = PaneAnswer(status="settled", outcome="failed", error=error.info())
        await self._note(lambda kept: answered(kept, number, answer))

    async def _start_as_soon_as_it_can(self, pane: Pane, run_id: str, report: PaneReport) -> Run | None:
        """Start a pane. A later one of a sequence waits while the server has no room, and does not fail."""
        while self._stopped is None:
            try:
                return await self._start(pane, run_id, report)
            except RunLimitReached:
                await asyncio.sleep(ROOM_PAUSE)
        return None

    async def _start(self, pane: Pane, run_id: str, report: PaneReport) -> Run:
        rounds, kept = self._rounds, self.comparison
        input, parent = await self._question(pane)
        record = RunRecord(
            id=run_id,
            owner=kept.owner,
            session_id=pane.session_id,
            message_id=new_id("msg"),
            parent_id=input[-1].id if input else parent,
            model=pane.model if kept.is_revealed else masked(pane.pane),
            kind="pane",
            lifetime="attached",
            request={"params": kept.params, COMPARISON: kept.id},
        )
        self._places.give_back()  # the start takes the place again at once
        source = rounds.sources.of(record, report)
        run = await rounds.engine.submit(record, input, source=source, parent=parent, deadline=kept.timeout)
        run.take_hold()  # attached to the client of the round, not to other readers
        self.runs[pane.pane] = run
        running = PaneAnswer(run_id=run_id, status="running")
        self.comparison = answered(self.comparison, pane.pane, running)
        run.log.watch(self._watchers.notify)
        self._watchers.notify()
        if self._stopped is not None:
            await run.stop(self._stopped)
        return run

    async def _question(self, pane: Pane) -> tuple[list[Message], str | None]:
        """Return the input of a pane and its parent message: the prompts that it has not had, or the last again."""
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
        """Change the comparison: here at once, and in the store as soon as it answers."""
        self.comparison = change(self.comparison)
        id, owner = self.comparison.id, self.comparison.owner
        try:
            await self._rounds.retry(lambda: self._rounds.change(id, owner, change))
        except ComparisonNotFound:
            return  # it was deleted in the meantime
        except StoreUnavailable as error:
            logger.error("an answer of comparison %s is left to the next start of the server: %s", id, error)


async def _all_of(work: Iterable[Awaitable[None]]) -> None:
    """Await all of them, even if some fail."""
    for error in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(error, BaseException):
            raise error


class Audience:
    """A reader of a round that another request began. Its disconnect stops nothing."""

    def __init__(self, rounds: Rounds, comparison: Comparison) -> None:
        self._round = rounds.of(comparison.id)
        self._comparison = comparison

    @property
    def comparison(self) -> Comparison:
        """The current comparison."""
        return self._comparison if self._round is None else self._round.comparison

    @property
    def runs(self) -> dict[int, Run]:
        """The runs in progress, by pane."""
        return {} if self._round is None else self._round.runs

    @property
    def is_over(self) -> bool:
        """Whether the round is over."""
        return self._round is None or self._round.is_over

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever there is more to read, until the returned function is called."""
        return (lambda: None) if self._round is None else self._round.watch(wake)

    async def over(self) -> None:
        """Wait until the round is over."""
        if self._round is not None:
            await self._round.over()

    async def left(self, by: StoppedBy) -> None:
        """Do nothing: the panes are attached to another connection."""


def _asked(prompt: Content) -> Message:
    return Message(id=new_id("msg"), role="user", content=prompt)


class Rounds:
    """The stored comparisons, and the rounds in progress."""

    def __init__(self, engine: Engine, store: Store, sources: PaneSources, prices: Mapping[str, Price]) -> None:
        self.engine = engine
        self.store = store
        self.sources = sources
        self.prices = prices
        self.retry = Retry()
        """Closed when the server ends: what could not be stored by then is completed at the next start."""
        self.documents = Documents(store, DOCUMENT, Comparison, now=engine.now)
        self._keys = IdempotencyKeys(store, KEYS, now=engine.now)
        self._going_on: dict[str, Round] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    # stored comparisons

    async def add(self, comparison: Comparison) -> None:
        """Store a new comparison."""
        await self.documents.put(comparison.id, comparison, owner=comparison.owner, at=comparison.created_at)

    async def made_with(self, key: Idempotency) -> Comparison | None:
        """Return the comparison that was made with a key. `IdempotencyConflict` if it was for another request."""
        comparison_id = await self._keys.find(key)
        if comparison_id is None:
            return None
        try:
            return await self.read(comparison_id, key.owner)
        except ComparisonNotFound:
            await self._keys.forget(self._keys.id_of(key), comparison_id)  # the request failed after it stored the key
            return None

    async def keep_key(self, key: Idempotency, comparison: Comparison) -> None:
        """Store what a key stands for, before the comparison is made."""
        if await self._keys.claim(key, comparison.id) != comparison.id:
            raise StaleDocument(KEYS, self._keys.id_of(key))  # another server has just taken the same request

    async def told_of(self, record: RunRecord) -> Told:
        """Return the public data of a pane's run, which after the reveal is more than its record has."""
        id = record.request.get(COMPARISON)
        stored = await self.documents.get(id, owner=record.owner) if record.kind == "pane" and id else None
        kept = None if stored is None else stored.body
        if kept is None or not kept.is_revealed or record.id not in kept.blind_runs:
            return Told(record.model, is_blind=kept is not None and record.id in kept.blind_runs)
        answers = [each for pane in kept.panes for each in (pane, pane.later) if each and each.run_id == record.id]
        return Told(kept.blind_runs[record.id], is_blind=True, cost=answers[0].cost if answers else None)

    async def read(self, comparison_id: str, owner: str) -> Comparison:
        """Return the current comparison. That of another owner is not found."""
        stored = await self.documents.get(comparison_id, owner=owner)
        if stored is None:
            raise ComparisonNotFound(comparison_id)
        return await self.as_it_is(stored.body)

    async def change(self, comparison_id: str, owner: str, change: Change) -> Comparison:
        """Change a comparison by compare-and-set."""

        async def changed(kept: Comparison) -> Comparison:
            return change(kept if comparison_id in self._going_on else await self._caught_up(kept))

        stored = await self.documents.change(comparison_id, changed, owner=owner)
        if stored is None:
            raise ComparisonNotFound(comparison_id)
        return stored.body

    async def as_it_is(self, kept: Comparison) -> Comparison:
        """Return a comparison with the newest state of its panes."""
        going_on = self._going_on.get(kept.id)
        return going_on.comparison if going_on is not None else await self._caught_up(kept)

    async def _caught_up(self, kept: Comparison) -> Comparison:
        """Return a comparison with the ends of its panes that a killed server did not store."""
        if kept.status == "settled":
            return kept
        for pane in kept.panes:
            if pane.latest.status != "settled":
                kept = answered(kept, pane.pane, await self._found(pane))
        is_running = any(pane.latest.status == "running" for pane in kept.panes)
        return kept if is_running else settled(kept, self.engine.now())

    async def _found(self, pane: Pane) -> PaneAnswer:
        """Return the answer of a pane whose round is gone."""
        run_id = pane.latest.run_id
        try:
            run = await self.engine.open(run_id or "")
        except RunNotFound:
            return PaneAnswer(status="settled", outcome="interrupted")
        if run.settlement is None:
            return PaneAnswer(run_id=run_id, status="running")
        return PaneReport(pane.model, blind=False).answer(run, run.settlement, self.prices.get(pane.model))

    async def catch_up(self) -> None:
        """Store the ends of panes that a killed server did not store, so that no pane stays running."""
        async for stored in self.documents.all():
            if stored.body.status == "running" and stored.id not in self._going_on:
                await self._settle_left_behind(stored.body)

    async def _settle_left_behind(self, comparison: Comparison) -> None:
        for pane in comparison.panes:
            if pane.latest.status != "settled":
                try:
                    await (await self.engine.open(pane.latest.run_id or "")).settled()
                except RunNotFound:
                    continue
        async with self.lock(comparison.id):
            try:
                await self.change(comparison.id, comparison.owner, lambda kept: kept)
            except ComparisonNotFound:
                return

    # rounds in progress

    def lock(self, comparison_id: str) -> asyncio.Lock:
        """Return the lock for changes of a comparison."""
        return self._locks.setdefault(comparison_id, asyncio.Lock())

    def begin(self, comparison: Comparison, panes: Sequence[int], places: Places) -> Round:
        """Begin a round. The comparison has its panes as running already."""
        going_on = self._going_on[comparison.id] = Round(self, comparison, panes, places)
        return going_on

    def of(self, comparison_id: str) -> Round | None:
        """Return the round in progress of a comparison."""
        return self._going_on.get(comparison_id)

    def forget(self, over: Round) -> None:
        """Remove a round that is over."""
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
            await self._keys.forget(comparison.key, comparison.id)
        await self.documents.delete(comparison.id)

    async def all_over(self, within: float) -> None:
        """Wait for the rounds in progress to be stored, for so many seconds at most."""
        tasks = {going_on.task for going_on in self._going_on.values()}
        if tasks:
            await asyncio.wait(tasks, timeout=within)
        self.retry.close()

    # JSON

    async def shown(self, comparison: Comparison) -> ComparisonJson:
        """Return a comparison as JSON, with the texts of its panes."""
        said = await asyncio.gather(*map(self._said, comparison.panes))
        if comparison.turns > 1:
            earlier = await asyncio.gather(*(self._earlier(pane, comparison.turns - 1) for pane in comparison.panes))
            said = [replace(now, earlier=before) for now, before in zip(said, earlier, strict=True)]
        return wire.comparison(comparison, dict(enumerate(said)))

    async def _earlier(self, pane: Pane, turns: int) -> tuple[wire.Earlier | None, ...]:
        """Return the answers of a pane to its first prompts."""
        session = await self.store.get_session(pane.session_id)
        if session is None:
            return (None,) * turns
        path = branch(await self.store.messages(session.id), session.head_id)
        answers: list[wire.Earlier | None] = []
        for said in path:
            if said.role == "user":
                answers.append(None)
            elif said.role == "assistant" and answers:
                answers[-1] = wire.Earlier(text_of(said.content), said.outcome)
        return tuple((answers + [None] * turns)[:turns])

    async def _said(self, pane: Pane) -> wire.PaneText:
        answer = pane.latest
        if answer.status == "waiting":
            return wire.PaneText()
        try:
            run = await self.engine.open(answer.run_id or "")
        except RunNotFound:
            return wire.PaneText(settlement=settlement_of(answer))
        if run.settlement is None:
            _, snapshot = run.log.snapshot()
            return wire.PaneText(snapshot.text, snapshot.reasoning)
        messages = await self.store.messages(pane.session_id)
        reasoning = next((said.reasoning for said in messages if said.run_id == run.id), None)
        return wire.PaneText(run.settlement.text, reasoning or "", run.settlement)


class RoundFrames:
    """The event stream of a round: the events of all panes, each in its order."""

    def __init__(self, going_on: Round | Audience, show: Callable[[Comparison], Awaitable[ComparisonJson]]) -> None:
        self.is_over = False
        self.watch = going_on.watch
        self._round = going_on
        self._show = show
        self._n = 0
        self._seen: dict[int, int] = {}

    async def next(self) -> bytes:
        """Return the frames of the new events."""
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

    async def _whole(self, kind: Literal["comparison.started", "comparison.settled"]) -> bytes:
        self._n += 1
        return wire.whole_frame(self._n, kind, await self._show(self._round.comparison))


class RoundAnswer(DelayedResponse):
    """The JSON response of a round, sent at its end. A disconnect stops every pane."""

    def __init__(self, going_on: Round | Audience, show: Callable[[Comparison], Awaitable[ComparisonJson]]) -> None:
        self._round = going_on
        self._show = show

    async def ended(self, client: RequestClient) -> bool:
        """Wait for the end of the round."""
        return await client.wait_for(self._round.over())

    async def left(self, by: StoppedBy) -> None:
        """Stop the panes that are attached to this client."""
        await self._round.left(by)

    async def response(self) -> ASGIApp:
        """Return the whole comparison."""
        return json_of(await self._show(self._round.comparison))
