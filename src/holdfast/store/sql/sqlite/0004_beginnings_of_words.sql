-- Beside its words an entry of the index has their first one, two and three letters, after a dot: whoever types a search
-- asks for those first, and without them every word that begins so would have to be gathered.
CREATE VIRTUAL TABLE said USING fts5vocab (search, instance);

CREATE TABLE beginnings (entry INTEGER PRIMARY KEY, words TEXT NOT NULL);

INSERT INTO beginnings (entry, words)
SELECT doc, group_concat(word, ' ')
FROM (
    SELECT DISTINCT doc, '·' || substr(term, 1, letters.n) AS word
    FROM said JOIN (SELECT 1 AS n UNION SELECT 2 UNION SELECT 3) AS letters ON letters.n <= length(term)
)
GROUP BY doc;

UPDATE search SET words = words || ' ' || (SELECT words FROM beginnings WHERE entry = search.rowid)
WHERE rowid IN (SELECT entry FROM beginnings);

DROP TABLE beginnings;

DROP TABLE said;
