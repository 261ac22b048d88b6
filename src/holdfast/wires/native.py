"""Our own dialect: runs, messages, sessions and events as JSON."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, cast, overload

import msgspec

from ..asks import PaneAsk, SessionAsk
from ..error_help import help_at
from ..events import (
    Completed,
    ErrorInfo,
    Event,
    Failed,
    Interrupted,
    Leg,
    LegStarted,
    Receipt,
    Settled,
    Settlement,
    Stopped,
    Text,
    ToolCall,
    Usage,
)
from ..history import Figures, Message, Session, text_of
from ..json_pieces import in_pieces
from ..log.segment import Segment, needs_no_escape
from ..log.steps import AgentStep
from ..pricing import NO_PRICES, Price, Prices, cost
from ..silence import WaitsFor
from ..store import FeedEntry, RunRecord, SearchHit, Status
from . import sse
from .shapes import (
    ErrorInfoJson,
    ExcerptJson,
    FiguresJson,
    LegJson,
    MessageCallJson,
    MessageJson,
    OutcomeJson,
    QueuedJson,
    ReceiptJson,
    RunJson,
    SearchHitJson,
    SessionDeletedJson,
    SessionHeadJson,
    SessionJson,
    SessionListedJson,
    SessionsChangedJson,
    SettledEventJson,
    SettlementJson,
    StepCallJson,
    StepJson,
    UsageEventJson,
    UsageJson,
    WaitsForJson,
)

_encode = msgspec.json.Encoder().encode


@overload
def moment(seconds: float) -> str: ...
@overload
def moment(seconds: float | None) -> str | None: ...
def moment(seconds: float | None) -> str | None:
    """Return a time in ISO 8601."""
    if seconds is None:
        return None
    at = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def error(info: ErrorInfo) -> ErrorInfoJson:
    """Return an error in the shape of every response."""
    return {
        "message": info.message,
        "type": info.type,
        "code": info.code,
        "param": info.param,
        "help": help_at(info.code),
    }


def usage(used: Usage) -> UsageJson:
    """Return the tokens used, with the cached and the reasoning tokens if the upstream counted them."""
    fields: UsageJson = {
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "total_tokens": used.total_tokens,
        "source": used.source,
    }
    if used.cached_tokens:
        fields["cached_tokens"] = used.cached_tokens
    if used.cache_write_tokens:
        fields["cache_write_tokens"] = used.cache_write_tokens
    if used.reasoning_tokens:
        fields["reasoning_tokens"] = used.reasoning_tokens
    return fields


def settlement(settled: Settlement) -> SettlementJson:
    """Return a settlement. Every field is always present."""
    return {
        "outcome": settled.outcome,
        "by": settled.by if isinstance(settled, Stopped) else None,
        "finish_reason": settled.finish_reason,
        "partial": bool(settled.text) and not isinstance(settled, Completed),
        "text": settled.text,
        "error": error(settled.error) if isinstance(settled, (Failed, Interrupted)) else None,
        "usage": usage(settled.usage),
        "receipt": receipt(settled.receipt) if isinstance(settled, Stopped) and settled.receipt else None,
        "answered_by": settled.answered_by,
        "legs": legs(settled.legs),
    }


def seam(event: LegStarted) -> dict[str, Any]:
    """Return what a reader is told where another call goes on with an answer."""
    return {"leg": event.leg, "model": event.model, "how": event.how, "reason": event.reason, "at": event.at}


def legs(of: Sequence[Leg]) -> list[LegJson]:
    """Return the calls that have written an answer; none if there was only one."""
    return [
        {
            "model": leg.model,
            "at": leg.at,
            "how": leg.how,
            "reason": leg.reason,
            "usage": usage(leg.usage),
        }
        for leg in of
    ]


def receipt(times: Receipt) -> ReceiptJson:
    """Return the receipt of a stop: when it was requested, when it was done, and what did not end."""
    fields: ReceiptJson = {
        "stop_requested_at": moment(times.stop_requested_at),
        "upstream_closed_at": moment(times.upstream_closed_at),
        "settled_at": moment(times.settled_at),
    }
    return {**fields, "refused": list(times.refused)} if times.refused else fields


def run_object(
    record: RunRecord,
    *,
    status: Status,
    seq: int,
    text: str,
    settled: Settlement | None,
    prices: Prices = NO_PRICES,
    needs_approval: bool = False,
    waits_for: WaitsFor | None = None,
) -> RunJson:
    """Return a run, with its cost if its model's price is known."""
    price = prices.of((settled.answered_by if settled else None) or record.model)
    return {
        "id": record.id,
        "session_id": record.session_id,
        "comparison_id": record.ask.comparison_id if isinstance(record.ask, PaneAsk | SessionAsk) else None,
        "message_id": record.message_id,
        "parent_id": record.parent_id,
        "model": record.model,
        "kind": record.kind,
        "lifetime": record.lifetime,
        "status": status,
        "seq": seq,
        "text": text,
        "created_at": moment(record.created_at),
        "started_at": None if status == "queued" else moment(record.started_at),
        "settled_at": moment(record.settled_at),
        "settlement": settlement(settled) if settled else None,
        "cost": _cost(price, settled.usage) if settled else None,
        "needs_approval": needs_approval,
        "waits_for": _waits_for(waits_for),
    }


