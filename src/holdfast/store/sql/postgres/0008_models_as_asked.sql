-- works with 7
-- The model of a run as its client wrote it; `model` is its full name.
ALTER TABLE runs ADD COLUMN asked text COLLATE "C" NOT NULL DEFAULT '';

CREATE OR REPLACE VIEW records AS
SELECT runs.n, runs.id, runs.owner, sessions.id AS session_id, message_id, parent_id, runs.model, runs.kind, lifetime,
    status, keeper, epoch, request, queue_number, input,
    CASE status
        WHEN 'settled' THEN seq
        ELSE coalesce((SELECT first + count - 1 FROM events WHERE run = runs.n ORDER BY first DESC LIMIT 1), 0)
    END AS seq,
    oldest, runs.created_at, started_at, settled_at, settlement, ahead, waits, payer, asked
FROM runs LEFT JOIN sessions ON sessions.n = runs.session;
