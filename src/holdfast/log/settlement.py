"""What the end of a run amounts to. Pure: nothing here waits or writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..errors import AnswerLost, BudgetSpent, HoldfastError, SourceCancelled
from ..events import (
    TRUNCATED,
    AnySettlement,
    Completed,
    ErrorInfo,
    Failed,
    Finish,
    Interrupted,
    Receipt,
    Stopped,
    StoppedBy,
    Truncated,
    Usage,
)
from .intake import Intake, is_failure
from .log import Log
from .storable import storable


class StopIntent(msgspec.Struct, frozen=True):
    """Someone wants the run to end."""

    by: StoppedBy
    at: float


def judge(
    log: Log,
    *,
    intake: Intake,
    cause: StopIntent | HoldfastError | None,
    closed_at: float | None,
    now: float,
    refused: Sequence[str] = (),
) -> AnySettlement:
    """Decide how a run ended: by what its source raised, else by what the source said of its end, else by who ended it.

    It can be stored. The text is the log's own, which always can: to look through it again would take its time, and
    it may be long.
    """
    said: dict[str, Any] = {"usage": usage_so_far(log, intake.input_tokens), "answered_by": log.answered_by}
    broke = intake.error or (cause if not isinstance(cause, StopIntent) else None)
    ending: AnySettlement
    if intake.error is None and (last_word := intake.last_word) is not None:
        ending = _as_said(last_word, said)
    elif intake.error is None and isinstance(cause, StopIntent):
        ending = Stopped(**said, by=cause.by, receipt=Receipt(cause.at, closed_at, now, tuple(refused)))
    elif isinstance(broke, BudgetSpent):
        ending = Stopped(**said, by="budget", receipt=Receipt(closed_at or now, closed_at, now, tuple(refused)))
    elif isinstance(broke, AnswerLost):
        ending = Interrupted(**said)
    elif broke is not None:
        ending = Failed(**said, error=_explain(broke))
    else:
        ending = Failed(**said, error=SourceCancelled().info())
    settled: AnySettlement = storable(ending)
    return msgspec.structs.replace(settled, text=log.text)


def usage_so_far(log: Log, input_tokens: int = 0) -> Usage:
    """Return what the provider counted, or an estimate of four characters to a token.

    An agent asks more than once: where it ended in the middle of an answer, what nobody has counted is estimated and
    added to what was.
    """
    counted = log.usage
    if counted is None:
        return Usage(input_tokens, -(-(len(log.text) + len(log.reasoning)) // 4), "estimated")
    if log.steps is None or log.steps.is_counted:
        return counted
    said = -(-log.steps.uncounted // 4)
    return msgspec.structs.replace(
        counted,
        input_tokens=counted.input_tokens + input_tokens,
        output_tokens=counted.output_tokens + said,
        source="estimated",
    )


def _as_said(finish: Mapping[int, Finish], said: dict[str, Any]) -> AnySettlement:
    """Return the settlement that the source's own words amount to. One failed choice is a failed run."""
    failure = next(filter(is_failure, finish.values()), None)
    decisive = failure or finish[0]
    said["finish_reason"], said["stop_sequence"] = decisive.reason, decisive.stop_sequence
    if len(finish) > 1:
        said["finish_reasons"] = tuple(finish[choice].reason for choice in sorted(finish))
    if failure is not None:
        error = decisive.error or ErrorInfo("source_failed", f"The source ended with {decisive.reason!r}.", status=502)
        return Failed(**said, error=error)
    return Truncated(**said) if decisive.reason in TRUNCATED else Completed(**said)


def _explain(error: BaseException) -> ErrorInfo:
    """Return what a reader may know of an error: our own words, or nothing of a stranger's."""
    if isinstance(error, HoldfastError):
        return error.info()
    return ErrorInfo("source_failed", f"The source failed with {type(error).__name__}. The server's log has more.")
