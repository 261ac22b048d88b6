-- The queries of the SQLite store, by name.
-- `status <> 'settled'` beside `status = ...` says nothing new: it lets SQLite see that the small index will do.

-- runs

-- name: run
SELECT * FROM records WHERE id = :id

-- name: run_by_number
SELECT * FROM records WHERE n = :n

-- name: insert_run
INSERT INTO runs (id, owner, session, message_id, parent_id, model, kind, lifetime, status, keeper, epoch, request,
    queue_number, input, follows, created_at, started_at)
VALUES (:id, :owner, :session, :message_id, :parent_id, :model, :kind, :lifetime, :status, :keeper, :epoch, :request,
    :queue_number, :input, :follows, :created_at, :started_at)

-- name: start_run
UPDATE runs SET status = 'running', keeper = :keeper, parent_id = :parent_id, started_at = :at, input = :input
WHERE id = :id

-- name: settle_run
UPDATE runs SET status = 'settled', seq = :seq, settlement = :settlement, settled_at = :now WHERE id = :id

-- name: delete_run
DELETE FROM runs WHERE id = :id AND session IS NULL AND status = 'settled'

-- name: delete_runs
DELETE FROM runs WHERE n IN (
    SELECT n FROM runs WHERE session IS NULL AND status = 'settled' AND settled_at < :before LIMIT :limit
)

-- name: change_input
UPDATE runs SET input = :input WHERE id = :id

-- name: follows
SELECT follows FROM runs WHERE id = :id

-- name: unsettled
SELECT id, status FROM runs
WHERE status IN ('queued', 'running') AND status <> 'settled' AND session = :session
ORDER BY status DESC, queue_number

-- name: queued
SELECT * FROM records WHERE n IN (
    SELECT runs.n FROM runs JOIN sessions ON sessions.n = runs.session
    WHERE sessions.id = :session_id AND status = 'queued' AND status <> 'settled'
)
ORDER BY queue_number

