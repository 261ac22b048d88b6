"""Our own dialect: runs, messages, sessions and events as JSON."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ..comparisons import Price, cost
from ..events import (
    Completed,
    ErrorInfo,
    Event,
    Failed,
    Interrupted,
    Receipt,
    Settled,
    Settlement,
    Stopped,
    Text,
    Usage,
    plain_texts,
    stand_as_they_are,
)
from ..history import Figures, Message, Session, outcome
from ..steps import Step
from ..store import FeedEntry, RunRecord
from . import sse
from .pieces import in_pieces

_encode = msgspec.json.Encoder().encode
_NO_PRICES: Mapping[str, Price] = {}


def moment(seconds: float | None) -> str | None:
    """Return a time as people and JavaScript write it."""
    if seconds is None:
        return None
    at = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def error(info: ErrorInfo) -> dict[str, Any]:
    """Return an error in the one shape that every answer uses."""
    return {"message": info.message, "type": info.type, "code": info.code, "param": info.param}


def usage(used: Usage) -> dict[str, Any]:
    """Return the tokens used."""
    return {
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "total_tokens": used.total_tokens,
        "source": used.source,
    }


def settlement(settled: Settlement) -> dict[str, Any]:
    """Return how a run ended. Every field is always there."""
    return {
        "outcome": outcome(settled),
        "by": settled.by if isinstance(settled, Stopped) else None,
        "finish_reason": settled.finish_reason,
        "partial": bool(settled.text) and not isinstance(settled, Completed),
        "text": settled.text,
        "error": error(settled.error) if isinstance(settled, (Failed, Interrupted)) else None,
        "usage": usage(settled.usage),
        "receipt": receipt(settled.receipt) if isinstance(settled, Stopped) and settled.receipt else None,
        "answered_by": settled.answered_by,
    }


def receipt(given: Receipt) -> dict[str, Any]:
    """Return when a stop was asked for, when it was done, and what refused, if anything did."""
    shown: dict[str, Any] = {
        "stop_requested_at": moment(given.stop_requested_at),
        "upstream_closed_at": moment(given.upstream_closed_at),
        "settled_at": moment(given.settled_at),
    }
    return {**shown, "refused": list(given.refused)} if given.refused else shown


def run(
    record: RunRecord,
    *,
    status: str,
    seq: int,
    text: str,
    settled: Settlement | None,
    prices: Mapping[str, Price] = _NO_PRICES,
) -> dict[str, Any]:
    """Return a run, while it runs and after, with what it cost where its model's price is known."""
    price = prices.get((settled.answered_by if settled else None) or record.model)
    return {
        "id": record.id,
        "session_id": record.session_id,
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
        "cost": cost(price, settled.usage) if settled else None,
    }


def message(said: Message, prices: Mapping[str, Price] = _NO_PRICES) -> dict[str, Any]:
    """Return a message of a session, with what it cost where its model's price is known."""
    shown: dict[str, Any] = {
        "id": said.id,
        "role": said.role,
        "content": said.content,
        "run_id": said.run_id,
        "model": said.model,
        "partial": said.partial,
        "outcome": said.outcome,
        "reasoning": said.reasoning,
        "parent_id": said.parent_id,
        "created_at": moment(said.created_at),
    }
    if said.tool_calls:
        shown["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in said.tool_calls
        ]
    if said.tool_call_id is not None:
        shown["tool_call_id"] = said.tool_call_id
    if said.steps:
        shown["steps"] = [step(taken) for taken in said.steps]
    if said.figures is not None:
        shown["figures"] = figures(said.figures, prices.get(said.model or ""))
    return shown


def figures(taken: Figures, price: Price | None) -> dict[str, Any]:
    """Return what an answer took. Every field is always there."""
    used = Usage(taken.input_tokens, taken.output_tokens)
    return {**msgspec.structs.asdict(taken), "cost": cost(price, used)}


def step(taken: Step) -> dict[str, Any]:
    """Return a step of an agent: what it said, each call with what came of it, and what was put in afterwards."""
    results = {result.id: result for result in taken.results}
    calls = [
        {
            "id": call.id,
            "name": call.name,
            "arguments": call.arguments,
            "output": results[call.id].output if call.id in results else None,
            "is_error": call.id in results and results[call.id].is_error,
            "seconds": results[call.id].seconds if call.id in results else None,
            "decision": results[call.id].decision if call.id in results else None,
        }
        for call in taken.calls
    ]
    return {"text": taken.text, "tool_calls": calls, "inputs": list(taken.inputs)}


