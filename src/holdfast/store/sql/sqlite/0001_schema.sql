-- Everything is a row of a session or of a run, and goes with it.
-- `n` counts rows in the order in which they were added, and is the short key that other tables refer to.

CREATE TABLE sessions (
    n          INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    owner      TEXT NOT NULL,
    title      TEXT NOT NULL,
    model      TEXT,
    folder     TEXT NOT NULL DEFAULT '', -- before columns that can be long: all of them are read for the owner's labels
    tags       TEXT NOT NULL DEFAULT '', -- each between line breaks
    archived   INTEGER NOT NULL DEFAULT 0,
    system     TEXT,
    params     BLOB NOT NULL,
    preset     TEXT NOT NULL DEFAULT '', -- the name of the preset that it was set up with
    on_break   TEXT, -- what is done if a response breaks off; NULL for what the settings say
    titled     TEXT NOT NULL DEFAULT '', -- 'person' or 'model' if one of them wrote its title
    pinned     INTEGER NOT NULL,
    head_id    TEXT,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    message_n  INTEGER NOT NULL DEFAULT 0, -- the last numbers given out: to a message,
    feed_n     INTEGER NOT NULL DEFAULT 0, -- to an entry of the feed,
    queue_n    INTEGER NOT NULL DEFAULT 0, -- to a queued run
    indexed_n  INTEGER NOT NULL DEFAULT -1, -- the search index has its messages up to this number, and from 0 on its title
    kind       TEXT NOT NULL DEFAULT 'chat' -- any other kind (a pane of a comparison) is in no list and in no search
);

CREATE INDEX sessions_in_order ON sessions (owner, pinned DESC, updated_at DESC, id DESC) WHERE kind = 'chat';
CREATE INDEX sessions_by_age ON sessions (updated_at) WHERE pinned = 0 AND kind = 'chat';
CREATE INDEX sessions_of_owner ON sessions (owner, id);
CREATE INDEX sessions_to_index ON sessions (owner)
WHERE kind = 'chat' AND indexed_n < message_n AND (message_n > 0 OR title <> '');

-- Messages never change. `body` is the whole message as JSON.
CREATE TABLE messages (
    session INTEGER NOT NULL REFERENCES sessions (n) ON DELETE CASCADE,
    n       INTEGER NOT NULL,
    id      TEXT NOT NULL,
    body    BLOB NOT NULL,
    PRIMARY KEY (session, n),
    UNIQUE (session, id)
);

-- A `message.added` refers to its message instead of repeating it.
CREATE TABLE feed (
    session INTEGER NOT NULL REFERENCES sessions (n) ON DELETE CASCADE,
    n       INTEGER NOT NULL,
    type    TEXT NOT NULL,
    data    BLOB,
    message INTEGER, -- messages.n
    PRIMARY KEY (session, n)
);

-- The words of messages and titles, made ready by rules.words(). The rowid is sessions.n * 2^20 + messages.n, with 0
-- for the title: so a search knows the sessions that it has found without reading a row.
-- Beside its words an entry has their first one, two and three letters, after a dot: a search asks for those first while it
-- is typed, and without them every word that begins so would have to be gathered.
CREATE VIRTUAL TABLE search USING fts5 (words, tokenize = 'ascii', detail = none);

-- `seq` counts the events of a settled run, the settlement included; until then the rows of `events` count.
CREATE TABLE runs (
    n            INTEGER PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    owner        TEXT NOT NULL,
    session      INTEGER REFERENCES sessions (n) ON DELETE CASCADE,
    message_id   TEXT,
    parent_id    TEXT,
    model        TEXT NOT NULL,
    kind         TEXT NOT NULL,
    lifetime     TEXT NOT NULL,
    status       TEXT NOT NULL CHECK (status IN ('queued', 'running', 'settled')),
    keeper       TEXT NOT NULL,
    epoch        INTEGER NOT NULL,
    ask          BLOB NOT NULL,
    queue_number INTEGER,
    input        BLOB NOT NULL,
    follows      TEXT, -- what a queued run is to follow: 'head', a message, or NULL for the beginning; later the head before it
    seq          INTEGER NOT NULL DEFAULT 0,
    oldest       INTEGER NOT NULL DEFAULT 1,
    created_at   REAL NOT NULL,
    started_at   REAL,
    settled_at   REAL,
    settlement   BLOB,
    ahead        INTEGER NOT NULL DEFAULT 0, -- a queued run that interrupts: before the others
    waits        INTEGER NOT NULL DEFAULT 0, -- for a person
    payer        BLOB NOT NULL DEFAULT '{}',
    asked        TEXT NOT NULL DEFAULT '', -- the model as the client wrote it; `model` is its full name
    CHECK ((status = 'settled') = (settlement IS NOT NULL))
);

