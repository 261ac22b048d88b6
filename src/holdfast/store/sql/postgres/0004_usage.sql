-- What runs use: who pays for each, what each has used, and sums by day.
ALTER TABLE runs ADD COLUMN payer bytea NOT NULL DEFAULT '{}';

CREATE OR REPLACE VIEW records AS
SELECT runs.n, runs.id, runs.owner, sessions.id AS session_id, message_id, parent_id, runs.model, runs.kind, lifetime,
    status, keeper, epoch, request, queue_number, input,
    CASE status
        WHEN 'settled' THEN seq
        ELSE coalesce((SELECT first + count - 1 FROM events WHERE run = runs.n ORDER BY first DESC LIMIT 1), 0)
    END AS seq,
    oldest, runs.created_at, started_at, settled_at, settlement, ahead, waits, payer
FROM runs LEFT JOIN sessions ON sessions.n = runs.session;

CREATE TABLE charges (
    id text COLLATE "C" PRIMARY KEY,
    owner text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    group_ids text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    keeper text COLLATE "C" NOT NULL,
    day bigint NOT NULL,
    started_at double precision NOT NULL,
    settled_at double precision,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cost double precision,
    held_tokens bigint NOT NULL DEFAULT 0,
    held_cost double precision NOT NULL DEFAULT 0
);

CREATE INDEX charges_by_owner ON charges (owner);

CREATE INDEX charges_by_key ON charges (key);

CREATE INDEX charges_by_end ON charges (settled_at);

CREATE TABLE usage (
    day bigint NOT NULL,
    owner text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    runs bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cost double precision NOT NULL,
    PRIMARY KEY (day, owner, key, model)
);

CREATE INDEX usage_by_owner ON usage (owner, day);

CREATE INDEX usage_by_key ON usage (key, day);

CREATE TABLE group_usage (
    group_id text COLLATE "C" NOT NULL,
    day bigint NOT NULL,
    tokens bigint NOT NULL,
    cost double precision NOT NULL,
    PRIMARY KEY (group_id, day)
);

CREATE VIEW open_charges AS
SELECT id, owner, key, group_ids, day, started_at, input_tokens + output_tokens AS used, coalesce(cost, 0) AS cost,
    CASE WHEN held_tokens > input_tokens + output_tokens THEN held_tokens ELSE input_tokens + output_tokens END AS held,
    CASE WHEN held_cost > coalesce(cost, 0) THEN held_cost ELSE coalesce(cost, 0) END AS held_cost,
    CASE WHEN settled_at IS NULL THEN 1 ELSE 0 END AS running
FROM charges;
