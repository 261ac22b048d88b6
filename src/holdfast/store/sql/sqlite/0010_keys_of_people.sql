-- Keys of people and services: limits, expiry, last use, and a number for each change of a key.
ALTER TABLE api_keys ADD COLUMN owner TEXT NOT NULL DEFAULT '';

ALTER TABLE api_keys ADD COLUMN account TEXT NOT NULL DEFAULT '';

ALTER TABLE api_keys ADD COLUMN details BLOB NOT NULL DEFAULT '{}';

ALTER TABLE api_keys ADD COLUMN last_used_at REAL;

ALTER TABLE api_keys ADD COLUMN changed INTEGER NOT NULL DEFAULT 0;

UPDATE api_keys SET changed = n;

DROP INDEX api_keys_in_force;

CREATE UNIQUE INDEX api_keys_in_force ON api_keys (owner, name) WHERE revoked_at IS NULL;

CREATE INDEX api_keys_by_change ON api_keys (changed);

CREATE INDEX api_keys_by_account ON api_keys (account);
