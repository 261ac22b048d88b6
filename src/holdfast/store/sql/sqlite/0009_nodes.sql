-- Nodes that share the store: their leases, what they hold, and the requests to them.
DROP TABLE leases;

CREATE TABLE keepers (
    number  INTEGER PRIMARY KEY,
    id      TEXT NOT NULL UNIQUE,
    address TEXT NOT NULL,
    version TEXT NOT NULL,
    counts  BLOB NOT NULL,
    since   REAL NOT NULL,
    until   REAL NOT NULL,
    seconds REAL NOT NULL,
    fenced  INTEGER NOT NULL DEFAULT FALSE
);

CREATE TABLE holds (
    kind   TEXT NOT NULL,
    id     TEXT NOT NULL,
    keeper TEXT NOT NULL,
    PRIMARY KEY (kind, id)
) WITHOUT ROWID;

CREATE TABLE intents (
    n        INTEGER PRIMARY KEY,
    id       TEXT NOT NULL UNIQUE,
    run      INTEGER NOT NULL REFERENCES runs (n) ON DELETE CASCADE,
    kind     TEXT NOT NULL,
    body     BLOB NOT NULL,
    asked_by TEXT NOT NULL,
    asked_at REAL NOT NULL,
    taken    INTEGER NOT NULL DEFAULT 0,
    answer   BLOB
);

CREATE INDEX intents_by_run ON intents (run);

CREATE UNIQUE INDEX one_running_run ON runs (session) WHERE status = 'running' AND session IS NOT NULL;
