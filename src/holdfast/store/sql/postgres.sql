-- The queries that PostgreSQL has in its own words, by name: lists as arrays, search by tsvector, locks.
-- A transaction locks the row of its session first, then that of its run, so that two of them cannot
-- deadlock. FOR NO KEY UPDATE lets rows that only refer to a locked one be added meanwhile.

-- runs

-- name: lock_session_of_run
SELECT 1 FROM sessions WHERE n = (SELECT session FROM runs WHERE id = :id) FOR NO KEY UPDATE

-- name: run_to_change
SELECT runs.n, runs.id, runs.owner, sessions.id AS session_id, message_id, parent_id, runs.model, runs.kind, lifetime,
    status, keeper, epoch, ask, queue_number, input,
    CASE status
        WHEN 'settled' THEN seq
        ELSE coalesce((SELECT first + count - 1 FROM events WHERE run = runs.n ORDER BY first DESC LIMIT 1), 0)
    END AS seq,
    oldest, runs.created_at, started_at, settled_at, settlement, ahead, waits, payer
FROM runs LEFT JOIN sessions ON sessions.n = runs.session WHERE runs.id = :id FOR NO KEY UPDATE OF runs

-- name: runs_of_prefix
id >= :prefix AND id < :prefix || chr(1114111)

-- name: deletable_run
SELECT n FROM runs WHERE id = :id AND session IS NULL AND status = 'settled' FOR UPDATE

-- name: deletable_runs
SELECT n FROM runs WHERE {conditions} LIMIT :limit
FOR UPDATE SKIP LOCKED

-- name: audit_of_actors
actor = ANY (:actors)

-- name: owners_of
owner = ANY (:of)

-- name: owners_besides
NOT (owner = ANY (:besides))

-- logs

-- name: ends_of_logs
SELECT id, epoch, n, (SELECT first + count - 1 FROM events WHERE run = runs.n ORDER BY first DESC LIMIT 1) AS last
FROM runs WHERE id = ANY (:ids) AND status = 'running'

-- An append in one statement, if each row directly follows the end of its log; else nothing is added, `fits` is false.
-- The lock on the row of the node delays a claim that fences it until this is committed. LIMIT 1 keeps the planner
-- from comparing all running runs with all rows: it expects few of both.
-- name: append_rows
WITH mine AS (SELECT 1 FROM keepers WHERE id = :node_id AND NOT fenced FOR KEY SHARE),
asked AS (
    SELECT * FROM unnest(CAST(:ids AS text[]), CAST(:epochs AS bigint[]), CAST(:firsts AS bigint[]),
        CAST(:counts AS integer[]), CAST(:bodies AS bytea[]), CAST(:times AS double precision[]))
        WITH ORDINALITY AS asked (id, epoch, first, count, body, at, i)
),
placed AS (
    SELECT runs.n AS run, asked.first, asked.count, asked.body, asked.at, asked.i, coalesce(
        lag(asked.first + asked.count) OVER (PARTITION BY runs.n ORDER BY asked.i),
        (SELECT events.first + events.count FROM events WHERE events.run = runs.n ORDER BY events.first DESC LIMIT 1),
        1
    ) AS next
    FROM asked CROSS JOIN LATERAL (SELECT n, epoch, status FROM runs WHERE id = asked.id LIMIT 1) AS runs
    WHERE runs.epoch = asked.epoch AND runs.status = 'running' AND EXISTS (SELECT 1 FROM mine)
),
fitting AS (SELECT coalesce(bool_and(first = next), TRUE) AS fits FROM placed),
added AS (
    INSERT INTO events (run, first, count, body, at)
    SELECT run, first, count, body, at FROM placed WHERE (SELECT fits FROM fitting)
)
SELECT EXISTS (SELECT 1 FROM mine) AS is_standing, (SELECT fits FROM fitting) AS fits,
    ARRAY(SELECT i FROM placed) AS placed

