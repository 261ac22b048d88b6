"""The life of a run: its source, its log, its settlement, and what bounds it."""
