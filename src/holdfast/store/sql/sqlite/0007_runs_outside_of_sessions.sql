-- Finds the runs that a retention time is over for without reading all of them.

CREATE INDEX runs_outside_sessions ON runs (settled_at) WHERE session IS NULL AND status = 'settled';
