-- What several nodes have to know of each other's runs: which queued one is the next, which one waits for a person, and
-- how many an owner may still start.
DROP VIEW records;

ALTER TABLE runs ADD COLUMN ahead INTEGER NOT NULL DEFAULT 0; -- a queued run that interrupts: before the others
ALTER TABLE runs ADD COLUMN waits INTEGER NOT NULL DEFAULT 0;

DROP INDEX runs_unsettled;

CREATE INDEX runs_unsettled ON runs (status, session, ahead DESC, queue_number) WHERE status <> 'settled';

CREATE TABLE start_rates (
    owner TEXT PRIMARY KEY,
    rest  REAL NOT NULL, -- starts, at that time
    at    REAL NOT NULL
) WITHOUT ROWID;

CREATE VIEW records AS
SELECT runs.n, runs.id, runs.owner, sessions.id AS session_id, message_id, parent_id, runs.model, runs.kind, lifetime,
    status, keeper, epoch, request, queue_number, input,
    CASE status
        WHEN 'settled' THEN seq
        ELSE coalesce((SELECT first + count - 1 FROM events WHERE run = runs.n ORDER BY first DESC LIMIT 1), 0)
    END AS seq,
    oldest, runs.created_at, started_at, settled_at, settlement, ahead, waits
FROM runs LEFT JOIN sessions ON sessions.n = runs.session;
