"""Rounds: the panes of a comparison while they answer, attached to one connection.

A round has one task, which starts the runs, waits for them and stores how each ended. Nothing cancels it: to stop a
round is to stop its runs, and the task sees them settle.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ..asks import PaneAsk
from ..engine.core import Core
from ..errors import (
    HoldfastError,
    RunLimitReached,
    RunNotFound,
    ShuttingDown,
    StoreUnavailable,
)
from ..events import Settlement, StoppedBy
from ..history import Message, Session, branch, text_of
from ..ids import new_id
from ..log.steps import AgentStep
from ..nodes.jobs import Jobs, JobWork
from ..pricing import Prices, cost
from ..runs.admission import Places
from ..runs.run import Run
from ..store import HEAD, Idempotency, RunRecord, Store
from ..store.documents import Documents, IdempotencyKeys, Stored
from ..store.files import pictures_of
from ..watchers import Wake, Watchers
from . import wire as wire
from .model import (
    DOCUMENT,
    Comparison,
    ComparisonNotFound,
    ComparisonRunning,
    Pane,
    PaneAnswer,
    PromptContent,
    answered,
    masked,
    settled,
    settlement_of,
    stopping,
)
from .shapes import ComparisonJson, SynthesisJson
from .sources import PaneReport, PaneSources

logger = logging.getLogger(__name__)

ROOM_PAUSE = 0.2  # seconds between two tries to start a pane while there is no room

KEYS = "comparison_key"

ComparisonChange = Callable[[Comparison], Comparison]


class PaneRunInfo(NamedTuple):
    """The public data of a pane's run: its model, masked while blind, and its cost."""

    model: str
    is_blind: bool = False
    """True if the run has a blind name. Then its own usage is an estimate."""
    cost: float | None = None


class Round(JobWork):
    """The panes of a comparison that answer now."""

    look_every = 1.0

    def __init__(self, rounds: Rounds, comparison: Comparison, panes: Sequence[int], places: Places) -> None:
        super().__init__(comparison.id)
        self.comparison = comparison
        self.runs: dict[int, Run] = {}
        self.is_over = False
        self._rounds = rounds
        self._panes = panes
        self._places = places
        self._stopped: StoppedBy | None = None
        self._over = asyncio.Event()
        self._watchers = Watchers()

    # for clients

    def watch(self, wake: Wake) -> Wake:
        """Call `wake` whenever there is more to read, until the returned function is called."""
        return self._watchers.watch(wake)

    async def over(self) -> None:
        """Wait until every pane has settled and that is stored."""
        await self._over.wait()

    async def left(self, by: StoppedBy) -> None:
        """Stop the panes, because their client has disconnected. Detached panes continue."""
        if self.comparison.lifetime == "attached":
            await self.take_changes()
        if self.comparison.lifetime == "attached":
            await self.stop(by)

    async def lose(self) -> None:
        """Begin no more panes: another node has the round."""
        self._stopped = self._stopped or "shutdown"

    async def take_changes(self) -> None:
        """Apply the changes that other nodes make in the comparison's document: stop, detach, reveal."""
        now = self.comparison
        try:
            stored = await self._rounds.jobs.retry(lambda: self._rounds.documents.get(now.id))
        except StoreUnavailable:
            return  # the server ends
        if stored is not None:
            kept = stored.body
            self.comparison = replace(
                self.comparison,
                lifetime=kept.lifetime,
                revealed_at=kept.revealed_at,
            )
        if stored is None or stored.body.is_stopping:
            self._rounds.stop_in_background(self)

    async def stop(self, by: StoppedBy) -> None:
        """Stop every pane, including those that have not begun, and wait for the end."""
        self._stopped = self._stopped or by
        await asyncio.gather(*(run.stop(by) for run in tuple(self.runs.values())))
        await self.over()

    # panes

    async def work(self) -> None:
        """Let the panes answer, and store how each ended."""
        try:
            with self._places:
                if self.comparison.order == "parallel":
                    await _all_of(map(self._play_pane, self._panes))
                else:
                    for pane in self._panes:
                        await self._play_pane(pane)
            if not self.is_lost:
                now = self._rounds.engine.now()
                await self._note(lambda kept: settled(kept, now))
                await self._rounds.jobs.let_go(self.id)
        finally:
            self._rounds.jobs.forget(self)
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
            if (run := await self._start_when_there_is_room(pane, run_id, report)) is None:
                answer = PaneAnswer(status="settled", outcome="stopped", by=self._stopped)
            else:
                settlement = await run.settled()
                answer = report.answer(run, settlement, self._rounds.prices.of(pane.model))
        except ShuttingDown:
            answer = PaneAnswer(status="settled", outcome="stopped", by="shutdown")
        except HoldfastError as error:
            answer = PaneAnswer(status="settled", outcome="failed", error=error.info())
        if not self.is_lost:
            await self._note(lambda kept: answered(kept, number, answer))

    async def _start_when_there_is_room(self, pane: Pane, run_id: str, report: PaneReport) -> Run | None:
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
            ask=PaneAsk(params=kept.params, comparison_id=kept.id),
            payer=kept.payer,
            created_at=rounds.engine.now(),  # for its source, which counts it for the budgets of this day
            node_id=rounds.engine.node_id,
        )
        self._places.give_back()  # the start takes the place again at once
        source = rounds.sources.of(record, report)
        how = {"source": source, "parent": parent, "deadline": kept.timeout}
        run = await rounds.start(record, input, is_counted=True, **how)
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
        """Return the input of a pane and its parent message: the prompts that it has not got yet, or the last again."""
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
        prompts = [message for message in path if message.role == "user"]
        if len(prompts) < kept.turns:
            return [_user_message(prompt) for prompt in kept.prompts[len(prompts) :]], HEAD
        return [], prompts[-1].id

    async def _note(self, change: ComparisonChange) -> None:
        """Change the comparison: in the store first, as soon as it is available. What is shown can then be voted on."""
        id, owner = self.comparison.id, self.comparison.owner
        try:
            await self._rounds.jobs.retry(lambda: self._rounds.change(id, owner, change))
        except ComparisonNotFound:
            pass  # it was deleted in the meantime
        except StoreUnavailable as error:
            logger.error("an answer of comparison %s is left to the next start of the server: %s", id, error)
        self.comparison = change(self.comparison)