def session(kept: Session) -> dict[str, Any]:
    """Return a session without its messages."""
    return {
        "id": kept.id,
        "title": kept.title,
        "model": kept.model,
        "system": kept.system,
        "params": kept.params,
        "pinned": kept.pinned,
        "head_id": kept.head_id,
        "created_at": moment(kept.created_at),
        "updated_at": moment(kept.updated_at),
    }


def queued(record: RunRecord) -> dict[str, Any]:
    """Return a run that waits for its turn, with the number by which it can be changed or dropped."""
    return {
        "n": record.queue_number,
        "run_id": record.id,
        "input": record.input[-1].content if record.input else None,
        "model": record.model,
        "created_at": moment(record.created_at),
    }


# Events.


def body(event: Event) -> tuple[bytes, bytes]:
    """Return an event's type and its fields as the inside of a JSON object."""
    if isinstance(event, Settled):
        return b"run.settled", _encode({"type": "run.settled", "settlement": settlement(event.settlement)})[1:]
    if isinstance(event, Usage):
        return b"usage", _encode({"type": "usage", **usage(event)})[1:]
    return str(event.__struct_config__.tag).encode(), _encode(event)[1:]


def frames(run_id: str) -> Callable[[int, Sequence[Event]], bytes]:
    """Return what renders a run's events, the first of which has the number `first`."""
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

    def render(first: int, events: Sequence[Event]) -> bytes:
        if len(events) > 1 and (texts := plain_texts(events)) is not None and stand_as_they_are(events, texts):
            return words(first, texts)
        parts: list[bytes] = []
        for seq, event in enumerate(events, first):
            number = b"%d" % seq
            if type(event) is Text:
                kind, rest = b"text.delta", _encode(event)[1:]
            else:
                kind, rest = body(event)
            parts.append(b"id: %b\nevent: %b\ndata: %b%b,%b\n\n" % (number, kind, prefix, number, rest))
        return b"".join(parts)

    def words(first: int, texts: Sequence[str]) -> bytes:
        """Put many frames of text together at once."""
        numbers = [*map(str, range(first, first + len(texts)))]
        parts = frame * len(texts)
        parts[1::7] = parts[3::7] = numbers
        parts[5::7] = texts
        return "".join(parts).encode()

    return render


def settled_pieces(run_id: str, seq: int, event: Settled) -> Iterator[bytes]:
    """Yield the frame of a run's last event, in pieces that are made one by one: a long text is in none as a whole."""
    told = {"run": run_id, "seq": seq, "type": "run.settled", "settlement": settlement(event.settlement)}
    pieces = in_pieces(told)
    yield b"id: %d\nevent: run.settled\ndata: %b" % (seq, next(pieces))
    yield from pieces
    yield b"\n\n"


def feed_frame(entry: FeedEntry, seq: int, told: dict[str, Any], session_id: str = "") -> bytes:
    """Return one entry of a session's feed; `seq` is where the run that is going on has come to, if one is.

    Where several feeds share a connection, the session's id stands before the cursor.
    """
    payload = _encode({"n": entry.n, "type": entry.type, **told})
    return sse.frame(_feed_id(session_id, entry.n, seq), entry.type.encode(), payload)


def _feed_id(session_id: str, n: int, seq: int) -> bytes:
    cursor = b"%d:%d" % (n, seq) if seq else b"%d" % n
    return b"%b@%b" % (session_id.encode(), cursor) if session_id else cursor


def feed_gone_frame(session_id: str) -> bytes:
    """Return what is said of a session that is not there, among several."""
    payload = _encode({"type": "session.deleted", "session_id": session_id})
    return b"event: session.deleted\n" + sse.data(payload)


def told_in_feed(entry: FeedEntry, prices: Mapping[str, Price] = _NO_PRICES) -> dict[str, Any]:
    """Return what an entry tells, with messages in the shape that they have everywhere."""
    told = dict(entry.data)
    if "message" in told:
        told["message"] = message(msgspec.convert(told["message"], Message), prices)
    if "input" in told:
        told["input"] = [message(said) for said in msgspec.convert(told["input"], list[Message])]
    return told


def feed_run_frame(n: int, run_id: str, seq: int, event: Event, session_id: str = "") -> bytes:
    """Return an event of the run that is active in a session, numbered after the feed entry before it."""
    kind, rest = body(event)
    return sse.frame(_feed_id(session_id, n, seq), kind, b'{"run":%b,"seq":%d,%b' % (_encode(run_id), seq, rest))
