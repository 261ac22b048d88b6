-- A charge may be that of several runs which ended in the same second.
DROP VIEW open_charges;

ALTER TABLE charges ADD COLUMN runs INTEGER NOT NULL DEFAULT 1;

CREATE VIEW open_charges AS
SELECT id, owner, key, group_ids, day, started_at, input_tokens + output_tokens AS used, coalesce(cost, 0) AS cost,
    CASE WHEN held_tokens > input_tokens + output_tokens THEN held_tokens ELSE input_tokens + output_tokens END AS held,
    CASE WHEN held_cost > coalesce(cost, 0) THEN held_cost ELSE coalesce(cost, 0) END AS held_cost,
    CASE WHEN settled_at IS NULL THEN 1 ELSE 0 END AS running, runs
FROM charges;
