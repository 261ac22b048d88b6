"""The sources of panes: each calls its model, measures it, and in a blind comparison hides what could identify it.

The source itself hides it, because an endpoint can show only what is in a run's log. The hidden data is stored in the
comparison's document, and shown after the reveal.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from ..errors import HoldfastError, SourceFailed
from ..events import (
    FAILED,
    AnswerBegins,
    ErrorInfo,
    Failed,
    Finish,
    Interrupted,
    Notice,
    Outlet,
    Picture,
    Reasoning,
    Settlement,
    Source,
    Stopped,
    Text,
    ToolCall,
    ToolDelta,
    Usage,
    Yielded,
    openai_reason,
)
from ..history import estimate_tokens, figures_of
from ..ids import ModelName
from ..pricing import Price, cost
from ..runs.run import Run
from ..server.config.settings import AGENT
from ..server.sources.agents import AgentSources
from ..server.sources.chat import ChatSources
from ..silence import ModelAsked
from ..store import RunRecord
from .model import PaneAnswer

logger = logging.getLogger(__name__)

HiddenCount = Callable[[], Usage | None]
"""Returns what the provider of a blind pane has counted, which the events of its run do not tell."""


class PaneFailed(SourceFailed):
    """The answer of a model in a blind comparison failed. The reason is shown after the reveal."""

    code = "pane_failed"
    message = "The response of this model failed. The reason is shown after the reveal."


class PaneReport:
    """The usage, finish reason and error of a pane's run, including what its log does not have."""

    def __init__(self, model: ModelName, *, blind: bool) -> None:
        self.model = model
        self.blind = blind
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.error: ErrorInfo | None = None

    def note(self, events: Sequence[Yielded]) -> None:
        """Record the usage and the finish of the model."""
        for event in events:
            if isinstance(event, Usage) and event.is_whole:
                self.usage = event
            elif isinstance(event, Finish) and event.choice == 0:
                self.finish_reason = event.reason
                self.error = event.error or _ended_badly(event.reason) or self.error

    def answer(self, run: Run, settlement: Settlement, price: Price | None) -> PaneAnswer:
        """Return the answer of a settled run."""
        usage = self.usage or settlement.usage
        figures = figures_of(run.measured, usage)
        return PaneAnswer(
            run_id=run.id,
            status="settled",
            outcome=settlement.outcome,
            by=settlement.by if isinstance(settlement, Stopped) else None,
            finish_reason=self.finish_reason or settlement.finish_reason,
            error=(self.error or settlement.error) if isinstance(settlement, (Failed, Interrupted)) else None,
            ttft_ms=figures.ttft_ms,
            duration_ms=figures.duration_ms,
            tokens_per_second=figures.tokens_per_second,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            usage_source=usage.source,
            cost=cost(price, usage),
        )


def _ended_badly(reason: str) -> ErrorInfo | None:
    if reason not in FAILED:
        return None
    return ErrorInfo("source_failed", f"The source ended with {reason!r}.", status=502)


class PaneSources:
    """Calls the model or the agent of a pane, without fallbacks: a comparison is of the models that it names."""

    def __init__(
        self,
        chats: ChatSources,
        agents: AgentSources,
        begin: Callable[[RunRecord], None] = lambda record: None,
        metered: Callable[[RunRecord, ModelName, Source, HiddenCount | None], Source] | None = None,
    ) -> None:
        """`begin` is called in the task of each run, with its record.

        `metered` wraps the source of a run, so that its usage counts for the budgets, and also the count that a blind
        run does not show.
        """
        self._chats, self._agents = chats, agents
        self._begin = begin
        self._metered = metered or (lambda record, model, source, counted: source)

    def of(self, record: RunRecord, report: PaneReport) -> Source:
        """Return the source of a pane's run. It fills the report."""
        hidden = (lambda: report.usage) if report.blind else None
        return self._metered(record, report.model, partial(self._ask, record, report), hidden)

    async def _ask(self, record: RunRecord, report: PaneReport, out: Outlet) -> None:
        self._begin(record)
        await (self._blind if report.blind else self._answer)(record, report, out)

    async def _blind(self, record: RunRecord, report: PaneReport, out: Outlet) -> None:
        out.emit([Usage(estimate_tokens(await self._chats.messages(record)), 0, "estimated")])
        try:
            await self._answer(record, report, _Neutral(out))
        except Exception as error:  # noqa: BLE001 - its message may name the model
            report.error = report.error or _info(error)
            logger.info("a pane of a blind comparison, run %s, failed: %s", record.id, report.error.message)
            raise PaneFailed from None

    async def _answer(self, record: RunRecord, report: PaneReport, out: Outlet) -> None:
        reported = _Reported(out, report)
        if self._agents.kind_of(report.model) == AGENT:
            await self._agents.in_pane(record, report.model, reported)
        else:
            await self._chats.answer(record, report.model, reported, alone=True)


class _Reported:
    """An outlet that records events in a report."""

    def __init__(self, out: Outlet, report: PaneReport) -> None:
        self._out = out
        self._report = report
        self.room = out.room

    def emit(self, events: Sequence[Yielded]) -> bool:
        self._report.note(events)
        return self._out.emit(events)


class _Neutral:
    """An outlet that passes on only what does not identify a model."""

    def __init__(self, out: Outlet) -> None:
        self._out = out
        self._calls: dict[str, str] = {}
        self.room = out.room

    def emit(self, events: Sequence[Yielded]) -> bool:
        neutral = [neutral for event in events if (neutral := self._event(event)) is not None]
        return self._out.emit(neutral)  # what is left out is a sign of life too

    def _event(self, item: Yielded) -> Yielded | None:
        match item:
            case str() | AnswerBegins():
                return item
            case ModelAsked():
                return msgspec.structs.replace(item, model=ModelName(""), is_local=False)
            case Text() | Reasoning():
                return type(item)(item.text, item.choice)
            case Picture(url=url) if url.startswith("data:"):  # an address would tell who made it
                return item
            case ToolDelta() | ToolCall(own=False):
                return msgspec.structs.replace(item, id=self._call(item.id))
            case Finish():
                return self._finish(item)
            case Notice(code="retry"):
                return Notice("retry", "Retrying this model.")
            case _:  # steps of agents, and usage: estimates differ between providers, and ours was emitted before
                return None

    def _call(self, id: str) -> str:
        return self._calls.setdefault(id, f"call_{len(self._calls) + 1}") if id else ""

    def _finish(self, finish: Finish) -> Finish:
        if finish.error is not None or finish.reason in FAILED:
            raise PaneFailed
        reason = openai_reason(finish.reason)  # in OpenAI's terms, since those of another dialect identify it
        return Finish("tool_calls" if reason == "function_call" else reason, finish.choice)


def _info(error: Exception) -> ErrorInfo:
    if isinstance(error, HoldfastError):
        return error.info()
    logger.error("the source of a pane raised", exc_info=error)
    return ErrorInfo("source_failed", f"The source failed with {type(error).__name__}. The server's log has more.")
