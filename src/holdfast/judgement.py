"""What a source may say, and what its end amounts to. Pure: nothing here waits or writes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import msgspec

from .errors import AnswerLost, BudgetSpent, HoldfastError
from .events import (
    AnySettlement,
    Completed,
    ErrorInfo,
    Event,
    Failed,
    Finish,
    Interrupted,
    Reasoning,
    Receipt,
    RunStarted,
    Settled,
    Snapshot,
    Stopped,
    StoppedBy,
    Text,
    Thought,
    Truncated,
    Usage,
    Words,
    Yielded,
    encode_event,
)
from .log import Log, encodable

logger = logging.getLogger("holdfast")

TRUNCATED = frozenset({"length", "max_tokens", "max_steps", "content_filter", "safety", "refusal"})
FAILED = frozenset({"error", "failed", "abort", "insufficient_system_resource"})

_MAY_YIELD = frozenset((*get_args(Event), Finish)) - {RunStarted, Snapshot, Settled}


class StopIntent(msgspec.Struct, frozen=True):
    """Someone wants the run to end."""

    by: StoppedBy
    at: float


class Said(msgspec.Struct):
    """What a source has said at once: events for the log, how it ends, and what it thinks the last question cost."""

    events: Sequence[Event]
    finish: list[Finish]
    input_tokens: int | None = None


def heard(yielded: Yielded | Sequence[Yielded]) -> Said:
    """Return what a source yielded, or raise where any of it is not what a source may say."""
    if type(yielded) is Words:
        return Said(yielded, [])
    events: list[Event] = []
    said = Said(events, [])
    for item in yielded if isinstance(yielded, (list, tuple)) else (yielded,):
        kind = type(item)
        if kind is Text and type(item.text) is str and item.text.isascii() and item.text and _is_text_alone(item):
            events.append(item)
        elif kind is Finish:
            said.finish.append(_checked(item))
        elif kind is Usage and item.source == "estimated" and not item.output_tokens:
            said.input_tokens = _checked(item).input_tokens
        elif kind is Usage:
            events.append(_checked(item))
        elif (event := _event(item)) is not None:
            events.append(event)
    return said


def _event(item: Any) -> Event | None:
    """Return what is logged of something that a source yielded; None where it is nothing."""
    if isinstance(item, str):
        item = Text(item)
    is_text = isinstance(item, (Text, Reasoning)) and isinstance(item.text, str)
    if is_text and not item.text:
        return None
    if is_text and _is_text_alone(item):
        event: Event = item if item.text.isascii() else storable(item)
        return event
    if type(item) not in _MAY_YIELD and not isinstance(item, Thought):
        raise TypeError(f"a source may yield events and strings, not {type(item).__name__}")
    return None if isinstance(item, Thought) else storable(_checked(item))


def _is_text_alone(item: Any) -> bool:
    """Tell that nothing stands beside a text which has to be looked at: what cannot be stored would halt the store."""
    return type(item.choice) is int and (isinstance(item, Reasoning) or item.logprobs is None)


def _checked(item: Any) -> Any:
    """Return an event whose fields have the types they should have, or raise: Python itself does not look."""
    return item if _is_as_usual(item) else _converted(item)


def _is_as_usual(item: Any) -> bool:
    """Tell that the two which end every answer have nothing in them that needs a closer look."""
    if type(item) is Finish:
        return type(item.reason) is str and type(item.choice) is int and item.error is None
    if type(item) is not Usage or item.source not in _COUNTED_BY:
        return False
    counts = (item.input_tokens, item.output_tokens, item.cached_tokens, item.reasoning_tokens)
    return {*map(type, counts)} == _A_COUNT


_COUNTED_BY = ("provider", "estimated")
_A_COUNT = {int}


def _converted(item: Any) -> Any:
    given = {name: value for name, value in msgspec.structs.asdict(item).items() if value is not msgspec.UNSET}
    return msgspec.convert(given, type(item))


def storable(said: Any) -> Any:
    """Return an event or a settlement without lone surrogates: half an emoji can be neither sent nor stored.

    What cannot be stored for another reason raises.
    """
    try:
        encode_event(said)
    except UnicodeEncodeError:
        said = _mended(said)
        encode_event(said)
    return said


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, (tuple, list)):
        return type(value)(map(_mended, value))
    if isinstance(value, dict):
        return {_mended(name): _mended(field) for name, field in value.items()}
    if isinstance(value, msgspec.Struct):
        return type(value)(**{name: _mended(field) for name, field in msgspec.structs.asdict(value).items()})
    return value


def judge(
    log: Log,
    *,
    finish: Mapping[int, Finish],
    cause: StopIntent | BaseException | None,
    input_tokens: int,
    closed_at: float | None,
    now: float,
    refused: Sequence[str] = (),
) -> AnySettlement:
    """Decide how a run ended: by what the source said of its end, else by who ended it, else by what broke.

    It can be stored. The text is the log's own, which always can: to look through it again would take its time, and
    it may be long.
    """
    said: dict[str, Any] = {"usage": usage_so_far(log, input_tokens), "answered_by": log.answered_by}
    ending: AnySettlement
    if 0 in finish:
        ending = _as_said(finish, said)
    elif isinstance(cause, StopIntent):
        ending = Stopped(**said, by=cause.by, receipt=Receipt(cause.at, closed_at, now, tuple(refused)))
    elif isinstance(cause, BudgetSpent):
        ending = Stopped(**said, by="budget", receipt=Receipt(closed_at or now, closed_at, now, tuple(refused)))
    elif isinstance(cause, AnswerLost):
        ending = Interrupted(**said)
    elif cause is not None:
        ending = Failed(**said, error=_explain(log.run_id, cause))
    else:
        ending = Failed(**said, error=ErrorInfo("source_cancelled", "The source was cancelled from outside."))
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
    """Return the settlement that the source's own words amount to."""
    first = finish[0]
    said["finish_reason"] = first.reason
    if len(finish) > 1:
        said["finish_reasons"] = tuple(finish[choice].reason for choice in sorted(finish))
    if first.error is not None or first.reason in FAILED:
        error = first.error or ErrorInfo("source_failed", f"The source ended with {first.reason!r}.", status=502)
        return Failed(**said, error=error)
    return Truncated(**said) if first.reason in TRUNCATED else Completed(**said)


def _explain(run_id: str, error: BaseException) -> ErrorInfo:
    """Return what a reader may know of an error: our own words, or nothing of a stranger's."""
    if isinstance(error, HoldfastError):
        return error.info()
    logger.error("the source of run %s raised", run_id, exc_info=error)
    return ErrorInfo("source_failed", f"The source failed with {type(error).__name__}. The server's log has more.")