def _waits_for(waits: WaitsFor | None) -> WaitsForJson | None:
    if waits is None:
        return None
    return {"model": waits.model, "what": waits.what, "since": moment(waits.since)}


LISTED_TEXT = 1000
"""Maximum length of a text in a list, in characters."""


def listed_run(shown: RunJson) -> RunJson:
    """Return a run for a list: with the beginning of its text."""
    ended = shown["settlement"]
    if len(shown["text"]) <= LISTED_TEXT and (ended is None or len(ended["text"]) <= LISTED_TEXT):
        return shown
    settled: SettlementJson | None = {**ended, "text": beginning(ended["text"])} if ended else None
    return {**shown, "text": beginning(shown["text"]), "settlement": settled}


def beginning(content: str | list[Any]) -> str:
    """Return the beginning of a text for a list, with an ellipsis in place of the rest."""
    text = text_of(content)
    return text if len(text) <= LISTED_TEXT else text[: LISTED_TEXT - 1] + "…"


def message(stored: Message, prices: Prices = NO_PRICES) -> MessageJson:
    """Return a message of a session, with its cost if its model's price is known."""
    fields: MessageJson = {
        "id": stored.id,
        "role": stored.role,
        "content": stored.content,
        "run_id": stored.run_id,
        "model": stored.model,
        "partial": stored.partial,
        "outcome": cast(OutcomeJson | None, stored.outcome),
        "reasoning": stored.reasoning,
        "parent_id": stored.parent_id,
        "created_at": moment(stored.created_at),
    }
    if stored.tool_calls:
        fields["tool_calls"] = [_call(call) for call in stored.tool_calls]
    if stored.tool_call_id is not None:
        fields["tool_call_id"] = stored.tool_call_id
    if stored.steps:
        fields["steps"] = [step(each) for each in stored.steps]
    if stored.figures is not None:
        fields["figures"] = figures(stored.figures, prices.of(stored.model))
    if stored.legs:
        fields["legs"] = legs(stored.legs)
    if stored.author:
        fields["author"] = stored.author
    if stored.automatic:
        fields["automatic"] = True
    if stored.compacts:
        fields["compacts"] = True
    if stored.edited:
        fields["edited"] = True
    return fields


def _call(call: ToolCall) -> MessageCallJson:
    fields: MessageCallJson = {"id": call.id, "name": call.name, "arguments": call.arguments}
    return fields if call.kind == "function" else {**fields, "kind": call.kind}


def figures(measured: Figures, price: Price | None) -> FiguresJson:
    """Return the figures of an answer. Every field is always present."""
    used = Usage(measured.input_tokens, measured.output_tokens, cost=measured.cost)
    return cast(FiguresJson, {**msgspec.structs.asdict(measured), "cost": _cost(price, used)})


def _cost(price: Price | None, used: Usage) -> float | None:
    """Return the stored cost, or the cost at the current price if none was stored."""
    return cost(price, used) if used.cost is None else used.cost


def step(agent_step: AgentStep) -> StepJson:
    """Return a step of an agent: its text, its calls with their results, and the messages that steered it."""
    results = {result.id: result for result in agent_step.results}
    calls: list[StepCallJson] = [
        {
            "id": call.id,
            "name": call.name,
            "arguments": call.arguments,
            "output": results[call.id].output if call.id in results else None,
            "is_error": call.id in results and results[call.id].is_error,
            "seconds": results[call.id].seconds if call.id in results else None,
            "decision": cast(Literal["allow", "deny"] | None, results[call.id].decision)
            if call.id in results
            else None,
            "edited": (results[call.id].edited or None) if call.id in results else None,
            "unfinished": call.id in results and results[call.id].is_unfinished,
        }
        for call in agent_step.calls
    ]
    return {"text": agent_step.text, "tool_calls": calls, "inputs": list(agent_step.inputs)}


def session(kept: Session) -> SessionJson:
    """Return a session without its messages."""
    return {
        **listed_session(kept),
        "system": kept.system,
        "params": kept.params,
        "preset": kept.preset or None,
        "on_break": kept.on_break,
    }


def listed_session(kept: Session) -> SessionHeadJson:
    """Return a session for a list: without its system prompt and its parameters."""
    return {
        "id": kept.id,
        "title": kept.title,
        "model": kept.model,
        "pinned": kept.pinned,
        "folder": kept.folder,
        "tags": list(kept.tags),
        "archived": kept.archived,
        "head_id": kept.head_id,
        "created_at": moment(kept.created_at),
        "updated_at": moment(kept.updated_at),
    }


