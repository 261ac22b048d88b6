"""What runs spend while they run: measured, shared out by the store, and stopped when a budget is spent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from msgspec.structs import replace

from ....access import Budget, Budgeted
from ....concurrency.retry import Retry
from ....concurrency.tasks import OwnedTasks
from ....errors import AccessEnded, BudgetSpent, HoldfastError, NoPrice, ShuttingDown
from ....events import Finish, LegStarted, Notice, Outlet, Source, Usage, Yielded, push_all, put
from ....ids import ModelName, new_id
from ....log.log import Log
from ....log.settlement import usage_so_far
from ....log.usage_meter import UsageMeter, remaining
from ....nodes.recovery import Again
from ....pricing import Prices, cost
from ....runs.run import Run
from ....runs.shared import Clock
from ....store import Cap, Charge, Draw, DrawResult, Payer, RunRecord, Store
from ....store.semantics import added_charge, charge_of, charged_model
from ..accounts.owners import Owners
from .caps import budgets_of, caps_of, in_words

logger = logging.getLogger(__name__)

STEP = 512
"""Tokens that a run asks for at a time."""
ASK_AGAIN, PATIENCE = 0.1, 5.0
"""Seconds between two draws of a run while others hold the rest of its budget, and how long it waits for them."""
MOST_NOTED = 10_000
"""Charges that wait for the store: further ones are lost if it cannot be written."""


class Spending:
    """Measures the runs that count for a budget, and notes what all runs have used that are not stored."""

    def __init__(
        self, store: Store, owners: Owners, default: Budget, prices: Prices, currency: str, clock: Clock
    ) -> None:
        self.default = default
        self.currency = currency
        self._store = store
        self._owners = owners
        self._prices = prices
        self._clock = clock
        self._retry = Retry()
        self._tasks = OwnedTasks("budgets")
        self._drawing: list[tuple[Draw, asyncio.Future[DrawResult]]] = []
        self._is_drawing = False
        self._noted: dict[tuple[int, str, Payer, str, str], Charge] = {}
        self._unsaved: list[Charge] = []

    # prices

    def require_prices(
        self, budgets: Iterable[Budgeted], models: Iterable[ModelName], *, of_calls: bool = False
    ) -> None:
        """Raise if a budget counts money, and a model has no price: it would cost nothing.

        `of_calls`: the answer may have no count of tokens, so that a call needs a price.
        """
        if any(each.budget.counts_money for each in budgets):
            for model in models:
                price = self._prices.of(model)
                if price is None or (of_calls and not price.is_of_calls):
                    raise NoPrice(model, of_calls=price is not None)

    def cost(self, model: ModelName, usage: Usage, calls: int = 0) -> float | None:
        """Return what tokens and calls of a model cost; None if it has no price."""
        price = self._prices.of(model)
        spent = cost(price, usage)
        return None if price is None or spent is None else spent + calls * (price.call or 0.0)

    async def require_model(self, record: RunRecord, model: ModelName) -> None:
        """Refuse to call a model for a run whose payer may not use it now. A fallback may have no price."""
        await self._owners.require(record, model)
        if record.payer.limited and self._prices.of(model) is None:
            self.require_prices(await self._budgets(record), [model])

    async def _budgets(self, record: RunRecord) -> list[Budgeted]:
        access = await self._owners.access(record.payer.owner or record.owner, record.payer.key)
        if access is None:
            raise AccessEnded  # nothing would limit it
        return budgets_of(access, self.default)

    # the sources of runs

    def metered(self, run: Run, source: Source) -> Source:
        """Return the source of a run; if it counts for a budget, one that is measured."""
        record = run.record
        return partial(self._measure, record, record.model, source, None) if record.payer.limited else source

    def metered_pane(
        self, record: RunRecord, model: ModelName, source: Source, hidden: Callable[[], Usage | None] | None
    ) -> Source:
        """Return the source of a pane. If it is blind, its record hides the model, and its events what was counted."""
        if hidden is None and not record.payer.limited:
            return source
        return partial(self._measure, record, model, source, None, hidden=hidden)

    def metered_again(self, again: Again) -> Again:
        """Return the function that resumes runs, which are measured again from what they had used."""

        async def resumed(record: RunRecord, log: Log) -> Source | None:
            source = await again(record, log)
            if source is None or not record.payer.limited:
                return source
            return partial(self._measure, record, record.model, source, usage_so_far(log))

        return resumed

    async def _measure(
        self,
        record: RunRecord,
        model: ModelName,
        source: Source,
        used: Usage | None,
        out: Outlet,
        hidden: Callable[[], Usage | None] | None = None,
    ) -> None:
        caps = caps_of(await self._budgets(record), record.created_at)
        meter = RunMeter(self, charge_at_start(record), caps, self._prices, model, used)
        outlet = _MeteredOutlet(out, meter)
        try:
            if callable(source):
                await source(outlet)
            else:
                await push_all(source, outlet)
        except HoldfastError:
            if hidden is not None:
                await meter.report(hidden())
            raise
        await meter.report(None if hidden is None else hidden())

    # drawing

    async def draw(self, draw: Draw) -> DrawResult:
        """Ask the store for more of a run's budgets. What is asked at once is one transaction."""
        waiting: asyncio.Future[DrawResult] = asyncio.get_running_loop().create_future()
        self._drawing.append((draw, waiting))
        if not self._is_drawing:
            self._is_drawing = True
            self._tasks.start(self._draw_all())
        return await waiting

    async def draw_patiently(self, drawn: Callable[[], Draw]) -> DrawResult:
        """Draw, and wait a little while other runs hold the rest of a budget: they may give it back."""
        time = asyncio.get_running_loop().time
        until = time() + PATIENCE
        while True:
            result = await self.draw(drawn())
            is_held = result.refused in ("tokens", "cost") and not result.is_spent
            if not is_held or time() > until:
                return result
            await asyncio.sleep(ASK_AGAIN)

    async def _draw_all(self) -> None:
        try:
            while self._drawing:
                asked, self._drawing = self._drawing, []
                await self._draw_some(asked)
        finally:
            self._is_drawing = False

    async def _draw_some(self, asked: Sequence[tuple[Draw, asyncio.Future[DrawResult]]]) -> None:
        draws = [draw for draw, _ in asked]
        try:
            results = await self._retry(lambda: self._store.draw(draws, self._clock()))
        except asyncio.CancelledError:
            _refuse(asked, ShuttingDown())
            raise
        except Exception as error:  # noqa: BLE001 - those who wait get it
            _refuse(asked, error)
            return
        for (_, waiting), result in zip(asked, results, strict=True):
            if not waiting.done():
                waiting.set_result(result)

    async def close(self) -> None:
        """End the draws that still wait for the store: the server ends."""
        self._retry.close()
        await self._tasks.cancel()
        left, self._drawing = self._drawing, []
        _refuse(left, ShuttingDown())

    # runs that are not stored

    def settled(self, run: Run) -> None:
        """Note what a run has used that is not stored: the settlement of the others notes it itself."""
        if not run.kept and run.settlement is not None:
            self.note(charge_of(run.record, run.settlement))

    def note(self, charge: Charge) -> None:
        """Note what a run or a request has used in all.

        The charge of a payer with a budget has been opened under its id, and is ended under it. The others become one
        charge for each payer, model and day, so that a run costs no row of its own.
        """
        id = charge.id if charge.payer.limited else ""
        place = charge.day, charge.owner, charge.payer, charge.model, id
        total = self._noted.get(place)
        if total is not None:
            self._noted[place] = added_charge(total, charge)
        elif len(self._noted) + len(self._unsaved) < MOST_NOTED:
            self._noted[place] = charge if id else replace(charge, id=new_id("use"))

    async def flush(self) -> None:
        """Store what was noted. What may not have arrived is sent again under the same ids, which count once."""
        unsaved, self._unsaved, self._noted = [*self._unsaved, *self._noted.values()], [], {}
        if not unsaved:
            return
        try:
            await self._store.charge(unsaved, self._clock())
        except HoldfastError:
            self._unsaved += unsaved
            raise


