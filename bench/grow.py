"""Grows a data folder to a size that takes people years: sessions, their messages, feeds, search words and last runs.

SQLite makes the rows itself, so that ten million messages take minutes. They are the rows that the server would have
written, with one difference: only the last answer of each session has its run, since older runs are never read.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast.asks import SessionAsk
from holdfast.events import Completed, encode_settlement
from holdfast.store import semantics as rules
from holdfast.store.rows.search import indexed
from holdfast.store.rows.structs import encode
from holdfast.store.sqlite.file import locate, prepare

MESSAGES_EACH = 100
OWNER = "local"
BATCH = 1000  # sessions in one transaction
POOL = 4000  # texts that messages are made of: a session takes every STRIDE-th, from a start of its own
STRIDE = 104_729
VOCABULARY = 40_000
COMMON, RARE_OF = "the", 100_003  # a word of nearly every message; each rare word is in one of this many messages


def session_id(n: int) -> str:
    return f"ses_{n:036}"


def rare_word(session: int, n: int) -> str:
    """The rare word of a message."""
    return f"rare{(session * 131 + n) % RARE_OF:06}"


def grow(
    folder: Path, sessions: int, *, messages_each: int = MESSAGES_EACH, said: Callable[[str], None] = print
) -> float:
    """Add sessions to a data folder until it has so many; returns the seconds it took."""
    begin = time.monotonic()
    lock, db = prepare(locate(folder))
    try:
        with contextlib.closing(db):
            _hurry(db)
            _lay_out(db, messages_each)
            (there,) = db.execute("SELECT coalesce(max(n), 0) FROM sessions").fetchone()
            for first in range(there + 1, sessions + 1, BATCH):
                last = min(first + BATCH - 1, sessions)
                _add(db, first, last, messages_each)
                said(f"{last * messages_each:,} messages")
            _settle_down(db)
    finally:
        lock.release()
    return time.monotonic() - begin


def _hurry(db: sqlite3.Connection) -> None:
    """A crash may spoil what is being built here, so nothing is waited for."""
    for pragma in ("synchronous = OFF", "wal_autocheckpoint = 100000", "cache_size = -400000", "temp_store = MEMORY"):
        db.execute(f"PRAGMA {pragma}")
    db.execute("PRAGMA foreign_keys = OFF")


def _settle_down(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _lay_out(db: sqlite3.Connection, messages_each: int) -> None:
    """The texts and the numbers that rows are made of."""
    chance = random.Random(8)
    names = [f"w{number}" for number in range(VOCABULARY)]
    # As in a language, few words are most of a text.
    weights = list(itertools.accumulate(1 / (rank + 3) for rank in range(VOCABULARY)))
    texts = [
        " ".join([COMMON, *chance.choices(names, cum_weights=weights, k=chance.randint(4, 14))]) for _ in range(POOL)
    ]
    db.execute("CREATE TEMP TABLE pool (i INTEGER PRIMARY KEY, text TEXT NOT NULL, words TEXT NOT NULL)")
    db.executemany("INSERT INTO pool VALUES (?, ?, ?)", [(i, text, _words(text)) for i, text in enumerate(texts)])
    db.execute("CREATE TEMP TABLE numbers (n INTEGER PRIMARY KEY)")
    db.executemany("INSERT INTO numbers VALUES (?)", [(n,) for n in range(1, max(messages_each, BATCH) + 1)])
    db.execute("CREATE TEMP TABLE fresh (start INTEGER, n INTEGER, words TEXT NOT NULL, PRIMARY KEY (start, n))")
    db.executemany("INSERT INTO fresh VALUES (?, ?, ?)", _fresh_words([_words(text) for text in texts], messages_each))


def _fresh_words(pool: list[str], messages_each: int) -> Iterator[tuple[int, int, str]]:
    """What each message of a session says first: the index has a word once for each session."""
    split = [words.split(" ") for words in pool]
    for start in range(POOL):
        known: set[str] = set()
        for n in range(1, messages_each + 1):
            fresh = [word for word in split[(start + n * STRIDE) % POOL] if word not in known]
            known.update(fresh)
            yield start, n, " ".join(fresh)


def _words(text: str) -> str:
    return " ".join(indexed(rules.words(text)))


def _add(db: sqlite3.Connection, first: int, last: int, each: int) -> None:
    settlement = encode_settlement(Completed(text="An answer."))
    values = {"first": first, "last": last, "each": each, "owner": OWNER, "settlement": settlement}
    values["ask"] = encode(SessionAsk())
    db.execute("BEGIN")
    for statement in (SESSIONS, MESSAGES, FEED, RUNS, TITLE_WORDS, MESSAGE_WORDS):
        db.execute(statement, {name: value for name, value in values.items() if f":{name}" in statement})
    db.execute("COMMIT")


_TIME = "(1700000000.0 + 60.0 * {n})"
_ID = "printf('{kind}_%030d%06d', {session}, {n})"
_S = "(:first + s.n - 1)"
_RARE = f"'rare' || printf('%06d', ({_S} * 131 + m.n) % {RARE_OF})"
_START = f"({_S} * 7919 % {POOL})"
_MANY = f"""
FROM numbers AS s CROSS JOIN numbers AS m JOIN pool ON pool.i = ({_START} + m.n * {STRIDE}) % {POOL}
WHERE s.n <= :last - :first + 1 AND m.n <= :each
"""

SESSIONS = f"""
INSERT INTO sessions (n, id, owner, title, model, params, pinned, head_id, created_at, updated_at, message_n, feed_n,
    indexed_n)