def search_hit(hit: SearchHit) -> SearchHitJson:
    """Return the message that a search has found, and its sentence in pieces."""
    excerpt: list[ExcerptJson] = [{"text": text, "match": match} for text, match in hit.excerpt]
    return {"message_id": hit.message_id, "excerpt": excerpt, "offset": hit.offset}


def queued(record: RunRecord) -> QueuedJson:
    """Return a queued run, with the number by which it can be changed or removed."""
    return {
        "n": cast(int, record.queue_number),
        "run_id": record.id,
        "input": record.input[-1].content if record.input else None,
        "model": record.model,
        "created_at": moment(record.created_at),
    }


# Events.


def body(event: Event) -> tuple[bytes, bytes]:
    """Return an event's type and its fields as the inside of a JSON object."""
    if isinstance(event, Settled):
        ended: SettledEventJson = {"type": "run.settled", "settlement": settlement(event.settlement)}
        return b"run.settled", _encode(ended)[1:]
    if isinstance(event, Usage):
        used: UsageEventJson = {"type": "usage", **usage(event)}
        return b"usage", _encode(used)[1:]
    return str(event.__struct_config__.tag).encode(), _encode(event)[1:]


def frames(run_id: str) -> Callable[[int, Segment], bytes]:
    """Return the function that renders a segment of a run's log. `first` is the `seq` of its first event."""
    prefix = b'{"run":%b,"seq":' % _encode(run_id)
    frame = [
        "id: ",
        "",
        f"\nevent: text.delta\ndata: {prefix.decode()}",
        "",
        ',"type":"text.delta","text":"',
        "",
        '"}\n\n',
    ]

    def render(first: int, segment: Segment) -> bytes:
        if segment.kind is Text and len(segment.texts) > 1 and needs_no_escape("".join(segment.texts)):
            return together(first, segment.texts)
        parts: list[bytes] = []
        for seq, event in enumerate(segment, first):
            kind, rest = (b"text.delta", _encode(event)[1:]) if type(event) is Text else body(event)
            parts.append(b"id: %d\nevent: %b\ndata: %b%d,%b\n\n" % (seq, kind, prefix, seq, rest))
        return b"".join(parts)

    def together(first: int, texts: Sequence[str]) -> bytes:
        """Render many text events at once."""
        parts = frame * len(texts)
        parts[1::7] = parts[3::7] = [*map(str, range(first, first + len(texts)))]
        parts[5::7] = texts
        return "".join(parts).encode()

    return render


def settled_pieces(run_id: str, seq: int, event: Settled) -> Iterator[bytes]:
    """Yield the frame of a run's last event in pieces, so that a long text is not encoded at once."""
    fields = {"run": run_id, "seq": seq, "type": "run.settled", "settlement": settlement(event.settlement)}
    pieces = in_pieces(fields)
    yield b"id: %d\nevent: run.settled\ndata: %b" % (seq, next(pieces))
    yield from pieces
    yield b"\n\n"


def feed_frame(entry: FeedEntry, seq: int, data: dict[str, Any], session_id: str = "") -> bytes:
    """Return one entry of a session's feed; `seq` is that of the active run, if there is one.

    If several feeds share a connection, the session's id precedes the cursor.
    """
    payload = _encode({"n": entry.n, "type": entry.type, **data})
    return sse.frame(_feed_id(session_id, entry.n, seq), entry.type.encode(), payload)


def _feed_id(session_id: str, n: int, seq: int) -> bytes:
    cursor = b"%d:%d" % (n, seq) if seq else b"%d" % n
    return b"%b@%b" % (session_id.encode(), cursor) if session_id else cursor


def feed_gone_frame(session_id: str) -> bytes:
    """Return the frame for a session that does not exist, on a connection with several feeds."""
    gone: SessionDeletedJson = {"type": "session.deleted", "session_id": session_id}
    return b"event: session.deleted\n" + sse.data(_encode(gone))


def list_frame(cursor: str, changed: SessionListedJson | SessionDeletedJson | SessionsChangedJson) -> bytes:
    """Return one change of an owner's list of sessions."""
    return sse.frame(f"list@{cursor}".encode(), changed["type"].encode(), _encode(changed))


def feed_entry_data(entry: FeedEntry, prices: Prices = NO_PRICES) -> dict[str, Any]:
    """Return the data of an entry, with messages in their usual shape."""
    data = dict(entry.data)
    if "message" in data:
        data["message"] = message(msgspec.convert(data["message"], Message), prices)
    if "input" in data:
        data["input"] = [message(each) for each in msgspec.convert(data["input"], list[Message])]
    return data


def feed_run_frame(n: int, run_id: str, seq: int, event: Event, session_id: str = "") -> bytes:
    """Return an event of the active run of a session, numbered after the feed entry before it."""
    kind, rest = body(event)
    return sse.frame(_feed_id(session_id, n, seq), kind, b'{"run":%b,"seq":%d,%b' % (_encode(run_id), seq, rest))
