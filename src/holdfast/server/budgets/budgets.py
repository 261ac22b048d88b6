"""The start of runs within budgets: who pays, whether anything is left, and what the response tells of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from msgspec.structs import replace
from starlette.requests import Request

from ...access import ACCESS, NO_BUDGET, Access, Budgeted
from ...engine.engine import Engine
from ...errors import HoldfastError
from ...history import Message
from ...ids import new_id
from ...runs.run import Run
from ...store import Charge, Draw, DrawResult, Idempotency, Payer, RunRecord, Store
from ..accounts.owners import Owners
from .added_headers import EXTRA_HEADERS
from .caps import StorageFull, budget_refusal, budgets_of, caps_of, headers_of
from .spending import Spending, charge_at_start

_LEFT: ContextVar[dict[str, str] | None] = ContextVar("left", default=None)
"""The headers of the response to this request, to which the start of a run adds what is left."""


class Budgets:
    """Starts runs for those who have something left. For those without limits it adds nothing to a start."""

    def __init__(self, store: Store, engine: Engine, owners: Owners, spending: Spending) -> None:
        self.spending = spending
        self._is_for_all = spending.default != NO_BUDGET
        self._store = store
        self._engine = engine
        self._owners = owners

    def payer(self, request: Request) -> Payer:
        """Return who pays for the runs of a request."""
        access: Access = request.scope[ACCESS]
        limited = self._is_for_all or bool(access.budgets)
        if limited:
            _LEFT.set(request.scope.setdefault(EXTRA_HEADERS, {}))
        key = access.credential if access.via == "key" else ""
        return Payer(access.owner, key, access.groups, limited)

    async def submit(
        self, record: RunRecord, input: Sequence[Message] = (), *, idempotency: Idempotency | None = None, **how: Any
    ) -> Run:
        """Start a run, as the engine does, if its payer has something left."""
        if not record.payer.limited:
            return await self._engine.submit(record, input, idempotency=idempotency, **how)
        if idempotency is not None and (known := await self._engine.repeated(idempotency)) is not None:
            return known
        record = replace(record, created_at=self._engine.now(), node_id=self._engine.node_id)
        await self._open(charge_at_start(record))
        run: Run | None = None
        try:
            run = await self._engine.submit(record, input, idempotency=idempotency, **how)
        finally:
            if run is None or run.id != record.id:
                await self._store.drop_charge(record.id)
        return run

    async def require(self, payer: Payer) -> None:
        """Raise if a payer has nothing left."""
        if payer.limited:
            await self._open(self._request(payer, ""), looks=True)

    async def begin_request(self, payer: Payer, model: str) -> Charge:
        """Begin a request that is passed on to an upstream, if its payer has something left."""
        charge = self._request(payer, model)
        if payer.limited:
            await self._open(charge)
        return charge

    def _request(self, payer: Payer, model: str) -> Charge:
        return Charge(
            id=new_id("req"),
            owner=payer.owner,
            model=model,
            started_at=self._engine.now(),
            payer=payer,
            node_id=self._engine.node_id,
        )

    async def _open(self, charge: Charge, *, looks: bool = False) -> None:
        access = await self._owners.access(charge.owner, charge.payer.key)
        budgets = [] if access is None else budgets_of(access, self.spending.default)
        await self._require_room(charge.owner, budgets)
        caps = caps_of(budgets, charge.started_at)
        result = await self.spending.draw(Draw(charge=charge, caps=caps, opens=True, looks=looks))
        if (headers := _LEFT.get()) is not None:
            headers.update(headers_of(result))
        if result.refused is not None:
            raise self._refused(result)

    def _refused(self, result: DrawResult) -> HoldfastError:
        return budget_refusal(result, self.spending.currency, self._engine.now())

    async def require_room(self, access: Access) -> None:
        """Raise if a caller has stored as much as it may."""
        await self._require_room(access.owner, budgets_of(access, self.spending.default))

    async def _require_room(self, owner: str, budgets: Sequence[Budgeted]) -> None:
        limits = [each.budget.bytes_stored for each in budgets if each.budget.bytes_stored is not None]
        if limits and await self._store.stored_bytes(owner) >= min(limits):
            raise StorageFull(min(limits))

    async def left(self, access: Access) -> DrawResult:
        """Return what is left of a caller's budgets."""
        charge = self._request(Payer(access.owner), "")
        caps = caps_of(budgets_of(access, self.spending.default), charge.started_at)
        caps = tuple(replace(cap, runs=None, requests=None) for cap in caps)
        return await self.spending.draw(Draw(charge=charge, caps=caps, opens=True, looks=True))
