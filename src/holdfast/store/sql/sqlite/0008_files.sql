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
