"""The lifecycle of a run: its source, its log, its settlement, and its limits."""