class RunMeter:
    """What one run has used, and how much it may have used until it asks again."""

    def __init__(
        self,
        spending: Spending,
        charge: Charge,
        caps: tuple[Cap, ...],
        prices: Prices,
        model: ModelName,
        used: Usage | None = None,
    ) -> None:
        self._spending = spending
        self._charge = charge
        self._caps = caps
        self._prices = prices
        self._price = prices.of(model)
        self._meter = UsageMeter(used or Usage())
        self._tokens: int | None = 0 if any(cap.tokens is not None for cap in caps) else None
        self._cost: float | None = 0.0 if any(cap.cost is not None for cap in caps) else None
        self._has_ended = False
        self._used_before, self._spent_before = Usage(), 0.0
        """What legs of other models have used, and what that has cost."""

    def hear(self, events: Sequence[Yielded]) -> None:
        """Count what the source emits. What its provider counts replaces what was estimated."""
        for event in events:
            self._meter.hear(event)
            if isinstance(event, Finish):
                self._has_ended = True
            elif isinstance(event, Notice) and event.model:
                self._price = self._prices.of(event.model)
            elif isinstance(event, LegStarted) and event.model != event.before:
                self._spent_before += cost(self._price, remaining(event.usage, self._used_before)) or 0.0
                self._used_before, self._price = event.usage, self._prices.of(event.model)

    @property
    def is_over(self) -> bool:
        """Whether the run has used all that it holds. An answer that is complete is never stopped."""
        if self._has_ended:
            return False
        used = self._meter.used
        if self._tokens is not None and used.total_tokens > self._tokens:
            return True
        return self._cost is not None and (self._spent(used) or 0.0) > self._cost

    def _spent(self, used: Usage) -> float | None:
        """Return the cost of a usage; None if the model has no price."""
        now = cost(self._price, remaining(used, self._used_before))
        return now if now is None else now + self._spent_before

    async def more(self) -> str:
        """Get more of the budgets, and return why there is none; empty if there is.

        While other runs hold the rest, it waits for them a little: they may give it back.
        """
        result = await self._spending.draw_patiently(self._draw)
        if result.refused is not None:
            return in_words(result, self._spending.currency)
        self._tokens, self._cost = result.tokens, result.cost
        return ""

    async def report(self, counted: Usage | None = None) -> None:
        """Let the store know what a run has used that is about to end: the next one starts with what is left.

        `counted` is the count of a provider that no event has told.
        """
        if counted is not None:
            self._meter.hear(counted)
        await self._spending.draw(replace(self._draw(), tokens=0, cost=0.0))

    def _draw(self) -> Draw:
        used = self._meter.used
        spent = self._spent(used)
        charge = replace(self._charge, input_tokens=used.input_tokens, output_tokens=used.output_tokens, cost=spent)
        step = cost(self._price, Usage(output_tokens=STEP)) or 0.0
        return Draw(charge=charge, caps=self._caps, tokens=STEP, cost=step)


class _MeteredOutlet:
    """The outlet of a run that counts for a budget. It is full when the run has to ask for more."""

    __slots__ = ("_meter", "_out")

    def __init__(self, out: Outlet, meter: RunMeter) -> None:
        self._out = out
        self._meter = meter

    def emit(self, events: Sequence[Yielded]) -> bool:
        has_room = self._out.emit(events)
        self._meter.hear(events)
        return has_room and not self._meter.is_over

    async def room(self) -> None:
        await self._out.room()
        if self._meter.is_over and (words := await self._meter.more()):
            await put(self._out, [Notice("budget", words)])
            raise BudgetSpent(words)


def _refuse(asked: Sequence[tuple[Draw, asyncio.Future[DrawResult]]], error: Exception) -> None:
    for _, waiting in asked:
        if not waiting.done():
            waiting.set_exception(error)


def charge_at_start(record: RunRecord) -> Charge:
    """Return the charge of a run that has used nothing yet."""
    return Charge(
        id=record.id,
        owner=record.payer.owner or record.owner,
        model=charged_model(record),
        started_at=record.created_at,
        payer=record.payer,
        node_id=record.node_id,
    )
