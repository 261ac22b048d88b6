-- Everything is a row of a session or of a run, and goes with it.
-- `n` counts rows in the order in which they were added, and is the short key that other tables refer to.

CREATE TABLE sessions (
    n          INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    owner      TEXT NOT NULL,
    title      TEXT NOT NULL,
    model      TEXT,
    system     TEXT,
    params     BLOB NOT NULL,
    pinned     INTEGER NOT NULL,
    head_id    TEXT,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    message_n  INTEGER NOT NULL DEFAULT 0, -- the last numbers given out: to a message,
    feed_n     INTEGER NOT NULL DEFAULT 0, -- to an entry of the feed,
    queue_n    INTEGER NOT NULL DEFAULT 0  -- to a queued run
);

CREATE INDEX sessions_in_order ON sessions (owner, pinned DESC, updated_at DESC, id DESC);

-- Messages never change. `body` is the whole message as JSON.
CREATE TABLE messages (
    session INTEGER NOT NULL REFERENCES sessions (n) ON DELETE CASCADE,
    n       INTEGER NOT NULL,
    id      TEXT NOT NULL,
    body    BLOB NOT NULL,
    PRIMARY KEY (session, n),
    UNIQUE (session, id)
);

-- A `message.added` refers to its message instead of repeating it.
CREATE TABLE feed (
    session INTEGER NOT NULL REFERENCES sessions (n) ON DELETE CASCADE,
    n       INTEGER NOT NULL,
    type    TEXT NOT NULL,
    data    BLOB,
    message INTEGER, -- messages.n
    PRIMARY KEY (session, n)
);

-- The words of messages and titles, made ready by rules.words(). The rowid is sessions.n * 2^20 + messages.n, with 0
-- for the title: so a search knows the sessions that it has found without reading a row.
CREATE VIRTUAL TABLE search USING fts5 (words, tokenize = 'ascii', detail = none);

-- `seq` counts the events of a settled run, the settlement included; until then the rows of `events` count.
CREATE TABLE runs (
    n            INTEGER PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    owner        TEXT NOT NULL,
    session      INTEGER REFERENCES sessions (n) ON DELETE CASCADE,
    message_id   TEXT,
    parent_id    TEXT,
    model        TEXT NOT NULL,
    kind         TEXT NOT NULL,
    lifetime     TEXT NOT NULL,
    status       TEXT NOT NULL CHECK (status IN ('queued', 'running', 'settled')),
    keeper       TEXT NOT NULL,
    epoch        INTEGER NOT NULL,
    request      BLOB NOT NULL,
    queue_number INTEGER,
    input        BLOB NOT NULL,
    follows      TEXT, -- the message that a queued run was told to follow: 'head', an id, or NULL for the beginning
    seq          INTEGER NOT NULL DEFAULT 0,
    oldest       INTEGER NOT NULL DEFAULT 1,
    created_at   REAL NOT NULL,
    started_at   REAL,
    settled_at   REAL,
    settlement   BLOB,
    CHECK ((status = 'settled') = (settlement IS NOT NULL))
);

CREATE INDEX runs_by_owner ON runs (owner);
CREATE INDEX runs_by_session ON runs (session) WHERE session IS NOT NULL;
CREATE INDEX runs_unsettled ON runs (status, session, queue_number) WHERE status <> 'settled';
CREATE INDEX runs_with_log ON runs (settled_at) WHERE status = 'settled' AND oldest < seq;

-- What one append added to one run: the events `first` to `first + count - 1`, as a JSON array.
-- Rows are added at the end of the table whatever run they belong to, so that a commit touches few pages.
CREATE TABLE events (
    run   INTEGER NOT NULL REFERENCES runs (n) ON DELETE CASCADE,
    first INTEGER NOT NULL,
    count INTEGER NOT NULL,
    body  BLOB NOT NULL,
    PRIMARY KEY (run, first)
);

CREATE TABLE idempotency (
    owner  TEXT NOT NULL,
    key    TEXT NOT NULL,
    digest TEXT NOT NULL,
    run    INTEGER NOT NULL REFERENCES runs (n) ON DELETE CASCADE,
    PRIMARY KEY (owner, key)
);

CREATE INDEX idempotency_by_run ON idempotency (run);

CREATE TABLE leases (
    keeper TEXT PRIMARY KEY,
    until  REAL NOT NULL
);

-- Runs with the names and values that RunRecord has.
CREATE VIEW records AS
SELECT runs.n, runs.id, runs.owner, sessions.id AS session_id, message_id, parent_id, runs.model, kind, lifetime, status,
    keeper, epoch, request, queue_number, input,
    CASE status
        WHEN 'settled' THEN seq
        ELSE coalesce((SELECT first + count - 1 FROM events WHERE run = runs.n ORDER BY first DESC LIMIT 1), 0)
    END AS seq,
    oldest, runs.created_at, started_at, settled_at, settlement
FROM runs LEFT JOIN sessions ON sessions.n = runs.session;
