"""Comparisons as JSON, and the events of their panes on one connection.

As long as a comparison is blind, nothing is rendered that its document alone knows.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..comparisons import Answer, Comparison, Pane, fastest, label
from ..events import Event, Settlement
from . import native, sse

_encode = msgspec.json.Encoder().encode


class Earlier(msgspec.Struct, frozen=True):
    """What a pane answered to a prompt before the last one."""

    text: str
    outcome: str | None


class Said(msgspec.Struct, frozen=True):
    """What a pane's run shows: the same for everybody, blind or not."""

    text: str = ""
    reasoning: str = ""
    settlement: Settlement | None = None
    earlier: tuple[Earlier | None, ...] = ()
    """What the pane answered to each prompt before the last one; None where it said nothing."""


def comparison(kept: Comparison, said: dict[int, Said] | None = None) -> dict[str, Any]:
    """Return a comparison, with its texts or (in a list) without."""
    quickest = fastest(kept)
    panes = [
        _pane(kept, pane, said.get(pane.pane, Said()) if said is not None else None, pane.pane == quickest)
        for pane in kept.panes
    ]
    return {
        "id": kept.id,
        "prompt": kept.prompts[0],
        "prompts": kept.prompts,
        "system": kept.system,
        "params": kept.params,
        "blind": kept.blind,
        "revealed": kept.is_revealed,
        "order": kept.order,
        "kind": kept.kind,
        "timeout": kept.timeout,
        "status": kept.status,
        "created_at": native.moment(kept.created_at),
        "settled_at": native.moment(kept.settled_at),
        "turns": kept.turns,
        "vote": None if kept.vote is None else {"winner": kept.vote.winner, "at": native.moment(kept.vote.at)},
        "panes": panes,
    }


def _pane(kept: Comparison, pane: Pane, said: Said | None, is_fastest: bool) -> dict[str, Any]:
    answer = pane.latest
    shown: dict[str, Any] = {
        "pane": pane.pane,
        "label": label(pane.pane),
        "model": pane.model if kept.is_revealed else None,
        "run_id": answer.run_id if answer.status != "waiting" else None,
        "status": answer.status,
    }
    if said is None:
        shown["settlement"] = _ending(answer, kept.is_revealed) if answer.status == "settled" else None
    else:
        shown["text"] = said.text
        shown["reasoning"] = said.reasoning or None
        shown["earlier"] = said.earlier
        shown["settlement"] = _settlement(answer, said, kept.is_revealed)
    is_known = kept.is_revealed and answer.status == "settled"
    shown["metrics"] = _metrics(answer, is_fastest) if is_known else None
    return shown


def _settlement(answer: Answer, said: Said, is_revealed: bool) -> dict[str, Any] | None:
    """Return how the pane's run ended; once revealed, with what was withheld until then."""
    if answer.status != "settled" or said.settlement is None:
        return None
    shown = native.settlement(said.settlement)
    if is_revealed:
        shown |= {"finish_reason": answer.finish_reason or shown["finish_reason"]}
        shown |= {"error": native.error(answer.error)} if answer.error is not None else {}
        shown |= {"usage": _usage(answer)} if answer.output_tokens is not None else {}
    return shown


def _ending(answer: Answer, is_revealed: bool) -> dict[str, Any]:
    """Return how a pane ended, as a list tells it."""
    return {
        "outcome": answer.outcome,
        "by": answer.by,
        "finish_reason": answer.finish_reason if is_revealed else None,
        "error": native.error(answer.error) if is_revealed and answer.error is not None else None,
    }


def _usage(answer: Answer) -> dict[str, Any]:
    read, written = answer.input_tokens or 0, answer.output_tokens or 0
    return {
        "input_tokens": read,
        "output_tokens": written,
        "total_tokens": read + written,
        "source": answer.usage_source,
    }


def _metrics(answer: Answer, is_fastest: bool) -> dict[str, Any]:
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


def whole_frame(n: int, kind: str, shown: dict[str, Any]) -> bytes:
    """Return the first or the last frame of a connection, which has the whole comparison."""
    return sse.frame(b"%d" % n, kind.encode(), _encode({"type": kind, "comparison": shown}))
