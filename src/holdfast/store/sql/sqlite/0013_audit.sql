-- works with 10
-- The audit log. Entries are added, and deleted only because of their age. Each digest covers the one before.
CREATE TABLE audit (
    n      INTEGER PRIMARY KEY,
    id     TEXT NOT NULL UNIQUE,
    at     REAL NOT NULL,
    actor  TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    body   BLOB NOT NULL,
    hash   TEXT NOT NULL
);

CREATE INDEX audit_by_actor ON audit (actor, n);

CREATE INDEX audit_by_action ON audit (action, n);

CREATE INDEX audit_by_target ON audit (target, n);

CREATE INDEX audit_by_time ON audit (at);

-- Number and digest of the newest entry: one row. It outlives the entry, so that numbers are never given out twice.
CREATE TABLE audit_end (
    one  INTEGER PRIMARY KEY CHECK (one = 1),
    n    INTEGER NOT NULL,
    hash TEXT NOT NULL
);

CREATE INDEX sessions_by_age ON sessions (updated_at) WHERE pinned = 0 AND kind = 'chat';

-- Finds all that an owner has, of every kind.
CREATE INDEX sessions_of_owner ON sessions (owner, id);

CREATE INDEX documents_of_owner ON documents (owner, kind, id);
