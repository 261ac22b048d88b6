"""Rows of the tables as structs, and structs as rows."""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any

import msgspec
from msgspec.structs import asdict

from ...asks import Ask, ProgramAsk
from ...events import AnySettlement, ErrorInfo, Failed
from ...history import Message, Session
from ...log.segment import Segment, decode_segment, encode_segment, segment_of
from .. import Append, Document, KeyDetails, KeyRecord, Payer, RunRecord
from ..filing import Filter
from . import Row
from .long_json import decode_ending, decode_message

_EVENTS_IN_A_ROW = 512
_TEXT_IN_A_ROW = 256 * 1024  # characters

encode = msgspec.json.encode
decode = msgspec.json.decode
decode_ask = msgspec.json.Decoder(Ask).decode
decode_messages = msgspec.json.Decoder(tuple[Message, ...]).decode

UNREADABLE = "This is damaged in the store and cannot be read. `holdfast db check` lists all that is."
"""What is shown in place of a damaged value: one of them must not hide all others of a list."""

DECODERS: dict[str, dict[str, Callable[[bytes], Any]]] = {
    "sessions": {"params": decode},
    "messages": {"body": decode_message},
    "feed": {"data": decode},
    "runs": {"ask": decode_ask, "input": decode_messages, "payer": decode, "settlement": decode_ending},
    "events": {"body": decode_segment},
    "documents": {"body": decode},
    "api_keys": {"details": decode},
}
"""How each column that is no plain value is decoded, by table."""


def values_for(kind: type[msgspec.Struct], row: Row) -> dict[str, Any]:
    """Return the values of a row for a struct. Other columns are internal numbers, or were added by a newer version."""
    fields = _fields_of(kind)
    return {name: value for name, value in zip(row.keys(), row, strict=True) if name in fields}


@functools.cache
def _fields_of(kind: type[msgspec.Struct]) -> frozenset[str]:
    return frozenset(kind.__struct_fields__)


def as_run(row: Row) -> RunRecord:
    """Return a row of `run` as a record."""
    values = values_for(RunRecord, row) | {"node_id": row["keeper"]}  # the column kept its first name
    values["ahead"], values["waits"] = bool(values["ahead"]), bool(values["waits"])
    settlement, values["settlement"] = values["settlement"], None
    try:
        values["ask"] = decode_ask(values["ask"])
        values["input"] = decode_messages(values["input"])
        values["payer"] = msgspec.convert(decode(values["payer"]), Payer)
    except msgspec.DecodeError:
        values |= {"ask": ProgramAsk(), "input": (), "payer": Payer()}
        if settlement is None:
            values["model"] = UNREADABLE_MODEL
    if settlement is not None:
        values["settlement"] = _settlement(settlement)
    return RunRecord(**values)


UNREADABLE_MODEL = "unreadable"
"""The model of a damaged run that has not ended. There is none of that name: the run fails when it is to continue."""


def _settlement(stored: bytes) -> AnySettlement:
    try:
        return decode_ending(stored)
    except msgspec.DecodeError:
        return Failed(error=ErrorInfo("store_damaged", UNREADABLE))


def as_messages(rows: Iterable[Row]) -> list[Message]:
    """Return the rows of a session's messages, in order."""
    rows = list(rows)
    try:
        return [decode_message(row["body"]) for row in rows]
    except msgspec.DecodeError:
        messages: list[Message] = []
        for row in rows:
            messages.append(_readable(row["id"], row["body"], messages[-1].id if messages else None))
        return messages


def found_messages(rows: Iterable[Row]) -> list[Message]:
    """Return the messages in rows, without those that are damaged: no word is found in them."""
    shown = [_readable("", row["body"], None) for row in rows]
    return [message for message in shown if message.id]


def _readable(id: str, body: bytes, before: str | None) -> Message:
    """Return a message, or what is shown in its place, after the one before it."""
    try:
        return decode_message(body)
    except msgspec.DecodeError:
        return Message(id=id, role="assistant", content=UNREADABLE, parent_id=before, partial=True, outcome="failed")


def as_session(row: Row) -> Session:
    """Return a row of `session` as a session."""
    values = values_for(Session, row)
    try:
        values["params"] = decode(values["params"])
    except msgspec.DecodeError:
        values["params"] = {}
    values["pinned"], values["archived"] = bool(values["pinned"]), bool(values["archived"])
    values["tags"] = tags_in(values["tags"])
    return Session(**values)


def as_document(row: Row) -> Document:
    """Return a row of `document` as a document."""
    values = values_for(Document, row)
    values["body"] = decode(values["body"])
    return Document(**values)


def as_key(row: Row) -> KeyRecord:
    """Return a row of `api_key` as a record."""
    values = values_for(KeyRecord, row)
    values["admin"] = bool(values["admin"])
    values["details"] = msgspec.convert(decode(values["details"]), KeyDetails)
    return KeyRecord(**values)


def session_values(session: Session) -> dict[str, Any]:
    """Return a session as the values of its row."""
    tags = "".join(map(tag_in_row, session.tags))
    return asdict(session) | {"params": encode(session.params), "tags": tags, "archived": int(session.archived)}


def tag_in_row(tag: str) -> str:
    """Return a tag as the column of tags has it. So no tag is found in a longer one."""
    return f"\n{tag}\n"


def filter_values(filter: Filter) -> dict[str, Any]:
    """Return the values of the conditions that a filter has."""
    values = {name: value for name, value in asdict(filter).items() if value is not None}
    if "tag" in values:
        values["tag"] = tag_in_row(values["tag"])
    if "archived" in values:
        values["archived"] = int(values["archived"])
    return values


def tags_in(column: str) -> tuple[str, ...]:
    """Return the tags of a row."""
    return tuple(filter(None, column.split("\n")))


def rows_of(run: int, next: int, entry: Append) -> Iterator[tuple[int, int, int, bytes, float]]:
    """Yield rows for the new events of an append. They are small, since a reader decodes whole rows."""
    fresh = segment_of(entry.events[next - entry.first :])
    start = 0
    while start < len(fresh):
        segment = _one_row(fresh[start : start + _EVENTS_IN_A_ROW])
        yield run, next + start, len(segment), encode_segment(segment), entry.at
        start += len(segment)


def _one_row(segment: Segment) -> Segment:
    """Return as many events as fit into one row, and at least one. Only text is long."""
    ends = [*accumulate(map(len, segment.texts))]
    return segment if not ends or ends[-1] <= _TEXT_IN_A_ROW else segment[: max(1, bisect_right(ends, _TEXT_IN_A_ROW))]


def feed_data(row: Row) -> dict[str, Any]:
    """Return the data of a feed entry: its own, or the message that it is about."""
    data: dict[str, Any]
    try:
        data = decode(row["data"]) if row["data"] is not None else {"message": decode(row["body"])}
    except msgspec.DecodeError:
        shown = _readable(row["message_id"] or "", b"", None)
        data = {"message": msgspec.to_builtins(shown)} if row["data"] is None else {}
    return data
