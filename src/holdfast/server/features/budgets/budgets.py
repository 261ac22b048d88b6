"""Budgets: who pays for a run, whether anything is left, and what the response tells of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import Any

from msgspec.structs import replace
from starlette.requests import Request

from ....access import ACCESS, NO_BUDGET, Access, Budgeted
from ....engine.core import Core
from ....errors import HoldfastError
from ....events import Usage
from ....ids import ModelName, new_id
from ....store import Cap, Charge, Draw, DrawResult, Payer, RunRecord, Store
from ...kit.added_headers import EXTRA_HEADERS
from ..accounts.owners import Owners
from .caps import StorageFull, budget_refusal, budgets_of, caps_of, headers_of
from .spending import Spending, charge_at_start

logger = logging.getLogger(__name__)

_LEFT: ContextVar[dict[str, str] | None] = ContextVar("left", default=None)
"""The headers of the response to this request, to which the start of a run adds what is left."""


class Budgets:
    """The budgets of payers. For those without limits they add nothing to a start."""

    def __init__(self, store: Store, engine: Core, owners: Owners, spending: Spending) -> None:
        self.spending = spending
        self._is_for_all = spending.default != NO_BUDGET
        self._store = store
        self._engine = engine
        self._owners = owners

    def payer(self, request: Request) -> Payer:
        """Return who pays for the runs of a request."""
        payer = self.payer_for(request.scope[ACCESS])
        if payer.limited:
            _LEFT.set(request.scope.setdefault(EXTRA_HEADERS, {}))
        return payer

    def payer_for(self, access: Access) -> Payer:
        """Return who pays for the runs of a caller."""
        key = access.credential if access.via == "key" else ""
        return Payer(access.owner, key, access.groups, self._is_for_all or bool(access.budgets))

    async def payer_now(self, payer: Payer) -> Payer:
        """Return a payer of earlier work with the limits of today: an admin may have set a budget since."""
        return replace(payer, limited=bool(await self._budgets_of(payer.owner, payer.key)))

    async def open(self, record: RunRecord) -> None:
        """Open the charge of a run that is about to start, if its payer has something left."""
        record = replace(record, created_at=self._engine.now(), node_id=self._engine.node_id)
        await self._open(charge_at_start(record), () if record.kind == "pane" else (record.model,))

    async def drop(self, run_id: str) -> None:
        """Drop the charge of a run that did not start."""
        try:
            await self._store.drop_charge(run_id)
        except HoldfastError as error:  # the run has an error of its own, which the caller gets
            logger.warning("the charge of run %s, which did not start, stays until this node ends: %s", run_id, error)

    async def require(self, payer: Payer, models: Iterable[ModelName]) -> None:
        """Raise if a payer has nothing left, or may not use a model without a price."""
        if payer.limited:
            await self._open(self._request(payer, ModelName("")), models, looks=True)

    async def require_prices(self, payer: Payer, models: Iterable[ModelName]) -> None:
        """Raise if a payer may not use a model without a price, however much it has left."""
        if payer.limited:
            self.spending.require_prices(await self._budgets_of(payer.owner, payer.key), models)

    async def begin_request(self, payer: Payer, model: ModelName, usage: Usage, *, of_calls: bool) -> Charge:
        """Begin a request that is passed on to an upstream, if its payer has something left.

        `usage` is an estimate, which the request holds until its end; the returned charge has it. `of_calls`: the
        answer may have no count of tokens.
        """
        charge = self._request(payer, model)
        estimate = self.counted(charge, usage)
        if payer.limited:
            holds = {"tokens": estimate.tokens, "cost": estimate.cost or 0.0}
            await self._open(charge, (model,), of_calls=of_calls, **holds)
        return estimate

    def counted(self, charge: Charge, usage: Usage) -> Charge:
        """Return the charge of a request that was passed on, with what it has used."""
        spent = self.spending.cost(charge.model, usage, calls=1)
        return replace(charge, input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, cost=spent)

    def _request(self, payer: Payer, model: ModelName) -> Charge:
        return Charge(
            id=new_id("req"),
            owner=payer.owner,
            model=model,
            started_at=self._engine.now(),
            payer=payer,
            node_id=self._engine.node_id,
        )

    async def _open(self, charge: Charge, models: Iterable[ModelName], *, of_calls: bool = False, **how: Any) -> None:
        budgets = await self._budgets_of(charge.owner, charge.payer.key)
        self.spending.require_prices(budgets, models, of_calls=of_calls)
        await self._require_room(charge.owner, budgets)
        caps = caps_of(budgets, charge.started_at)
        draw = Draw(charge=charge, caps=caps, opens=True, **how)
        result = await self.spending.draw_patiently(lambda: draw)
        if (headers := _LEFT.get()) is not None:
            headers.update(headers_of(result))
        if result.refused is not None:
            raise self._refused(result)

    async def _budgets_of(self, owner: str, key: str) -> list[Budgeted]:
        access = await self._owners.access(owner, key)
        return [] if access is None else budgets_of(access, self.spending.default)

    def _refused(self, result: DrawResult) -> HoldfastError:
        return budget_refusal(result, self.spending.currency, self._engine.now())

    async def require_room(self, access: Access) -> None:
        """Raise if a caller has stored as much as it may."""
        await self._require_room(access.owner, budgets_of(access, self.spending.default))

    async def _require_room(self, owner: str, budgets: Sequence[Budgeted]) -> None:
        limits = [each.budget.bytes_stored for each in budgets if each.budget.bytes_stored is not None]
        if limits and await self._store.stored_bytes(owner) >= min(limits):
            raise StorageFull(min(limits))

    async def limits(self, access: Access) -> list[tuple[Cap, DrawResult]]:
        """Return each limit of tokens or money that runs of a caller count for, and what is left of it."""
        charge = self._request(Payer(access.owner), ModelName(""))
        caps = caps_of(budgets_of(access, self.spending.default), charge.started_at)
        counted = [replace(cap, runs=None, requests=None) for cap in caps if (cap.tokens, cap.cost) != (None, None)]
        draws = [self.spending.draw(Draw(charge=charge, caps=(cap,), opens=True, looks=True)) for cap in counted]
        return [*zip(counted, await asyncio.gather(*draws), strict=True)]

    async def left(self, access: Access) -> DrawResult:
        """Return what is left of a caller's budgets."""
        charge = self._request(Payer(access.owner), ModelName(""))
        caps = caps_of(budgets_of(access, self.spending.default), charge.started_at)
        caps = tuple(replace(cap, runs=None, requests=None) for cap in caps)
        return await self.spending.draw(Draw(charge=charge, caps=caps, opens=True, looks=True))
