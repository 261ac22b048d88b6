"""Comparisons as JSON, and the events of their panes on one connection.

While a comparison is blind, nothing that only its document has is rendered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

import msgspec

from ..events import Event, Settlement
from ..log.steps import AgentStep
from ..wires import native, sse
from ..wires.shapes import ContentJson, OutcomeJson, SettlementJson, UsageJson, UsageSourceJson
from .model import Comparison, Pane, PaneAnswer, Synthesis, fastest, label
from .shapes import (
    ComparisonFrameJson,
    ComparisonHeadJson,
    ComparisonJson,
    EarlierAnswerJson,
    ListedComparisonJson,
    ListedPaneJson,
    MetricsJson,
    PaneEndingJson,
    PaneHeadJson,
    PaneJson,
    SynthesisJson,
)

_encode = msgspec.json.Encoder().encode


class Earlier(msgspec.Struct, frozen=True):
    """A pane's answer to a prompt before the last one."""

    text: str
    outcome: str | None


class PaneText(msgspec.Struct, frozen=True):
    """The text and settlement of a pane's run, the same before and after the reveal."""

    text: str = ""
    reasoning: str = ""
    settlement: Settlement | None = None
    pictures: tuple[str, ...] = ()
    """The pictures of the answer, as data URLs."""
    steps: tuple[AgentStep, ...] = ()
    """What an agent did; a model's own calls are one step."""
    earlier: tuple[Earlier | None, ...] = ()
    """The pane's answers to each prompt before the last one; None if there was none."""


def comparison(kept: Comparison, texts: Mapping[int, PaneText], made: SynthesisJson | None) -> ComparisonJson:
    """Return a comparison with the texts of its panes."""
    prompts = cast(list[ContentJson], [*kept.prompts])
    return {
        **_head(kept),
        "prompt": prompts[0],
        "prompts": prompts,
        "system": kept.system,
        "params": kept.params,
        "panes": [_pane(kept, pane, texts.get(pane.pane, PaneText())) for pane in kept.panes],
        "synthesis": made,
    }


def synthesis(made: Synthesis, text: PaneText, cost: float | None, *, is_old: bool) -> SynthesisJson:
    """Return a synthesis as JSON."""
    return {
        "run_id": made.run_id,
        "model": made.model,
        "panes": [pane for pane, _ in made.panes],
        "turn": made.turn,
        "old": is_old,
        "status": "running" if text.settlement is None else "settled",
        "text": text.text,
        "reasoning": text.reasoning or None,
        "pictures": [*text.pictures],
        "settlement": None if text.settlement is None else native.settlement(text.settlement),
        "cost": cost,
        "created_at": native.moment(made.created_at),
    }


def listed_comparison(kept: Comparison) -> ListedComparisonJson:
    """Return a comparison as a list shows it: with the beginning of its first prompt, and without answers."""
    panes: list[ListedPaneJson] = [
        {**_pane_head(kept, pane), "settlement": _ending(pane.latest, kept.is_revealed)} for pane in kept.panes
    ]
    return {**_head(kept), "prompt": native.beginning(kept.prompts[0]), "panes": panes}


def _head(kept: Comparison) -> ComparisonHeadJson:
    return {
        "id": kept.id,
        "blind": kept.blind,
        "revealed": kept.is_revealed,
        "order": kept.order,
        "kind": kept.kind,
        "timeout": kept.timeout,
        "lifetime": kept.lifetime,
        "status": kept.status,
        "created_at": native.moment(kept.created_at),
        "settled_at": native.moment(kept.settled_at),
        "turns": kept.turns,
        "vote": None if kept.vote is None else {"winner": kept.vote.winner, "at": native.moment(kept.vote.at)},
    }


def _pane_head(kept: Comparison, pane: Pane) -> PaneHeadJson:
    answer = pane.latest
    is_known = kept.is_revealed and answer.status == "settled"
    return {
        "pane": pane.pane,
        "label": label(pane.pane),
        "model": pane.model if kept.is_revealed else None,
        "run_id": answer.run_id if answer.status != "waiting" else None,
        "status": answer.status,
        "metrics": _metrics(answer, pane.pane == fastest(kept)) if is_known else None,
    }


def _pane(kept: Comparison, pane: Pane, text: PaneText) -> PaneJson:
    return {
        **_pane_head(kept, pane),
        "text": text.text,
        "reasoning": text.reasoning or None,
        "pictures": [*text.pictures],
        "steps": [native.step(each) for each in text.steps],
        "earlier": [None if each is None else _earlier(each) for each in text.earlier],
        "settlement": _settlement(pane.latest, text, kept.is_revealed),
    }


def _earlier(answer: Earlier) -> EarlierAnswerJson:
    return {"text": answer.text, "outcome": cast(OutcomeJson | None, answer.outcome)}


def _settlement(answer: PaneAnswer, text: PaneText, is_revealed: bool) -> SettlementJson | None:
    """Return the settlement of a pane's run; after the reveal with the hidden fields."""
    if answer.status != "settled" or text.settlement is None:
        return None
    settlement = native.settlement(text.settlement)
    if is_revealed:
        settlement["finish_reason"] = answer.finish_reason or settlement["finish_reason"]
        if answer.error is not None:
            settlement["error"] = native.error(answer.error)
        if answer.output_tokens is not None:
            settlement["usage"] = _usage(answer)
    return settlement


def _ending(answer: PaneAnswer, is_revealed: bool) -> PaneEndingJson | None:
    """Return a pane's settlement for a list."""
    if answer.status != "settled":
        return None
    return {
        "outcome": answer.outcome,
        "by": answer.by,
        "finish_reason": answer.finish_reason if is_revealed else None,
        "error": native.error(answer.error) if is_revealed and answer.error is not None else None,
    }


def _usage(answer: PaneAnswer) -> UsageJson:
    read, written = answer.input_tokens or 0, answer.output_tokens or 0
    return {
        "input_tokens": read,
        "output_tokens": written,
        "total_tokens": read + written,
        "source": cast(UsageSourceJson, answer.usage_source),
    }


def _metrics(answer: PaneAnswer, is_fastest: bool) -> MetricsJson:
    return {
        "ttft_ms": answer.ttft_ms,
        "tokens_per_second": answer.tokens_per_second,
        "input_tokens": answer.input_tokens,
        "output_tokens": answer.output_tokens,
        "usage_source": answer.usage_source,
        "cost": answer.cost,
        "duration_ms": answer.duration_ms,
        "fastest": is_fastest,
    }


def pane_frame(n: int, pane: int, run_id: str, seq: int, event: Event) -> bytes:
    """Return an event of a pane's run; `n` counts the frames of the connection."""
    kind, rest = native.body(event)
    return sse.frame(b"%d" % n, kind, b'{"pane":%d,"run":%b,"seq":%d,%b' % (pane, _encode(run_id), seq, rest))


def whole_frame(n: int, kind: Literal["comparison.started", "comparison.settled"], shown: ComparisonJson) -> bytes:
    """Return the first or the last frame of a connection, which has the whole comparison."""
    frame: ComparisonFrameJson = {"type": kind, "comparison": shown}
    return sse.frame(b"%d" % n, kind.encode(), _encode(frame))
