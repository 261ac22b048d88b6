-- API keys of the server, as digests. A revoked key stays, so that nothing can add it a second time.

CREATE TABLE api_keys (
    n          INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    name       TEXT NOT NULL,
    sha256     TEXT NOT NULL,
    created_at REAL NOT NULL,
    admin      INTEGER NOT NULL,
    revoked_at REAL
);

CREATE UNIQUE INDEX api_keys_in_force ON api_keys (name) WHERE revoked_at IS NULL;