-- name: read_log
SELECT first, body FROM (
    SELECT first, body, sum(count) OVER earlier AS events, sum(length(body)) OVER earlier AS bytes FROM (
        SELECT first, count, body FROM events
        WHERE run = :run AND first >= coalesce(
            (SELECT max(first) FROM events WHERE run = :run AND first <= :next), 0
        )
        ORDER BY first LIMIT CAST(:limit AS bigint) + 1
    ) AS found
    WINDOW earlier AS (ORDER BY first ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
) AS counted
WHERE coalesce(events, 0) < CAST(:limit AS bigint) + 512 AND coalesce(bytes, 0) < :bytes
ORDER BY first

-- name: due_for_trim
SELECT n FROM runs WHERE status = 'settled' AND oldest < seq AND settled_at < :before LIMIT :limit
FOR NO KEY UPDATE SKIP LOCKED

-- sessions

-- name: session_to_change
SELECT * FROM sessions WHERE id = :id FOR NO KEY UPDATE

-- name: list_sessions
SELECT n, id, owner, title, titled, model, NULL AS system, CAST('{}' AS bytea) AS params, preset, on_break, pinned,
    folder, tags, archived, head_id, created_at, updated_at, message_n, feed_n, queue_n, kind
FROM sessions WHERE owner = :owner AND kind = 'chat' AND {conditions}
ORDER BY pinned DESC, updated_at DESC, id DESC LIMIT :limit

-- name: chats_after
(pinned, updated_at, id) < (:pinned, :updated_at, :id) AND id >= :prefix AND id < :prefix || chr(1114111)

-- name: has_word
n IN (SELECT session FROM search WHERE words @@ CAST(CAST(:sought_{n} AS text) AS tsquery))

-- name: these_sessions
sessions.id = ANY (:ids)

-- name: numbers_of_sessions
SELECT id, n FROM sessions WHERE id = ANY (:ids)

-- name: first_with
SELECT n FROM search
WHERE session = :session AND n > 0 AND words @@ CAST(CAST(:word AS text) AS tsquery) ORDER BY n LIMIT :limit

-- name: known_messages
SELECT id FROM messages WHERE session = :session AND id = ANY (:ids)

-- name: messages_by_number
SELECT body FROM messages WHERE session = :session AND n = ANY (:numbers) ORDER BY n

-- name: messages_of_number
SELECT body FROM (
    SELECT n, body, sum(length(body)) OVER (ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes
    FROM messages WHERE session = :session
) AS counted
WHERE coalesce(bytes, 0) < :bytes ORDER BY n

-- name: to_index
SELECT n, title, message_n, indexed_n FROM sessions
WHERE n = ANY (:numbers) AND indexed_n < message_n AND kind = 'chat'
ORDER BY n FOR NO KEY UPDATE

-- name: messages_to_index
SELECT n, body FROM (
    SELECT n, body, sum(length(body)) OVER (ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes
    FROM (SELECT n, body FROM messages WHERE session = :session AND n > :after ORDER BY n LIMIT :limit) AS next
) AS counted
WHERE coalesce(bytes, 0) < :bytes ORDER BY n

-- name: index
INSERT INTO search (session, n, words) VALUES (:session, :n, array_to_tsvector(CAST(:words AS text[])))

-- name: words
SELECT array_to_string(tsvector_to_array(words), ' ') AS words FROM search WHERE session = :session AND n > 0

-- name: unindex_title
DELETE FROM search WHERE session = :session AND n = 0

-- name: unindex_from
DELETE FROM search WHERE session = :session AND n >= :n

-- name: unindex_session
DELETE FROM search WHERE session = :session

-- name: files_known
SELECT sha256 FROM files
WHERE sha256 = ANY (:hashes) AND EXISTS (SELECT 1 FROM files_used WHERE session = :session AND file = files.n)

-- name: read_files
SELECT sha256, type, data FROM files
WHERE sha256 = ANY (:hashes) AND EXISTS (
    SELECT 1 FROM files_used
    WHERE session = (SELECT n FROM sessions WHERE id = :session_id) AND file = files.n
)

-- documents

-- name: document_to_change
SELECT * FROM documents WHERE kind = :kind AND id = :id FOR UPDATE

-- nodes

-- name: standing
SELECT fenced FROM keepers WHERE id = :id FOR KEY SHARE

-- A node is fenced under a lock that waits for its appends.
-- name: fence
UPDATE keepers SET fenced = TRUE WHERE number IN (
    SELECT number FROM keepers WHERE until <= :clock AND NOT fenced AND EXISTS (
        SELECT 1 FROM keepers AS own
        WHERE own.id = :node_id AND NOT own.fenced AND :clock < own.until - own.seconds / 2
            AND :clock - own.since >= :unbroken
    )
    ORDER BY number FOR UPDATE
)

-- name: release
UPDATE keepers SET fenced = TRUE WHERE number IN (SELECT number FROM keepers WHERE id = :id FOR UPDATE)

-- name: start_rate
SELECT rest, :clock - at AS age FROM start_rates WHERE owner = :owner FOR UPDATE

-- name: take_orphans
UPDATE runs SET keeper = :node_id, epoch = epoch + 1, waits = 0
WHERE n IN (
    SELECT n FROM runs
    WHERE status = 'running' AND status <> 'settled' AND keeper NOT IN (SELECT id FROM keepers WHERE NOT fenced)
    ORDER BY n LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED
) AND EXISTS (SELECT 1 FROM keepers WHERE id = :node_id AND NOT fenced AND until > :clock)

-- name: ask_owner
INSERT INTO intents (id, run, kind, body, asked_by, asked_at)
SELECT :id, n, :kind, CAST(:body AS bytea), :asked_by, :clock FROM runs WHERE id = :run_id AND status = 'running'
ON CONFLICT (id) DO NOTHING

-- name: intent_to_change
SELECT intents.*, runs.id AS run_id, runs.epoch, runs.status, runs.keeper AS node_id
FROM intents JOIN runs ON runs.n = run WHERE intents.id = :id FOR UPDATE OF intents

-- hints

-- name: notify
SELECT pg_notify(:channel, :payload)

-- API keys

-- Changes of keys are numbered one after the other: a reader that has seen a number has missed none below it.
-- name: lock_api_keys
SELECT pg_advisory_xact_lock(4842671)

-- usage and budgets

-- Budgets are shared out one request after the other: two nodes never give out the same tokens.
-- name: lock_spending
SELECT pg_advisory_xact_lock(4842672)
-- the audit log

-- Entries are chained one after the other.
-- name: lock_audit
SELECT pg_advisory_xact_lock(4842673)

-- The index has no words of deleted rows.
-- name: search_changes
SELECT 0 AS changes

-- name: merge_search

-- name: forget_nothing_stored
SELECT forget_nothing_stored(:owner)