SELECT {_S}, printf('ses_%036d', {_S}), :owner, pool.text, 'up/flat:8', CAST('{{}}' AS BLOB), 0,
    {_ID.format(kind="msg", session=_S, n=":each")}, {_TIME.format(n=_S)}, {_TIME.format(n=_S)}, :each, :each, :each
FROM numbers AS s JOIN pool ON pool.i = (:first + s.n) % {POOL} WHERE s.n <= :last - :first + 1
"""

MESSAGES = f"""
INSERT INTO messages (session, n, id, body)
SELECT {_S}, m.n, {_ID.format(kind="msg", session=_S, n="m.n")}, CAST(
    '{{"id":"' || {_ID.format(kind="msg", session=_S, n="m.n")} || '","role":"'
    || CASE m.n % 2 WHEN 1 THEN 'user' ELSE 'assistant' END
    || '","content":"' || pool.text || ' ' || {_RARE} || '"'
    || CASE m.n WHEN 1 THEN '' ELSE ',"parent_id":"' || {_ID.format(kind="msg", session=_S, n="(m.n - 1)")} || '"' END
    || ',"created_at":1700000000.0}}' AS BLOB)
{_MANY}
"""

FEED = f"""
INSERT INTO feed (session, n, type, data, message)
SELECT {_S}, m.n, 'message.added', NULL, m.n
FROM numbers AS s CROSS JOIN numbers AS m WHERE s.n <= :last - :first + 1 AND m.n <= :each
"""

RUNS = f"""
INSERT INTO runs (id, owner, session, message_id, parent_id, model, kind, lifetime, status, keeper, epoch, ask,
    input, seq, oldest, created_at, started_at, settled_at, settlement)
SELECT printf('run_%036d', {_S}), :owner, {_S}, {_ID.format(kind="msg", session=_S, n=":each")},
    {_ID.format(kind="msg", session=_S, n="(:each - 1)")}, 'up/flat:8', 'chat', 'detached', 'settled', '', 1,
    :ask, CAST('[]' AS BLOB), 1, 1, {_TIME.format(n=_S)}, {_TIME.format(n=_S)},
    {_TIME.format(n=_S)}, :settlement
FROM numbers AS s WHERE s.n <= :last - :first + 1
"""

TITLE_WORDS = f"""
INSERT INTO search (rowid, words)
SELECT {_S} << 20, pool.words FROM numbers AS s JOIN pool ON pool.i = (:first + s.n) % {POOL}
WHERE s.n <= :last - :first + 1
"""

MESSAGE_WORDS = f"""
INSERT INTO search (rowid, words)
SELECT ({_S} << 20) + m.n, CASE m.n WHEN 1 THEN '·r ·ra ·rar ' ELSE '' END || fresh.words || ' ' || {_RARE}
FROM numbers AS s CROSS JOIN numbers AS m JOIN fresh ON fresh.start = {_START} AND fresh.n = m.n
WHERE s.n <= :last - :first + 1 AND m.n <= :each
"""
