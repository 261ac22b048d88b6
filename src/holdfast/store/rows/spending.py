"""Usage in rows: charges of runs, and sums by day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import asdict

from .. import Charge, Draw, DrawResult, Spent, UsageRow
from .. import semantics as rules
from . import Querying, Row, first
from .reading import Reading

_SPENT_BY = {"owner": "spent_by_owner", "key": "spent_by_key", "group": "spent_by_group"}
_RECENT = 60.0  # seconds: requests are limited by the minute


class SpendingReading(Reading):
    """The reads of usage."""

    def usage(self, since: int, until: int, owner: str | None, limit: int) -> Querying[list[UsageRow]]:
        """Return the usage of some days by owner, key and model."""
        days = {"since": since, "until": until, "limit": limit}
        rows = yield ("usage_of_all", days) if owner is None else ("usage_of_owner", {**days, "owner": owner})
        return [_as_usage(row) for row in rows]

    def stored_bytes(self, owner: str) -> Querying[int]:
        """Return the size of all that an owner has stored."""
        row = first((yield "stored_bytes", {"owner": owner}))
        return 0 if row is None else int(row["bytes"])


class SpendingWriting(SpendingReading):
    """The writes of usage."""

    def draw(self, draws: Sequence[Draw], now: float) -> Querying[list[DrawResult]]:
        """Share out budgets."""
        yield "lock_spending", {}
        results = []
        for draw in draws:
            results.append((yield from self._draw(draw, now)))
        return results

    def _draw(self, draw: Draw, now: float) -> Querying[DrawResult]:
        spent: list[Spent] = []
        for cap in draw.caps:
            values = {"id": cap.id, "since": cap.since, "besides": draw.charge.id, "recent": now - _RECENT}
            row = first((yield _SPENT_BY[cap.of], values))
            spent.append(Spent() if row is None else _as_spent(row))
        result = rules.shared_out(draw, spent)
        if not draw.looks and (result.refused is None or not draw.opens):
            held = {"held_tokens": result.tokens or 0, "held_cost": result.cost or 0.0}
            yield "put_charge", _values(draw.charge) | held
        return result

    def charge(self, charges: Sequence[Charge], now: float) -> Querying[None]:
        """Record the total usage of ended runs."""
        once = {charge.id: charge for charge in charges}
        for _, charge in sorted(once.items()):
            yield "end_charge", _values(charge) | {"settled_at": now}

    def drop_charge(self, id: str) -> Querying[None]:
        """Delete the charge of a run that has not started."""
        yield "drop_charge", {"id": id}

    def fold_charges(self, before: float, now: float, limit: int) -> Querying[int]:
        """Add the charges of runs that ended before a time to the sums of their days."""
        yield "lock_spending", {}
        yield "end_left_charges", {"now": now}
        rows = list((yield "charges_to_fold", {"before": before, "limit": limit}))
        yield "add_usage", _by_model(rows)
        yield "add_group_usage", _by_group(rows)
        yield "delete_charge", [(row["id"],) for row in rows]
        return len(rows)


def _values(charge: Charge) -> dict[str, Any]:
    groups = f" {' '.join(charge.payer.groups)} " if charge.payer.groups else ""
    return asdict(charge) | {"key": charge.payer.key, "group_ids": groups, "day": charge.day}


def _as_usage(row: Row) -> UsageRow:
    """Return a row of sums. A database may return them as decimals."""
    counts = {name: int(row[name]) for name in ("day", "runs", "input_tokens", "output_tokens")}
    return UsageRow(owner=row["owner"], key=row["key"], model=row["model"], cost=float(row["cost"]), **counts)


def _as_spent(row: Row) -> Spent:
    return Spent(
        int(row["tokens"]),
        float(row["cost"]),
        int(row["held_tokens"]),
        float(row["held_cost"]),
        int(row["running"]),
        int(row["recent"]),
    )


def _by_model(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    sums: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        total = sums.setdefault((row["day"], row["owner"], row["key"], row["model"]), [0, 0, 0, 0.0])
        for n, value in enumerate((row["runs"], row["input_tokens"], row["output_tokens"], row["cost"] or 0.0)):
            total[n] += value
    return [(*key, *total) for key, total in sorted(sums.items())]


def _by_group(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    tokens: Counter[tuple[str, int]] = Counter()
    costs: dict[tuple[str, int], float] = {}
    for row in rows:
        for group in row["group_ids"].split():
            tokens[group, row["day"]] += row["input_tokens"] + row["output_tokens"]
            costs[group, row["day"]] = costs.get((group, row["day"]), 0.0) + (row["cost"] or 0.0)
    return [(*key, tokens[key], costs[key]) for key in sorted(costs)]
