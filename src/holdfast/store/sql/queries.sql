-- The queries of every SQL store, by name. Queries that differ between databases are in the file of each dialect.
-- `status <> 'settled'` beside `status = ...` is redundant: with it SQLite uses the small partial index.
-- A `?` stands in queries that run once for each tuple of a list.

-- runs

-- name: run
SELECT * FROM records WHERE id = :id

-- name: run_by_number
SELECT * FROM records WHERE n = :n

-- name: insert_run
INSERT INTO runs (id, owner, session, message_id, parent_id, model, kind, lifetime, status, keeper, epoch, ask,
    queue_number, ahead, input, follows, created_at, started_at, payer, asked)
VALUES (:id, :owner, :session, :message_id, :parent_id, :model, :kind, :lifetime, :status, :node_id, :epoch, :ask,
    :queue_number, :ahead, :input, :follows, :created_at, :started_at, :payer, :asked)

-- name: start_run
UPDATE runs SET status = 'running', keeper = :node_id, parent_id = :parent_id, started_at = :at, input = :input,
    follows = :follows
WHERE id = :id

-- name: settle_run
UPDATE runs SET status = 'settled', seq = :seq, settlement = :settlement, settled_at = :now, waits = 0 WHERE id = :id

-- name: deletable_run
SELECT n FROM runs WHERE id = :id AND session IS NULL AND status = 'settled'

-- name: deletable_runs
SELECT n FROM runs WHERE {conditions} LIMIT :limit

-- name: deletable
session IS NULL AND status = 'settled' AND settled_at < :before

-- name: delete_run
DELETE FROM runs WHERE n = ?

-- name: note_waiting
UPDATE runs SET waits = :waits WHERE id = :id AND epoch = :epoch AND status = 'running'

-- name: number_queued
UPDATE runs SET queue_number = :queue_number WHERE id = :id

-- name: change_input
UPDATE runs SET input = :input WHERE id = :id

-- name: follows
SELECT follows FROM runs WHERE id = :id

-- name: unsettled
SELECT id, status, ahead FROM runs
WHERE status IN ('queued', 'running') AND status <> 'settled' AND session = :session
ORDER BY status DESC, ahead DESC, queue_number

-- name: queued
SELECT * FROM records WHERE n IN (
    SELECT runs.n FROM runs JOIN sessions ON sessions.n = runs.session
    WHERE sessions.id = :session_id AND status = 'queued' AND status <> 'settled'
)
ORDER BY ahead DESC, queue_number

-- name: is_waiting
SELECT 1 FROM runs WHERE status = 'queued' AND status <> 'settled'
    AND session = (SELECT n FROM sessions WHERE id = :session_id) LIMIT 1