async def _all_of(work: Iterable[Awaitable[None]]) -> None:
    """Await all of them, even if some fail."""
    for error in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(error, BaseException):
            raise error


def _user_message(prompt: PromptContent) -> Message:
    return Message(id=new_id("msg"), role="user", content=prompt)


def _own_calls(message: Message) -> tuple[AgentStep, ...]:
    """Return the calls that a model has left to the client, as a step."""
    return (AgentStep(text_of(message.content), message.tool_calls),) if message.tool_calls else ()


class ComparisonHalfMade(HoldfastError):
    """Another server has taken a request with the same key, and has not stored its comparison yet."""

    code = "comparison_half_made"
    status = 503
    retry_after = 2.0
    message = "Another server is storing the comparison with this key. Repeat the request."


class Rounds:
    """The stored comparisons, and the rounds in progress."""

    def __init__(
        self,
        engine: Core,
        store: Store,
        sources: PaneSources,
        prices: Prices,
        start: Callable[..., Awaitable[Run]],
    ) -> None:
        """`start` starts a run as the engine does, within the limits of its owner and its payer."""
        self.engine = engine
        self.start = start
        self.store = store
        self.sources = sources
        self.prices = prices
        self.documents = Documents(store, DOCUMENT, Comparison, now=engine.now)
        self.jobs: Jobs[Comparison, Round] = Jobs(
            DOCUMENT, self.documents, engine.holds, is_open=lambda kept: kept.status == "running", resume=self._resume
        )
        self._keys = IdempotencyKeys(store, KEYS, now=engine.now)

    # one node for each round

    @contextlib.asynccontextmanager
    async def held(self, comparison_id: str) -> AsyncGenerator[None]:
        """Take the hold of a comparison, for a round that begins within the block."""
        async with self.jobs.beginning(comparison_id) as is_taken:
            if not is_taken:
                raise ShuttingDown if self.engine.closing else ComparisonRunning
            yield

    def stop_in_background(self, going_on: Round) -> None:
        """Stop a round that was stopped through another node."""
        self.jobs.tasks.start(going_on.stop(by="user"))

    async def stop(self, comparison: Comparison) -> Comparison:
        """Stop every pane, on whichever node the round is, and wait for the end."""
        if (going_on := self.of(comparison.id)) is not None:
            await going_on.stop(by="user")
            return going_on.comparison
        if await self.jobs.is_elsewhere(comparison.id):
            await self.change(comparison.id, comparison.owner, stopping)
            await self.jobs.ended_elsewhere(comparison.id)
        return await self.read(comparison.id, comparison.owner)

    def as_over(self, comparison: Comparison) -> Comparison:
        """Return a comparison as settled, because it was deleted while it was read."""
        return settled(comparison, self.engine.now())

    # stored comparisons

    async def add(self, comparison: Comparison) -> None:
        """Store a new comparison."""
        await self.documents.put(comparison.id, comparison, owner=comparison.owner, at=comparison.created_at)

    async def forget_old_keys(self, before: float) -> None:
        """Forget the idempotency keys that were used before a time."""
        await self._keys.forget_old(before)

    async def made_with(self, key: Idempotency) -> Comparison | None:
        """Return the comparison that was made with a key. `IdempotencyConflict` if it was for another request."""
        comparison_id = await self._keys.find(key)
        if comparison_id is None:
            return None
        stored = await self.jobs.made_elsewhere(
            comparison_id, lambda: self.documents.get(comparison_id, owner=key.owner)
        )
        if stored is None:
            await self._keys.forget(self._keys.id_of(key), comparison_id)  # the request failed after it stored the key
            return None
        return await self.as_it_is(stored.body)

    async def keep_key(self, key: Idempotency, comparison: Comparison) -> None:
        """Store the comparison's id for a key, before the comparison is stored."""
        if await self._keys.claim(key, comparison.id) != comparison.id:
            raise ComparisonHalfMade

    async def pane_run_info(self, record: RunRecord) -> PaneRunInfo:
        """Return the public data of a pane's run. After the reveal it has more than the run's record."""
        ask = record.ask
        stored = await self.documents.get(ask.comparison_id, owner=record.owner) if isinstance(ask, PaneAsk) else None
        kept = None if stored is None else stored.body
        if kept is None or not kept.is_revealed or record.id not in kept.blind_runs:
            return PaneRunInfo(record.model, is_blind=kept is not None and record.id in kept.blind_runs)
        answers = [each for pane in kept.panes for each in (pane, pane.later) if each and each.run_id == record.id]
        return PaneRunInfo(kept.blind_runs[record.id], is_blind=True, cost=answers[0].cost if answers else None)

    async def read(self, comparison_id: str, owner: str) -> Comparison:
        """Return the current comparison. That of another owner is not found."""
        stored = await self.documents.get(comparison_id, owner=owner)
        if stored is None:
            raise ComparisonNotFound(comparison_id)
        return await self.as_it_is(stored.body)

    async def change(self, comparison_id: str, owner: str, change: ComparisonChange) -> Comparison:
        """Change a comparison by compare-and-set."""

        async def changed(kept: Comparison) -> Comparison:
            is_newest = self.of(comparison_id) is not None or kept.status == "settled"
            is_newest = is_newest or await self.jobs.is_elsewhere(comparison_id)
            return change(kept if is_newest else await self._caught_up(kept))

        stored = await self.documents.change_awaiting(comparison_id, changed, owner=owner)
        if stored is None:
            raise ComparisonNotFound(comparison_id)
        return stored.body

    async def as_it_is(self, kept: Comparison) -> Comparison:
        """Return a comparison with the newest state of its panes."""
        going_on = self.of(kept.id)
        return going_on.comparison if going_on is not None else await self._caught_up(kept)

    async def _caught_up(self, kept: Comparison) -> Comparison:
        """Return a comparison with the ends of its panes that a killed server, or another node, did not store."""
        if kept.status == "settled":
            return kept
        is_elsewhere = await self.jobs.is_elsewhere(kept.id)
        for pane in kept.panes:
            if pane.latest.status != "settled":
                answer = await self._current_answer(pane)
                if not is_elsewhere or answer.run_id is not None:
                    kept = answered(kept, pane.pane, answer)
        if is_elsewhere:
            return kept
        is_running = any(pane.latest.status == "running" for pane in kept.panes)
        return kept if is_running else settled(kept, self.engine.now())

    async def _current_answer(self, pane: Pane) -> PaneAnswer:
        """Return the answer of a pane without a round in progress."""
        run_id = pane.latest.run_id
        try:
            run = await self.engine.open(run_id or "")
        except RunNotFound:
            return PaneAnswer(status="settled", outcome="interrupted")
        if run.settlement is None:
            return PaneAnswer(run_id=run_id, status="running")
        return PaneReport(pane.model, blind=False).answer(run, run.settlement, self.prices.of(pane.model))

    async def _resume(self, stored: Stored[Comparison]) -> None:
        """Store the ends of panes that a killed server did not store, so that no pane stays `running`."""
        comparison = stored.body
        for pane in comparison.panes:
            if pane.latest.status != "settled":
                with contextlib.suppress(RunNotFound):
                    run = await self.engine.open(pane.latest.run_id or "")
                    await (run.stop() if comparison.is_stopping else run.settled())
        async with self.lock(comparison.id):
            with contextlib.suppress(ComparisonNotFound):
                await self.change(comparison.id, comparison.owner, lambda kept: kept)
        if not self.jobs.is_ours(comparison.id):
            await self.jobs.let_go(comparison.id)

    # rounds in progress

    def lock(self, comparison_id: str) -> asyncio.Lock:
        """Return the lock for changes of a comparison."""
        return self.jobs.lock(comparison_id)

    def begin(self, comparison: Comparison, panes: Sequence[int], places: Places) -> Round:
        """Begin a round. The comparison's status is `running` already."""
        return self.jobs.begin(Round(self, comparison, panes, places))

    def of(self, comparison_id: str) -> Round | None:
        """Return the round in progress of a comparison."""
        return self.jobs.of(comparison_id)

    async def delete(self, comparison: Comparison) -> None:
        """Stop a comparison's panes and delete it with their sessions. The document goes last: a retry needs it."""
        comparison = await self.stop(comparison)  # a pane may have another session by now
        of_synthesis = () if comparison.synthesis is None else (comparison.synthesis.session_id,)
        of_panes = [each for pane in comparison.panes for each in (*pane.left, pane.session_id)]
        for session_id in (*of_panes, *of_synthesis):
            await self.engine.delete_session(session_id)
        if comparison.key is not None:
            await self._keys.forget(comparison.key, comparison.id)
        await self.documents.delete(comparison.id)

    # JSON

    async def shown(self, comparison: Comparison) -> ComparisonJson:
        """Return a comparison as JSON, with the texts of its panes."""
        texts = await asyncio.gather(*map(self.pane_text, comparison.panes))
        if comparison.turns > 1:
            earlier = await asyncio.gather(*(self._earlier(pane, comparison.turns - 1) for pane in comparison.panes))
            texts = [replace(now, earlier=before) for now, before in zip(texts, earlier, strict=True)]
        return wire.comparison(comparison, dict(enumerate(texts)), await self._synthesis(comparison))

    async def _earlier(self, pane: Pane, turns: int) -> tuple[wire.Earlier | None, ...]:
        """Return the answers of a pane to its first prompts."""
        session = await self.store.get_session(pane.session_id)
        if session is None:
            return (None,) * turns
        path = branch(await self.store.messages(session.id), session.head_id)
        answers: list[wire.Earlier | None] = []
        for message in path:
            if message.role == "user":
                answers.append(None)
            elif message.role == "assistant" and answers:
                answers[-1] = wire.Earlier(text_of(message.content), message.outcome)
        return tuple((answers + [None] * turns)[:turns])

    async def pane_text(self, pane: Pane) -> wire.PaneText:
        """Return the text and the settlement of a pane's answer, so far."""
        if pane.latest.status == "waiting":
            return wire.PaneText()
        return await self._text_of(pane.latest, pane.session_id)

    async def _synthesis(self, kept: Comparison) -> SynthesisJson | None:
        """Return the synthesis as JSON, so far."""
        made = kept.synthesis
        if made is None:
            return None
        text = await self._text_of(PaneAnswer(run_id=made.run_id, status="settled"), made.session_id)
        price = self.prices.of(made.model if text.settlement is None else text.settlement.answered_by or made.model)
        spent = None if text.settlement is None else cost(price, text.settlement.usage)
        return wire.synthesis(made, text, spent, is_old=kept.is_synthesis_old)

    async def _text_of(self, answer: PaneAnswer, session_id: str) -> wire.PaneText:
        try:
            run = await self.engine.open(answer.run_id or "")
        except RunNotFound:
            return await self._imported_text(answer, session_id)
        if run.settlement is None:
            _, snapshot = await run.log.snapshot()
            return wire.PaneText(snapshot.text, snapshot.reasoning)
        messages = [message for message in await self.store.messages(session_id) if message.run_id == run.id]
        return await self._settled_text(run.settlement, session_id, messages)

    async def _imported_text(self, answer: PaneAnswer, session_id: str) -> wire.PaneText:
        """Return an answer without a run, from its message: the comparison was imported."""
        messages = await self.store.messages(session_id)
        message = next(
            (message for message in messages if message.run_id is not None and message.run_id == answer.run_id), None
        )
        if message is None:
            return wire.PaneText(settlement=settlement_of(answer))
        settlement = replace(settlement_of(answer), text=text_of(message.content))
        return await self._settled_text(settlement, session_id, [message])

    async def _settled_text(
        self, settlement: Settlement, session_id: str, messages: Sequence[Message]
    ) -> wire.PaneText:
        """Return a settled answer, with what only its messages have."""
        pictures = await pictures_of(self.store, session_id, messages)
        reasoning = next((message.reasoning or "" for message in messages), "")
        steps = tuple(step for message in messages for step in message.steps or _own_calls(message))
        return wire.PaneText(settlement.text, reasoning, settlement, pictures, steps=steps)
