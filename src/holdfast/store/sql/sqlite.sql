-- The queries that SQLite has in its own words, by name: lists as JSON, search by FTS5.
-- One process writes, one transaction at a time: there is nothing to lock.

-- runs

-- name: lock_session_of_run

-- name: run_to_change
SELECT * FROM records WHERE id = :id

-- name: runs_of_prefix
id >= :prefix AND id < :prefix || char(1114111)

-- logs

-- name: ends_of_logs
SELECT runs.id, epoch, n, (SELECT first + count - 1 FROM events WHERE run = runs.n ORDER BY first DESC LIMIT 1)
FROM json_each(CAST(:ids AS TEXT)) AS asked JOIN runs ON runs.id = asked.value
WHERE status = 'running'

-- name: read_log
SELECT first, body FROM events
WHERE run = :run AND first >= coalesce((SELECT max(first) FROM events WHERE run = :run AND first <= :next), 0)
ORDER BY first

-- sessions

-- name: session_to_change
SELECT * FROM sessions WHERE id = :id

-- name: list_sessions
SELECT n, id, owner, title, titled, model, NULL AS system, CAST('{}' AS BLOB) AS params, preset, on_break, pinned,
    folder, tags, archived, head_id, created_at, updated_at, message_n, feed_n, queue_n, kind
FROM sessions WHERE owner = :owner AND kind = 'chat' AND {conditions}
ORDER BY pinned DESC, updated_at DESC, id DESC LIMIT :limit

-- name: chats_after
(pinned, updated_at, id) < (:pinned, :updated_at, :id) AND id >= :prefix AND id < :prefix || char(1114111)

-- name: has_word
n IN (SELECT rowid >> 20 FROM search WHERE search MATCH :sought_{n})

-- name: numbers_of_sessions
SELECT sessions.id AS id, n FROM sessions JOIN json_each(CAST(:ids AS TEXT)) AS asked ON asked.value = sessions.id

-- name: first_with
SELECT rowid & ((1 << 20) - 1) AS n FROM search
WHERE search MATCH :word AND rowid BETWEEN (:session << 20) + 1 AND (:session << 20) + (1 << 20) - 1
ORDER BY rowid LIMIT :limit

-- name: known_messages
SELECT id FROM messages WHERE session = :session AND id IN (SELECT value FROM json_each(CAST(:ids AS TEXT)))

-- name: messages_by_number
SELECT body FROM messages WHERE session = :session AND n IN (SELECT value FROM json_each(CAST(:numbers AS TEXT)))
ORDER BY n

-- name: messages_of_number
SELECT body FROM messages WHERE session = :session ORDER BY n

-- name: to_index
SELECT n, title, message_n, indexed_n FROM sessions
WHERE n IN (SELECT value FROM json_each(CAST(:numbers AS TEXT))) AND indexed_n < message_n AND kind = 'chat'
ORDER BY n

-- name: messages_to_index
SELECT n, body FROM messages WHERE session = :session AND n > :after ORDER BY n LIMIT :limit

-- name: index
INSERT INTO search (rowid, words) VALUES ((:session << 20) + :n, :words)

-- name: words
SELECT words FROM search WHERE rowid BETWEEN (:session << 20) + 1 AND (:session << 20) + (1 << 20) - 1

-- name: unindex_title
DELETE FROM search WHERE rowid = :session << 20

-- name: unindex_from
DELETE FROM search WHERE rowid BETWEEN (:session << 20) + :n AND (:session << 20) + (1 << 20) - 1

-- name: unindex_session
DELETE FROM search WHERE rowid BETWEEN :session << 20 AND (:session << 20) + (1 << 20) - 1

-- name: files_known
SELECT sha256 FROM files JOIN json_each(CAST(:hashes AS TEXT)) AS asked ON asked.value = sha256
WHERE EXISTS (SELECT 1 FROM files_used WHERE session = :session AND file = files.n)

-- name: read_files
SELECT sha256, files.type, data FROM files JOIN json_each(CAST(:hashes AS TEXT)) AS asked ON asked.value = sha256
WHERE EXISTS (
    SELECT 1 FROM files_used
    WHERE session = (SELECT n FROM sessions WHERE id = :session_id) AND file = files.n
)

-- name: these_sessions
sessions.id IN (SELECT value FROM json_each(CAST(:ids AS TEXT)))

-- documents

-- name: audit_of_actors
actor IN (SELECT value FROM json_each(CAST(:actors AS TEXT)))

-- name: owners_of
owner IN (SELECT value FROM json_each(CAST(:of AS TEXT)))

-- name: owners_besides
owner NOT IN (SELECT value FROM json_each(CAST(:besides AS TEXT)))

-- name: document_to_change
SELECT * FROM documents WHERE kind = :kind AND id = :id

-- nodes

-- name: standing
SELECT fenced FROM keepers WHERE id = :id

-- name: start_rate
SELECT rest, :clock - at AS age FROM start_rates WHERE owner = :owner

-- name: take_orphans
UPDATE runs SET keeper = :node_id, epoch = epoch + 1, waits = 0
WHERE n IN (
    SELECT n FROM runs
    WHERE status = 'running' AND status <> 'settled' AND keeper NOT IN (SELECT id FROM keepers WHERE NOT fenced)
    ORDER BY n LIMIT :limit
) AND EXISTS (SELECT 1 FROM keepers WHERE id = :node_id AND NOT fenced AND until > :clock)

-- name: forget_nodes
DELETE FROM keepers

-- name: intent_to_change
SELECT intents.*, runs.id AS run_id, runs.epoch, runs.status, runs.keeper AS node_id
FROM intents JOIN runs ON runs.n = run WHERE intents.id = :id

-- usage and budgets

-- name: lock_spending
-- name: search_changes
SELECT total_changes() AS changes

-- name: merge_search
INSERT INTO search (search, rank) VALUES ('merge', :pages)

-- name: forget_nothing_stored
DELETE FROM stored WHERE owner = :owner AND bytes = 0