-- name: list_runs
SELECT * FROM records WHERE n IN (
    SELECT n FROM (
        SELECT n, sum(length(ask) + length(input) + coalesce(length(settlement), 0))
            OVER (ORDER BY n DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
        FROM (SELECT * FROM runs WHERE {conditions} ORDER BY n DESC LIMIT :limit) AS found
    ) AS counted WHERE coalesce(before, 0) < :page_bytes
) ORDER BY n DESC

-- name: any_run
TRUE

-- name: runs_of_owner
owner = :owner

-- name: unindexed_owner
owner || '' = :owner

-- name: runs_of_session_id
session = (SELECT n FROM sessions WHERE id = :session_id)

-- name: runs_of_status
status = :status

-- name: runs_in_progress
status <> 'settled'

-- name: runs_of_before
n < (SELECT n FROM runs WHERE id = :before)

-- name: key
SELECT digest, run FROM idempotency WHERE owner = :owner AND key = :key

-- name: insert_key
INSERT INTO idempotency (owner, key, digest, run) SELECT :owner, :key, :digest, n FROM runs WHERE id = :run_id

-- logs

-- name: append
INSERT INTO events (run, first, count, body, at) VALUES (?, ?, ?, ?, ?)

-- name: log
SELECT n, seq, oldest, status = 'settled' AS is_settled FROM runs WHERE id = :id

-- name: settlement
SELECT settlement FROM runs WHERE id = :id

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
INSERT INTO sessions (id, owner, kind, title, titled, model, system, params, preset, on_break, pinned, folder, tags,
    archived, head_id, created_at, updated_at)
VALUES (:id, :owner, :kind, :title, :titled, :model, :system, :params, :preset, :on_break, :pinned, :folder, :tags,
    :archived, :head_id, :created_at, :updated_at)

-- name: save_session
UPDATE sessions SET title = :title, titled = :titled, model = :model, system = :system, params = :params,
    preset = :preset, on_break = :on_break, pinned = :pinned, folder = :folder, tags = :tags, archived = :archived,
    head_id = :head_id, updated_at = :updated_at, message_n = :message_n, feed_n = :feed_n, queue_n = :queue_n,
    indexed_n = :indexed_n
WHERE n = :n

-- name: has_folder
folder = :folder

-- name: has_tag
replace(tags, :tag, '') <> tags

-- name: has_archived
archived = :archived

-- name: labels
SELECT folder, tags, archived, count(*) AS sessions FROM sessions
WHERE owner = :owner AND kind = 'chat' AND (folder <> '' OR tags <> '' OR archived = 1)
GROUP BY folder, tags, archived

-- name: delete_session
DELETE FROM sessions WHERE n = :n

-- name: insert_message
INSERT INTO messages (session, n, id, body) VALUES (:session, :n, :id, :body)

-- name: unindexed
SELECT n FROM sessions
WHERE kind = 'chat' AND indexed_n < message_n AND (message_n > 0 OR title <> '') AND {conditions} LIMIT :limit

-- name: any_session
TRUE

-- name: sessions_of_one
owner = :owner

-- name: note_indexed
UPDATE sessions SET indexed_n = :indexed_n WHERE n = :n

-- name: message
SELECT n, body FROM messages WHERE session = :session AND id = :id

-- name: change_message
UPDATE messages SET body = :body WHERE session = :session AND n = :n

-- name: has_message
SELECT 1 FROM messages WHERE session = :session AND id = :id

-- name: message_of_session
SELECT id, body FROM messages WHERE session = (SELECT n FROM sessions WHERE id = :session_id) AND id = :id

-- name: messages
SELECT id, body FROM messages WHERE session = (SELECT n FROM sessions WHERE id = :session_id) ORDER BY n

-- name: insert_file
INSERT INTO files (sha256, type, data) VALUES (:sha256, :type, :data) ON CONFLICT (sha256) DO NOTHING

-- name: use_file
INSERT INTO files_used (session, file) SELECT :session, n FROM files WHERE sha256 = :sha256
ON CONFLICT (session, file) DO NOTHING

-- name: delete_files
DELETE FROM files WHERE n IN (SELECT file FROM files_used WHERE session = :session)
    AND NOT EXISTS (SELECT 1 FROM files_used WHERE file = files.n AND session <> :session)

-- name: tell
INSERT INTO feed (session, n, type, data, message) VALUES (:session, :n, :type, :data, :message)

-- name: read_feed
SELECT feed.n, type, data, body, messages.id AS message_id FROM feed LEFT JOIN messages
    ON messages.session = feed.session AND messages.n = feed.message
WHERE feed.session = (SELECT n FROM sessions WHERE id = :session_id) AND feed.n > :after
ORDER BY feed.n LIMIT :limit

-- name: feed_place
SELECT feed_n, feed.n, type, data, NULL AS message_id FROM sessions LEFT JOIN feed
    ON feed.session = sessions.n AND feed.n <= :n AND type IN ('run.started', 'run.settled') AND feed.n >= (
        SELECT n FROM feed WHERE session = sessions.n AND n <= :n AND type = 'run.started' ORDER BY n DESC LIMIT 1
    )
WHERE sessions.id = :session_id ORDER BY feed.n

-- name: session_place
SELECT feed_n, (
    SELECT id FROM runs WHERE status = 'running' AND status <> 'settled' AND session = sessions.n
) AS running
FROM sessions WHERE id = :session_id

-- name: note_reader
INSERT INTO readers (session, reader, seen, told)
SELECT n, :reader, :seen, :told FROM sessions WHERE id = :session_id
ON CONFLICT (session, reader) DO UPDATE SET
    seen = CASE WHEN excluded.seen > readers.seen THEN excluded.seen ELSE readers.seen END,
    told = CASE WHEN excluded.told > readers.told THEN excluded.told ELSE readers.told END

-- name: set_wanted
INSERT INTO readers (session, reader, seen, told, wanted) SELECT n, :reader, 0, 0, :wanted FROM sessions WHERE id = :session_id
ON CONFLICT (session, reader) DO UPDATE SET wanted = excluded.wanted

-- name: standings
SELECT sessions.id, feed_n, coalesce(seen, 0) AS seen, coalesce(told, 0) AS told, coalesce(wanted, '') AS wanted,
    ended.n AS ended, ended.data
FROM sessions LEFT JOIN readers ON readers.session = sessions.n AND reader = :reader
LEFT JOIN feed AS ended ON ended.session = sessions.n AND ended.n = (
    SELECT n FROM feed WHERE session = sessions.n AND type = 'run.settled' ORDER BY n DESC LIMIT 1
)
WHERE {conditions}

-- name: one_session
sessions.id = :session_id

-- name: read_by
sessions.n IN (
    SELECT session FROM readers JOIN sessions ON sessions.n = session
    WHERE reader = :reader AND sessions.id > :after ORDER BY sessions.id LIMIT :limit
)

-- name: readers_to_forget
SELECT session FROM readers WHERE reader = :reader LIMIT :limit

-- name: forget_reader
DELETE FROM readers WHERE session = ? AND reader = ?

-- documents

-- name: document
SELECT * FROM documents WHERE kind = :kind AND id = :id

-- name: list_documents
SELECT * FROM documents WHERE n IN (
    SELECT n FROM (
        SELECT n, sum(length(body))
            OVER (ORDER BY n DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
        FROM (SELECT n, body FROM documents WHERE {conditions} ORDER BY n DESC LIMIT :limit) AS found
    ) AS counted WHERE coalesce(before, 0) < :page_bytes
) ORDER BY n DESC

-- name: documents_of_kind
kind = :kind

-- name: documents_of_owner
owner = :owner

-- name: documents_of_before
n < (SELECT n FROM documents WHERE kind = :kind AND id = :before)

-- name: insert_document
INSERT INTO documents (kind, id, owner, version, created_at, updated_at, body)
VALUES (:kind, :id, :owner, :version, :created_at, :updated_at, :body)

-- name: change_document
UPDATE documents SET version = :version, updated_at = :updated_at, body = :body WHERE kind = :kind AND id = :id

-- name: delete_document
DELETE FROM documents WHERE kind = :kind AND id = :id

-- owners and API keys

-- name: owner
SELECT account FROM owners WHERE id = :id

-- name: put_owner
INSERT INTO owners (id, account) VALUES (:id, :account) ON CONFLICT (id) DO UPDATE SET account = excluded.account

-- name: delete_owner
DELETE FROM owners WHERE id = :id

-- name: give_api_keys
UPDATE api_keys SET account = :account, changed = (SELECT coalesce(max(changed), 0) + 1 FROM api_keys)
WHERE owner = :owner AND account = ''

-- name: misplaced_api_keys
SELECT api_keys.id AS id FROM api_keys LEFT JOIN owners ON owners.id = api_keys.owner
WHERE revoked_at IS NULL AND (owners.account IS NULL OR owners.account <> api_keys.account) ORDER BY n

-- name: every_api_key
SELECT * FROM api_keys ORDER BY n

-- name: api_keys
SELECT * FROM api_keys WHERE {conditions} ORDER BY n

-- name: api_keys_of_changed
changed > :after

-- name: api_keys_of_account
account = :account

-- name: api_key
SELECT * FROM api_keys WHERE id = :id

-- name: api_key_changes
SELECT coalesce(max(changed), 0) AS changes FROM api_keys

-- name: lock_api_keys
SELECT 1 AS locked

-- name: insert_api_key
INSERT INTO api_keys (id, name, sha256, created_at, admin, revoked_at, owner, account, details, last_used_at, changed)
VALUES (:id, :name, :sha256, :created_at, :admin, :revoked_at, :owner, :account, :details, :last_used_at,
    (SELECT coalesce(max(changed), 0) + 1 FROM api_keys))

-- name: change_api_key
UPDATE api_keys SET revoked_at = :revoked_at, details = :details,
    changed = (SELECT coalesce(max(changed), 0) + 1 FROM api_keys)
WHERE id = :id

-- name: api_key_used
UPDATE api_keys SET last_used_at = :now WHERE id = :id

-- name: revoked_keys_of
SELECT id FROM api_keys WHERE account = :account AND revoked_at IS NOT NULL ORDER BY n

-- name: forget_api_key
UPDATE api_keys SET name = '', owner = '', account = '', details = :details, last_used_at = NULL,
    changed = (SELECT coalesce(max(changed), 0) + 1 FROM api_keys)
WHERE id = :id

-- the audit log, and the data of an owner

-- name: lock_audit
SELECT 1 AS locked

-- name: audit_entry
SELECT * FROM audit WHERE id = :id

-- name: audit_end
SELECT n, hash FROM audit_end

-- name: insert_audit
INSERT INTO audit (n, id, at, actor, action, target, body, hash)
VALUES (:n, :id, :at, :actor, :action, :target, :body, :hash)

-- name: move_audit_end
INSERT INTO audit_end (one, n, hash) VALUES (1, :n, :hash)
ON CONFLICT (one) DO UPDATE SET n = excluded.n, hash = excluded.hash

-- name: audit
SELECT * FROM audit WHERE {conditions} ORDER BY n LIMIT :limit

-- name: audit_newest
SELECT * FROM audit WHERE {conditions} ORDER BY n DESC LIMIT :limit

-- name: audit_numbers
n > :after AND n < :before

-- name: audit_of_action
(action = :action OR action LIKE CAST(:action AS text) || '.%')

-- name: audit_of_changes
NOT (action LIKE 'GET %' OR action LIKE '%.list' OR action LIKE '%.read')

-- name: audit_of_person
(actor = :person OR target = :person)

-- name: audit_of_since
at >= :since

-- name: audit_of_until
at < :until

-- name: count_audit
SELECT count(*) AS entries FROM audit WHERE n <= :through

-- name: delete_audit
DELETE FROM audit WHERE n <= :through

-- name: sessions_of
SELECT id FROM sessions WHERE owner = :owner AND id > :after ORDER BY id LIMIT :limit

-- name: old_sessions
SELECT id, owner FROM sessions WHERE {conditions} ORDER BY updated_at LIMIT :limit

-- name: old_chat
updated_at < :before AND created_at < :before AND pinned = 0 AND kind = 'chat'

-- name: old_idempotency
SELECT owner, key FROM idempotency WHERE EXISTS (
    SELECT 1 FROM runs WHERE runs.n = idempotency.run AND status = 'settled' AND settled_at < :before
) LIMIT :limit

-- name: forget_idempotency
DELETE FROM idempotency WHERE owner = ? AND key = ?

-- name: forget_key_of_run
DELETE FROM idempotency WHERE run = (SELECT n FROM runs WHERE id = :id)

-- name: documents_of
SELECT * FROM documents WHERE owner = :owner AND (kind, id) > (:kind, :id) ORDER BY kind, id LIMIT :limit

-- name: count_usage_of
SELECT (SELECT count(*) FROM usage WHERE owner = :owner) + (SELECT count(*) FROM charges WHERE owner = :owner) AS entries

-- name: disown_charges_of
UPDATE charges SET owner = '', key = '' WHERE owner = :owner

-- name: disown_usage_of
INSERT INTO usage (day, owner, key, model, runs, input_tokens, output_tokens, cost)
SELECT day, '', '', model, sum(runs), sum(input_tokens), sum(output_tokens), sum(cost)
FROM usage WHERE owner = :owner GROUP BY day, model
ON CONFLICT (day, owner, key, model) DO UPDATE SET runs = usage.runs + excluded.runs,
    input_tokens = usage.input_tokens + excluded.input_tokens,
    output_tokens = usage.output_tokens + excluded.output_tokens, cost = usage.cost + excluded.cost

-- name: delete_usage_of
DELETE FROM usage WHERE owner = :owner

-- name: documents_to_delete
SELECT n FROM documents WHERE owner = :owner ORDER BY kind, id LIMIT :limit

-- name: delete_document_by_number
DELETE FROM documents WHERE n = ?

-- nodes, in the table keepers; a column keeper has the id of a node
-- A new name in the database would break the nodes of the version before, which share it during an upgrade.

-- name: node
SELECT *, until - :clock AS lease_left FROM keepers WHERE id = :id

-- name: nodes
SELECT *, until - :clock AS lease_left FROM keepers WHERE NOT fenced ORDER BY number

-- name: renew
INSERT INTO keepers (id, address, version, counts, since, until, seconds)
VALUES (:id, :address, :version, :counts, :clock, :clock + :seconds, :seconds)
ON CONFLICT (id) DO UPDATE SET address = excluded.address, version = excluded.version, counts = excluded.counts,
    since = CASE WHEN :clock < keepers.until - keepers.seconds / 2 THEN keepers.since ELSE :clock END,
    until = excluded.until, seconds = excluded.seconds
WHERE NOT keepers.fenced

-- name: release
UPDATE keepers SET fenced = TRUE WHERE id = :id

-- name: give_up
UPDATE runs SET keeper = '' WHERE id = :id AND keeper = :node_id AND status = 'running'

-- name: fence
UPDATE keepers SET fenced = TRUE WHERE until <= :clock AND NOT fenced AND EXISTS (
    SELECT 1 FROM keepers AS own
    WHERE own.id = :node_id AND NOT own.fenced AND :clock < own.until - own.seconds / 2
        AND :clock - own.since >= :unbroken
)

-- name: owned
SELECT id, epoch FROM runs WHERE status = 'running' AND status <> 'settled' AND keeper = :node_id ORDER BY n

-- name: running_elsewhere
SELECT count(*) AS runs, coalesce(sum(CASE WHEN owner = :owner THEN 1 ELSE 0 END), 0) AS of_owner FROM runs
WHERE status = 'running' AND status <> 'settled' AND keeper <> :node_id

-- name: add_start_rate
INSERT INTO start_rates (owner, rest, at) VALUES (:owner, :rest, :clock) ON CONFLICT (owner) DO NOTHING

-- name: change_start_rate
UPDATE start_rates SET rest = :rest, at = :clock WHERE owner = :owner

-- name: hold
INSERT INTO holds (kind, id, keeper) SELECT :kind, :id, id FROM keepers WHERE id = :node_id AND NOT fenced
ON CONFLICT (kind, id) DO UPDATE SET keeper = excluded.keeper
WHERE holds.keeper NOT IN (SELECT id FROM keepers WHERE NOT fenced)

-- name: holder
SELECT keeper AS node_id FROM holds WHERE kind = :kind AND id = :id

-- name: standing_holder
SELECT keeper AS node_id FROM holds
WHERE kind = :kind AND id = :id AND keeper IN (SELECT id FROM keepers WHERE NOT fenced)

-- name: left_over
SELECT id FROM holds
WHERE kind = :kind AND keeper NOT IN (SELECT id FROM keepers WHERE NOT fenced) ORDER BY id LIMIT :limit

-- name: let_go
DELETE FROM holds WHERE kind = :kind AND id = :id AND keeper = :node_id

-- requests to the owner of a run

-- name: ask_owner
INSERT INTO intents (id, run, kind, body, asked_by, asked_at)
SELECT :id, n, :kind, :body, :asked_by, :clock FROM runs WHERE id = :run_id AND status = 'running'
ON CONFLICT (id) DO NOTHING

-- name: intent
SELECT intents.*, runs.id AS run_id, runs.epoch, runs.status, runs.keeper AS node_id
FROM intents JOIN runs ON runs.n = run WHERE intents.id = :id

-- name: open_intents
SELECT intents.*, runs.id AS run_id, runs.epoch, runs.status, runs.keeper AS node_id
FROM intents JOIN runs ON runs.n = run
WHERE answer IS NULL AND keeper = :node_id AND status = 'running' AND taken < epoch
ORDER BY intents.n

-- name: take_intent
UPDATE intents SET taken = :epoch WHERE id = :id

-- name: answer_intent
UPDATE intents SET answer = :answer WHERE id = :id

-- name: withdraw_intent
DELETE FROM intents WHERE id = :id

-- name: forget_intents
DELETE FROM intents WHERE asked_at < :clock - :seconds AND (answer IS NOT NULL OR NOT EXISTS (
    SELECT 1 FROM runs WHERE runs.n = intents.run AND runs.status = 'running' AND intents.taken < runs.epoch
))

-- name: waiting_sessions
SELECT id FROM sessions
WHERE n IN (SELECT session FROM runs WHERE status = 'queued' AND status <> 'settled')
    AND n NOT IN (SELECT session FROM runs WHERE status = 'running' AND status <> 'settled' AND session IS NOT NULL)
ORDER BY n

-- usage and budgets

-- name: put_charge
INSERT INTO charges (id, owner, key, group_ids, model, keeper, day, started_at, input_tokens, output_tokens, cost,
    held_tokens, held_cost)
VALUES (:id, :owner, :key, :group_ids, :model, :node_id, :day, :started_at, :input_tokens, :output_tokens, :cost,
    :held_tokens, :held_cost)
ON CONFLICT (id) DO UPDATE SET keeper = excluded.keeper, input_tokens = excluded.input_tokens,
    output_tokens = excluded.output_tokens, cost = excluded.cost, held_tokens = excluded.held_tokens,
    held_cost = excluded.held_cost
WHERE charges.settled_at IS NULL

-- name: end_charge
INSERT INTO charges (id, owner, key, group_ids, model, keeper, day, started_at, settled_at, input_tokens,
    output_tokens, cost, runs)
VALUES (:id, :owner, :key, :group_ids, :model, :node_id, :day, :started_at, :settled_at, :input_tokens, :output_tokens,
    :cost, :runs)
ON CONFLICT (id) DO UPDATE SET settled_at = excluded.settled_at, model = excluded.model,
    input_tokens = CASE WHEN excluded.input_tokens > charges.input_tokens THEN excluded.input_tokens
        ELSE charges.input_tokens END,
    output_tokens = CASE WHEN excluded.output_tokens > charges.output_tokens THEN excluded.output_tokens
        ELSE charges.output_tokens END,
    cost = CASE WHEN excluded.cost >= coalesce(charges.cost, 0) THEN excluded.cost ELSE charges.cost END,
    held_tokens = 0, held_cost = 0

-- name: drop_charge
DELETE FROM charges WHERE id = :id AND settled_at IS NULL

-- Tokens and cost count from a day on. Running runs, and requests of the last minute, count independent of their day.
-- name: spent_by_owner
SELECT coalesce(sum(used), 0) AS tokens, coalesce(sum(cost), 0) AS cost, coalesce(sum(held), 0) AS held_tokens,
    coalesce(sum(held_cost), 0) AS held_cost, coalesce(sum(running), 0) AS running, coalesce(sum(recent), 0) AS recent
FROM (
    SELECT input_tokens + output_tokens AS used, cost, input_tokens + output_tokens AS held, cost AS held_cost,
        0 AS running, 0 AS recent
    FROM usage WHERE owner = :id AND day >= :since
    UNION ALL
    SELECT CASE WHEN day >= :since THEN used ELSE 0 END, CASE WHEN day >= :since THEN cost ELSE 0 END,
        CASE WHEN day >= :since THEN held ELSE 0 END, CASE WHEN day >= :since THEN held_cost ELSE 0 END,
        running, CASE WHEN started_at > :recent THEN runs ELSE 0 END
    FROM open_charges WHERE owner = :id AND id <> :besides
        AND (day >= :since OR running = 1 OR started_at > :recent)
) AS every

-- name: spent_by_key
SELECT coalesce(sum(used), 0) AS tokens, coalesce(sum(cost), 0) AS cost, coalesce(sum(held), 0) AS held_tokens,
    coalesce(sum(held_cost), 0) AS held_cost, coalesce(sum(running), 0) AS running, coalesce(sum(recent), 0) AS recent
FROM (
    SELECT input_tokens + output_tokens AS used, cost, input_tokens + output_tokens AS held, cost AS held_cost,
        0 AS running, 0 AS recent
    FROM usage WHERE key = :id AND day >= :since
    UNION ALL
    SELECT CASE WHEN day >= :since THEN used ELSE 0 END, CASE WHEN day >= :since THEN cost ELSE 0 END,
        CASE WHEN day >= :since THEN held ELSE 0 END, CASE WHEN day >= :since THEN held_cost ELSE 0 END,
        running, CASE WHEN started_at > :recent THEN runs ELSE 0 END
    FROM open_charges WHERE key = :id AND id <> :besides
        AND (day >= :since OR running = 1 OR started_at > :recent)
) AS every

-- name: spent_by_group
SELECT coalesce(sum(used), 0) AS tokens, coalesce(sum(cost), 0) AS cost, coalesce(sum(held), 0) AS held_tokens,
    coalesce(sum(held_cost), 0) AS held_cost, coalesce(sum(running), 0) AS running, coalesce(sum(recent), 0) AS recent
FROM (
    SELECT tokens AS used, cost, tokens AS held, cost AS held_cost, 0 AS running, 0 AS recent
    FROM group_usage WHERE group_id = :id AND day >= :since
    UNION ALL
    SELECT CASE WHEN day >= :since THEN used ELSE 0 END, CASE WHEN day >= :since THEN cost ELSE 0 END,
        CASE WHEN day >= :since THEN held ELSE 0 END, CASE WHEN day >= :since THEN held_cost ELSE 0 END,
        running, CASE WHEN started_at > :recent THEN runs ELSE 0 END
    FROM open_charges WHERE group_ids LIKE '% ' || :id || ' %' AND id <> :besides
        AND (day >= :since OR running = 1 OR started_at > :recent)
) AS every

-- Charges of nodes that are fenced or unknown, whose runs no other node will settle. All that they held counts as used.
-- name: end_left_charges
UPDATE charges SET settled_at = :now, cost = CASE WHEN held_cost > coalesce(cost, 0) THEN held_cost ELSE cost END,
    output_tokens = CASE WHEN held_tokens > input_tokens + output_tokens THEN held_tokens - input_tokens
        ELSE output_tokens END,
    held_tokens = 0, held_cost = 0
WHERE settled_at IS NULL AND keeper NOT IN (SELECT id FROM keepers WHERE NOT fenced)
    AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = charges.id AND status <> 'settled')

-- name: charges_to_fold
SELECT * FROM charges WHERE settled_at < :before ORDER BY settled_at LIMIT :limit

-- name: add_usage
INSERT INTO usage (day, owner, key, model, runs, input_tokens, output_tokens, cost) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (day, owner, key, model) DO UPDATE SET runs = usage.runs + excluded.runs,
    input_tokens = usage.input_tokens + excluded.input_tokens,
    output_tokens = usage.output_tokens + excluded.output_tokens, cost = usage.cost + excluded.cost

-- name: add_group_usage
INSERT INTO group_usage (group_id, day, tokens, cost) VALUES (?, ?, ?, ?)
ON CONFLICT (group_id, day) DO UPDATE SET tokens = group_usage.tokens + excluded.tokens,
    cost = group_usage.cost + excluded.cost

-- name: delete_charge
DELETE FROM charges WHERE id = ?

-- name: usage_of_all
SELECT day, owner, key, model, sum(runs) AS runs, sum(input_tokens) AS input_tokens,
    sum(output_tokens) AS output_tokens, sum(cost) AS cost
FROM (
    SELECT day, owner, key, model, runs, input_tokens, output_tokens, cost FROM usage
    WHERE day BETWEEN :since AND :until
    UNION ALL
    SELECT day, owner, key, model, runs, input_tokens, output_tokens, coalesce(cost, 0) FROM charges
    WHERE day BETWEEN :since AND :until
) AS every
GROUP BY day, owner, key, model ORDER BY day DESC, owner, key, model LIMIT :limit

-- name: usage_of_owner
SELECT day, owner, key, model, sum(runs) AS runs, sum(input_tokens) AS input_tokens,
    sum(output_tokens) AS output_tokens, sum(cost) AS cost
FROM (
    SELECT day, owner, key, model, runs, input_tokens, output_tokens, cost FROM usage
    WHERE owner = :owner AND day BETWEEN :since AND :until
    UNION ALL
    SELECT day, owner, key, model, runs, input_tokens, output_tokens, coalesce(cost, 0) FROM charges
    WHERE owner = :owner AND day BETWEEN :since AND :until
) AS every
GROUP BY day, owner, key, model ORDER BY day DESC, owner, key, model LIMIT :limit

-- name: stored_bytes
SELECT coalesce(sum(bytes), 0) AS bytes FROM stored WHERE owner = :owner
