-- Owners: all that something can belong to, but the keys of the settings file. A key refers to its owner.
CREATE TABLE owners (
    id      TEXT PRIMARY KEY,
    account TEXT NOT NULL -- the person; empty for a service
) WITHOUT ROWID;

INSERT INTO owners (id, account)
SELECT json_extract(CAST(body AS TEXT), '$.owner'), id FROM documents WHERE kind = 'account' ORDER BY n
ON CONFLICT DO NOTHING;

UPDATE api_keys SET owner = name WHERE owner = '' AND account = '' AND revoked_at IS NULL;

INSERT INTO owners (id, account)
SELECT owner, '' FROM api_keys WHERE owner <> '' AND account = '' ORDER BY n
ON CONFLICT DO NOTHING;

DELETE FROM documents WHERE kind = 'account_index' AND id LIKE 'owner %';

CREATE INDEX api_keys_by_owner ON api_keys (owner);
