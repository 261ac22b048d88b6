"""Rows of the tables as structs, and structs as rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import asdict

from ...events import decode_settlement
from ...history import Message, Session
from ...log.segment import encode_segment, segment_of
from .. import Append, Document, KeyDetails, KeyRecord, Payer, RunRecord
from . import Row

_EVENTS_IN_A_ROW = 512

encode = msgspec.json.encode
decode = msgspec.json.decode
decode_message = msgspec.json.Decoder(Message).decode
decode_messages = msgspec.json.Decoder(tuple[Message, ...]).decode


def values_for(kind: type[msgspec.Struct], row: Row) -> dict[str, Any]:
    """Return the values of a row for a struct. Other columns are internal numbers, or were added by a newer version."""
    fields = kind.__struct_fields__
    return {name: value for name, value in dict(row).items() if name in fields}


def as_run(row: Row) -> RunRecord:
    """Return a row of `run` as a record."""
    values = values_for(RunRecord, row) | {"node_id": row["keeper"]}  # the column kept its first name
    values["request"] = decode(values["request"])
    values["input"] = decode_messages(values["input"])
    values["payer"] = msgspec.convert(decode(values["payer"]), Payer)
    values["ahead"], values["waits"] = bool(values["ahead"]), bool(values["waits"])
    if values["settlement"] is not None:
        values["settlement"] = decode_settlement(values["settlement"])
    return RunRecord(**values)


def as_session(row: Row) -> Session:
    """Return a row of `session` as a session."""
    values = values_for(Session, row)
    values["params"] = decode(values["params"])
    values["pinned"] = bool(values["pinned"])
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
    if "details" in values:  # missing until a server of this version has migrated the database
        values["details"] = msgspec.convert(decode(values["details"]), KeyDetails)
    return KeyRecord(**values)


def session_values(session: Session) -> dict[str, Any]:
    """Return a session as the values of its row."""
    return asdict(session) | {"params": encode(session.params)}


def rows_of(run: int, next: int, entry: Append) -> Iterator[tuple[int, int, int, bytes, float]]:
    """Yield rows for the new events of an append. They are small, since a reader decodes whole rows."""
    fresh = segment_of(entry.events[next - entry.first :])
    for start in range(0, len(fresh), _EVENTS_IN_A_ROW):
        segment = fresh[start : start + _EVENTS_IN_A_ROW]
        yield run, next + start, len(segment), encode_segment(segment), entry.at


def feed_data(row: Row) -> dict[str, Any]:
    """Return the data of a feed entry: its own, or the message that it is about."""
    data: dict[str, Any] = decode(row["data"]) if row["data"] is not None else {"message": decode(row["body"])}
    return data
