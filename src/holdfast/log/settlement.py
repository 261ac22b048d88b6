"""The settlement of a run, derived from its log and its end. Pure: nothing here waits or writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..errors import AnswerLost, BudgetSpent, HoldfastError, NoAnswer, SourceCancelled
from ..events import (
    TRUNCATED,
    AnySettlement,
    Completed,
    ErrorInfo,
    Failed,
    Finish,
    Interrupted,
    Leg,
    Receipt,
    Stopped,
    StoppedBy,
    Truncated,
    Usage,
)
from .intake import Intake, is_failure
from .log import Log
from .storable import storable
from .usage_meter import remaining, with_estimate


class StopIntent(msgspec.Struct, frozen=True):
    """A request to stop a run: what caused it, and when."""

    by: StoppedBy
    at: float


def judge(
    log: Log,
    *,
    intake: Intake,
    cause: StopIntent | HoldfastError | None,
    closed_at: float | None,
    now: float,
    survivors: Sequence[str] = (),
) -> AnySettlement:
    """Return the settlement of a run.

    It follows from the error that the source raised, else from its `Finish`, else from `cause`. It can always be
    stored. The log's text is not checked again: it can be stored already, and may be long.
    """
    finish = intake.final_finish if intake.error is None else None
    usage = usage_so_far(log, intake.input_tokens, is_whole=finish is not None)
    fields: dict[str, Any] = {"usage": usage, "answered_by": log.answered_by, "legs": legs_of(log, usage)}
    error = intake.error or (cause if not isinstance(cause, StopIntent) else None)
    ending: AnySettlement
    if finish is not None:
        ending = _by_finish(finish, fields, NoAnswer() if intake.is_owed and _is_silent(log, intake) else None)
    elif intake.error is None and isinstance(cause, StopIntent):
        ending = Stopped(**fields, by=cause.by, receipt=Receipt(cause.at, closed_at, now, tuple(survivors)))
    elif isinstance(error, BudgetSpent):
        ending = Stopped(**fields, by="budget", receipt=Receipt(closed_at or now, closed_at, now, tuple(survivors)))
    elif isinstance(error, AnswerLost):
        ending = Interrupted(**fields)
    elif error is not None:
        ending = Failed(**fields, error=_explain(error))
    else:
        ending = Failed(**fields, error=SourceCancelled().info())
    if isinstance(ending, Failed) and (log.has_output or not ending.error.may_pass):
        ending = msgspec.structs.replace(ending, error=ending.error.final())
    settled: AnySettlement = storable(ending)
    return msgspec.structs.replace(settled, text=log.text)


def legs_of(log: Log, usage: Usage) -> tuple[Leg, ...]:
    """Return the legs of an answer, each with what it has used; none if there is only one."""
    if not log.legs:
        return ()
    started = log.legs
    totals = [*(leg.usage for leg in started), usage]
    first = Leg(model=started[0].before, usage=totals[0])
    further = (
        Leg(model=leg.model, at=leg.at, how=leg.how, reason=leg.reason, usage=remaining(total, leg.usage))
        for leg, total in zip(started, totals[1:], strict=True)
    )
    return (first, *further)


def usage_so_far(log: Log, input_tokens: int = 0, *, is_whole: bool = False) -> Usage:
    """Return the provider's usage, with an estimate of what it has not counted.

    If the answer `is_whole`, the provider's last count includes all of it. Otherwise output after that count is
    estimated from its characters, in every choice; so is output after the estimate of an earlier leg. An agent makes
    several requests: `input_tokens` are those of the last one.
    """
    counted = log.usage
    is_counted = counted is not None and (log.steps is None or log.steps.is_counted)
    if is_counted and is_whole and counted is not None and counted.is_whole:
        return counted
    return with_estimate(counted, 0 if is_counted else input_tokens, log.uncounted)


def _is_silent(log: Log, intake: Intake) -> bool:
    """Return whether no answer came, neither here nor on a node that had the run before."""
    return not (intake.has_answered or log.tool_calls or log.pictures or log.text.strip())


def _by_finish(
    finish: Mapping[int, Finish], fields: dict[str, Any], missing: HoldfastError | None = None
) -> AnySettlement:
    """Return the settlement for the source's own `Finish` of each choice. One failed choice is a failed run.

    `missing` is the error for a promised answer that did not come: such a run has failed.
    """
    failure = next(filter(is_failure, finish.values()), None)
    decisive = failure or finish[0]
    fields["finish_reason"], fields["stop_sequence"] = decisive.reason, decisive.stop_sequence
    if len(finish) > 1:
        fields["finish_reasons"] = tuple(finish[choice].reason for choice in sorted(finish))
    if failure is not None:
        error = decisive.error or ErrorInfo("source_failed", f"The source ended with {decisive.reason!r}.", status=502)
        return Failed(**fields, error=error)
    if decisive.reason in TRUNCATED:
        return Truncated(**fields)
    return Completed(**fields) if missing is None else Failed(**fields, error=missing.info())


def _explain(error: BaseException) -> ErrorInfo:
    """Return an error for clients. The message of an error that is not ours may hold secrets, and is left out."""
    if isinstance(error, HoldfastError):
        return error.info()
    return ErrorInfo("source_failed", f"The source failed with {type(error).__name__}. The server's log has more.")
