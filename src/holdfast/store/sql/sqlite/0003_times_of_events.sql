-- When an append was made: what a run's timeline is drawn from. Unix seconds; 0 for what was added before.
ALTER TABLE events ADD COLUMN at REAL NOT NULL DEFAULT 0;
