"""The sources of panes: each asks its model, measures it, and in a blind comparison says nothing that could name it.

Blind at the source: what a run's log never held, no endpoint can show. What is withheld is noted for the comparison's
own document, which shows it once the comparison is revealed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, cast

import msgspec

from ..comparisons import Answer, Price, cost
from ..errors import HoldfastError, SourceFailed
from ..events import (
    ErrorInfo,
    Failed,
    Finish,
    Interrupted,
    Notice,
    Reasoning,
    Settlement,
    Source,
    Stopped,
    Text,
    ToolCall,
    ToolDelta,
    Usage,
    Yielded,
)
from ..history import outcome
from ..judgement import FAILED
from ..run import Run
from .sources import ChatSources

logger = logging.getLogger("holdfast")

_SHORTEST = 0.001  # seconds: an answer that came faster came at once, and has no pace
_NEUTRAL = {
    "length": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "refusal": "content_filter",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
}
"""Reasons by which dialects could be told apart, in one dialect. Every other reason is `stop`."""


class PaneFailed(SourceFailed):
    """A model of a blind comparison could not answer. Why is told once the comparison is revealed."""

    code = "pane_failed"

    def __init__(self) -> None:
        super().__init__("This model could not answer. Why is shown once the comparison is revealed.")


class Report:
    """What a pane's run was seen to do, whether or not its log may say so."""

    def __init__(self, model: str, *, blind: bool) -> None:
        self.model = model
        self.blind = blind
        self.asked_at: float | None = None
        self.first_at: float | None = None
        self.last_at: float | None = None
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.error: ErrorInfo | None = None

    def begin(self) -> None:
        """The model is asked now."""
        self.asked_at = asyncio.get_running_loop().time()

    def note(self, items: Sequence[Yielded]) -> None:
        """Note what came, and when."""
        for item in items:
            if isinstance(item, (str, Text, Reasoning, ToolDelta, ToolCall)):
                self.last_at = asyncio.get_running_loop().time()
                self.first_at = self.first_at or self.last_at
            elif isinstance(item, Usage) and item.source == "provider":
                self.usage = item
            elif isinstance(item, Finish) and item.choice == 0:
                self.finish_reason = item.reason
                self.error = item.error or _ended_badly(item.reason)

    def answer(self, run_id: str, settlement: Settlement, price: Price | None) -> Answer:
        """Return what there is to know of a run that has settled."""
        usage = self.usage or settlement.usage
        now = asyncio.get_running_loop().time()
        return Answer(
            run_id=run_id,
            status="settled",
            outcome=outcome(settlement),
            by=settlement.by if isinstance(settlement, Stopped) else None,
            finish_reason=self.finish_reason or settlement.finish_reason,
            error=(self.error or settlement.error) if isinstance(settlement, (Failed, Interrupted)) else None,
            ttft_ms=_milliseconds(self.asked_at, self.first_at),
            duration_ms=_milliseconds(self.asked_at, now),
            tokens_per_second=self._pace(usage),
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            usage_source=usage.source,
            cost=cost(price, usage),
        )

    def _pace(self, usage: Usage) -> float | None:
        if self.first_at is None or self.last_at is None or self.last_at - self.first_at < _SHORTEST:
            return None
        return round(usage.output_tokens / (self.last_at - self.first_at), 2)


def _ended_badly(reason: str) -> ErrorInfo | None:
    if reason not in FAILED:
        return None
    return ErrorInfo("source_failed", f"The source ended with {reason!r}.", status=502)


def _milliseconds(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else round((end - start) * 1000, 1)


class PaneSources:
    """Asks the model of a pane, and nobody in its place: a comparison is of the models that it names."""

    def __init__(self, chats: ChatSources) -> None:
        self._chats = chats
        self._reports: dict[str, Report] = {}

    def expect(self, run_id: str, report: Report) -> None:
        """Say which model a run is about to ask."""
        self._reports[run_id] = report

    def forget(self, run_id: str) -> None:
        """Say that a run has ended, or never began."""
        self._reports.pop(run_id, None)

    def __call__(self, run: Run) -> Source:
        """Return the source of a pane's run."""
        report = self._reports[run.id]
        return self._blind(run, report) if report.blind else self._open(run, report)

    async def _open(self, run: Run, report: Report) -> AsyncGenerator[Sequence[Yielded]]:
        async with aclosing(self._answer(run, report)) as answer:
            async for items in answer:
                yield items

    async def _blind(self, run: Run, report: Report) -> AsyncGenerator[Sequence[Yielded]]:
        neutral = _Neutral()
        try:
            async with aclosing(self._answer(run, report)) as answer:
                async for items in answer:
                    if shown := neutral.events(items):
                        yield shown
        except Exception as error:  # noqa: BLE001 - whatever it says, it may name the model
            report.error = report.error or _info(error)
            logger.info("a pane of a blind comparison, run %s, failed: %s", run.id, report.error.message)
            raise PaneFailed from None

    async def _answer(self, run: Run, report: Report) -> AsyncGenerator[Sequence[Yielded]]:
        if report.blind:
            yield [Usage(_estimate(await self._chats.messages(run.record)), 0, "estimated")]
        report.begin()
        async with aclosing(self._chats.answer(run.record, report.model, alone=True)) as answer:
            async for yielded in answer:
                items = cast(Sequence[Yielded], yielded if isinstance(yielded, (list, tuple)) else [yielded])
                report.note(items)
                yield items


class _Neutral:
    """Leaves of a model's events what every model could have said."""

    def __init__(self) -> None:
        self._calls: dict[str, str] = {}
        self._has_estimate = False

    def events(self, items: Sequence[Yielded]) -> list[Yielded]:
        """Return the events that may be shown."""
        return [shown for item in items if (shown := self._event(item)) is not None]

    def _event(self, item: Yielded) -> Yielded | None:
        match item:
            case str():
                return item
            case Text() | Reasoning():
                return type(item)(item.text, item.choice)
            case ToolDelta() | ToolCall():
                return msgspec.structs.replace(item, id=self._call(item.id))
            case Finish():
                return self._finish(item)
            case Notice(code="retry"):
                return Notice("retry", "This model is asked again.")
            case Usage(source="estimated") if not self._has_estimate:  # our own: providers estimate in different ways
                self._has_estimate = True
                return item
            case _:
                return None

    def _call(self, id: str) -> str:
        return self._calls.setdefault(id, f"call_{len(self._calls) + 1}") if id else ""

    def _finish(self, said: Finish) -> Finish:
        if said.error is not None or said.reason in FAILED:
            raise PaneFailed
        return Finish(_NEUTRAL.get(said.reason, "stop"), said.choice)


def _info(error: Exception) -> ErrorInfo:
    if isinstance(error, HoldfastError):
        return error.info()
    logger.error("the source of a pane raised", exc_info=error)
    return ErrorInfo("source_failed", f"The source failed with {type(error).__name__}. The server's log has more.")


def _estimate(messages: Sequence[dict[str, Any]]) -> int:
    """Return about how many tokens a history has, counted alike for every model: four characters to a token."""
    return -(-sum(_length(message.get("content")) for message in messages) // 4)


def _length(content: Any) -> int:
    if isinstance(content, list):
        return sum(len(part.get("text") or "") for part in content if isinstance(part, dict))
    return len(content) if isinstance(content, str) else 0
