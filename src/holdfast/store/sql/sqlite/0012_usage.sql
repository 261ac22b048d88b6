-- What runs use: who pays for each, what each has used, and sums by day.
DROP VIEW records;

ALTER TABLE runs ADD COLUMN payer BLOB NOT NULL DEFAULT '{}';

CREATE VIEW records AS
SELECT runs.n, runs.id, runs.owner, sessions.id AS session_id, message_id, parent_id, runs.model, runs.kind, lifetime,
    status, keeper, epoch, request, queue_number, input,
    CASE status
        WHEN 'settled' THEN seq
        ELSE coalesce((SELECT first + count - 1 FROM events WHERE run = runs.n ORDER BY first DESC LIMIT 1), 0)
    END AS seq,
    oldest, runs.created_at, started_at, settled_at, settlement, ahead, waits, payer
FROM runs LEFT JOIN sessions ON sessions.n = runs.session;

CREATE TABLE charges (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    key TEXT NOT NULL,
    group_ids TEXT NOT NULL,
    model TEXT NOT NULL,
    keeper TEXT NOT NULL,
    day INTEGER NOT NULL,
    started_at REAL NOT NULL,
    settled_at REAL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cost REAL,
    held_tokens INTEGER NOT NULL DEFAULT 0,
    held_cost REAL NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE INDEX charges_by_owner ON charges (owner);

CREATE INDEX charges_by_key ON charges (key);

CREATE INDEX charges_by_end ON charges (settled_at);

CREATE TABLE usage (
    day INTEGER NOT NULL,
    owner TEXT NOT NULL,
    key TEXT NOT NULL,
    model TEXT NOT NULL,
    runs INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cost REAL NOT NULL,
    PRIMARY KEY (day, owner, key, model)
) WITHOUT ROWID;

CREATE INDEX usage_by_owner ON usage (owner, day);

CREATE INDEX usage_by_key ON usage (key, day);

CREATE TABLE group_usage (
    group_id TEXT NOT NULL,
    day INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    cost REAL NOT NULL,
    PRIMARY KEY (group_id, day)
) WITHOUT ROWID;

CREATE VIEW open_charges AS
SELECT id, owner, key, group_ids, day, started_at, input_tokens + output_tokens AS used, coalesce(cost, 0) AS cost,
    CASE WHEN held_tokens > input_tokens + output_tokens THEN held_tokens ELSE input_tokens + output_tokens END AS held,
    CASE WHEN held_cost > coalesce(cost, 0) THEN held_cost ELSE coalesce(cost, 0) END AS held_cost,
    CASE WHEN settled_at IS NULL THEN 1 ELSE 0 END AS running
FROM charges;
