-- What a feature keeps as a whole: a comparison with its vote, a setting. `body` is JSON that only the feature reads.

CREATE TABLE documents (
    n          INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again, so that a page goes on where the last one ended
    kind       TEXT NOT NULL,
    id         TEXT NOT NULL,
    owner      TEXT NOT NULL,
    version    INTEGER NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    body       BLOB NOT NULL,
    UNIQUE (kind, id)
);

CREATE INDEX documents_by_owner ON documents (kind, owner, n);
CREATE INDEX documents_by_kind ON documents (kind, n);

-- A session that is not a chat (a pane of a comparison) is in no list and in no search.
-- The view is made again because `kind` alone would now mean two columns.
DROP VIEW records;

ALTER TABLE sessions ADD COLUMN kind TEXT NOT NULL DEFAULT 'chat';

DROP INDEX sessions_in_order;

CREATE INDEX sessions_in_order ON sessions (owner, pinned DESC, updated_at DESC, id DESC) WHERE kind = 'chat';

CREATE VIEW records AS
SELECT runs.n, runs.id, runs.owner, sessions.id AS session_id, message_id, parent_id, runs.model, runs.kind, lifetime,
    status, keeper, epoch, request, queue_number, input,
    CASE status
        WHEN 'settled' THEN seq
        ELSE coalesce((SELECT first + count - 1 FROM events WHERE run = runs.n ORDER BY first DESC LIMIT 1), 0)
    END AS seq,
    oldest, runs.created_at, started_at, settled_at, settlement
FROM runs LEFT JOIN sessions ON sessions.n = runs.session;
