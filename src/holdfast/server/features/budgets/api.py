"""`/api/usage` and `/api/budget`: what the caller has used, and has left; `/api/admin/usage`: what all have used."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import ADMIN, READ
from ....engine.core import Core
from ....errors import BadRequest, HoldfastError
from ....store import Cap, DrawResult, Store, UsageRow
from ....wires import native
from ...kit.caller import access_of
from ...kit.chores import Chores
from ...kit.csv_responses import csv_answer, wants_csv
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json, LongJson
from ..accounts.people.people import People
from .budgets import Budgets
from .caps import DAY, budgets_of

MOST_DAYS = 400
MOST_ROWS = 100_000
"""Rows of usage that are summed up for one answer."""
EPOCH = date(1970, 1, 1)
SUMS = ("runs", "input_tokens", "output_tokens", "cost")


_QUERY = {
    "since": "the first day; by default the first of this month",
    "until": "the last day; by default today",
    "by": "what the sums are by, with commas: day, key, model",
    "format": "json or csv",
}

FLUSH_EVERY = 0.5
"""Seconds between two writes of the usage of unstored runs."""
OLD_CHARGE = 120.0
"""Seconds after which the charge of an ended run is added to the sum of its day."""


class BudgetsFeature(Feature):
    """What was used, and what is left."""

    def __init__(self, people: People, budgets: Budgets, engine: Core, store: Store) -> None:
        self._people, self._budgets, self._engine, self._store = people, budgets, engine, store

    def begin(self, chores: Chores) -> None:
        """Write the usage of unstored runs, and add up what has ended."""
        chores.every("usage", FLUSH_EVERY, self._budgets.spending.flush, longest_pause=1.0)
        chores.by_one_node("sums of usage", 60.0, self._fold_charges)

    async def close(self) -> None:
        """Write the rest of the usage."""
        with suppress(HoldfastError):
            await self._budgets.spending.flush()

    async def _fold_charges(self) -> None:
        """Add the usage of ended runs to the sums of their days."""
        now = self._engine.now()
        await self._store.fold_charges(now - OLD_CHARGE, now)

    @Endpoint("GET", "/api/usage", who=READ, query=_QUERY)
    async def own_usage(self, request: Request) -> ASGIApp:
        """Return what the caller has used, by day, key and model."""
        return await self._answer(request, access_of(request).owner, ("day", "key", "model"))

    @Endpoint(
        "GET",
        "/api/admin/usage",
        who=ADMIN,
        query={**_QUERY, "owner": "the owner of the runs", "by": "day, owner, key, model"},
    )
    async def all_usage(self, request: Request) -> ASGIApp:
        """Return what all have used, by day, owner, key and model; or what one of them has."""
        return await self._answer(request, request.query_params.get("owner"), ("day", "owner", "key", "model"))

    @Endpoint("GET", "/api/budget", who=READ)
    async def own_budget(self, request: Request) -> ASGIApp:
        """Return the budgets that runs of the caller count for, and what is left of them."""
        access, spending = access_of(request), self._budgets.spending
        left, limits = await self._budgets.left(access), await self._budgets.limits(access)
        budgets = [
            {"of": each.of, "id": each.id, "budget": each.budget} for each in budgets_of(access, spending.default)
        ]
        return Json(
            {
                "budgets": budgets,
                "limits": [_limit(cap, result) for cap, result in limits],
                "remaining_tokens": left.left_tokens,
                "remaining_cost": left.left_cost,
                "currency": spending.currency,
            }
        )

    async def _answer(self, request: Request, owner: str | None, known: tuple[str, ...]) -> ASGIApp:
        by, is_csv = _by(request, known), wants_csv(request)
        since, until = _days(request)
        rows = await self._store.usage((since - EPOCH).days, (until - EPOCH).days, owner=owner, limit=MOST_ROWS)
        if len(rows) == MOST_ROWS:
            raise BadRequest(
                "That is too much for one response. Ask for fewer days, or for one owner.", code="too_much"
            )
        shown = await self._named(_summed(rows, by), by)
        currency = self._budgets.spending.currency
        if is_csv:
            return csv_answer([{**row, "currency": currency} for row in shown], f"usage-{since}-{until}.csv")
        body = {"since": since.isoformat(), "until": until.isoformat(), "currency": currency, "usage": shown}
        return LongJson(body)

    async def _named(self, rows: list[dict[str, Any]], by: tuple[str, ...]) -> list[dict[str, Any]]:
        """Return rows with names: of people by their owners, and of keys by their ids."""
        keys = await self._store.list_keys() if {"key", "owner"} & {*by} else []
        if "key" in by:
            names = {key.id: key.name for key in keys}
            rows = [{**row, "key_name": names.get(row["key"], "")} for row in rows]
        if "owner" in by:
            services = {key.owner: key.name for key in keys if not key.account}
            owners = {row["owner"] for row in rows}
            people = {owner: await self._person(owner) or services.get(owner, "") for owner in owners}
            rows = [{**row, "person": people[row["owner"]]} for row in rows]
        if "day" in by:
            rows = [{**row, "day": (EPOCH + timedelta(days=row["day"])).isoformat()} for row in rows]
        return [{**row, "cost": round(row["cost"], 9)} for row in rows]

    async def _person(self, owner: str) -> str:
        account = await self._people.accounts.of_owner(owner) if self._people.callers.exist else None
        return "" if account is None else account.body.name


def _limit(cap: Cap, left: DrawResult) -> dict[str, Any]:
    """Return one limit: of whom, for which period, how much of it is left, and when it is renewed."""
    is_daily = cap.ends_at == (cap.since + 1) * DAY
    return {
        "of": cap.of,
        "id": cap.id,
        "per": "day" if is_daily else "month",
        "renews_at": native.moment(cap.ends_at),
        "tokens": _rest(cap.tokens, left.left_tokens),
        "cost": _rest(cap.cost, left.left_cost),
    }


def _rest(limit: float | None, left: float | None) -> dict[str, float] | None:
    if limit is None or left is None:
        return None
    return {"limit": limit, "used": round(limit - left, 9), "left": round(left, 9)}


def _by(request: Request, known: tuple[str, ...]) -> tuple[str, ...]:
    """Return by what the query wants the sums."""
    if (text := request.query_params.get("by")) is None:
        return known
    by = tuple(dict.fromkeys(text.split(",")))
    if not set(by) <= set(known):
        raise BadRequest(f"by names some of {', '.join(known)}, with commas.", param="by")
    return by


def _days(request: Request) -> tuple[date, date]:
    """Return the first and the last day of the query: by default this month until today. Days are those of UTC."""
    today = datetime.now(UTC).date()
    since = _day(request, "since", today.replace(day=1))
    until = _day(request, "until", max(today, since))
    if not timedelta(0) <= until - since < timedelta(days=MOST_DAYS):
        raise BadRequest(f"since is a day before until, and at most {MOST_DAYS} days before it.", param="since")
    return since, until


def _day(request: Request, name: str, default: date) -> date:
    if (text := request.query_params.get(name)) is None:
        return default
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise BadRequest(f"{name} is a day such as 2027-01-31.", param=name) from None


def _summed(rows: list[UsageRow], by: tuple[str, ...]) -> list[dict[str, Any]]:
    sums: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        place = tuple(getattr(row, name) for name in by)
        total = sums.setdefault(place, {**dict(zip(by, place, strict=True)), **dict.fromkeys(SUMS, 0)})
        for name in SUMS:
            total[name] += getattr(row, name)
    return list(sums.values())
