"""The runs of a session: their order, and the watchers of their changes."""