-- name: list_runs
SELECT * FROM records WHERE n IN (
    SELECT n FROM (
        SELECT n, sum(length(request) + length(input) + coalesce(length(settlement), 0))
            OVER (ORDER BY n DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
        FROM (SELECT * FROM runs WHERE {conditions} ORDER BY n DESC LIMIT :limit)
    ) WHERE coalesce(before, 0) < :page_bytes
) ORDER BY n DESC

-- name: key
SELECT digest, run FROM idempotency WHERE owner = :owner AND key = :key

-- name: insert_key
INSERT INTO idempotency (owner, key, digest, run) VALUES (:owner, :key, :digest, :run)

-- logs

-- name: ends_of_logs
SELECT runs.id, epoch, n, (SELECT first + count - 1 FROM events WHERE run = runs.n ORDER BY first DESC LIMIT 1)
FROM json_each(CAST(:ids AS TEXT)) AS asked JOIN runs ON runs.id = asked.value
WHERE status = 'running'

-- name: append
INSERT INTO events (run, first, count, body, at) VALUES (?, ?, ?, ?, ?)

-- name: log
SELECT n, seq, oldest, status = 'settled' AS is_settled FROM runs WHERE id = :id

-- name: settlement
SELECT settlement FROM runs WHERE id = :id

-- name: read_log
SELECT first, body FROM events
WHERE run = :run AND first >= coalesce((SELECT max(first) FROM events WHERE run = :run AND first <= :next), 0)
ORDER BY first

-- name: read_times
SELECT first + count - 1 AS last, at FROM events WHERE run = (SELECT n FROM runs WHERE id = :id) ORDER BY first

-- name: due_for_trim
SELECT n FROM runs WHERE status = 'settled' AND oldest < seq AND settled_at < :before LIMIT :limit

-- name: trim_events
DELETE FROM events WHERE run = ?

-- name: trim_run
UPDATE runs SET oldest = seq WHERE n = ?

-- sessions

-- name: session
SELECT * FROM sessions WHERE id = :id

-- name: insert_session
INSERT INTO sessions (id, owner, kind, title, model, system, params, pinned, head_id, created_at, updated_at)
VALUES (:id, :owner, :kind, :title, :model, :system, :params, :pinned, :head_id, :created_at, :updated_at)

-- name: save_session
UPDATE sessions SET title = :title, model = :model, system = :system, params = :params, pinned = :pinned,
    head_id = :head_id, updated_at = :updated_at, message_n = :message_n, feed_n = :feed_n, queue_n = :queue_n
WHERE n = :n

-- name: list_sessions
SELECT n, id, owner, title, model, NULL AS system, CAST('{{}}' AS BLOB) AS params, pinned, head_id, created_at, updated_at,
    message_n, feed_n, queue_n, kind
FROM sessions WHERE owner = ? AND kind = 'chat' AND (pinned, updated_at, id) < (?, ?, ?)
    AND id >= ? AND id < ? || char(1114111) {found}
ORDER BY pinned DESC, updated_at DESC, id DESC LIMIT ?

-- name: found
AND n IN (SELECT rowid >> 20 FROM search WHERE search MATCH ?)

-- name: numbers_of_sessions
SELECT sessions.id, n FROM sessions JOIN json_each(CAST(:ids AS TEXT)) AS asked ON asked.value = sessions.id

-- name: first_with
SELECT rowid & ((1 << 20) - 1) AS n FROM search
WHERE search MATCH :word AND rowid BETWEEN (:session << 20) + 1 AND (:session << 20) + (1 << 20) - 1
ORDER BY rowid LIMIT :limit

-- name: messages_by_number
SELECT body FROM messages WHERE session = :session AND n IN (SELECT value FROM json_each(CAST(:numbers AS TEXT)))
ORDER BY n

-- name: messages_of_number
SELECT body FROM messages WHERE session = :session ORDER BY n

-- name: index
INSERT INTO search (rowid, words) VALUES ((:session << 20) + :n, :words)

-- name: words
SELECT words FROM search WHERE rowid BETWEEN (:session << 20) + 1 AND (:session << 20) + (1 << 20) - 1

-- name: words_of
SELECT words FROM search WHERE rowid = (:session << 20) + :n

-- name: unindex_title
DELETE FROM search WHERE rowid = :session << 20

-- name: unindex_session
DELETE FROM search WHERE rowid BETWEEN :session << 20 AND (:session << 20) + (1 << 20) - 1

-- name: delete_session
DELETE FROM sessions WHERE n = :n

-- name: insert_message
INSERT INTO messages (session, n, id, body) VALUES (:session, :n, :id, :body)

-- name: message
SELECT n, body FROM messages WHERE session = :session AND id = :id

-- name: change_message
UPDATE messages SET body = :body WHERE session = :session AND n = :n

-- name: forget_words
DELETE FROM search WHERE rowid = (:session << 20) + :n

-- name: has_message
SELECT 1 FROM messages WHERE session = :session AND id = :id

-- name: messages
SELECT body FROM messages WHERE session = (SELECT n FROM sessions WHERE id = :session_id) ORDER BY n

-- name: insert_file
INSERT INTO files (sha256, type, data) VALUES (:sha256, :type, :data) ON CONFLICT (sha256) DO NOTHING

-- name: use_file
INSERT INTO files_used (session, file) SELECT :session, n FROM files WHERE sha256 = :sha256
ON CONFLICT (session, file) DO NOTHING

-- name: files_known
SELECT sha256 FROM files JOIN json_each(CAST(:hashes AS TEXT)) AS asked ON asked.value = sha256
WHERE EXISTS (SELECT 1 FROM files_used WHERE session = :session AND file = files.n)

-- name: read_files
SELECT sha256, files.type, data FROM files JOIN json_each(CAST(:hashes AS TEXT)) AS asked ON asked.value = sha256
WHERE EXISTS (
    SELECT 1 FROM files_used
    WHERE session = (SELECT n FROM sessions WHERE id = :session_id) AND file = files.n
)

-- name: delete_files
DELETE FROM files WHERE n IN (SELECT file FROM files_used WHERE session = :session)
    AND NOT EXISTS (SELECT 1 FROM files_used WHERE file = files.n AND session <> :session)

-- name: tell
INSERT INTO feed (session, n, type, data, message) VALUES (:session, :n, :type, :data, :message)

-- name: read_feed
SELECT feed.n, type, data, body FROM feed LEFT JOIN messages
    ON messages.session = feed.session AND messages.n = feed.message
WHERE feed.session = (SELECT n FROM sessions WHERE id = :session_id) AND feed.n > :after
ORDER BY feed.n LIMIT :limit

-- name: session_place
SELECT feed_n, (
    SELECT id FROM runs WHERE status = 'running' AND status <> 'settled' AND session = sessions.n
) AS running
FROM sessions WHERE id = :session_id

-- documents

-- name: document
SELECT * FROM documents WHERE kind = :kind AND id = :id

-- name: list_documents
SELECT * FROM documents WHERE n IN (
    SELECT n FROM (
        SELECT n, sum(length(body))
            OVER (ORDER BY n DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
        FROM (SELECT n, body FROM documents WHERE {conditions} ORDER BY n DESC LIMIT :limit)
    ) WHERE coalesce(before, 0) < :page_bytes
) ORDER BY n DESC

-- name: insert_document
INSERT INTO documents (kind, id, owner, version, created_at, updated_at, body)
VALUES (:kind, :id, :owner, :version, :created_at, :updated_at, :body)

-- name: change_document
UPDATE documents SET version = :version, updated_at = :updated_at, body = :body WHERE kind = :kind AND id = :id

-- name: delete_document
DELETE FROM documents WHERE kind = :kind AND id = :id

-- API keys

-- name: api_keys
SELECT * FROM api_keys ORDER BY n

-- name: api_key_changes
SELECT count(*) + count(revoked_at) AS changes FROM api_keys

-- name: insert_api_key
INSERT INTO api_keys (id, name, sha256, created_at, admin, revoked_at)
VALUES (:id, :name, :sha256, :created_at, :admin, :revoked_at)

-- name: revoke_api_key
UPDATE api_keys SET revoked_at = :now WHERE id = :id

-- nodes

-- name: keeper
SELECT * FROM keepers WHERE id = :id

-- name: keepers
SELECT * FROM keepers WHERE NOT fenced ORDER BY number

-- name: renew
INSERT INTO keepers (id, address, version, counts, since, until, seconds)
VALUES (:id, :address, :version, :counts, :now, :now + :seconds, :seconds)
ON CONFLICT (id) DO UPDATE SET address = excluded.address, version = excluded.version, counts = excluded.counts,
    since = CASE WHEN :now < until - seconds / 2 THEN since ELSE :now END, until = excluded.until, seconds = excluded.seconds
WHERE NOT fenced

-- name: release
UPDATE keepers SET fenced = TRUE WHERE id = :id

-- name: forget_keepers
DELETE FROM keepers

-- name: fence
UPDATE keepers SET fenced = TRUE WHERE until <= :now AND NOT fenced

-- name: take_orphans
UPDATE runs SET keeper = :keeper, epoch = epoch + 1
WHERE n IN (
    SELECT n FROM runs
    WHERE status = 'running' AND status <> 'settled' AND keeper NOT IN (SELECT id FROM keepers WHERE NOT fenced)
    ORDER BY n LIMIT :limit
)

-- name: owned
SELECT id, epoch FROM runs WHERE status = 'running' AND status <> 'settled' AND keeper = :keeper ORDER BY n

-- name: hold
INSERT INTO holds (kind, id, keeper) SELECT :kind, :id, id FROM keepers WHERE id = :keeper AND NOT fenced
ON CONFLICT (kind, id) DO UPDATE SET keeper = excluded.keeper
WHERE holds.keeper NOT IN (SELECT id FROM keepers WHERE NOT fenced)

-- name: holder
SELECT keeper FROM holds WHERE kind = :kind AND id = :id

-- name: let_go
DELETE FROM holds WHERE kind = :kind AND id = :id AND keeper = :keeper

-- requests to the owner of a run

-- name: ask_owner
INSERT INTO intents (id, run, kind, body, asked_by, asked_at)
SELECT :id, n, :kind, :body, :asked_by, :now FROM runs WHERE id = :run_id AND status = 'running'
ON CONFLICT (id) DO NOTHING

-- name: intent
SELECT intents.*, runs.id AS run_id, runs.epoch, runs.status, runs.keeper
FROM intents JOIN runs ON runs.n = run WHERE intents.id = :id

-- name: open_intents
SELECT intents.*, runs.id AS run_id, runs.epoch, runs.status, runs.keeper
FROM intents JOIN runs ON runs.n = run
WHERE answer IS NULL AND keeper = :keeper AND status = 'running' AND taken < epoch
ORDER BY intents.n

-- name: take_intent
UPDATE intents SET taken = :epoch
WHERE id = :id AND answer IS NULL
    AND run IN (SELECT n FROM runs WHERE n = run AND status = 'running' AND epoch = :epoch)

-- name: answer_intent
UPDATE intents SET answer = :answer WHERE id = :id AND answer IS NULL

-- name: withdraw_intent
DELETE FROM intents WHERE id = :id

-- name: waiting_sessions
SELECT id FROM sessions
WHERE n IN (SELECT session FROM runs WHERE status = 'queued' AND status <> 'settled')
    AND n NOT IN (SELECT session FROM runs WHERE status = 'running' AND status <> 'settled' AND session IS NOT NULL)
ORDER BY n
