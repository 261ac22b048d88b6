-- Owners: all that something can belong to, but the keys of the settings file. A key refers to its owner.
CREATE TABLE owners (
    id      text COLLATE "C" PRIMARY KEY,
    account text COLLATE "C" NOT NULL -- the person; empty for a service
);

INSERT INTO owners (id, account)
SELECT convert_from(body, 'UTF8')::jsonb ->> 'owner', id FROM documents WHERE kind = 'account' ORDER BY n
ON CONFLICT DO NOTHING;

UPDATE api_keys SET owner = name WHERE owner = '' AND account = '' AND revoked_at IS NULL;

INSERT INTO owners (id, account)
SELECT owner, '' FROM api_keys WHERE owner <> '' AND account = '' ORDER BY n
ON CONFLICT DO NOTHING;

DELETE FROM documents WHERE kind = 'account_index' AND id LIKE 'owner %';

CREATE INDEX api_keys_by_owner ON api_keys (owner);
