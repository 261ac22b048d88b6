"""The engine: runs, their logs, and how each is settled."""