CREATE INDEX runs_by_owner ON runs (owner);
CREATE INDEX runs_by_session ON runs (session) WHERE session IS NOT NULL;
CREATE INDEX runs_unsettled ON runs (status, session, ahead DESC, queue_number) WHERE status <> 'settled';
CREATE INDEX runs_with_log ON runs (settled_at) WHERE status = 'settled' AND oldest < seq;
CREATE INDEX runs_outside_sessions ON runs (settled_at) WHERE session IS NULL AND status = 'settled';
CREATE UNIQUE INDEX one_running_run ON runs (session) WHERE status = 'running' AND session IS NOT NULL;

-- What one append added to one run: the events `first` to `first + count - 1`, as a JSON array.
-- One of only text has the texts in place of events, in half the space. `at` is in Unix seconds.
-- Rows are added at the end of the table whatever run they belong to, so that a commit touches few pages.
CREATE TABLE events (
    run   INTEGER NOT NULL REFERENCES runs (n) ON DELETE CASCADE,
    first INTEGER NOT NULL,
    count INTEGER NOT NULL,
    body  BLOB NOT NULL,
    at    REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (run, first)
);

CREATE TABLE idempotency (
    owner  TEXT NOT NULL,
    key    TEXT NOT NULL,
    digest TEXT NOT NULL,
    run    INTEGER NOT NULL REFERENCES runs (n) ON DELETE CASCADE,
    PRIMARY KEY (owner, key)
);

CREATE INDEX idempotency_by_run ON idempotency (run);

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
CREATE INDEX documents_of_owner ON documents (owner, kind, id);

-- API keys of the server, as digests. A revoked key stays, so that nothing can add it a second time.
-- `changed` is a number for each change of a key.
CREATE TABLE api_keys (
    n            INTEGER PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    name         TEXT NOT NULL,
    sha256       TEXT NOT NULL,
    created_at   REAL NOT NULL,
    admin        INTEGER NOT NULL,
    revoked_at   REAL,
    owner        TEXT NOT NULL DEFAULT '',
    account      TEXT NOT NULL DEFAULT '',
    details      BLOB NOT NULL DEFAULT '{}',
    last_used_at REAL,
    changed      INTEGER NOT NULL DEFAULT 0
);

CREATE UNIQUE INDEX api_keys_in_force ON api_keys (owner, name) WHERE revoked_at IS NULL;
CREATE INDEX api_keys_by_change ON api_keys (changed);
CREATE INDEX api_keys_by_account ON api_keys (account);
CREATE INDEX api_keys_by_owner ON api_keys (owner);

-- Owners: all that something can belong to, but the keys of the settings file. A key refers to its owner.
CREATE TABLE owners (
    id      TEXT PRIMARY KEY,
    account TEXT NOT NULL -- the person; empty for a service
) WITHOUT ROWID;

-- Pictures of messages, once for each hash. A message refers to them by their hashes.
CREATE TABLE files (
    n      INTEGER PRIMARY KEY,
    sha256 TEXT NOT NULL UNIQUE,
    type   TEXT NOT NULL,
    data   BLOB NOT NULL
);

-- The sessions that may read a file. It is deleted with the last of them.
CREATE TABLE files_used (
    session INTEGER NOT NULL REFERENCES sessions (n) ON DELETE CASCADE,
    file    INTEGER NOT NULL REFERENCES files (n) ON DELETE CASCADE,
    PRIMARY KEY (session, file)
) WITHOUT ROWID;

CREATE INDEX files_used_by_file ON files_used (file);

-- What each person has seen of a session, whoever owns it: numbers of its feed. `wanted` is what they want to be told of.
CREATE TABLE readers (
    session INTEGER NOT NULL REFERENCES sessions (n) ON DELETE CASCADE,
    reader  TEXT NOT NULL,
    seen    INTEGER NOT NULL,
    told    INTEGER NOT NULL,
    wanted  TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, reader)
) WITHOUT ROWID;

CREATE INDEX readers_by_reader ON readers (reader);

-- Nodes that share the store: their leases, what they hold, and the requests to them.
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

-- How many runs each owner may still start.
CREATE TABLE start_rates (
    owner TEXT PRIMARY KEY,
    rest  REAL NOT NULL, -- starts, at that time
    at    REAL NOT NULL
) WITHOUT ROWID;

-- What runs use: what each has used, and sums by day. A charge may be that of several runs which ended in the same second.
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
    held_cost REAL NOT NULL DEFAULT 0,
    runs INTEGER NOT NULL DEFAULT 1
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
    CASE WHEN settled_at IS NULL THEN 1 ELSE 0 END AS running, runs
FROM charges;

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

-- Runs with the names and values that RunRecord has.
CREATE VIEW records AS
SELECT runs.n, runs.id, runs.owner, sessions.id AS session_id, message_id, parent_id, runs.model, runs.kind, lifetime,
    status, keeper, epoch, ask, queue_number, input,
    CASE status
        WHEN 'settled' THEN seq
        ELSE coalesce((SELECT first + count - 1 FROM events WHERE run = runs.n ORDER BY first DESC LIMIT 1), 0)
    END AS seq,
    oldest, runs.created_at, started_at, settled_at, settlement, ahead, waits, payer, asked
