"""The budgets that a run counts for, as caps with a period, and the errors of a budget that is spent."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

from ....access import NO_BUDGET, Access, Budget, Budgeted
from ....errors import HoldfastError, RunLimitReached
from ....store import Cap, DrawResult
from ...starting.rate_limit import TooManyStarts

DAY = 86400
_WHOSE = {"owner": "Your budget", "key": "The budget of this key", "group": "The budget of your group"}


class BudgetExceeded(HoldfastError):
    """A budget is spent. `retry_after` is when the next day or month begins."""

    code = "budget_exceeded"
    status = 429
    type = "rate_limit_error"

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StorageFull(HoldfastError):
    """An owner has stored as much as it may."""

    code = "storage_full"
    status = 429
    type = "rate_limit_error"

    def __init__(self, limit: int) -> None:
        super().__init__(f"You have reached your limit of {limit} stored bytes. Delete some of them.")


def budgets_of(access: Access, default: Budget) -> list[Budgeted]:
    """Return all budgets that runs of a caller count for. The default is for each owner, unless it has another."""
    own = [each for each in access.budgets if each.of == "owner"]
    merged = own[0].budget.over(default) if own else default
    others = [each for each in access.budgets if each.of != "owner"]
    return [each for each in (Budgeted("owner", access.owner, merged), *others) if each.budget != NO_BUDGET]


def caps_of(budgets: list[Budgeted], started_at: float) -> tuple[Cap, ...]:
    """Return the caps of budgets for a run that started at a time: for its day, and for its month."""
    return tuple(cap for each in budgets for cap in _caps(each, started_at))


def _caps(each: Budgeted, started_at: float) -> Iterator[Cap]:
    budget, day = each.budget, int(started_at // DAY)
    at_once = {"runs": budget.runs_at_once, "requests": budget.requests_per_minute}
    per_day = {"tokens": budget.tokens_per_day, "cost": budget.cost_per_day, **at_once}
    if any(limit is not None for limit in per_day.values()):
        yield Cap(of=each.of, id=each.id, since=day, ends_at=(day + 1.0) * DAY, **per_day)  # type: ignore[arg-type]
    if budget.tokens_per_month is not None or budget.cost_per_month is not None:
        since, ends_at = _month(started_at)
        yield Cap(
            of=each.of,
            id=each.id,
            since=since,
            ends_at=ends_at,
            tokens=budget.tokens_per_month,
            cost=budget.cost_per_month,
        )


def _month(at: float) -> tuple[int, float]:
    """Return the first day of a month, and when the next one begins. Months are those of UTC."""
    first = datetime.fromtimestamp(at, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return int(first.timestamp() // DAY), following.timestamp()


def budget_refusal(result: DrawResult, currency: str, now: float | None = None) -> HoldfastError:
    """Return the error of a run that may not start."""
    cap = result.cap
    assert cap is not None
    if result.refused == "runs":
        return RunLimitReached(cap.runs or 0)
    if result.refused == "requests":
        return TooManyStarts(cap.requests or 0, 60.0 / max(1, cap.requests or 0))
    wait = cap.ends_at - (time.time() if now is None else now) if result.is_spent else 1.0
    return BudgetExceeded(in_words(result, currency), max(1.0, wait))


def in_words(result: DrawResult, currency: str) -> str:
    """Return which budget is spent, and until when."""
    cap = result.cap
    assert cap is not None
    limit = f"{cap.tokens} tokens" if result.refused == "tokens" else f"{cap.cost:g} {currency}"
    renewed = datetime.fromtimestamp(cap.ends_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    rest = "is spent" if result.is_spent else "is held by other runs"
    return f"{_WHOSE[cap.of]} of {limit} {rest}. It is renewed at {renewed}."


def headers_of(result: DrawResult) -> dict[str, str]:
    """Return the headers that say how much is left."""
    headers = {}
    if result.left_tokens is not None:
        headers["x-budget-remaining-tokens"] = str(result.left_tokens)
    if result.left_cost is not None:
        headers["x-budget-remaining-cost"] = f"{result.left_cost:.6g}"
    return headers