FROM runs LEFT JOIN sessions ON sessions.n = runs.session;

-- What counts for each owner: messages and pictures of sessions, runs, logs from their settlement on, documents.
CREATE VIEW stored_rows AS
SELECT owner, length(body) AS bytes FROM messages JOIN sessions ON sessions.n = messages.session
UNION ALL
SELECT owner, length(data) FROM files_used JOIN sessions ON sessions.n = session JOIN files ON files.n = file
UNION ALL
SELECT owner, length(ask) + length(input) + coalesce(length(settlement), 0) FROM runs
UNION ALL
SELECT owner, length(body) FROM events JOIN runs ON runs.n = events.run WHERE status = 'settled'
UNION ALL
SELECT owner, length(body) FROM documents;

-- Their sum, which every write adds to: reading all rows of an owner would take a second.
CREATE TABLE stored (
    owner TEXT PRIMARY KEY,
    bytes INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TRIGGER stored_message AFTER INSERT ON messages BEGIN
    INSERT INTO stored SELECT owner, length(NEW.body) FROM sessions WHERE n = NEW.session
    ON CONFLICT (owner) DO UPDATE SET bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER stored_changed_message AFTER UPDATE OF body ON messages BEGIN
    UPDATE stored SET bytes = bytes + length(NEW.body) - length(OLD.body)
    WHERE owner = (SELECT owner FROM sessions WHERE n = NEW.session);
END;

CREATE TRIGGER stored_picture AFTER INSERT ON files_used BEGIN
    INSERT INTO stored SELECT owner, length(data) FROM sessions JOIN files ON files.n = NEW.file WHERE sessions.n = NEW.session
    ON CONFLICT (owner) DO UPDATE SET bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER deleted_picture BEFORE DELETE ON files BEGIN
    UPDATE stored SET bytes = bytes - length(OLD.data) * (
        SELECT count(*) FROM files_used JOIN sessions ON sessions.n = session WHERE file = OLD.n AND owner = stored.owner
    ) WHERE owner IN (SELECT owner FROM files_used JOIN sessions ON sessions.n = session WHERE file = OLD.n);
END;

CREATE TRIGGER deleted_session BEFORE DELETE ON sessions BEGIN
    UPDATE stored SET bytes = bytes - coalesce((SELECT sum(length(body)) FROM messages WHERE session = OLD.n), 0)
        - coalesce((SELECT sum(length(data)) FROM files_used JOIN files ON files.n = file WHERE session = OLD.n), 0)
    WHERE owner = OLD.owner;
END;

CREATE TRIGGER stored_run AFTER INSERT ON runs BEGIN
    INSERT INTO stored VALUES (
        NEW.owner, length(NEW.ask) + length(NEW.input) + coalesce(length(NEW.settlement), 0)
    ) ON CONFLICT (owner) DO UPDATE SET bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER stored_changed_run AFTER UPDATE OF input ON runs BEGIN
    UPDATE stored SET bytes = bytes + length(NEW.input) - length(OLD.input) WHERE owner = NEW.owner;
END;

CREATE TRIGGER stored_settled_run AFTER UPDATE OF settlement ON runs WHEN OLD.settlement IS NULL BEGIN
    UPDATE stored SET bytes = bytes + length(NEW.settlement)
        + coalesce((SELECT sum(length(body)) FROM events WHERE run = NEW.n), 0)
    WHERE owner = NEW.owner;
END;

CREATE TRIGGER deleted_run BEFORE DELETE ON runs BEGIN
    UPDATE stored SET bytes = bytes - length(OLD.ask) - length(OLD.input) - coalesce(length(OLD.settlement), 0)
        - coalesce((SELECT sum(length(body)) FROM events WHERE run = OLD.n AND OLD.status = 'settled'), 0)
    WHERE owner = OLD.owner;
END;

-- Events that go with their run find no run any more, and were counted with it.
CREATE TRIGGER deleted_events AFTER DELETE ON events BEGIN
    UPDATE stored SET bytes = bytes - length(OLD.body)
    WHERE owner = (SELECT owner FROM runs WHERE n = OLD.run AND status = 'settled');
END;

CREATE TRIGGER stored_document AFTER INSERT ON documents BEGIN
    INSERT INTO stored VALUES (NEW.owner, length(NEW.body)) ON CONFLICT (owner) DO UPDATE SET bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER stored_changed_document AFTER UPDATE OF body ON documents BEGIN
    UPDATE stored SET bytes = bytes + length(NEW.body) - length(OLD.body) WHERE owner = NEW.owner;
END;

CREATE TRIGGER deleted_document BEFORE DELETE ON documents BEGIN
    UPDATE stored SET bytes = bytes - length(OLD.body) WHERE owner = OLD.owner;
END;

CREATE TRIGGER nothing_stored AFTER UPDATE ON stored WHEN NEW.bytes = 0 BEGIN
    DELETE FROM stored WHERE owner = NEW.owner;
END;
